# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The look at the finished VllmConfig, before any worker starts."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Records, Stack
from fakes import async_config, vllm_config

from cam_hccl_plugin.errors import SeamError, SettingsError
from cam_hccl_plugin.patches.engine_config import EngineConfigPatch


def engine_args(answer: Any) -> type:
    class EngineArgs:
        def create_engine_config(self, usage_context: Any = None, headless: bool = False) -> Any:
            """Upstream's words."""
            self.asked = (usage_context, headless)
            return answer

    return EngineArgs


def module_with(owner: Any) -> types.ModuleType:
    module = types.ModuleType("vllm.engine.arg_utils")
    if owner is not None:
        module.EngineArgs = owner  # type: ignore[attr-defined]  # a module takes attributes
    return module


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Launch with a configuration, in a process with or without afd-plugin."""

    def run(config: Any, afd: bool = True, problem: SeamError | None = None) -> Any:
        if afd:
            monkeypatch.setitem(sys.modules, "afd_plugin", types.ModuleType("afd_plugin"))
        else:
            monkeypatch.delitem(sys.modules, "afd_plugin", raising=False)
        owner = engine_args(config)
        patch = EngineConfigPatch(lambda: problem)
        patch.install(module_with(owner))
        return owner().create_engine_config("ctx", headless=True)

    return run


def test_without_the_flag_the_result_is_passed_through_without_a_word(
    launch: Any, records: Records
) -> None:
    config = vllm_config()
    assert launch(config, problem=SeamError("moved")) is config
    assert records.above_debug == []


def test_disabled_is_as_silent(launch: Any, records: Records) -> None:
    launch(vllm_config(flag={"enabled": False}), problem=SeamError("moved"))
    assert records.above_debug == []


def test_with_the_flag_one_line_says_that_it_is_on(launch: Any, records: Records) -> None:
    config = async_config("ffn", flag={"headroom": 1.2})
    assert launch(config) is config
    (line,) = records.above_debug
    for words in ("connector=CAMAsyncAFDConnector", "role=ffn", "sizing=auto", "headroom=1.2"):
        assert words in line


def test_a_wrong_flag_stops_the_launch(launch: Any) -> None:
    with pytest.raises(SettingsError, match=r"cam_hccl\.headroom"):
        launch(vllm_config(flag={"headroom": 0}))


@pytest.mark.parametrize("afd", [True, False])
def test_enabled_without_an_afd_configuration_is_one_warning(
    launch: Any, records: Records, afd: bool
) -> None:
    config = vllm_config(flag={})
    del config.additional_config["afd"]
    assert launch(config, afd=afd, problem=SeamError("moved")) is config
    (warning,) = records.above_debug
    assert records.warnings == [warning]
    assert "no AFD configuration reached vLLM" in warning
    assert "additional-config" in warning


def test_enabled_without_afd_plugin_is_one_warning(launch: Any, records: Records) -> None:
    launch(vllm_config(flag={}), afd=False)
    (warning,) = records.warnings
    assert "VLLM_PLUGINS" in warning


def test_a_seam_that_moved_stops_the_launch(launch: Any) -> None:
    with pytest.raises(SeamError, match="moved"):
        launch(async_config(), problem=SeamError("moved"))


def test_the_configuration_is_not_changed(launch: Any) -> None:
    config = async_config(flag={"headroom": 2})
    before = repr(vars(config))
    launch(config)
    assert repr(vars(config)) == before


def test_install_twice_is_once_and_uninstall_restores_the_identical_method() -> None:
    owner = engine_args(None)
    original = vars(owner)["create_engine_config"]
    patch = EngineConfigPatch(lambda: None)
    for _ in range(2):
        patch.install(module_with(owner))
    assert type(vars(owner)["create_engine_config"]) is type(original)
    assert vars(owner)["create_engine_config"].__wrapped__ is original
    assert owner.create_engine_config.__doc__ == "Upstream's words."  # type: ignore[attr-defined]  # local class
    patch.uninstall()
    assert vars(owner)["create_engine_config"] is original


def test_below_a_foreign_wrapper_ours_goes_quiet(records: Records) -> None:
    config = async_config()
    owner: Any = engine_args(config)
    patch = EngineConfigPatch(lambda: None)
    patch.install(module_with(owner))
    ours = owner.create_engine_config

    def foreign(self: Any, *args: Any, **kwargs: Any) -> Any:
        return ours(self, *args, **kwargs)

    owner.create_engine_config = foreign
    patch.uninstall()
    assert owner.create_engine_config is foreign
    assert owner().create_engine_config() is config
    assert records.records == []


@pytest.mark.parametrize("owner", [None, type("EngineArgs", (), {}), "text"])
def test_a_vllm_without_the_method_is_left_alone(owner: Any) -> None:
    patch = EngineConfigPatch(lambda: None)
    patch.install(module_with(owner))
    patch.uninstall()


def test_an_exception_of_upstream_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("Connector name is not set")

    class EngineArgs:
        def create_engine_config(self) -> Any:
            raise error

    EngineConfigPatch(lambda: None).install(module_with(EngineArgs))
    with pytest.raises(ValueError, match="not set") as caught:
        EngineArgs().create_engine_config()
    assert caught.value is error


def test_an_installation_hooks_it_when_vllm_is_imported(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, records: Records
) -> None:
    owner: Any = engine_args(async_config())
    for name in ("vllm", "vllm.engine"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", module_with(owner))
    stack.installation.arm()
    owner().create_engine_config()
    assert any("on for connector=CAMAsyncAFDConnector" in i for i in records.infos)


def test_armed_twice_around_a_foreign_wrapper_that_hides_ours_speaks_once(
    monkeypatch: pytest.MonkeyPatch, records: Records
) -> None:
    monkeypatch.setitem(sys.modules, "afd_plugin", types.ModuleType("afd_plugin"))
    config = async_config()
    owner: Any = engine_args(config)
    patch = EngineConfigPatch(lambda: None)
    patch.install(module_with(owner))
    ours = owner.create_engine_config
    owner.create_engine_config = lambda self, *args, **kwargs: ours(self, *args, **kwargs)
    patch.install(module_with(owner))
    for _ in range(2):
        assert owner().create_engine_config() is config
    assert len(records.infos) == 2
    assert len(records.above_debug) == 2
