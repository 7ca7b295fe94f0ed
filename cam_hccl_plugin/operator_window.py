# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What a CAM operator build believes its window is, compared with what it has.

The host side of some builds reads an environment variable instead of asking the
communicator. Diagnosis only: the variables are never written.
Source: the operators' public code and upstream's revert of its first per-connector option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cam_hccl_plugin.environment import (
    HCCL_BUFFSIZE,
    LCCL_BUFFER_SIZE,
    leading_integer,
    read_buffsize,
)
from cam_hccl_plugin.model import MiB, Role, SizeSource
from cam_hccl_plugin.operators import MAX_WINDOW_MIB
from cam_hccl_plugin.sizing import buffer_mib

LCCL_DEFAULT_MIB = 408
"""Window of the operators built from source where ``LCCL_BUFFER_SIZE`` is not set."""

_STEPS = ("dispatch_send", "dispatch_recv", "combine_send", "combine_recv")


@dataclass(frozen=True)
class OperatorBuild:
    """One build of the CAM Async operators.

    ``namespace`` and ``operators`` are where torch registers it (``torch.ops``);
    ``variable`` is the environment variable that its host side reads.
    """

    name: str
    namespace: str
    operators: tuple[str, ...]
    variable: str

    def believed_mib(self, raw: str | None) -> int:
        """The window that this build believes in if its variable is ``raw``, in MiB."""
        if self.variable == HCCL_BUFFSIZE:
            return read_buffsize(raw).effective_mib
        value = leading_integer(raw) if raw is not None else None
        if value is None or not -(2**31) <= value < 2**31:  # C++ stoi throws: as if unset
            return LCCL_DEFAULT_MIB
        return min(value, MAX_WINDOW_MIB) if value >= 0 else 2**44 + value  # unsigned 64-bit bytes


BINARY_BUILD = OperatorBuild(
    "binary package umdk_cam_op_lib",
    "umdk_cam_op_lib",
    tuple(f"async_{step}" for step in _STEPS),
    HCCL_BUFFSIZE,
)
SOURCE_BUILD = OperatorBuild(
    "built from source (afd_ascend)",
    "afd_ascend",
    tuple(f"afd_async_{step}" for step in _STEPS),
    LCCL_BUFFER_SIZE,
)
BUILDS = (BINARY_BUILD, SOURCE_BUILD)
"""The builds that believe a variable. CAMP2P's operators (a2e, e2a) believe nothing."""


@dataclass(frozen=True)
class WindowCheck:
    """One build's window in one group of one role; sizes in MiB, the need in bytes.

    ``source`` is where the buffer's size came from: it decides which remedy has an effect.
    ``follow`` says that the size is one before ``operator_window`` "follow" raises it.
    """

    build: OperatorBuild
    role: Role
    group: str
    raw: str | None
    buffer_mib: int
    operator_bytes: int | None
    source: SizeSource = SizeSource.DERIVED
    follow: bool = False

    @property
    def believed_mib(self) -> int:
        """The window that the build believes in."""
        return self.build.believed_mib(self.raw)

    @property
    def too_small(self) -> bool:
        """Whether the operator will refuse to launch."""
        return self.operator_bytes is not None and self.believed_mib * MiB < self.operator_bytes

    @property
    def too_large(self) -> bool:
        """Whether the believed window ends beyond the communicator's buffer."""
        return self.believed_mib > self.buffer_mib

    @property
    def followed(self) -> bool:
        """Whether a worker with this build loaded raises the buffer to the believed window."""
        return self.follow and self.too_large and self.source is SizeSource.DERIVED

    @property
    def wanted_mib(self) -> int:
        """The value of the variable that fits the operator's need, or else the buffer."""
        need = 0 if self.operator_bytes is None else buffer_mib(self.operator_bytes)
        return max(self.buffer_mib, need)

    @property
    def export_line(self) -> str:
        """The shell line that a user could add by hand for every rank of this role."""
        return f"export {self.build.variable}={self.wanted_mib}"

    @property
    def _too_large_remedy(self) -> str:
        size = max(self.believed_mib, self.wanted_mib)
        remedies = []
        if self.buffer_mib >= self.wanted_mib:  # no value of the variable fits a smaller buffer
            everywhere = " (it resizes every HCCL group without a size of its own, too)"
            remedies.append(
                f"lower {self.build.variable} to {self.wanted_mib}"
                f"{everywhere if self.build.variable == HCCL_BUFFSIZE else ''}"
            )
        if self.source is SizeSource.CALLER:
            remedies.append(f"set hccl_buffer_size in connector_extra_config to {size}")
        else:
            remedies.append(f'set cam_hccl.group_buffer_size_mb {{"{self.group}": {size}}}')
        if self.source is SizeSource.DERIVED:
            remedies.append('set cam_hccl.operator_window "follow"')
        return ", or ".join(remedies)

    def warnings(self) -> list[str]:
        """One sentence per fault: variable, numbers and remedy."""
        shown = f"{self.build.variable}={'unset' if self.raw is None else self.raw}"
        belief = f"operator window ({self.build.name}): {shown} makes it {self.believed_mib} MB"
        found = []
        if self.too_small and self.operator_bytes is not None:
            need = buffer_mib(self.operator_bytes)
            found.append(
                f"{belief}, below the {self.role.value} operator need of {self.operator_bytes} "
                f"bytes ({need} MB): the operator will refuse to launch ('tiling failed'), "
                f"whatever group {self.group} holds; {self.export_line} on every {self.role.value} "
                "rank"
            )
        if self.too_large and not self.followed:
            found.append(
                f"{belief}, but group {self.group} holds {self.buffer_mib} MB: dispatch-recv keeps "
                f"a 32-byte progress record at the end of the window it believes in, which is "
                f"beyond the buffer; {self._too_large_remedy}"
            )
        return found


def followed_mib(
    size_mib: int, builds: tuple[OperatorBuild, ...], environment: Mapping[str, str | None]
) -> int:
    """The size raised to the largest window that a loaded build believes in, in MiB."""
    believed = [build.believed_mib(environment.get(build.variable)) for build in builds]
    return max([size_mib, *believed])
