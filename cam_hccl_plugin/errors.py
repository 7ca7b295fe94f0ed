# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Everything the plugin raises on purpose.

Each message is one sentence or one list: what is wrong, what was found, what to do.
"""


class CamHcclError(Exception):
    """Base of all errors of this package; catching it catches nothing of vLLM's."""


class SettingsError(CamHcclError, ValueError):
    """The ``cam_hccl`` flag is wrong; the message lists every problem in it."""


class PlanError(CamHcclError, ValueError):
    """A size cannot be decided, or does not fit: missing input, bad topology, small device."""


class SeamError(CamHcclError, RuntimeError):
    """Upstream no longer has the function or the parameters that the plugin hooks."""


class InjectionError(CamHcclError, RuntimeError):
    """A decided size did not reach the communicator."""
