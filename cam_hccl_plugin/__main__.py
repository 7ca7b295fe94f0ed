# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``python -m cam_hccl_plugin``, the same as ``cam-hccl``."""

from __future__ import annotations

import sys

from cam_hccl_plugin.cli import main

if __name__ == "__main__":
    sys.exit(main())
