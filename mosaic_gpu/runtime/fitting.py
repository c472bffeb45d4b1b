"""Whether arrays are what a kernel takes, and copies of operands that are not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mosaic_gpu.errors import KernelError
from mosaic_gpu.runtime import driver
from mosaic_gpu.runtime.device_array import DeviceArray, View, wait
from mosaic_gpu.runtime.devices import Device
from mosaic_gpu.runtime.dtypes import name_of
from mosaic_gpu.runtime.gather import MAX_RANK, gather, merged
from mosaic_gpu.runtime.gpu_kernel import POINTER_ALIGNMENT
from mosaic_gpu.runtime.interface import ArrayType
from mosaic_gpu.runtime.run import as_bound
from mosaic_gpu.runtime.scalars import address_of


def _fits(view: View, type_: ArrayType, place: Device) -> bool:
    """Whether nothing is wrong with an array, which `_refuse` would name."""
    return (
        view.shape == type_.shape
        and view.dtype == type_.dtype
        and view.strides is None
        and view.pointer % POINTER_ALIGNMENT == 0
        and view.device == place.ordinal
    )


def check_view(view: View, type_: ArrayType, place: Device, what: str, number: int, kernel: str) -> None:
    """Raises KernelError where an array is not what argument `number` of a kernel must be."""
    if not _fits(view, type_, place):
        _refuse(view, type_, place, f"{what} {number} of kernel {kernel!r}")


def _refuse(view: View, type_: ArrayType, place: Device, name: str) -> None:
    """Raises the KernelError of what is wrong with an array, if anything is."""
    _refuse_type(view, type_, name)
    if view.strides is not None:
        raise KernelError(f"{name} is not row-major", hint="pass a contiguous copy (PyTorch: x.contiguous())")
    if view.pointer % POINTER_ALIGNMENT and 0 not in view.shape:
        raise KernelError(
            f"{name} starts at an address that {POINTER_ALIGNMENT} does not divide",
            got=hex(view.pointer),
            hint="pass a copy: a slice can start anywhere",
        )
    if view.device != place.ordinal:
        raise KernelError(f"{name} is on another GPU", got=f"GPU {view.device}", expected=f"GPU {place.ordinal}")


def _refuse_type(view: View, type_: ArrayType, name: str) -> None:
    dtypes = {type_.dtype, type_.memory_dtype}
    if name_of(type_.dtype).startswith("float8"):  # some libraries have no name for it
        dtypes.add(np.dtype(np.uint8))
    if view.shape != type_.shape or view.dtype not in dtypes:
        raise KernelError(
            f"{name} has another type than it was compiled for",
            got=f"{name_of(view.dtype)}{list(view.shape)}",
            expected=f"{name_of(type_.dtype)}{list(type_.shape)}",
            hint="compile the kernel again for arrays of these shapes and dtypes",
        )


def copied(array: Any, type_: ArrayType, place: Device, stream: int, name: str) -> View:
    """A host array on the GPU.  A Python number takes the operand's dtype."""
    if isinstance(array, int | float) and not isinstance(array, np.generic):
        array = np.asarray(array, type_.dtype)
    host = np.asarray(array)
    if host.shape != type_.shape or host.dtype not in (type_.dtype, type_.memory_dtype):
        got, expected = f"{name_of(host.dtype)}{list(host.shape)}", f"{name_of(type_.dtype)}{list(type_.shape)}"
        raise KernelError(f"{name} has another type than it was compiled for", got=got, expected=expected)
    if _is_capturing(stream):
        raise KernelError(
            f"{name} is on the host, and cannot be copied while a CUDA graph is captured",
            hint="copy it to the GPU before",
        )
    copy = DeviceArray.of(host.astype(type_.memory_dtype, copy=False), place)
    return View(copy.pointer, type_.shape, copy.dtype, None, place.ordinal, 0, copy)


def needs_copy(view: View) -> bool:
    """Whether an array is not row-major, or starts where no array may."""
    return view.strides is not None or (view.pointer % POINTER_ALIGNMENT != 0 and 0 not in view.shape)


def row_major(view: View, place: Device, stream: int) -> View:
    """A row-major copy, made on `stream`, of an array that lies otherwise; the array itself where that cannot be."""
    strides, element_bytes = _strides_of(view), view.dtype.itemsize
    is_aligned = all(number % element_bytes == 0 for number in (view.pointer, *strides))
    is_known = element_bytes <= 8 and len(merged(view.shape, strides)) <= MAX_RANK
    if not is_known or not is_aligned or view.device != place.ordinal or _is_capturing(stream):
        return view  # of a copy, a graph would outlive it
    copy = DeviceArray(view.shape, view.dtype, place)
    if view.stream:
        wait(view.stream, stream)
    gather(view.pointer, copy.pointer, view.shape, strides, element_bytes, place, stream)
    return View(copy.pointer, view.shape, view.dtype, None, place.ordinal, 0, copy)


def _strides_of(view: View) -> tuple[int, ...]:
    if view.strides is not None:
        return view.strides
    return tuple(view.dtype.itemsize * math.prod(view.shape[i + 1 :]) for i in range(len(view.shape)))


def bound_view(bound: Any, place: Device) -> View:
    """A bound of the grid that the host holds."""
    number = int(as_bound(np.asarray(bound)))
    return View(address_of(number, place), (), np.dtype(np.int32), None, place.ordinal, 0, None)


def _is_capturing(stream: int) -> bool:
    return int(driver.call("cuStreamIsCapturing", stream)) != 0
