# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Command lines that users write, each after the options of a tiny model."""

from __future__ import annotations

from dataclasses import dataclass

ADDITIONAL = "--additional-config"
KV_TRANSFER = "--kv-transfer-config"
AFD = (
    '{"connector": "CAMAsyncAFDConnector", "role": "attention", "num_attention_ranks": 6, '
    '"num_ffn_ranks": 2, "connector_extra_config": {"attn_ranks_per_dp": 2, "dynamicQuant": 1}}'
)
KV_CONNECTOR = '"kv_connector": "ExampleConnector", "kv_role": "kv_both"'
WRONG_FLAG = '{"cam_hccl": {"headrom": 1, "sizing": "biggest", "buffer_size_mb": 0}}'


@dataclass(frozen=True)
class Case:
    """A command line, and whether afd-plugin's package is imported in its process."""

    argv: tuple[str, ...]
    afd_plugin: bool = False

    @property
    def model(self) -> str:
        """The tiny model; the double's connectors read ``n_routed_experts`` only."""
        return "glm4_moe" if self.afd_plugin else "qwen3_moe"


CASES = {
    "no flag": Case((ADDITIONAL, '{"other": {}}')),
    "nothing": Case(()),
    "json": Case((ADDITIONAL, '{"cam_hccl": {"headroom": 1.2, "group_buffer_size_mb": {"a": 1}}}')),
    "enabled false": Case((ADDITIONAL, '{"cam_hccl": {"enabled": false, "headrom": 1}}')),
    "dotted": Case((f"{ADDITIONAL}.cam_hccl.headroom", "1.2")),
    "dotted types": Case(
        (
            f"{ADDITIONAL}.cam_hccl.headroom=2",
            f"{ADDITIONAL}.cam_hccl.sizing=published",
            f"{ADDITIONAL}.cam_hccl.dynamic_quant",
            "true",
            f"{ADDITIONAL}.cam_hccl.buffer_size_mb.ffn",
            "300",
            f"{ADDITIONAL}.cam_hccl.group_buffer_size_mb.afd_moe",
            "null",
        )
    ),
    "dotted object": Case((f"{ADDITIONAL}.cam_hccl", "{}")),
    "dotted false": Case((f"{ADDITIONAL}.cam_hccl.enabled", "false")),
    "json, then dotted": Case(
        (
            ADDITIONAL,
            f'{{"afd": {AFD}, "cam_hccl": {{"sizing": "published"}}}}',
            f"{ADDITIONAL}.cam_hccl.headroom",
            "1.2",
        )
    ),
    "dotted, then json": Case(
        (
            f"{ADDITIONAL}.cam_hccl.headroom",
            "1.2",
            ADDITIONAL,
            f'{{"afd": {AFD}, "cam_hccl": {{"sizing": "published"}}}}',
        )
    ),
    "two json": Case(
        (ADDITIONAL, f'{{"afd": {AFD}}}', ADDITIONAL, '{"cam_hccl": {"headroom": 1.2}}')
    ),
    "kv transfer": Case(
        (
            KV_TRANSFER,
            f'{{{KV_CONNECTOR}, "kv_connector_extra_config": {{"cam_hccl": {{"headroom": 1.5}}}}}}',
        )
    ),
    "kv transfer dotted": Case(
        (
            f"{KV_TRANSFER}.kv_connector",
            "ExampleConnector",
            f"{KV_TRANSFER}.kv_role",
            "kv_both",
            f"{KV_TRANSFER}.kv_connector_extra_config.cam_hccl.headroom",
            "1.5",
        )
    ),
    "kv transfer without a connector": Case(
        (KV_TRANSFER, '{"kv_connector_extra_config": {"cam_hccl": {}}}')
    ),
    "kv transfer json, then dotted": Case(
        (
            KV_TRANSFER,
            f"{{{KV_CONNECTOR}}}",
            f"{KV_TRANSFER}.kv_connector_extra_config.cam_hccl.headroom",
            "1.5",
        )
    ),
    "both places": Case(
        (
            ADDITIONAL,
            '{"cam_hccl": {"headroom": 1.2}}',
            KV_TRANSFER,
            f'{{{KV_CONNECTOR}, "kv_connector_extra_config": {{"cam_hccl": {{"headroom": 1.5}}}}}}',
        )
    ),
    "wrong": Case((ADDITIONAL, WRONG_FLAG)),
    "afd not loaded": Case((ADDITIONAL, f'{{"afd": {AFD}, "cam_hccl": {{}}}}')),
    "afd loaded": Case((ADDITIONAL, f'{{"afd": {AFD}, "cam_hccl": {{}}}}'), afd_plugin=True),
    "afd loaded, flag beside a kv connector": Case(
        (
            ADDITIONAL,
            f'{{"afd": {AFD}}}',
            KV_TRANSFER,
            f'{{{KV_CONNECTOR}, "kv_connector_extra_config": {{"cam_hccl": {{"headroom": 1.5}}}}}}',
        ),
        afd_plugin=True,
    ),
    "afd loaded, dotted afd too": Case(
        (
            f"{ADDITIONAL}.cam_hccl.headroom",
            "1.3",
            f"{ADDITIONAL}.afd",
            AFD,
        ),
        afd_plugin=True,
    ),
    "afd loaded, no flag": Case((ADDITIONAL, f'{{"afd": {AFD}}}'), afd_plugin=True),
}
