# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``cam-hccl plan``: the numbers, the exit status, and one clear message for bad input."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import oracle
import pytest
from processes import HEAVY, ROOT, run, write_tripwires

from cam_hccl_plugin.cli import main

SHAPE = ["--hidden-size", "7168", "--topk", "8", "--routed-experts", "256"]
DEPLOYMENT = [
    *("--connector", "CAMAsyncAFDConnector"),
    *("--attention-ranks", "16", "--ffn-ranks", "16"),
    *("--max-num-batched-tokens", "8192"),
]
EXAMPLE = ["plan", *SHAPE, *DEPLOYMENT, "--npus-per-dp-group", "8", "--dynamic-quant", "1"]
CAMP2P = [
    *("plan", "--connector", "CAMP2pAFDConnector", *SHAPE),
    *("--attention-ranks", "48", "--ffn-ranks", "16"),
    *("--max-num-batched-tokens", "28", "--ffn-max-num-batched-tokens", "84"),
]


class Command:
    """Runs ``main`` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        try:
            status = main(list(arguments))
        except SystemExit as done:
            status = int(done.code or 0)
        found = self._capsys.readouterr()
        return status, found.out, found.err

    def text(self, *arguments: str) -> str:
        status, out, err = self(*arguments)
        assert (status, err) == (0, "")
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))

    def refused(self, *arguments: str) -> str:
        """The one message of a refusal."""
        status, out, err = self(*arguments)
        assert status == 2
        assert out == ""
        assert "Traceback" not in err
        (message,) = [line for line in err.splitlines() if "error: " in line]
        return message


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def replaced(arguments: list[str], option: str, value: str | None) -> list[str]:
    """``arguments`` with another value of ``option``, without it if ``None``."""
    at = arguments.index(option)
    return [*arguments[:at], *([option, value] if value is not None else []), *arguments[at + 2 :]]


class TestExample:
    def test_it_prints_both_roles(self, command: Command) -> None:
        text = command.text(*EXAMPLE)
        for words in ("Attention", "FFN", "139 MB", "107 MB", "113 MB", "112.79 MiB"):
            assert words in text
        for words in ("278 MB", "226 MB", "afd_async_cam 139", "afd_async_cam 113", "118263840"):
            assert words in text
        assert "operator floor: the published requirement gives 107 MB" in text
        assert "GB" not in text

    def test_its_json(self, command: Command) -> None:
        found = command.json(*EXAMPLE)
        assert found["connector"] == "CAMAsyncAFDConnector"
        attention, ffn = found["roles"]["attention"], found["roles"]["ffn"]
        wanted = ("published_mb", "operator_bytes", "selected_mb", "groups", "device_memory_mb")
        assert [attention[key] for key in wanted] == [
            139,
            132175936,
            139,
            {"afd_async_cam": 139},
            278,
        ]
        assert [ffn[key] for key in wanted] == [107, 118263840, 113, {"afd_async_cam": 113}, 226]

    def test_the_memory_guard_and_the_savings(self, command: Command) -> None:
        guard = ["--device-memory-gib", "64", "--gpu-memory-utilization", "0.9"]
        text = command.text(*EXAMPLE, *guard, "--hccl-buffsize", "4096")
        assert "memory guard" in text
        assert "ok" in text
        assert "HCCL_BUFFSIZE=4096" in text
        assert "7914 MB" in text  # 2 x 4096 - 278
        assert "7966 MB" in text  # 2 x 4096 - 226

    def test_it_is_quick_to_understand_in_help(self, command: Command) -> None:
        text = command.text("plan", "--help")
        names = (
            "connector model hidden-size topk routed-experts attention-ranks ffn-ranks",
            "max-num-batched-tokens ffn-max-num-batched-tokens npus-per-dp-group",
            "attn-ranks-per-dp num-ubatches dynamic-quant sizing headroom scope",
            "device-memory-gib gpu-memory-utilization hccl-buffsize json strict",
        )
        for name in " ".join(names).split(" "):
            assert f"--{name}" in text


@pytest.mark.parametrize("case", oracle.CASES, ids=lambda case: str(case["id"]))
def test_the_cases_of_real_launch_commands(case: dict[str, Any], command: Command) -> None:
    arguments = [
        *("plan", "--connector", case["connector"]),
        *("--hidden-size", str(case["hidden_size"]), "--topk", str(case["topk"])),
        *("--routed-experts", str(case["routed_experts"])),
        *("--attention-ranks", str(case["num_attention_ranks"])),
        *("--ffn-ranks", str(case["num_ffn_ranks"])),
        *("--max-num-batched-tokens", str(case["max_num_batched_tokens"]["attention"])),
        *("--ffn-max-num-batched-tokens", str(case["max_num_batched_tokens"]["ffn"])),
        *("--npus-per-dp-group", str(case["attention_npus_per_dp_group"])),
        *("--dynamic-quant", str(case["dynamic_quant"])),
    ]
    found = command.json(*arguments)
    assert found["connector"] == case["connector"]
    for role in ("attention", "ffn"):
        got = found["roles"][role]
        expected = {key: value[role] for key, value in case["expected"].items()}
        assert got["published_mb"] == expected["published_mb"]
        assert got["operator_bytes"] == expected["operator_bytes"]
        assert got["selected_mb"] == expected["auto_mb"]
        assert set(got["groups"].values()) == {expected["auto_mb"]}
        assert got["device_memory_mb"] == 2 * sum(got["groups"].values())
    for sizing, key in (("published", "published_mb"), ("operator", "operator_bytes")):
        found = command.json(*arguments, "--sizing", sizing)
        for role in ("attention", "ffn"):
            value = case["expected"][key][role]
            size = value if sizing == "published" else oracle.mib(value, "1.1")
            assert found["roles"][role]["selected_mb"] == size


class TestGroups:
    def test_camp2p_lists_one_group_per_ubatch_and_afd_moe(self, command: Command) -> None:
        found = command.json(*CAMP2P, "--num-ubatches", "2")["roles"]
        assert found["attention"]["groups"] == {"afd": 4, "afd1": 4}
        assert found["ffn"]["groups"] == {"afd": 52, "afd1": 52, "afd_moe": 52}
        assert found["ffn"]["device_memory_mb"] == 312

    def test_npus_per_dp_group_never_divides_the_camp2p_ffn_size(self, command: Command) -> None:
        for n in ("1", "2", "28"):
            found = command.json(*CAMP2P, "--npus-per-dp-group", n)["roles"]
            assert found["ffn"]["published_mb"] == 52
            assert found["ffn"]["selected_mb"] == 52
        assert found["attention"]["published_mb"] == 1

    def test_without_a_value_of_its_own_ffn_has_attentions_tokens(self, command: Command) -> None:
        found = command.json(*replaced(CAMP2P, "--ffn-max-num-batched-tokens", None))["roles"]
        assert found["ffn"]["max_num_batched_tokens"] == 28

    def test_attn_ranks_per_dp_is_npus_per_dp_group_unless_given(self, command: Command) -> None:
        default = command.json(*EXAMPLE)["roles"]["ffn"]
        same = command.json(*EXAMPLE, "--attn-ranks-per-dp", "8")["roles"]["ffn"]
        assert default == same
        other = command.json(*EXAMPLE, "--attn-ranks-per-dp", "4")
        assert other["roles"]["ffn"]["published_mb"] == 107
        assert other["roles"]["ffn"]["operator_bytes"] > default["operator_bytes"]
        assert any("disagree" in warning for warning in other["warnings"])

    def test_scope_group_prints_the_value_to_set(self, command: Command) -> None:
        found = command.json(*EXAMPLE, "--scope", "group")["roles"]
        assert found["attention"]["groups"] == found["ffn"]["groups"] == {"afd_async_cam": 139}
        found = command.json(*CAMP2P, "--scope", "group")["roles"]
        assert found["attention"]["groups"] == {"afd": 52}
        assert found["ffn"]["groups"] == {"afd": 52, "afd_moe": 52}
        assert "afd 52" in command.text(*CAMP2P, "--scope", "group")

    def test_another_cam_class_has_published_sizes(self, command: Command) -> None:
        found = command.json(*replaced(EXAMPLE, "--connector", "CAMOther"))["roles"]
        assert found["attention"]["selected_mb"] == 139
        assert found["attention"]["operator_bytes"] is None
        assert "unknown" in command.text(*replaced(EXAMPLE, "--connector", "CAMOther"))

    def test_headroom(self, command: Command) -> None:
        found = command.json(*EXAMPLE, "--headroom", "1")["roles"]
        assert found["attention"]["published_mb"] == 126
        assert found["attention"]["selected_mb"] == 127


class TestGuard:
    GUARD = ("--device-memory-gib", "1", "--gpu-memory-utilization", "0.9")

    def test_short_memory_warns_with_the_numbers(self, command: Command) -> None:
        status, text, _ = command(*EXAMPLE, *self.GUARD)
        assert status == 0
        assert "short" in text
        # 102.4 outside; 2.5 x 139 = 347.5; 2 x 139 = 278; 1 - 347.5/1024 = 0.66
        for words in ("102.4 MiB", "347.5 MiB", "278 MiB", "0.66 would do"):
            assert words in text

    def test_strict_makes_a_warning_status_3(self, command: Command) -> None:
        status, text, err = command(*EXAMPLE, *self.GUARD, "--strict")
        assert status == 3
        assert "memory guard" in text
        assert err == ""
        status, text, _ = command(*EXAMPLE, *self.GUARD, "--strict", "--json")
        assert status == 3
        assert json.loads(text)["roles"]["ffn"]["memory_guard"]["short"] is True

    def test_strict_without_a_warning_is_0(self, command: Command) -> None:
        assert command(*EXAMPLE, "--device-memory-gib", "64", "--strict")[0] == 0

    def test_strict_minds_an_operator_limit(self, command: Command) -> None:
        odd = replaced(EXAMPLE, "--attention-ranks", "12")
        assert command(*odd)[0] == 0
        status, text, _ = command(*odd, "--strict")
        assert status == 3
        assert "multiple of attn_ranks_per_dp" in text

    def test_groups_that_cannot_fit_are_bad_input(self, command: Command) -> None:
        assert "278 MiB" in command.refused(*EXAMPLE, "--device-memory-gib", "0.2")

    def test_ratio_zero_leaves_the_second_half(self, command: Command) -> None:
        found = command.json(*EXAMPLE, *self.GUARD, "--memory-guard-ratio", "0")
        guard = found["roles"]["ffn"]["memory_guard"]
        assert guard["ratio_need_mb"] == 0
        assert guard["groups_need_mb"] == 226


class TestModel:
    CONFIG: dict[str, Any] = {  # noqa: RUF012 - read only
        "hidden_size": 7168,
        "num_experts_per_tok": 8,
        "n_routed_experts": 256,
    }
    REST = ("plan", *DEPLOYMENT, "--npus-per-dp-group", "8", "--dynamic-quant", "1")

    @pytest.fixture
    def write(self, tmp_path: Path) -> Callable[[Any], Path]:
        def write(config: Any) -> Path:
            file = tmp_path / "config.json"
            text = config if isinstance(config, str) else json.dumps(config)
            file.write_text(text, encoding="utf-8")
            return file

        return write

    def test_a_file_and_its_directory_are_the_same_as_the_three_numbers(
        self, command: Command, write: Any
    ) -> None:
        file = write(self.CONFIG)
        expected = command.json(*EXAMPLE)
        assert command.json(*self.REST, "--model", str(file)) == expected
        assert command.json(*self.REST, "--model", str(file.parent)) == expected

    def test_a_nested_text_config(self, command: Command, write: Any) -> None:
        file = write({"model_type": "vl", "hidden_size": 1, "text_config": self.CONFIG})
        assert command.json(*self.REST, "--model", str(file)) == command.json(*EXAMPLE)

    @pytest.mark.parametrize(
        ("config", "words"),
        [
            ("{}", ["hidden_size is missing", "topk is missing", "routed_experts is missing"]),
            ({"hidden_size": 4096, "intermediate_size": 1}, ["topk is missing", "MoE"]),
            ({**CONFIG, "hidden_size": 0}, ["hidden_size is 0", "positive integer"]),
            ({**CONFIG, "hidden_size": -1}, ["hidden_size is -1"]),
            ({**CONFIG, "hidden_size": 1.5}, ["hidden_size is 1.5"]),
            ({**CONFIG, "num_experts_per_tok": "8"}, ["num_experts_per_tok is '8'"]),
            ({**CONFIG, "n_routed_experts": None}, ["routed_experts is missing"]),
            ("[]", ["no JSON object"]),
            ("null", ["no JSON object"]),
            ("", ["cannot read"]),
            ("not json", ["cannot read"]),
            ("[" * 100_000, ["cannot read"]),
            ('{"text_config": ' * 900 + "1" + "}" * 900, []),
            ('{"text_config": ' * 20_000 + "1" + "}" * 20_000, []),
        ],
    )
    def test_a_bad_config_is_one_message_that_names_the_file(
        self, command: Command, write: Any, config: Any, words: list[str]
    ) -> None:
        file = write(config)
        message = command.refused(*self.REST, "--model", str(file))
        for word in (*words, str(file), "--hidden-size"):
            assert word in message

    @pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
    def test_a_device_is_no_config(self, command: Command, device: str) -> None:
        assert f"cannot read '{device}'" in command.refused(*self.REST, "--model", device)

    def test_numbers_that_no_model_has(self, command: Command, write: Any) -> None:
        file = write({**self.CONFIG, "hidden_size": 10**4000})
        message = command.refused(*self.REST, "--model", str(file))
        assert "--hidden-size is too large" in message
        assert len(message) < 500

    def test_bytes_that_are_no_text(self, command: Command, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
        assert "cannot read" in command.refused(*self.REST, "--model", str(tmp_path))

    def test_a_path_that_is_not_there(self, command: Command, tmp_path: Path) -> None:
        missing = str(tmp_path / "nowhere")
        assert missing in command.refused(*self.REST, "--model", missing)
        assert "config.json" in command.refused(*self.REST, "--model", str(tmp_path))

    def test_model_and_numbers_exclude_each_other(self, command: Command, write: Any) -> None:
        file = write(self.CONFIG)
        message = command.refused(*self.REST, "--model", str(file), "--topk", "8")
        assert "--topk" in message
        assert "--model" in message

    @pytest.mark.parametrize("option", ["--hidden-size", "--topk", "--routed-experts"])
    def test_a_number_that_is_left_out_is_named(self, command: Command, option: str) -> None:
        assert f"{option} missing" in command.refused(*replaced(EXAMPLE, option, None))


INTEGERS = [
    "--hidden-size",
    "--topk",
    "--routed-experts",
    "--attention-ranks",
    "--ffn-ranks",
    "--max-num-batched-tokens",
    "--npus-per-dp-group",
]


class TestBadInput:
    @pytest.mark.parametrize("value", ["0", "-1", "1.5", "8.0", "many", "", "1e3", "nan", "1_0"])
    @pytest.mark.parametrize("option", INTEGERS)
    def test_what_is_no_positive_integer(self, command: Command, option: str, value: str) -> None:
        message = command.refused(*replaced(EXAMPLE, option, value))
        assert option in message
        if not value.startswith("-"):
            assert "positive integer" in message
            assert repr(value) in message

    @pytest.mark.parametrize("value", ["0", "-1", "x", "1.5"])
    @pytest.mark.parametrize(
        "option",
        ["--ffn-max-num-batched-tokens", "--attn-ranks-per-dp", "--num-ubatches"],
    )
    def test_the_optional_integers(self, command: Command, option: str, value: str) -> None:
        assert option in command.refused(*EXAMPLE, option, value)

    @pytest.mark.parametrize(
        ("option", "values"),
        [
            ("--sizing", ["big", "", "Auto"]),
            ("--scope", ["all", ""]),
            ("--headroom", ["0", "0.99", "10.1", "x", "nan", "inf", "11/10", "", "-1"]),
            ("--dynamic-quant", ["2", "true", "", "-1", "0.0"]),
            ("--device-memory-gib", ["0", "-1", "x", "nan", "inf", "1e999", "1e999999999"]),
            ("--gpu-memory-utilization", ["0", "1.01", "-0.1", "x", "nan"]),
            ("--memory-guard-ratio", ["-1", "x", "nan", "inf", "1e-999999999x"]),
            ("--hccl-buffsize", ["0", "-1", "x", "4096.5", "4294967295"]),
        ],
    )
    def test_the_other_options(self, command: Command, option: str, values: list[str]) -> None:
        for value in values:
            assert option in command.refused(*EXAMPLE, option, value)

    @pytest.mark.parametrize("option", [*INTEGERS[3:6], "--connector"])
    def test_a_required_option_that_is_left_out(self, command: Command, option: str) -> None:
        assert option in command.refused(*replaced(EXAMPLE, option, None))

    @pytest.mark.parametrize("word", ["vllm", "attention.sh", "x" * 500])
    def test_a_command_without_the_two_dashes(self, command: Command, word: str) -> None:
        message = command.refused("plan", word, "serve", "/m")
        assert "cam-hccl plan -- vllm serve MODEL" in message
        assert "DRY_RUN=1 bash script | cam-hccl plan -" in message
        assert "x" * 100 not in message

    @pytest.mark.parametrize(
        ("option", "allowed"),
        [
            ("--device-memory-gib", "allowed is a number above 0"),
            ("--gpu-memory-utilization", "allowed is a number above 0, up to 1"),
            ("--memory-guard-ratio", "allowed is a number, 0 or more"),
        ],
    )
    def test_what_is_allowed_is_said_as_it_is(
        self, command: Command, option: str, allowed: str
    ) -> None:
        for value in ("-1", "x"):
            assert allowed in command.refused(*EXAMPLE, option, value)
        status, _, err = command(*EXAMPLE, option, "0")
        assert (status == 2) == ("above" in allowed)
        assert (allowed in err) == (status == 2)

    @pytest.mark.parametrize("ubatches", ["1025", str(10**12)])
    def test_absurdly_many_ubatches(self, command: Command, ubatches: str) -> None:
        for connector in ("CAMAsyncAFDConnector", "CAMP2pAFDConnector"):
            arguments = replaced(EXAMPLE, "--connector", connector)
            message = command.refused(*arguments, "--num-ubatches", ubatches)
            assert "--num-ubatches" in message
            assert "1 to 1024" in message

    def test_more_experts_per_token_than_experts(self, command: Command) -> None:
        exchanged = replaced(replaced(EXAMPLE, "--topk", "256"), "--routed-experts", "8")
        message = command.refused(*exchanged)
        assert "256 experts per token of only 8 routed experts" in message
        assert "--topk and --routed-experts exchanged?" in message

    def test_an_error_is_one_line_whatever_is_in_it(self, command: Command) -> None:
        message = command.refused(*replaced(EXAMPLE, "--connector", "a\nb\x1b[31m"))
        assert "\n" not in message.strip()
        assert "a\\nb\\x1b[31m is not CAM-type" in message

    def test_options_that_say_nothing_without_the_dies_memory(self, command: Command) -> None:
        notes = command.json(*EXAMPLE, "--gpu-memory-utilization", "0.9")["notes"]
        assert notes == ["--gpu-memory-utilization has no effect without --device-memory-gib"]
        assert command.json(*EXAMPLE)["notes"] == []

    @pytest.mark.parametrize("name", ["P2pNcclAFDConnector", "", "cam", "Other"])
    def test_a_connector_that_is_not_cam_type(self, command: Command, name: str) -> None:
        message = command.refused(*replaced(EXAMPLE, "--connector", name))
        for words in ("--connector", "CAMAsyncAFDConnector", "CAMP2pAFDConnector", "not CAM-type"):
            assert words in message

    def test_async_with_two_token_counts(self, command: Command) -> None:
        message = command.refused(*EXAMPLE, "--ffn-max-num-batched-tokens", "4096")
        assert "4096" in message
        assert "8192" in message

    def test_sizing_operator_where_it_is_not_known(self, command: Command) -> None:
        other = replaced(EXAMPLE, "--connector", "CAMOther")
        assert "operator" in command.refused(*other, "--sizing", "operator")

    @pytest.mark.parametrize("option", INTEGERS)
    @pytest.mark.parametrize("digits", [30, 400, 5000])
    def test_absurdly_large_numbers_are_no_traceback(
        self, command: Command, option: str, digits: int
    ) -> None:
        for sizing in ("auto", "published"):
            arguments = replaced(EXAMPLE, option, "9" * digits)
            status, _, err = command(*arguments, "--sizing", sizing)
            assert status in (0, 2)
            assert "Traceback" not in err

    def test_absurdly_large_ratios_are_no_traceback(self, command: Command) -> None:
        large = ("--device-memory-gib", "1e308", "--memory-guard-ratio", "1.5e308")
        for form in ([], ["--json"]):
            status, _, err = command(*EXAMPLE, *large, *form)
            assert (status, err) == (0, "")

    def test_no_command_and_an_unknown_one(self, command: Command) -> None:
        assert "COMMAND" in command.refused()
        assert "plot" in command.refused("plot")


class TestProcess:
    @pytest.mark.parametrize("more", [[], ["--json"]])
    def test_neither_torch_nor_vllm_is_imported(self, tmp_path: Path, more: list[str]) -> None:
        code = f"""
