# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Whole CAM worlds on one CPU machine, on the real torch-npu: see README.md."""
