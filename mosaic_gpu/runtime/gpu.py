"""Calling a kernel on arrays in a GPU's memory."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from mosaic_gpu.errors import KernelError
from mosaic_gpu.runtime import driver, loaded
from mosaic_gpu.runtime.buffers import uninitialised
from mosaic_gpu.runtime.device_array import LEGACY_STREAM, DeviceArray, View, is_on_gpu, stream_number, view_of, wait
from mosaic_gpu.runtime.devices import Device, current_device, device
from mosaic_gpu.runtime.dtypes import name_of
from mosaic_gpu.runtime.fitting import bound_view, check_view, copied, needs_copy, row_major
from mosaic_gpu.runtime.gpu_kernel import GpuKernel
from mosaic_gpu.runtime.interface import ArrayType
from mosaic_gpu.runtime.known_sizes import KnownSizes, given_types, known_sizes
from mosaic_gpu.runtime.loaded import LoadedKernel
from mosaic_gpu.runtime.scalars import address_of


class GpuCaller:
    """A kernel that is called with arrays; loaded into each GPU when it first runs there."""

    def __init__(self, kernel: GpuKernel) -> None:
        self.kernel = kernel
        self._types = given_types(kernel)
        self._told = len(kernel.operands) - len(self._types)
        self._aliased = {operand for operand, _ in kernel.aliases}
        is_open = kernel.symbols or self._told
        self._fixed = None if is_open else known_sizes(kernel, [t.shape for t in self._types])
        self._loaded: dict[int, LoadedKernel] = {}
        self._lock = threading.Lock()

    def __call__(self, operands: Sequence[Any], out: Sequence[Any] | None = None, stream: Any = None) -> list[Any]:
        """Launches the kernel and returns at once: its results, arrays that the stream will have written.

        Arguments:
          operands: arrays in one GPU's memory (a `DeviceArray`, or anything with DLPack or
            `__cuda_array_interface__`), and arrays of the host, which are copied there.
          out: arrays to write the results to; None makes new ones, of the library of the first operand on the GPU.  A
            result that aliases an operand is that operand itself, and needs none: its entry is ignored.
          stream: a CUDA stream of any library, or its address; None takes the current one of the operands' library.

        Raises:
          KernelError: an array does not fit: its shape, dtype, strides, alignment or GPU.
          ToolError: the driver refuses.
        """
        _check_count("operands", operands, self._types, self.kernel.name)
        first = next((a for a in operands if is_on_gpu(a)), None)
        number = _current_stream(first) if stream is None else stream_number(stream)
        views = [view_of(a, number) for a in operands]
        known = self._fixed
        if known is None:
            shapes = [np.shape(a) if v is None else v.shape for a, v in zip(operands, views, strict=True)]
            known = known_sizes(self.kernel, shapes)
            operands, views = known.with_bounds(operands), known.with_bounds(views)
        place = next((device(v.device) for v in views if isinstance(v, View)), None) or current_device()
        with place.active():
            given = self._operands(operands, views, known.operands, place, number)
            results, targets = self._results(given, operands, known.results, out, first, place, number)
            for view in (*given, *targets):
                if view.stream:
                    wait(view.stream, number)
            self._launch(given, targets, known, place, number)
        for result in results:
            if isinstance(result, DeviceArray):
                result.stream = number
        return [_as_library_of(first, r) for r in results]

    def _launch(
        self, given: Sequence[View], targets: Sequence[View], known: KnownSizes, place: Device, stream: int
    ) -> None:
        if 0 in self.kernel.grid:
            self._write_untouched(targets, known.results, stream)
            return
        if place.ordinal not in self._loaded:
            with self._lock:
                if place.ordinal not in self._loaded:
                    self._loaded[place.ordinal] = loaded.take(self.kernel, place)
        pointers = [v.pointer for v in (*given, *targets)]
        bounds = len(known.bounds)
        pointers[bounds:bounds] = [address_of(number, place) for number in known.symbols]
        self._loaded[place.ordinal].launch(pointers, stream)

    def _operands(
        self, operands: Sequence[Any], views: Sequence[Any], types: Sequence[ArrayType], place: Device, stream: int
    ) -> list[View]:
        """Each operand as a view that fits; those of the host are copied to the GPU."""
        checked = []
        bounds, told = len(self.kernel.bound_sizes), self._told
        for i, (array, view, type_) in enumerate(zip(operands, views, types, strict=True)):
            if not isinstance(view, View):
                name = f"operand {i - told} of kernel {self.kernel.name!r}"
                view = bound_view(array, place) if i < bounds else copied(array, type_, place, stream, name)
            elif i not in self._aliased and view.shape == type_.shape and needs_copy(view):
                view = row_major(view, place, stream)
            check_view(view, type_, place, "operand", i - told, self.kernel.name)
            checked.append(view)
        return checked

    def _results(
        self, given: Sequence[View], operands: Sequence[Any], types: Sequence[ArrayType], out: Sequence[Any] | None,
        first: Any, place: Device, stream: int,
    ) -> tuple[list[Any], list[View]]:  # fmt: skip
        """The arrays that are returned, and the memory they are."""
        kernel = self.kernel
        if out is not None:
            _check_count("arrays to write results to", out, types, kernel.name)
        aliased = {result: operand for operand, result in kernel.aliases}
        arrays: list[Any] = []
        views: list[View] = []
        for i, type_ in enumerate(types):
            if i in aliased:
                view = given[aliased[i]]
                arrays.append(view.owner if isinstance(view.owner, DeviceArray) else operands[aliased[i]])
            else:
                arrays.append(_new(type_, first, place) if out is None else out[i])
                found = view_of(arrays[-1], stream)
                if found is None:
                    raise KernelError(
                        f"result {i} of kernel {kernel.name!r} is to be written to an array that is not on a GPU",
                        got=type(arrays[-1]),
                    )
                view = found
            check_view(view, type_, place, "result", i, kernel.name)
            views.append(view)
        return arrays, views

    def _write_untouched(self, targets: Sequence[View], types: Sequence[ArrayType], stream: int) -> None:
        """An empty grid: no launch, and the same values as on the simulator."""
        aliased = {result for _, result in self.kernel.aliases}
        for i, (view, type_) in enumerate(zip(targets, types, strict=True)):
            value = uninitialised(type_)
            if i not in aliased and value.nbytes:
                driver.call("cuMemcpyHtoDAsync", view.pointer, value.ctypes.data, value.nbytes, stream)
                driver.call("cuStreamSynchronize", stream)

    def unload(self) -> None:
        """Gives the code back to the driver, unless an equal kernel of another caller needs it.

        A graph that holds the kernel must not be launched again.
        """
        with self._lock:
            while self._loaded:
                loaded.give_back(self._loaded.popitem()[1])


def _check_count(what: str, arrays: Sequence[Any], types: Sequence[ArrayType], name: str) -> None:
    if len(arrays) != len(types):
        raise KernelError(f"kernel {name!r} was given the wrong number of {what}", got=len(arrays), expected=len(types))


def _current_stream(array: Any) -> int:
    """The stream that the library of `array` works on now; the default one where it does not tell."""
    library = _library(array)
    if library == "torch":
        return int(sys.modules["torch"].cuda.current_stream(array.device).cuda_stream)
    if library == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    if isinstance(array, DeviceArray):
        return array.stream
    return LEGACY_STREAM


def _library(array: Any) -> str:
    """The top-level package of an array's class."""
    name = type(array).__module__.split(".", 1)[0]
    return "jax" if name == "jaxlib" else name


def _new(type_: ArrayType, like: Any, place: Device) -> Any:
    """An array for a result: PyTorch's or CuPy's own where `like` is theirs, so that their allocators know of it."""
    library, dtype = _library(like), type_.memory_dtype
    if library == "torch":
        torch = sys.modules["torch"]
        return torch.empty(type_.shape, dtype=getattr(torch, name_of(dtype)), device=like.device)
    if library == "cupy" and dtype.kind != "V":
        return sys.modules["cupy"].empty(type_.shape, dtype)
    return DeviceArray(type_.shape, dtype, place)


def _as_library_of(first: Any, result: Any) -> Any:
    """A result as an array of JAX where the operands are JAX's; else as it is."""
    if _library(first) == "jax" and isinstance(result, DeviceArray):
        return sys.modules["jax"].dlpack.from_dlpack(result)
    return result
