# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Checks of single arguments: exact, and each says what was given and what is allowed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from cam_hccl_plugin.errors import CamHcclError
from cam_hccl_plugin.settings import MAX_BUFFER_MIB
from cam_hccl_plugin.sizing import exact

# No large exponents: 1e999999999 is a valid decimal and an endless computation.
_DECIMAL = re.compile(r"\s*[+-]?[0-9_.]{1,40}(?:[eE][+-]?[0-9]{1,3})?\s*")


_SHOWN = 60


def shortened(text: str) -> str:
    """``text``, cut to what a line can show."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def checked(check: Callable[[str], Any], allowed: str) -> Callable[[str], Any]:
    """An argparse type that says what was given and what is allowed."""

    def convert(text: str) -> Any:
        try:
            return check(text)
        except (ValueError, ZeroDivisionError, CamHcclError):
            message = f"given {shortened(repr(text))}, allowed is {allowed}"
            raise argparse.ArgumentTypeError(message) from None

    return convert


def integer(low: int, high: int) -> Callable[[str], int]:
    """A check for an integer in a range."""

    def check(text: str) -> int:
        if not (text.isascii() and text.isdigit()):  # int() takes spaces, signs and underscores
            raise ValueError(text)
        value = int(text, 10)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return check


def ratio(
    low: Fraction, high: Fraction | None = None, low_allowed: bool = True
) -> Callable[[str], Any]:
    """An argparse type for an exact decimal in a range, its lower end included or not."""

    def check(text: str) -> Fraction:
        if not _DECIMAL.fullmatch(text):
            raise ValueError(text)
        value = exact(float(text))  # as JSON delivers it
        if value < low or (value == low and not low_allowed):
            raise ValueError(text)
        if high is not None and value > high:
            raise ValueError(text)
        return value

    if low_allowed:
        span = f"a number, {low} or more" if high is None else f"a number from {low} to {high}"
    else:
        span = f"a number above {low}" + ("" if high is None else f", up to {high}")
    return checked(check, span)


positive = checked(integer(1, 2**63 - 1), "a positive integer of at most 63 bits")
buffer_mb = checked(integer(1, MAX_BUFFER_MIB), f"an integer from 1 to {MAX_BUFFER_MIB} (MB)")
zero_or_one = checked(lambda text: bool(integer(0, 1)(text)), "0 or 1")
