# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``VLLM_PLUGINS``, vLLM's list of the plugins that it loads, and the names that CAM needs."""

from __future__ import annotations

from collections.abc import Iterable

VLLM_PLUGINS = "VLLM_PLUGINS"
"""Entry-point names of general and platform plugins, with commas; unset allows all."""

AFD_ENTRY_POINT = "afd"
ASCEND_ENTRY_POINT = "ascend"
"""Of vLLM's platform plugins, which the variable rules too."""


def left_out(given: str, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that vLLM will not load if the variable is ``given``.

    Source: vLLM splits at commas and compares exactly, blanks included.
    """
    allowed = given.split(",")
    return [name for name in names if name not in allowed]
