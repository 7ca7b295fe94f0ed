# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``cam-hccl plan`` from vllm serve commands, read without vLLM."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from cam_hccl_plugin.cli import main

SHAPE = ["--model-shape", "deepseek-v3.2"]
EXTRA = {"dynamicQuant": 1, "attn_ranks_per_dp": 8}
PLUGINS = "VLLM_PLUGINS"


def afd(role: str, **changed: Any) -> dict[str, Any]:
    """An ``afd`` object; a value of ``None`` leaves the key out."""
    section = {
        "role": role,
        "connector": "CAMAsyncAFDConnector",
        "host": "10.0.0.1",
        "port": 1239,
        "num_attention_ranks": 16,
        "num_ffn_ranks": 16,
        "connector_extra_config": EXTRA,
        **changed,
    }
    return {key: value for key, value in section.items() if value is not None}


def serve(
    role: str = "attention",
    *more: str,
    flag: Any = (),
    tokens: str = "8192",
    section: dict[str, Any] | None = None,
    parallel: str = "",
    front: str = "",
    **changed: Any,
) -> str:
    """A command as one shell line; ``flag`` ``None`` leaves cam_hccl out."""
    config: dict[str, Any] = {"afd": section or afd(role, **changed)}
    if flag is not None:
        config["cam_hccl"] = dict(flag)
    parallel = parallel or ("-tp 8 -dp 2" if role == "attention" else "-dp=16")
    words = ["vllm", "serve", "/m", "--max-num-batched-tokens", tokens, *parallel.split(), *more]
    words += ["--additional-config", json.dumps(config)]
    return f"{front} {shlex.join(words)}".strip()


def camp2p(role: str, tokens: str, **changed: Any) -> str:
    counts = {"num_attention_ranks": 48, "num_ffn_ranks": 16, "connector_extra_config": None}
    section = afd(role, connector="CAMP2pAFDConnector", **{**counts, **changed})
    parallel = "-dp 48" if role == "attention" else "-dp 16"
    return serve(role, "--enable-dbo", tokens=tokens, section=section, parallel=parallel)


