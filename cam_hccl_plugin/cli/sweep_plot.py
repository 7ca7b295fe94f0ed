# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A sweep as a picture; matplotlib is imported here and nowhere else."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from cam_hccl_plugin.cli.render import ROLE_LABEL
from cam_hccl_plugin.cli.sweep_points import SweepPoint
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.model import Role

ENDINGS = (".png", ".svg")
_AXIS = {
    "tokens": "max_num_batched_tokens (Attention)",
    "attention-ranks": "Attention ranks",
    "ffn-ranks": "FFN ranks",
}
# Colours that colour-blind readers can tell apart (Okabe and Ito).
_BLUE, _ORANGE, _GREEN, _GREY = "#0072B2", "#D55E00", "#009E73", "#555555"


def write_plot(
    path: str, title: str, over: str, points: Sequence[SweepPoint], limit_tokens: int | None
) -> None:
    """Draw both roles side by side and write the file.

    Raises:
        PlanError: matplotlib is missing, the ending is unknown, or the file cannot be written.
    """
    if os.path.splitext(path)[1].lower() not in ENDINGS:
        raise PlanError(f"--plot {path}: the name must end in {' or '.join(ENDINGS)}")
    try:
        matplotlib = importlib.import_module("matplotlib")
        figure_module = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise PlanError(
            f"--plot needs matplotlib, which cannot be imported ({error}): "
            "pip install 'cam-hccl-plugin[plot]'"
        ) from error
    figure = figure_module.Figure(figsize=(11, 4.8), layout="constrained")
    figure.suptitle(title, fontsize=11)
    panels = figure.subplots(1, len(points[0].roles), sharey=True, squeeze=False)[0]
    for panel, role in zip(panels, points[0].roles, strict=True):
        _draw(panel, role, over, points)
        if limit_tokens and points[0].value <= limit_tokens <= points[-1].value:
            _mark_limit(panel, limit_tokens)
    panels[0].set_ylim(0, 1.06 * _highest(points))  # once: the panels share it
    panels[0].set_ylabel("HCCL buffer per communicator (MB = MiB)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    try:
        with matplotlib.rc_context({"svg.hashsalt": "cam-hccl", "svg.fonttype": "none"}):
            figure.savefig(path, dpi=150, metadata=_metadata(path))
    except (OSError, ValueError) as error:
        raise PlanError(f"--plot {path}: cannot be written: {error}") from error


def _metadata(path: str) -> dict[str, Any]:
    """No date in an SVG: the same plan is the same file."""
    return {"Date": None} if path.lower().endswith(".svg") else {}


def _draw(panel: Any, role: Role, over: str, points: Sequence[SweepPoint]) -> None:
    values = [point.value for point in points]
    each = [point.roles[role] for point in points]
    marker = "o" if len(points) <= 32 else ""
    # A broad pale line: the thin ones on top of it stay visible where they coincide.
    selected = [p.selected_mib for p in each]
    style: dict[str, Any] = {"color": _BLUE, "linewidth": 6, "alpha": 0.4, "marker": marker}
    panel.plot(values, selected, label="selected", **style)
    published = [p.published_mib for p in each]
    style = {"color": _ORANGE, "linewidth": 1.8, "linestyle": "--"}
    panel.plot(values, published, label="published need x headroom", **style)
    operator = [p.operator_mib for p in each]
    if None not in operator:
        style = {"color": _GREEN, "linewidth": 2, "linestyle": ":"}
        panel.plot(values, operator, label="operator need", **style)
    panel.set_title(f"{ROLE_LABEL[role]} rank", fontsize=11)
    panel.set_xlabel(_AXIS[over])
    ticker = importlib.import_module("matplotlib.ticker")
    panel.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.grid(True, color="#dddddd", linewidth=0.8)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _highest(points: Sequence[SweepPoint]) -> int:
    return max(
        max(each.selected_mib, each.published_mib, each.operator_mib or 0)
        for point in points
        for each in point.roles.values()
    )


def _mark_limit(panel: Any, tokens: int) -> None:
    panel.axvline(tokens, color=_GREY, linewidth=1, linestyle="-.")
    panel.annotate(
        f"largest that fits: {tokens:,}",
        xy=(tokens, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(-4, 0),
        textcoords="offset points",
        rotation=90,
        ha="right",
        va="bottom",
        fontsize=8,
        color=_GREY,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )
