# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The replaced upstream attributes: the only folder that names afd_plugin.

One module per patch. Importing never patches; installing is a call and can be undone.
"""
