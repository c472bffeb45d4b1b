"""Arrays in a GPU's memory: our own, and views of other libraries' arrays."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mosaic_gpu.errors import KernelError, ToolError
from mosaic_gpu.runtime import dlpack, driver
from mosaic_gpu.runtime.devices import Device, current_device, device
from mosaic_gpu.runtime.interface import Array

LEGACY_STREAM = 1
"""CU_STREAM_LEGACY: the stream 0 of processes that do not choose one a thread."""


class View(NamedTuple):
    """An array in a GPU's memory, whoever made it.

    Attributes:
      pointer: address of its first element.
      shape, dtype: as NumPy's.
      strides: bytes between neighbours along each dimension; None where they lie next to each other, the last dimension
        fastest (row-major).
      device: the GPU's number.
      stream: work on it that must be done before the array is read; 0 for none.
      owner: keeps the memory alive.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] | None
    device: int
    stream: int
    owner: Any


class DeviceArray:
    """A row-major array in a GPU's memory, which goes back to the driver with the object.

    Other libraries take it through DLPack (`torch.from_dlpack`, `jax.dlpack.from_dlpack`) or
    `__cuda_array_interface__` (CuPy, Numba); `numpy()` copies it to the host.
    """

    def __init__(self, shape: Sequence[int], dtype: Any, on: Device | None = None) -> None:
        """Memory with no particular contents, on the GPU `on` (None: the current one).

        Raises ToolError where the GPU has no room.
        """
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self.device = current_device() if on is None else on
        self.stream = 0
        self._pointer = 0
        if self.nbytes:
            with self.device.active(), driver.relaxed_capture():
                about = f"an array of {self.nbytes} bytes on {self.device.name}"
                self._pointer = int(driver.call("cuMemAlloc", self.nbytes, about=about))

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} on GPU {self.device.ordinal}>"

    def __del__(self) -> None:
        if getattr(self, "_pointer", 0) and not sys.is_finalizing():
            # A lost context refuses, and its memory is gone anyway.
            with contextlib.suppress(ToolError), self.device.active(), driver.relaxed_capture():
                driver.call("cuMemFree", self._pointer)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(math.prod(self.shape) * self.dtype.itemsize)

    @property
    def pointer(self) -> int:
        """The address of the first element; 0 for an array without elements."""
        return self._pointer

    @staticmethod
    def of(array: Array, on: Device | None = None) -> DeviceArray:
        """A copy of a host array."""
        given = np.asarray(array)
        made = DeviceArray(given.shape, given.dtype, on)
        made.fill(given)
        return made

    def fill(self, array: Array) -> None:
        """Copies a host array of this shape and dtype here; returns when that is done.

        The copy itself may return when the driver has read the host's memory only (CUDA driver API, "API
        synchronization behavior"), which streams that do not wait for the default one would notice.
        """
        given = np.ascontiguousarray(array)
        if self.nbytes:
            with self.device.active():
                driver.call("cuMemcpyHtoD", self._pointer, given.ctypes.data, self.nbytes)
                driver.call("cuStreamSynchronize", LEGACY_STREAM)

    def numpy(self) -> Array:
        """A copy on the host, made when the work on `stream` is done."""
        result = np.empty(self.shape, self.dtype)
        if self.nbytes:
            with self.device.active():
                driver.call("cuStreamSynchronize", self.stream)
                driver.call("cuMemcpyDtoH", result.ctypes.data, self._pointer, self.nbytes)
        return result

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._pointer, False),
            "strides": None,
            "stream": self.stream or LEGACY_STREAM,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.device.ordinal

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """A capsule; the taker's `stream` (None: the default one, -1: it takes care itself) waits for ours."""
        if stream != -1:
            with self.device.active():
                wait(self.stream, 0 if stream is None else int(stream))
        return dlpack.give(self._pointer, self.shape, self.dtype, self.device.ordinal, self)


