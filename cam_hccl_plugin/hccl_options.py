# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The torch-npu side: options made from a plan entry, the read-back, and device memory.

torch and torch_npu are imported inside the functions: importing torch_npu needs the CANN
libraries, and only a worker that is about to create a group has reason to.
"""

from __future__ import annotations

from typing import Any

from cam_hccl_plugin.errors import InjectionError
from cam_hccl_plugin.log import LOGGER
from cam_hccl_plugin.model_config import is_positive_int
from cam_hccl_plugin.settings import MAX_BUFFER_MIB

BUFFER_KEY = "hccl_buffer_size"
"""Key of the buffer size, in MB, in ``ProcessGroupHCCL.Options().hccl_config``."""


_UNDEFINED = "undefined"
"""torch's name of the backend of a group that is made without naming one."""


def is_hccl(backend: Any) -> bool:
    """Whether a torch-distributed backend creates an HCCL group for some device.

    Without a name (upstream takes ``None`` and ``""`` as such) torch takes a backend per device,
    and torch-npu has made HCCL the one for its own.
    """
    text = str(backend or _UNDEFINED).lower()
    if text == _UNDEFINED:
        text = _backends_per_device().lower()
    return any(part.rpartition(":")[2].strip() == "hccl" for part in text.split(","))


def _backends_per_device() -> str:
    try:
        from torch.distributed.distributed_c10d import Backend, BackendConfig

        return str(BackendConfig(Backend(_UNDEFINED)))
    except (ImportError, AttributeError, ValueError):
        return ""  # a torch without distributed: no group can be made


_TORCH_NPU_ERRORS = (
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a torch-npu raises that does not fit, at import or when it is asked."""


def require_options() -> None:
    """Check that options can be made at all, while no rank waits for this one yet.

    A torch-npu that is not installed is left to the connector: without it there is no HCCL
    backend, and no rendezvous to wait in.

    Raises:
        InjectionError: torch-npu cannot be imported, or has no such options.
    """
    try:
        _options_class()
    except InjectionError as error:
        cause = error.__cause__
        if not (isinstance(cause, ModuleNotFoundError) and cause.name == "torch_npu"):
            raise


def _options_class() -> Any:
    try:
        import torch_npu

        return torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options
    except _TORCH_NPU_ERRORS as error:
        raise InjectionError(
            "cam_hccl cannot size HCCL groups: torch_npu has no usable ProcessGroupHCCL.Options "
            f"({type(error).__name__}: {error}); install the torch-npu and CANN that fit this "
            "torch, or switch the plugin off"
        ) from error


def check_options(group_name: str, options: Any) -> None:
    """Refuse options that torch-npu would ignore, or refuse only once the group exists.

    Raises:
        InjectionError: ``options`` is neither ``None`` nor ``ProcessGroupHCCL.Options``, or its
            size is none that HCCL can be given.
    """
    if options is not None and not isinstance(options, _options_class()):
        kind = type(options)
        raise InjectionError(
            f"group {group_name} is created with pg_options of type {kind.__module__}."
            f"{kind.__qualname__}; an HCCL group takes ProcessGroupHCCL.Options only and ignores "
            "any other type silently; correct the connector or switch the plugin off"
        )
    size = explicit_size(options)
    if size is not None and not (is_positive_int(size) and size <= MAX_BUFFER_MIB):
        raise InjectionError(
            f"group {group_name} is created with {BUFFER_KEY} {size!r} in its own options, allowed "
            f"is an integer from 1 to {MAX_BUFFER_MIB} (MB); correct or remove {BUFFER_KEY} in "
            "connector_extra_config"
        )


def explicit_size(options: Any) -> Any:
    """The size in the caller's own options, ``None`` if they carry none."""
    return None if options is None else dict(options.hccl_config).get(BUFFER_KEY)


def sized_options(size_mib: int, options: Any) -> Any:
    """Fresh options with ``size_mib`` and everything that the caller's options carry.

    The caller's object is not touched: a group keeps a copy of its options, and torch-npu
    writes into the object that it is handed.
    """
    fresh = _options_class()()
    config: dict[str, Any] = {}
    if options is not None:
        _copy_public_attributes(options, fresh)
        config = dict(options.hccl_config)
    config[BUFFER_KEY] = size_mib
    fresh.hccl_config = config
    return fresh


def _copy_public_attributes(source: Any, target: Any) -> None:
    for name in dir(source):
        if name.startswith("_") or name == "hccl_config":
            continue
        value = getattr(source, name)
        if callable(value):
            continue
        try:
            setattr(target, name, value)
        except AttributeError:
            continue  # read-only, e.g. the backend's name: the fresh object has its own


def read_back(group: Any) -> Any:
    """The size that torch-npu holds for a created group, ``None`` if it holds none.

    Raises:
        InjectionError: the group has no HCCL backend to ask.
    """
    import torch

    try:
        config = group._get_backend(torch.device("npu")).options.hccl_config
    except (AttributeError, RuntimeError, TypeError) as error:
        raise InjectionError(
            f"cannot read back the options of an HCCL group ({type(error).__name__}: {error}); "
            "this torch-npu is not supported"
        ) from error
    return dict(config).get(BUFFER_KEY)


def close_group(group: Any) -> None:
    """Destroy a group that must not be used, so that its name is free again.

    An error is on its way already: a failure to close is logged and does not replace it.
    """
    import torch

    try:
        torch.distributed.destroy_process_group(group)
    except (AssertionError, AttributeError, RuntimeError, ValueError) as error:
        LOGGER.warning("cam_hccl: a group could not be closed: %s", error)


def device_total_bytes() -> int:
    """Total memory of this worker's device, in bytes.

    Source: ``torch.npu.mem_get_info()[1]``; vLLM's platform call is not used, because
    asking it early initialises torch-npu twice.

    Raises:
        InjectionError: it cannot be read, with the reason.
    """
    try:
        import torch
        import torch_npu  # noqa: F401 - provides torch.npu

        total = int(torch.npu.mem_get_info()[1])
    except _TORCH_NPU_ERRORS as error:
        raise InjectionError(f"{type(error).__name__}: {error}") from error
    if total <= 0:
        raise InjectionError(f"torch.npu.mem_get_info() reports a total of {total} bytes")
    return total