import sys
from cam_hccl_plugin.cli import main
status = main({[*EXAMPLE, *more]!r})
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
sys.exit(status)
"""
        done = run("-c", code, path=(write_tripwires(tmp_path),))
        assert done.returncode == 0
        assert done.stderr == "[]\n"
        assert "139" in done.stdout

    def test_the_module_runs_as_a_program(self) -> None:
        done = run("-m", "cam_hccl_plugin", *EXAMPLE, "--json")
        assert done.returncode == 0
        assert json.loads(done.stdout)["roles"]["ffn"]["selected_mb"] == 113

    def test_bad_input_is_status_2_without_a_traceback(self) -> None:
        for arguments in ([*EXAMPLE, "--topk", "0"], replaced(EXAMPLE, "--topk", None)):
            done = run("-m", "cam_hccl_plugin", *arguments)
            assert done.returncode == 2
            assert done.stdout == ""
            assert "Traceback" not in done.stderr
            assert done.stderr.count("error: ") == 1

    @pytest.mark.parametrize("words", [EXAMPLE, ("doctor",), ("--help",), ("plan", "--help")])
    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_a_reader_that_is_gone_is_no_error(
        self, words: tuple[str, ...], unbuffered: str
    ) -> None:
        assert self.into("{CAM_HCCL} | true", words, unbuffered) == (0, "")

    @pytest.mark.parametrize("words", [EXAMPLE, (*EXAMPLE, "--json"), ("doctor",)])
    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_a_full_disk_is_one_line(self, words: tuple[str, ...], unbuffered: str) -> None:
        status, err = self.into("{CAM_HCCL} > /dev/full", words, unbuffered)
        assert status == 2
        assert err.startswith("cam-hccl: error: the output cannot be written: ")
        assert err.count("\n") == 1

    def test_no_stdout_at_all(self) -> None:
        assert self.into("{CAM_HCCL} >&-", EXAMPLE, "") == (0, "")

    def into(self, line: str, words: tuple[str, ...], unbuffered: str) -> tuple[int, str]:
        """Status and stderr of the command in a shell line; the status of a pipe's first part."""
        program = shlex.join([sys.executable, "-m", "cam_hccl_plugin", *words])
        script = f"set -o pipefail; {line.format(CAM_HCCL=program)}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(
            ["bash", "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stderr

    @pytest.mark.parametrize("more", [[], ["--json"], ["--format", "flag"]])
    def test_a_terminal_that_lacks_a_letter(self, more: list[str]) -> None:
        words = replaced(EXAMPLE, "--connector", "CAM\u00e9\udcff")
        done = run("-m", "cam_hccl_plugin", *words, *more, env={"PYTHONIOENCODING": "ascii"})
        assert (done.returncode, done.stderr) == (0, "")
        done = run("-m", "cam_hccl_plugin", *replaced(words, "--connector", "\u00e9"))
        assert (done.returncode, done.stdout) == (2, "")

    def test_the_version(self) -> None:
        done = run("-m", "cam_hccl_plugin", "--version")
        assert done.stdout.startswith("cam-hccl 0.")
