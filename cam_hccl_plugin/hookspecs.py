# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The extension contract: what another package can tell the plugin, through pluggy.

An extension is an object (often a module) with functions marked
:data:`cam_hccl_plugin.hookimpl`, published under the entry-point group
``cam_hccl_plugin``. The built-in connectors use the same hooks. All hooks are called in
the process that creates the connector, and in ``cam-hccl plan``; nowhere per step. An
exception out of a hook stops the start with the extension's name. Since 0.1.
"""

from __future__ import annotations

import pluggy

from cam_hccl_plugin.model import (
    BufferPlan,
    ConnectorClaim,
    ConnectorIdentity,
    GroupRequest,
    Role,
    RoleNeed,
    SizingInputs,
    Topology,
)

PROJECT_NAME = "cam_hccl_plugin"
"""pluggy project name and entry-point group of extensions."""

hookspec = pluggy.HookspecMarker(PROJECT_NAME)


@hookspec(firstresult=True)
def cam_hccl_claim_connector(connector: ConnectorIdentity) -> ConnectorClaim | None:
    """Say that a connector class is CAM-type.

    When: once per connector, after its construction and before any group exists.
    ``None``: not mine. Extensions are asked before the built-in rules and the first
    claim wins, so one may replace a built-in. Nobody claiming it: nothing is sized.
    """


@hookspec(firstresult=True)
def cam_hccl_describe_groups(
    claim: ConnectorClaim, topology: Topology
) -> tuple[GroupRequest, ...] | None:
    """List the HCCL groups that a claimed connector creates, and the roles they span.

    When: once per connector, after the claim. List the groups of both roles; names are
    matched exactly. ``topology.num_ubatches`` is at least 1. ``None``: not my kind, or
    known only once the connector initialises; the first list wins. Must be pure.
    """


@hookspec(firstresult=True)
def cam_hccl_role_need(claim: ConnectorClaim, role: Role, inputs: SizingInputs) -> RoleNeed | None:
    """Give the bytes that one role needs in each window, before headroom.

    When: once per connector and role, for the process's own role, and for the other one
    too where ``claim.tokens_shared`` (both roles are asked in ``cam-hccl plan``). Must be
    pure. ``None``: not my kind; the first answer wins; nobody answering is an error.
    """


@hookspec
def cam_hccl_plan_ready(plan: BufferPlan) -> None:
    """Be told of a finished plan; the return value is ignored, all are called.

    When: once per connector and process, before any group exists, and once per role in
    ``cam-hccl plan``. The plan cannot be changed.
    """
