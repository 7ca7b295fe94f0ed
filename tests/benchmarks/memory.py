# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Section 1: device memory that the CAM groups take on a die, before and after."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cases import CAMP2P, DEEPSEEK_V3_2, PRACTICE_MIB, Case, recipe_cases, shared_cases
from benchmarks.kv_cache import arithmetic_table, tokens_in
from benchmarks.recorded import LARGEST_WORLD, Recorder
from benchmarks.table import Figures, Table
from cam_hccl_plugin.model import AREAS_PER_COMMUNICATOR, BufferPlan, MiB, Role
from cam_hccl_plugin.plugin_host import PluginHost, build_host

DIE_MIB = 64 * 1024
"""Device memory of one die of the recipes (Atlas A3), in MiB."""

_COLUMNS = {
    "case": "case",
    "ranks": "A+F",
    "role": "die",
    "before_mib": "before MiB",
    "after_mib": "after MiB",
    "freed_mib": "freed MiB",
    "before_percent": "before %",
    "after_percent": "after %",
    "kv_tokens": "KV tokens",
    "practice_ratio": "before/need",
    "selected_ratio": "after/need",
    "source": "sizes",
}

_NOTES = (
    "before: HCCL_BUFFSIZE 4096 (Async), 512 Attention / 2048 FFN (CAMP2P); after: the plugin, "
    "sizing auto",
    "MiB of one die, 2 x buffer summed over its CAM groups (CAMP2P's FFN die has afd_moe as well)",
    "%: of the die's 64 GiB; KV tokens: the freed memory in tokens of DeepSeek-V3.2's cache, on "
    "the dies that keep it",
    "before/need and after/need: one buffer over what the operators need; below 1 they refuse to "
    "run, 1.0 is the physical limit",
    f"recorded: read from the structs HCCL received in a whole world, at most {LARGEST_WORLD} "
    "ranks here; computed: the package's own plan",
)


@dataclass(frozen=True)
class DieFigures:
    """One die of one role: buffers of its CAM groups in MiB, and one group's operator need."""

    before_mib: tuple[int, ...]
    after_mib: tuple[int, ...]
    need_bytes: int
    source: str

    @property
    def device_mib(self) -> tuple[int, int]:
        """Device memory before and after."""
        before, after = sum(self.before_mib), sum(self.after_mib)
        return AREAS_PER_COMMUNICATOR * before, AREAS_PER_COMMUNICATOR * after

    def cells(self, kv_cache: bool) -> tuple[float | str | None, ...]:
        """The cells of ``_COLUMNS`` from ``before_mib`` on."""
        before, after = self.device_mib
        return (
            before,
            after,
            before - after,
            100 * before / DIE_MIB,
            100 * after / DIE_MIB,
            tokens_in(before - after) if kv_cache else None,
            max(self.before_mib) * MiB / self.need_bytes,
            max(self.after_mib) * MiB / self.need_bytes,
            self.source,
        )


def computed(case: Case, plan: BufferPlan) -> DieFigures:
    """The figures of a die from the plan alone."""
    assert plan.need is not None
    assert plan.need.operator_bytes is not None
    practice = PRACTICE_MIB[case.connector][plan.role]
    return DieFigures(
        before_mib=(practice,) * len(plan.groups),
        after_mib=tuple(group.effective_mib for group in plan.groups),
        need_bytes=plan.need.operator_bytes,
        source="computed",
    )


def _recorded(case: Case, role: Role, expected: DieFigures, recorder: Recorder) -> DieFigures:
    before = recorder.buffers_mib(case, role, plugin=False)
    after = recorder.buffers_mib(case, role, plugin=True)
    if (before, after) != (expected.before_mib, expected.after_mib):
        raise RuntimeError(
            f"{case.name}, {role.value}: HCCL received {before} and {after} MiB, computed are "
            f"{expected.before_mib} and {expected.after_mib}"
        )
    return DieFigures(before, after, expected.need_bytes, "recorded")


def _rows(case: Case, host: PluginHost, recorder: Recorder | None) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for role in Role:
        figures = computed(case, case.plan(role, host))
        if recorder is not None and case.attention_ranks + case.ffn_ranks <= LARGEST_WORLD:
            figures = _recorded(case, role, figures, recorder)
        kv_cache = role is Role.ATTENTION and case.model == DEEPSEEK_V3_2
        ranks = f"{case.attention_ranks}+{case.ffn_ranks}"
        ubatches = f", {case.num_ubatches} ubatches" if case.connector == CAMP2P else ""
        label = case.name + (ubatches if case.num_ubatches > 1 else "")
        rows.append((label, ranks, role.value, *figures.cells(kv_cache)))
    return rows


def measure(runs: int) -> Figures:
    """Worlds are deterministic, so ``runs`` does not matter here."""
    host = build_host(installed=False)
    with Recorder.open() as recorder:
        rows = [
            row
            for case in (*recipe_cases(), *shared_cases())
            for row in _rows(case, host, recorder)
        ]
    notes = list(_NOTES)
    if recorder is None:
        notes.append("nothing is recorded in this run: CAM_HCCL_TORCH_NPU_DIR is not set")
    title = "Device memory of the CAM groups per die"
    return Figures([Table("memory", title, _COLUMNS, rows, notes), arithmetic_table()])
