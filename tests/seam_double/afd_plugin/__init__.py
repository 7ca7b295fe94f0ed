# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A double of the afd-plugin seam, written from the facts; see README.md beside this package.

Importing it needs neither torch nor vLLM.  ``SEAM_DOUBLE_GENERATION`` (``a`` or ``b``, read
when the modules are imported) selects which generation of the seam is played.
"""

__version__ = "0.0.0+double"

_registrations = 0


def register_afd() -> None:
    """What the ``vllm.general_plugins`` entry point ``afd`` calls; may be called repeatedly."""
    global _registrations
    _registrations += 1
