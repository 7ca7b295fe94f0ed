# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The ``cam_hccl`` JSON flag, parsed once into frozen :class:`Settings`."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from types import MappingProxyType
from typing import Any, TypeVar

from cam_hccl_plugin.errors import SettingsError
from cam_hccl_plugin.flag_places import KV_PLACE, PRIMARY_PLACE, flags_in
from cam_hccl_plugin.memory import DEFAULT_GUARD_RATIO
from cam_hccl_plugin.model import Role
from cam_hccl_plugin.sizing import DEFAULT_HEADROOM, exact

MAX_BUFFER_MIB = 2**32 - 2
"""Largest size torch-npu can hand to HCCL: 32 bits, and CANN uses 2**32-1 for "not set"."""

SIZINGS = ("auto", "published", "operator")
SCOPES = ("role", "group")
OPERATOR_WINDOWS = ("scoped", "follow")
ON_MISMATCH = ("error", "warn")
ON_MEMORY_SHORTAGE = ("warn", "error")
MIN_HEADROOM, MAX_HEADROOM = Fraction(1), Fraction(10)

_SHOWN = 200
"""Characters of a wrong value that a message shows."""

_Size = TypeVar("_Size")


@dataclass(frozen=True)
class Settings:
    """What the user asked for; every default of the flag is written here and only here.

    ``role_sizes_mib`` and ``group_sizes_mib`` are fixed sizes in MiB; a group with
    ``None`` is left to the caller's options and ``HCCL_BUFFSIZE``.
    """

    sizing: str = "auto"
    headroom: Fraction = DEFAULT_HEADROOM
    role_sizes_mib: Mapping[Role, int] = field(default_factory=lambda: MappingProxyType({}))
    group_sizes_mib: Mapping[str, int | None] = field(default_factory=lambda: MappingProxyType({}))
    npus_per_dp_group: int | None = None
    dynamic_quant: bool | None = None
    memory_guard_ratio: Fraction = DEFAULT_GUARD_RATIO
    on_memory_shortage: str = "warn"
    scope: str = "role"
    operator_window: str = "scoped"
    on_mismatch: str = "error"
    ledger: bool = True


class _Rejected(Exception):
    """A value is not allowed: what would be, for itself or for each of its subkeys."""

    def __init__(self, given: Any, allowed: str, subkey: str = "") -> None:
        super().__init__(allowed)
        self.problems = [f"{subkey}: given {_show(given)}, allowed is {allowed}"]

    @classmethod
    def together(cls, rejections: list[_Rejected]) -> _Rejected:
        """All of ``rejections`` as one."""
        first = rejections[0]
        first.problems = [problem for no in rejections for problem in no.problems]
        return first


def parse_flag(additional: Any, kv_extra: Any) -> Settings | None:
    """Settings from the flag's two places, or ``None`` if the plugin is off.

    Args:
        additional: ``additional_config``, or ``None``.
        kv_extra: ``kv_connector_extra_config`` of the KV transfer config, or ``None``.

    Raises:
        SettingsError: the flag is in both places with different content, or anything in
            it is wrong; the message lists every problem.
    """
    return parse_places(flags_in(additional, kv_extra))


def parse_places(places: Mapping[str, Any]) -> Settings | None:
    """The same from the flag's value by place.

    Raises:
        SettingsError: as :func:`parse_flag`.
    """
    if not places:
        return None
    if len(places) > 1 and _canonical(places[PRIMARY_PLACE]) != _canonical(places[KV_PLACE]):
        raise SettingsError(
            f"cam_hccl is given twice with different content: {PRIMARY_PLACE} is "
            f"{_show(places[PRIMARY_PLACE])}, {KV_PLACE} is {_show(places[KV_PLACE])}; "
            "keep one of them"
        )
    place, raw = next(iter(places.items()))
    return parse_settings(raw, place)


def parse_settings(raw: Any, place: str = PRIMARY_PLACE) -> Settings | None:
    """Settings from the flag's value, or ``None`` if ``{"enabled": false}``.

    Raises:
        SettingsError: lists every problem with its dotted key, what was given and what
            is allowed.
    """
    if not isinstance(raw, Mapping):
        raise SettingsError(
            f"{place}: given {_show(raw)}, allowed is an object, {{}} for all defaults; "
            'remove the key or use {"enabled": false} to switch the plugin off'
        )
    enabled = raw.get("enabled", True)
    if enabled is False:
        return None
    problems = []
    if enabled is not True:
        problems.append(f"{place}.enabled: given {_show(enabled)}, allowed is true or false")
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key == "enabled":
            continue
        if key not in _KEYS:
            problems.append(f"{place}.{_key(key)}: unknown key{_suggestion(key)}")
            continue
        attribute, read = _KEYS[key]
        try:
            values[attribute] = read(value)
        except _Rejected as no:
            problems += [f"{place}.{key}{problem}" for problem in no.problems]
    if problems:
        raise SettingsError(
            f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in the cam_hccl flag: "
            + "; ".join(problems)
        )
    return Settings(**values)


