"""The GPUs of this machine and their primary contexts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from mosaic_gpu.errors import ToolError
from mosaic_gpu.runtime import driver

_ATTRIBUTES = {
    "major": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
    "minor": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
    "multiprocessors": "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT",
    "max_shared_bytes": "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
}


@dataclass(frozen=True)
class Device:
    """A GPU.  Its primary context, which JAX and PyTorch use too, is held for the life of the process.

    Attributes:
      ordinal: number of the GPU as the driver counts, from 0.
      name: the driver's name for it.
      capability: compute capability (major, minor).
      multiprocessors: how many it has.
      max_shared_bytes: shared memory that one block may opt in to.
      context: the primary context.
    """

    ordinal: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    max_shared_bytes: int
    context: Any = field(repr=False)

    def active(self) -> InContext:
        """A context manager: inside, the context is this thread's current one."""
        return InContext(self.context)


class InContext:
    """Makes a context the thread's current one, unless it is."""

    __slots__ = ("_context", "_is_pushed")

    def __init__(self, context: Any) -> None:
        self._context = context
        self._is_pushed = False

    def __enter__(self) -> None:
        if int(driver.call("cuCtxGetCurrent")) != int(self._context):
            driver.call("cuCtxPushCurrent", self._context)
            self._is_pushed = True

    def __exit__(self, *_: object) -> None:
        if self._is_pushed:
            driver.call("cuCtxPopCurrent")


def device_count() -> int:
    """How many GPUs there are; 0 without a driver, or where it does not work."""
    if not driver.is_installed():
        return 0
    try:
        return int(driver.call("cuDeviceGetCount"))
    except ToolError:
        return 0


@cache
def device(ordinal: int) -> Device:
    """The GPU `ordinal`.  Raises ToolError where there is none."""
    cuda = driver.bindings()
    handle = driver.call("cuDeviceGet", ordinal)
    numbers = {
        key: int(driver.call("cuDeviceGetAttribute", getattr(cuda.CUdevice_attribute, name), handle))
        for key, name in _ATTRIBUTES.items()
    }
    name = driver.call("cuDeviceGetName", 256, handle).split(b"\0", 1)[0].decode()
    context = driver.call("cuDevicePrimaryCtxRetain", handle)
    capability = (numbers["major"], numbers["minor"])
    return Device(ordinal, name, capability, numbers["multiprocessors"], numbers["max_shared_bytes"], context)


def current_device() -> Device:
    """The GPU of this thread's current context; the first one where there is none."""
    has_context = int(driver.call("cuCtxGetCurrent")) != 0
    return device(int(driver.call("cuCtxGetDevice")) if has_context else 0)


@cache
def default_target() -> str | None:
    """The architecture to compile for on this machine; None without a GPU, or for one that is not supported.

    The name with an "a" where the table has it: all of the GPU's instructions.
    """
    from mosaic_gpu.lowering.targets import TARGETS

    if device_count() == 0:
        return None
    cuda = driver.bindings()
    handle = driver.call("cuDeviceGet", 0)
    major, minor = (
        int(driver.call("cuDeviceGetAttribute", getattr(cuda.CUdevice_attribute, _ATTRIBUTES[key]), handle))
        for key in ("major", "minor")
    )
    return next((name for name in (f"sm_{major}{minor}a", f"sm_{major}{minor}") if name in TARGETS), None)
