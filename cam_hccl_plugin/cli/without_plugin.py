# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The plan's sizes for people who cannot install the plugin: by hand, per role."""

from __future__ import annotations

import json

from cam_hccl_plugin.cli.deployment import DeploymentPlan, RolePlan
from cam_hccl_plugin.cli.render import ROLE_LABEL
from cam_hccl_plugin.environment import HCCL_BUFFSIZE
from cam_hccl_plugin.hccl_options import BUFFER_KEY
from cam_hccl_plugin.model import HCCL_DEFAULT_MIB


def as_env(result: DeploymentPlan) -> str:
    """The ``HCCL_BUFFSIZE`` per role that covers the CAM groups, as shell lines."""
    lines = [
        f"# {HCCL_BUFFSIZE} covers the CAM groups without the plugin, but it applies to every",
        "# communicator of the process: each takes 2 x this many MB, TP, DP and EP groups too.",
    ]
    for role, plan in result.roles.items():
        size = plan.plan.selected_mib
        lines.append(f"# {ROLE_LABEL[role]} ranks")
        if size < HCCL_DEFAULT_MIB:
            lines.append(
                f"# below HCCL's default of {HCCL_DEFAULT_MIB}: leaving it unset covers CAM too "
                "and takes nothing from other groups"
            )
        lines.append(f"export {HCCL_BUFFSIZE}={size}")
    return "\n".join([*lines, *_remarks(result)])


def as_flag(result: DeploymentPlan) -> str:
    """The explicit ``hccl_buffer_size`` per role, as JSON for ``--additional-config``."""
    lines = [
        "# For newer afd-plugin without cam-hccl-plugin: merge each role's line into the afd",
        "# object of its --additional-config. Older ones refuse the key.",
    ]
    for role, plan in result.roles.items():
        value = {"afd": {"connector_extra_config": {BUFFER_KEY: plan.plan.selected_mib}}}
        lines += [f"# {ROLE_LABEL[role]} ranks{_one_size(plan)}", json.dumps(value)]
    return "\n".join([*lines, *_remarks(result)])


def _one_size(plan: RolePlan) -> str:
    """A remark where one size has to serve groups that the plan sizes differently."""
    sizes = {group.name: group.effective_mib for group in plan.groups}
    if len(set(sizes.values())) < 2:
        return ""
    return f" (the largest of {', '.join(f'{name} {size}' for name, size in sizes.items())})"


def _remarks(result: DeploymentPlan) -> list[str]:
    notes = [f"# note: {note}" for note in result.deployment.notes]
    return [*notes, *(f"# warning: {warning}" for warning in result.warnings)]
