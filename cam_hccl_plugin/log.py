# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The plugin's logger.

vLLM gives a handler to loggers below ``vllm`` only; a record on any other logger is
dropped at default settings.
"""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("vllm.cam_hccl")


class RankLog:
    """Log lines that the configuration causes: the same on every rank, so one rank speaks.

    INFO and WARNING where ``first`` (local rank 0, or a launcher that shows each process
    one device), DEBUG elsewhere.
    """

    def __init__(self, first: bool) -> None:
        self._first = first

    def info(self, message: str) -> None:
        """Log at INFO on the first rank."""
        self._log(logging.INFO, message)

    def warning(self, message: str) -> None:
        """Log at WARNING on the first rank."""
        self._log(logging.WARNING, message)

    def _log(self, level: int, message: str) -> None:
        # stacklevel: vLLM prints the file and line, which should be those of the caller
        LOGGER.log(level if self._first else logging.DEBUG, "cam_hccl: %s", message, stacklevel=3)