def wait(first: int, then: int) -> None:
    """Makes the stream `then` wait for all work so far on the stream `first`, in the current context."""
    if first == then or {first, then} == {0, LEGACY_STREAM}:
        return
    cuda = driver.bindings()
    event = driver.call("cuEventCreate", cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)
    try:
        driver.call("cuEventRecord", event, first)
        driver.call("cuStreamWaitEvent", then, event, 0)
    finally:
        driver.call("cuEventDestroy", event)


def view_of(array: Any, stream: int) -> View | None:
    """The array as a GPU's memory, or None where it is on the host.

    Arguments:
      array: a `DeviceArray`, or anything with DLPack or `__cuda_array_interface__`.
      stream: that the array will be used on; what DLPack's producer has pending on it is waited for there.
    """
    if isinstance(array, DeviceArray):
        place = array.device.ordinal
        return View(array.pointer, array.shape, array.dtype, None, place, array.stream, array)
    if isinstance(array, np.ndarray | np.generic | int | float):
        return None
    if hasattr(array, "block_until_ready"):  # of JAX, whose streams are its own
        array.block_until_ready()
    return _by_interface(array) or _by_dlpack(array, stream)


def is_on_gpu(array: Any) -> bool:
    """Whether `array` lies in a GPU's memory."""
    if isinstance(array, DeviceArray):
        return True
    if isinstance(array, np.ndarray | np.generic | int | float):
        return False
    if hasattr(array, "__dlpack_device__"):
        try:
            return int(array.__dlpack_device__()[0]) in (dlpack.CUDA, dlpack.CUDA_MANAGED)
        except BufferError:  # spread over several devices: whoever wants it reads it through the host
            return False
    return _interface(array) is not None


def _interface(array: Any) -> dict[str, Any] | None:
    """`__cuda_array_interface__`; None where the library has none for this array, or for its dtype."""
    try:
        found: dict[str, Any] = array.__cuda_array_interface__
    except (AttributeError, TypeError, KeyError, RuntimeError):
        return None
    return None if found["typestr"][1] == "V" else found


def _by_interface(array: Any) -> View | None:
    found = _interface(array)
    if found is None:
        return None
    dtype, shape = np.dtype(found["typestr"]), tuple(found["shape"])
    pointer = int(found["data"][0])
    strides = _unless_row_major(shape, found.get("strides"), dtype.itemsize)
    return View(pointer, shape, dtype, strides, _device_of(array, pointer), int(found.get("stream") or 0), array)


def _device_of(array: Any, pointer: int) -> int:
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[1])
    cuda = driver.bindings()
    if pointer == 0:
        return current_device().ordinal
    return int(
        driver.call("cuPointerGetAttribute", cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer)
    )


def _by_dlpack(array: Any, stream: int) -> View | None:
    if not hasattr(array, "__dlpack__") or not is_on_gpu(array):
        return None
    with device(int(array.__dlpack_device__()[1])).active():
        try:
            capsule = array.__dlpack__(stream=stream or LEGACY_STREAM)
        except (BufferError, RuntimeError) as error:  # its library's own words, such as that it requires gradients
            raise KernelError(f"an array of {type(array).__module__} cannot be given to a kernel: {error}") from error
        taken = dlpack.take(capsule)
    strides = _unless_row_major(taken.shape, taken.strides, taken.dtype.itemsize)
    return View(taken.pointer, taken.shape, taken.dtype, strides, taken.device, 0, taken.owner)


def _unless_row_major(shape: Sequence[int], strides: Sequence[int] | None, itemsize: int) -> tuple[int, ...] | None:
    """Strides in bytes, or None where they are a row-major array's; those of dimensions of one element do not count."""
    if strides is None or 0 in shape:
        return None
    expected = itemsize
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return tuple(strides)
        expected *= size
    return None


def stream_number(stream: Any) -> int:
    """The driver's number of a stream: an int, or an object of PyTorch, CuPy, cuda-python (`__cuda_stream__`).

    Raises KernelError where it is none of these.
    """
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    try:
        return int(stream)
    except (TypeError, ValueError):
        raise KernelError("the stream is none", got=repr(stream), expected="a CUDA stream, or its address") from None