def _canonical(raw: Any) -> str:
    try:
        return json.dumps(raw, sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):
        return _show(raw)  # no JSON, which parsing refuses


def _show(value: Any) -> str:
    for show in (json.dumps, repr):
        try:
            text: str = show(value)
        except (TypeError, ValueError, RecursionError):
            continue
        return _cut(text)
    return f"a {type(value).__name__} too large to show"


def _key(key: Any) -> str:
    """A key for a message: any text can be printed, and none is endless."""
    text = key if isinstance(key, str) else _show(key)
    return _cut(text.encode("utf-8", "backslashreplace").decode())


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _suggestion(key: object) -> str:
    known = [*_KEYS, "enabled"]
    close = difflib.get_close_matches(_key(key), known, n=1)
    hint = f", did you mean {close[0]}?" if close else ""
    return f"{hint}; known keys are {', '.join(sorted(known))}"


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _choice(options: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in options:
            raise _Rejected(value, "one of " + ", ".join(f'"{o}"' for o in options))
        return value

    return read


def _number(low: Fraction, high: Fraction | None) -> Callable[[Any], Fraction]:
    allowed = (
        f"a finite number, {low} or more" if high is None else f"a number from {low} to {high}"
    )

    def read(value: Any) -> Fraction:
        is_number = _is_int(value) or (isinstance(value, float) and math.isfinite(value))
        if not is_number:
            raise _Rejected(value, allowed)
        number = exact(value)
        if number < low or (high is not None and number > high):
            raise _Rejected(value, allowed)
        return number

    return read


def _positive_int(value: Any) -> int:
    if not _is_int(value) or value < 1:
        raise _Rejected(value, "an integer, 1 or more")
    return int(value)


def _size(value: Any, subkey: str = "", also: str = "") -> int:
    if not _is_int(value) or not 1 <= value <= MAX_BUFFER_MIB:
        raise _Rejected(value, f"an integer from 1 to {MAX_BUFFER_MIB} (MB){also}", subkey)
    return int(value)


def _role_sizes(value: Any) -> Mapping[Role, int]:
    if not isinstance(value, Mapping):
        size = _size(value, also=' or {"attention": N, "ffn": M}')
        return MappingProxyType(dict.fromkeys(Role, size))
    roles = {role.value: role for role in Role}

    def read(key: Any, size: Any) -> int:
        if key not in roles:
            raise _Rejected(size, 'nothing, the keys are "attention" and "ffn"', f".{_key(key)}")
        return _size(size, f".{key}")

    return MappingProxyType({roles[key]: size for key, size in _each(value, read).items()})


def _group_sizes(value: Any) -> Mapping[str, int | None]:
    if not isinstance(value, Mapping):
        raise _Rejected(value, 'an object of group names, e.g. {"afd_moe": 300}')

    def read(name: Any, size: Any) -> int | None:
        if not isinstance(name, str) or not name:
            raise _Rejected(size, "nothing, a key is the name of a group", f".{_key(name)}")
        return None if size is None else _size(size, f".{_key(name)}", " or null")

    return MappingProxyType(_each(value, read))


def _each(value: Mapping[Any, Any], read: Callable[[Any, Any], _Size]) -> dict[Any, _Size]:
    """Every entry through ``read``; what is wrong with any of them is raised together."""
    sizes: dict[Any, _Size] = {}
    rejections = []
    for key, size in value.items():
        try:
            sizes[key] = read(key, size)
        except _Rejected as no:  # noqa: PERF203 - every problem is wanted
            rejections.append(no)
    if rejections:
        raise _Rejected.together(rejections)
    return sizes


def _dynamic_quant(value: Any) -> bool:
    if not isinstance(value, int) or value not in (0, 1):
        raise _Rejected(value, "0, 1, false or true")
    return bool(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Rejected(value, "true or false")
    return value


_KEYS: Mapping[str, tuple[str, Callable[[Any], Any]]] = MappingProxyType(
    {
        "sizing": ("sizing", _choice(SIZINGS)),
        "headroom": ("headroom", _number(MIN_HEADROOM, MAX_HEADROOM)),
        "buffer_size_mb": ("role_sizes_mib", _role_sizes),
        "group_buffer_size_mb": ("group_sizes_mib", _group_sizes),
        "num_npus_per_dp_group": ("npus_per_dp_group", _positive_int),
        "dynamic_quant": ("dynamic_quant", _dynamic_quant),
        "memory_guard_ratio": ("memory_guard_ratio", _number(Fraction(0), None)),
        "on_memory_shortage": ("on_memory_shortage", _choice(ON_MEMORY_SHORTAGE)),
        "scope": ("scope", _choice(SCOPES)),
        "operator_window": ("operator_window", _choice(OPERATOR_WINDOWS)),
        "on_mismatch": ("on_mismatch", _choice(ON_MISMATCH)),
        "ledger": ("ledger", _flag),
    }
)

assert {attribute for attribute, _ in _KEYS.values()} == {f.name for f in fields(Settings)}
