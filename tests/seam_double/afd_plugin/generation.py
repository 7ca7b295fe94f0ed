# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Which generation of the upstream seam the double plays.

``a``: connectors pass no ``pg_options`` and refuse an ``hccl_buffer_size`` key.
``b``: connectors accept ``connector_extra_config.hccl_buffer_size`` and pass options built
from it, or ``None``; ``init_afd_process_group`` also takes ``on_rendezvous``.
"""

import os

GENERATION = os.environ.get("SEAM_DOUBLE_GENERATION", "a")
if GENERATION not in ("a", "b"):
    raise ValueError(f"SEAM_DOUBLE_GENERATION must be 'a' or 'b', got {GENERATION!r}")
TAKES_BUFFER_SIZE = GENERATION == "b"
