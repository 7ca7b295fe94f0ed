# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Whether any extension can be installed, looked up before the slow way to find out which.

importlib.metadata takes longer to load than a whole plan; with no extension in sight
``cam-hccl`` does without it. In doubt the answer is yes.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

from cam_hccl_plugin.hookspecs import PROJECT_NAME

_METADATA_ENDINGS = (".dist-info", ".egg-info", "EGG-INFO", ".egg", ".egg-link")
_GROUP = f"[{PROJECT_NAME}]".encode()


def may_be_installed() -> bool:
    """Whether a distribution on ``sys.path`` may have entry points of our group."""
    others = [f for f in sys.meta_path if f is not PathFinder]
    if any(hasattr(finder, "find_distributions") for finder in others):
        return True
    return any(_folder_may_hold_one(folder) for folder in dict.fromkeys(sys.path))


def _folder_may_hold_one(folder: str) -> bool:
    try:
        names = os.listdir(folder or os.curdir)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # a zip file or a folder that only importlib can read
    return any(
        _names_our_group(os.path.join(folder, name))
        for name in names
        if name.endswith(_METADATA_ENDINGS)
    )


def _names_our_group(metadata: str) -> bool:
    if not metadata.endswith((".dist-info", ".egg-info")):
        return True  # an old layout: ask importlib
    try:
        with open(os.path.join(metadata, "entry_points.txt"), "rb") as file:
            return _GROUP in file.read().replace(b" ", b"")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