class Plan:
    """Runs ``cam-hccl plan`` on commands."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def run(self, *lines: str, options: Any = SHAPE) -> tuple[int, str, str]:
        """The commands on stdin."""
        self._monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
        status = main(["plan", "-", "--parser", "own", *options])
        found = self._capsys.readouterr()
        assert "Traceback" not in found.err
        return status, found.out, found.err

    def text(self, *lines: str, options: Any = SHAPE) -> str:
        status, out, err = self.run(*lines, options=options)
        assert (status, err) == (0, "")
        return out

    def json(self, *lines: str, options: Any = SHAPE) -> Any:
        return json.loads(self.text(*lines, options=[*options, "--json"]))

    def refused(self, *lines: str, options: Any = SHAPE) -> str:
        status, out, err = self.run(*lines, options=options)
        assert (status, out) == (2, "")
        assert err.count("\n") == 1
        return err


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plan:
    return Plan(capsys, monkeypatch)


def selected(found: Any) -> dict[str, int]:
    return {role: each["selected_mb"] for role, each in found["roles"].items()}


class TestBothRoles:
    def test_async_is_the_worked_example(self, plan: Plan) -> None:
        found = plan.json(serve(), serve("ffn"))
        assert selected(found) == {"attention": 139, "ffn": 113}
        assert found["warnings"] == []

    def test_camp2p_with_dbo(self, plan: Plan) -> None:
        found = plan.json(camp2p("attention", "28"), camp2p("ffn", "84"))
        assert found["roles"]["attention"]["groups"] == {"afd": 4, "afd1": 4}
        assert found["roles"]["ffn"]["groups"] == {"afd": 52, "afd1": 52, "afd_moe": 52}
        assert found["warnings"] == found["notes"] == []

    def test_the_order_and_further_nodes_do_not_matter(self, plan: Plan) -> None:
        found = plan.json(serve("ffn"), serve(), serve())
        assert list(found["roles"]) == ["attention", "ffn"]

    def test_another_ffn_batch_of_camp2p_is_a_hint(self, plan: Plan) -> None:
        found = plan.json(camp2p("attention", "28"), camp2p("ffn", "42"))
        assert "max_num_batched_tokens 42; usual is 48 Attention ranks x 28" in found["notes"][0]
        assert "= 84" in found["notes"][0]

    @pytest.mark.parametrize(
        ("other", "named"),
        [
            (serve("ffn", num_attention_ranks=24), "num_attention_ranks is 16"),
            (serve("ffn", num_ffn_ranks=8), "num_ffn_ranks is 16"),
            (serve("ffn", tokens="4096"), "max_num_batched_tokens is 8192"),
            (serve("ffn", port=1240), "port is 1239"),
            (serve("ffn", connector="CAMP2pAFDConnector"), "connector is CAMAsync"),
            (
                serve("ffn", connector_extra_config={**EXTRA, "dynamicQuant": 0}),
                "dynamic_quant is 1",
            ),
            (
                serve("ffn", connector_extra_config={"dynamicQuant": 1}),
                "attn_ranks_per_dp is 8",
            ),
            (serve("ffn", flag={"scope": "group"}), "scope is role"),
            (serve(tokens="4096"), "max_num_batched_tokens is 8192"),
            (serve(flag={"headroom": 2}), "cam_hccl differs"),
        ],
    )
    def test_a_contradiction_is_named(self, plan: Plan, other: str, named: str) -> None:
        message = plan.refused(serve(), other)
        assert named in message
        assert "command 1 (attention)" in message
        assert "command 2" in message

    def test_all_contradictions_are_listed(self, plan: Plan) -> None:
        message = plan.refused(serve(), serve("ffn", port=1, num_ffn_ranks=8, tokens="1"))
        for name in ("port", "num_ffn_ranks", "max_num_batched_tokens"):
            assert f"{name} is" in message

    def test_camp2p_ubatches_must_agree(self, plan: Plan) -> None:
        ffn = camp2p("ffn", "84").replace(" --enable-dbo", "")
        assert "num_ubatches is 2" in plan.refused(camp2p("attention", "28"), ffn)

    def test_another_host_warns(self, plan: Plan) -> None:
        (warning,) = plan.json(serve(), serve("ffn", host="10.0.0.2"))["warnings"]
        assert "afd.host is 10.0.0.1" in warning

    def test_the_flag_on_one_side_only_warns(self, plan: Plan) -> None:
        warnings = plan.json(serve(), serve("ffn", flag=None))["warnings"]
        assert any("only one role uses the plugin; command 2 (ffn)" in w for w in warnings)

    def test_strict_makes_a_warning_count(self, plan: Plan) -> None:
        status, _, _ = plan.run(serve(flag=None), options=[*SHAPE, "--strict"])
        assert status == 3


class TestOneRole:
    @pytest.mark.parametrize("role", ["attention", "ffn"])
    def test_async_plans_the_other_role_too(self, plan: Plan, role: str) -> None:
        found = plan.json(serve(role))
        assert selected(found) == {"attention": 139, "ffn": 113}
        assert "shares" in found["notes"][0]

    def test_camp2p_says_that_the_other_command_is_needed(self, plan: Plan) -> None:
        found = plan.json(camp2p("attention", "28"))
        assert selected(found) == {"attention": 4}
        assert "its own command is needed" in found["notes"][0]
        assert "= 84" in found["notes"][0]
        found = plan.json(camp2p("ffn", "84"))
        assert selected(found) == {"ffn": 52}
        assert "the attention role is not planned" in found["notes"][0]

    def test_scope_group_of_camp2p_is_refused_as_in_a_worker(self, plan: Plan) -> None:
        line = camp2p("attention", "28").replace('"cam_hccl": {}', '"cam_hccl": {"scope": "group"}')
        assert "cannot know the other role's" in plan.refused(line)

    def test_both_commands_do_not_help_a_worker(self, plan: Plan) -> None:
        lines = [camp2p("attention", "28"), camp2p("ffn", "84")]
        flag = '"cam_hccl": {"scope": "group"}'
        lines = [line.replace('"cam_hccl": {}', flag) for line in lines]
        assert "cannot know the other role's" in plan.refused(*lines)

    def test_scope_group_of_async(self, plan: Plan) -> None:
        assert selected(plan.json(serve(flag={"scope": "group"}))) == {"attention": 139, "ffn": 139}


class TestTheFlag:
    @pytest.mark.parametrize(
        ("flag", "sizes"),
        [
            ({"sizing": "published"}, (139, 107)),
            ({"sizing": "operator", "headroom": 1}, (127, 113)),
            ({"headroom": 2}, (252, 193)),
            ({"buffer_size_mb": 300}, (300, 300)),
            ({"buffer_size_mb": {"ffn": 300}}, (139, 300)),
            ({"group_buffer_size_mb": {"afd_async_cam": 400}}, (400, 400)),
            ({"dynamic_quant": 0}, (139, 225)),
            ({"num_npus_per_dp_group": 4}, (278, 213)),
        ],
    )
    def test_it_is_honoured(self, plan: Plan, flag: Any, sizes: tuple[int, int]) -> None:
        found = plan.json(serve(flag=flag), serve("ffn", flag=flag))
        assert tuple(selected(found).values()) == sizes

    def test_an_explicit_size_of_the_connector_wins(self, plan: Plan) -> None:
        extra = {**EXTRA, "hccl_buffer_size": 500}
        assert selected(plan.json(serve(connector_extra_config=extra)))["attention"] == 500

    def test_a_group_left_alone_gets_the_environment(self, plan: Plan) -> None:
        flag = {"group_buffer_size_mb": {"afd_async_cam": None}}
        assert selected(plan.json(serve(flag=flag)))["attention"] == 200
        line = serve(flag=flag, front="HCCL_BUFFSIZE=4096")
        assert selected(plan.json(line))["attention"] == 4096

    def test_without_it_a_warning(self, plan: Plan) -> None:
        (warning,) = plan.json(serve(flag=None))["warnings"]
        assert "cam_hccl is not in the command" in warning
        (warning,) = plan.json(serve(flag={"enabled": False}))["warnings"]
        assert "cam_hccl is switched off" in warning

    def test_beside_a_kv_connector(self, plan: Plan) -> None:
        transfer = {
            "kv_connector": "X",
            "kv_connector_extra_config": {"cam_hccl": {"sizing": "published"}},
        }
        line = serve("attention", "--kv-transfer-config", json.dumps(transfer), flag=None)
        assert selected(plan.json(line))["ffn"] == 107

    @pytest.mark.parametrize(
        ("transfer", "named"),
        [
            ({"kv_connector_extra_config": {"cam_hccl": {}}}, "holds cam_hccl but names no kv_con"),
            ({"kv_role": "kv_both"}, "names no kv_connector"),
            ({"kv_connector": "X", "cam_hccl": {}}, "at the top of --kv-transfer-config"),
            (
                {"kv_connector": "X", "kv_connector_extra_config": {"cam_hccl": {"headroom": 2}}},
                "twice with different content",
            ),
        ],
    )
    def test_where_nothing_reads_it(self, plan: Plan, transfer: Any, named: str) -> None:
        line = serve("attention", "--kv-transfer-config", json.dumps(transfer))
        assert named in plan.refused(line)

    def test_inside_afd(self, plan: Plan) -> None:
        assert "inside afd," in plan.refused(serve(cam_hccl={}))
        extra = {**EXTRA, "cam_hccl": {}}
        assert "inside afd.connector_extra" in plan.refused(serve(connector_extra_config=extra))

    def test_a_wrong_one_lists_its_problems(self, plan: Plan) -> None:
        message = plan.refused(serve(flag={"headrom": 2, "scope": 1}))
        assert "2 problems" in message
        assert "did you mean headroom?" in message


class TestUnclear:
    @pytest.mark.parametrize(
        ("line", "named"),
        [
            (serve() + " --config a.yaml", "YAML"),
            (serve() + " --additional-config.cam_hccl.headroom 1.2", "both as JSON and dotted"),
            (serve() + " --additional_config='{}'", "2 times"),
            (serve() + " --tensor-par 4", "abbreviation"),
            (serve() + " --max-num-batched-tokens", "has no value"),
            (serve(tokens="many"), "given 'many'"),
            (serve(tokens="8.5"), "given '8.5'"),
            (serve(host="$AFD_HOST"), "holds a shell variable"),
            (serve() + " --gpu-memory-utilization 1.5", "above 0, up to 1"),
            ("vllm serve /m --additional-config '{'", "is no JSON"),
            ("vllm serve /m --additional-config '[]'", "wanted is an object"),
            ("vllm serve /m --additional-config '{}'", "no afd object"),
            ("vllm serve /m", "no afd object"),
            (serve().replace("--max-num-batched-tokens 8192", ""), "--max-num-batched-tokens is m"),
            (serve(num_ffn_ranks=None, connector=None), "lacks connector, num_ffn_ranks"),
            (serve("both"), 'allowed are "attention" and "ffn"'),
            (serve(num_ffn_ranks=0), "positive integer"),
            (serve(num_ffn_ranks="many"), "wanted is an integer"),
            (serve(connector="P2pNcclAFDConnector"), "is not CAM-type"),
            (serve(connector_extra_config={"dynamicQuant": 2}), "dynamicQuant is 2"),
            (serve("attention", "--additional-conf", "{}"), "gives --additional-config 2 times"),
            (serve("attention", "--additional-c.cam_hccl.headroom=2"), "both as JSON and dotted"),
            (serve(host=["x"]), "afd.host is"),
            (serve(host=""), "afd.host is"),
            (serve(port=70000), "afd.port is 70000, allowed is an integer from 1 to 65535"),
            (serve(connector_extra_config={"dynamicQuant": True}), "dynamicQuant is true"),
            (serve(parallel="-tp 0 -dp 2"), "--tensor-parallel-size: given 0"),
            (serve(parallel="-tp 8 -dp 0"), "--data-parallel-size: given 0"),
            (serve(parallel="-tp8 -dp 2"), "-tp8: vLLM wants a blank before the number"),
            (serve("attention", "--ubatch-size", "999999999999"), "allowed are 1 to 1024"),
            ("-tp 8 --max-num-batched-tokens 8192", "the line before must end with a backslash"),
            ("ls -l", "no vllm serve in it; leave this line out"),
            ("vllm bench", "no vllm serve in it"),
            ("env -i vllm serve /m", "env -i"),
            ("", "stdin holds no command"),
        ],
    )
    def test_it_is_an_error_with_a_remedy(self, plan: Plan, line: str, named: str) -> None:
        assert named in plan.refused(line)

    @pytest.mark.parametrize("option", [("--connector", "X"), ("--headroom", "2")])
    def test_an_option_that_the_command_states(self, plan: Plan, option: tuple[str, str]) -> None:
        message = plan.refused(serve(), options=[*SHAPE, *option])
        assert f"{option[0]}: with a command this comes from the command" in message

    def test_another_utilization_than_the_commands(self, plan: Plan) -> None:
        line = serve("attention", "--gpu-memory-utilization", "0.9")
        assert "says 0.9" in plan.refused(line, options=[*SHAPE, "--gpu-memory-utilization", "0.8"])
        assert plan.text(line, options=[*SHAPE, "--gpu-memory-utilization", "0.90"])


class TestForms:
    """Spellings of a command that mean the same."""

    @pytest.mark.parametrize(
        "line",
        [
            serve(),
            serve(front="VLLM_PLUGINS=ascend,afd,cam_hccl OMP_NUM_THREADS=1"),
            serve(front="exec env A=B C='D E'"),
            serve(front="nohup") + " &",
            serve().replace("vllm serve", "/opt/bin/vllm serve"),
            serve().replace("vllm serve", "python3 -m vllm.entrypoints.cli.main serve"),
            serve().replace(
                "vllm serve /m", "python -m vllm.entrypoints.openai.api_server --model=/m"
            ),
            serve(tokens="8K"),
            serve(tokens="8.192k"),
            serve().replace("--max-num-batched-tokens ", "--max_num_batched_tokens="),
            serve().replace("-tp 8", "--tensor-parallel-size=4 --tensor_parallel_size 8"),
            serve().replace("-tp 8", "-tp=4 --prefill-context-parallel-size 2"),
            serve().replace(" --", " \\\n  --"),
            "\ufeff" + serve(),
            serve() + " > attention.log 2>&1 &",
            serve() + " 2>&1 | tee attention.log",
            serve("attention", "--gpu-memory-utilization", "9e-1"),
            "# comment\nexport OMP_NUM_THREADS=1\nA=B\n" + serve(),
        ],
    )
    def test_it_is_read(self, plan: Plan, line: str) -> None:
        assert selected(plan.json(line)) == {"attention": 139, "ffn": 113}

    @pytest.mark.parametrize(
        ("plain", "pasted", "shown"),
        [
            ("-dp 2", "\u2014data-parallel-size 2", "\\u2014data"),
            (" -dp", " \u200b-dp", "\\u200b-dp"),
            (" -dp", "\u00a0-dp", "8\\xa0-dp"),
            ("-dp 2", "-dp 2\u00a0", "2\\xa0"),
            ("--max", "\u2013-max", "\\u2013-max"),
            ("'{", "\u2018'{", "\\u2018{"),
        ],
    )
    def test_characters_of_a_document_are_named(
        self, plan: Plan, plain: str, pasted: str, shown: str
    ) -> None:
        message = plan.refused(serve().replace(plain, pasted))
        assert shown in message
        assert "type it again" in message

    def test_a_name_beyond_ascii_is_none_of_these(self, plan: Plan) -> None:
        name = "m\u00f6del \u2014 \u2018neu\u2019"
        line = serve("attention", "--served-model-name", name)
        assert selected(plan.json(line))["attention"] == 139

    def test_dotted_alone(self, plan: Plan) -> None:
        pairs = {f"afd.{key}": value for key, value in afd("attention").items()}
        pairs["afd.connector_extra_config"] = json.dumps(EXTRA)
        dotted = [f"--additional-config.{key}={value}" for key, value in pairs.items()]
        dotted += ["--additional_config.cam_hccl.headroom", "2"]
        head = "vllm serve /m --max-num-batched-tokens 8192 -tp 8 -dp 2"
        assert selected(plan.json(f"{head} {shlex.join(dotted)}"))["attention"] == 252

    def test_after_two_dashes(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["plan", *SHAPE, "--json", "--parser", "own"]
        for line in (serve(), serve("ffn")):
            words += ["--", *shlex.split(line)]
        assert main(words) == 0
        assert selected(json.loads(capsys.readouterr().out)) == {"attention": 139, "ffn": 113}

    def test_both_places_exclude_each_other(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plan", "-", "--", *shlex.split(serve())]) == 2
        assert "exclude each other" in capsys.readouterr().err
        assert main(["plan", "--"]) == 2
        assert "no command after --" in capsys.readouterr().err


class TestEnvironment:
    @pytest.mark.parametrize(
        ("front", "caller", "missing"),
        [
            ("VLLM_PLUGINS=ascend,afd", None, "cam_hccl"),
            ("VLLM_PLUGINS=ascend,cam_hccl", None, "afd"),
            ("VLLM_PLUGINS=afd,cam_hccl", None, "ascend"),
            ("VLLM_PLUGINS='ascend,afd, cam_hccl'", None, "cam_hccl"),
            ("", "ascend,afd", "cam_hccl"),
            ("VLLM_PLUGINS=cam_hccl,ascend,afd", "ascend", ""),
            ("env -u VLLM_PLUGINS", "ascend", ""),
            ("", None, ""),
        ],
    )
    def test_the_allowed_plugins(
        self,
        plan: Plan,
        monkeypatch: pytest.MonkeyPatch,
        front: str,
        caller: str | None,
        missing: str,
    ) -> None:
        if caller is not None:
            monkeypatch.setenv(PLUGINS, caller)
        warnings = plan.json(serve(front=front))["warnings"]
        assert [w for w in warnings if f"leaves out {missing}" in w] == warnings
        assert len(warnings) == (1 if missing else 0)

    def test_without_the_flag_its_plugin_may_be_left_out(self, plan: Plan) -> None:
        line = serve(flag=None, front="VLLM_PLUGINS=ascend,afd")
        (warning,) = plan.json(line)["warnings"]
        assert "cam_hccl is not in the command" in warning

    @pytest.mark.parametrize(
        ("lines", "value"),
        [
            (["export HCCL_BUFFSIZE=100"], "100"),
            (["HCCL_BUFFSIZE=100", "export HCCL_BUFFSIZE"], "100"),
            (["export HCCL_BUFFSIZE=1", "HCCL_BUFFSIZE=100"], "100"),
            (["export HCCL_BUFFSIZE=1 B='x y'", "unset HCCL_BUFFSIZE"], None),
            (["unset HCCL_BUFFSIZE"], None),
            (["export HCCL_BUFFSIZE"], "7"),
            ([], "7"),
        ],
    )
    def test_lines_in_front_set_what_a_shell_would_pass_on(
        self, plan: Plan, monkeypatch: pytest.MonkeyPatch, lines: list[str], value: str | None
    ) -> None:
        monkeypatch.setenv("HCCL_BUFFSIZE", "7")
        assert self.buffsize(plan, *lines, serve()) == value

    def buffsize(self, plan: Plan, *lines: str) -> str | None:
        """``HCCL_BUFFSIZE`` as the plan believes that the command sees it."""
        windows = plan.json(*lines)["roles"]["attention"]["operator_windows"]
        found: str | None = windows[0]["value"]
        return found

    @pytest.mark.parametrize("name", ["HCCL_BUFFSIZE", "LCCL_BUFFER_SIZE", PLUGINS])
    def test_a_variable_that_is_not_exported(self, plan: Plan, name: str) -> None:
        message = plan.refused(f"{name}=100", serve())
        assert f"{name}=100 on a line of its own does not reach the command" in message
        assert "write export in front" in message
        assert plan.text(f"{name}=100", serve(front=f"{name}=200"))

    @pytest.mark.parametrize(
        ("front", "value"),
        [
            ("docker run --rm -e HCCL_BUFFSIZE=100 image", "100"),
            ("docker run --env HCCL_BUFFSIZE=100 image", "100"),
            ("podman run --env=HCCL_BUFFSIZE=100 image", "100"),
            ("docker run -e HCCL_BUFFSIZE image", "7"),
            ("docker run image", None),
            ("sudo", None),
            ("sudo HCCL_BUFFSIZE=100", "100"),
            ("sudo -E", "7"),
            ("ssh node", None),
            ("numactl -C 0-15", "7"),
        ],
    )
    def test_what_a_program_in_front_passes_on(
        self, plan: Plan, monkeypatch: pytest.MonkeyPatch, front: str, value: str | None
    ) -> None:
        monkeypatch.setenv("HCCL_BUFFSIZE", "7")
        assert self.buffsize(plan, serve(front=front)) == value
        monkeypatch.delenv("HCCL_BUFFSIZE")
        assert self.buffsize(plan, "export HCCL_BUFFSIZE=7", serve(front=front)) == value

    def test_an_export_line_counts(self, plan: Plan) -> None:
        (warning,) = plan.json("export VLLM_PLUGINS=ascend,afd", serve())["warnings"]
        assert "leaves out cam_hccl" in warning

    def test_the_rank_product(self, plan: Plan) -> None:
        (warning,) = plan.json(serve().replace("-dp 2", "-dp 3"))["warnings"]
        assert "3 x 8 x 1 = 24, but afd counts 16 attention ranks" in warning

    def test_the_commands_buffsize_reaches_the_window_check(self, plan: Plan) -> None:
        found = plan.json(serve(front="HCCL_BUFFSIZE=100"))
        windows = found["roles"]["attention"]["operator_windows"]
        assert (windows[0]["value"], windows[0]["verdict"]) == ("100", "too small")

    def test_the_utilization_of_the_command_guards(self, plan: Plan) -> None:
        device = [*SHAPE, "--device-memory-gib", "64"]
        line = serve("attention", "--gpu-memory-utilization", "0.999")
        assert "memory guard" in plan.json(line, options=device)["warnings"][0]
        notes = plan.json(serve(), options=device)["notes"]
        assert any("0.9 is assumed" in note for note in notes)

    def test_the_memory_that_following_a_window_takes_guards(self, plan: Plan) -> None:
        device = [*SHAPE, "--device-memory-gib", "64"]
        line = serve(flag={"operator_window": "follow"})
        assert plan.json(line, options=device)["warnings"] == []
        found = plan.json(f"HCCL_BUFFSIZE=4096 {line}", options=device)["warnings"]
        assert 'operator_window "follow" with the build binary package' in found[0]
        assert "memory guard: 6553.6 MiB" in found[0]
        assert "the HCCL groups take 8192 MiB" in found[0]
        found = plan.json(f"HCCL_BUFFSIZE=40000 {line}", options=device)["warnings"]
        assert "the device has 65536 MiB" in found[0]


class TestModel:
    def config(self, folder: Path) -> str:
        content = {"hidden_size": 7168, "num_experts_per_tok": 8, "n_routed_experts": 256}
        (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
        return str(folder)

    def test_the_directory_of_the_command_is_read(self, plan: Plan, tmp_path: Path) -> None:
        line = serve().replace("/m", self.config(tmp_path))
        assert selected(plan.json(line, options=[])) == {"attention": 139, "ffn": 113}

    def test_a_missing_one_suggests_a_shape(self, plan: Plan) -> None:
        message = plan.refused(serve().replace("/m", "/no/GLM-5-W8A8"), options=[])
        assert "/no/GLM-5-W8A8 is not on this machine" in message
        assert "is it --model-shape glm-5?" in message

    def test_overrides_of_the_shape_are_refused(self, plan: Plan, tmp_path: Path) -> None:
        line = serve("attention", "--hf-overrides", '{"num_experts_per_tok": 4}')
        line = line.replace("/m", self.config(tmp_path))
        assert "--hf-overrides changes num_experts_per_tok" in plan.refused(line, options=[])
        assert plan.text(line)

    def test_none_at_all(self, plan: Plan) -> None:
        assert "names no model" in plan.refused(serve().replace("serve /m", "serve"), options=[])


def test_vllm_parser_without_vllm(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cam_hccl_plugin.cli import vllm_parser

    words = ["plan", *SHAPE, "--json"]
    dashes = ["--", *shlex.split(serve())]
    broken = (None, "it is broken")
    monkeypatch.setattr(vllm_parser, "read_with_vllm", lambda commands: broken)
    monkeypatch.setattr(vllm_parser, "vllm_installed", lambda: True)
    assert main([*words, *dashes]) == 0
    (note, *_) = json.loads(capsys.readouterr().out)["notes"]
    assert note == (
        "vLLM's parser cannot be used (it is broken), the commands were read without it"
    )
    assert main([*words, "--parser", "vllm", *dashes]) == 2
    assert "it is broken" in capsys.readouterr().err


def test_a_followed_window_is_a_note_and_no_fault(plan: Plan) -> None:
    follow = {"operator_window": "follow"}
    commands = [serve("attention", flag=follow), serve("ffn", flag=follow)]
    status, out, _ = plan.run(*commands)
    assert status == 0
    assert "group afd_async_cam to 408 MB (816 MB of device memory)" in out
    assert "too large" not in out
    assert "export LCCL_BUFFER_SIZE" not in out
    _, scoped, _ = plan.run(serve("attention"), serve("ffn"))
    assert "too large" in scoped
    assert "of device memory)" not in scoped
