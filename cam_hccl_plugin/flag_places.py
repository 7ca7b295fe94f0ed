# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Where the flag stands in a VllmConfig. Tiny: with the flag absent nothing else is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FLAG_KEY = "cam_hccl"
"""Key of the flag in ``additional_config`` and in ``kv_connector_extra_config``."""

SWITCH_OFF = f'switch the plugin off with {{"{FLAG_KEY}": {{"enabled": false}}}}'
"""The last remedy of an error that stops a start."""

PRIMARY_PLACE = f"additional_config.{FLAG_KEY}"
KV_PLACE = f"kv_transfer_config.kv_connector_extra_config.{FLAG_KEY}"


def given_flags(vllm_config: Any) -> dict[str, Any]:
    """The flag's value at each place where it is given; empty if the plugin is off."""
    kv_transfer = getattr(vllm_config, "kv_transfer_config", None)
    return flags_in(
        getattr(vllm_config, "additional_config", None),
        getattr(kv_transfer, "kv_connector_extra_config", None),
    )


def flags_in(additional: Any, kv_extra: Any) -> dict[str, Any]:
    """The same from the two configurations; anything but a mapping holds no flag."""
    return {
        place: source[FLAG_KEY]
        for place, source in ((PRIMARY_PLACE, additional), (KV_PLACE, kv_extra))
        if isinstance(source, Mapping) and FLAG_KEY in source
    }
