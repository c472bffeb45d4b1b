"""The kernels of this package as a contender: from the compiler, or from a bundle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mosaic_gpu.errors import KernelError, MosaicGpuError
from mosaic_gpu.runtime.device_array import DeviceArray
from mosaic_gpu.runtime.devices import Device
from mosaic_gpu.runtime.dtypes import name_of
from mosaic_gpu.runtime.gpu_kernel import GpuKernel
from mosaic_gpu.runtime.interface import ArrayType
from mosaic_gpu.runtime.loaded import LoadedKernel

from .cases import OPERATIONS, Case
from .contender import Contender, Prepared
from .floats import Array, decode
from .memory import Rotation, poison, to_gpu

NAME = "mosaic_gpu"


def ours(kernel_of: Callable[[Case], GpuKernel], place: Device) -> Contender:
    """The contender; `kernel_of` gives the kernel of a case for the GPU `place`."""

    def prepare(case: Case, inputs: Rotation) -> Prepared:
        return _prepare(case, kernel_of(case), inputs, place)

    ways = {name: (f"examples/{_FILES.get(name, name)}.py", prepare) for name in OPERATIONS}
    return Contender(NAME, "", ways, (MosaicGpuError,))


_FILES = {"attention": "flash_attention"}


def _prepare(case: Case, kernel: GpuKernel, inputs: Rotation, place: Device) -> Prepared:
    launch = LoadedKernel(kernel, place).launch
    operands = [_operands(case, kernel, copy) for copy in inputs.copies]
    aliased = {result: operand for operand, result in kernel.aliases}
    results = [
        [
            given[aliased[i]] if i in aliased else DeviceArray(t.shape, t.memory_dtype)
            for i, t in enumerate(kernel.results)
        ]
        for given in operands
    ]
    for i, array in enumerate(results[0]):
        if i not in aliased:
            poison(array)
    pointers = [[a.pointer for a in (*given, *made)] for given, made in zip(operands, results, strict=True)]

    def run(number: int, _: object = (operands, results)) -> None:  # the arrays live as long as this
        launch(pointers[number % len(pointers)], 0)

    def first() -> list[tuple[Array, str]]:
        run(0)
        found = (array.numpy().view(t.dtype) for array, t in zip(results[0], kernel.results, strict=True))
        return [(decode(array), name_of(array.dtype)) for array in found]

    return Prepared(run, first)


def _operands(case: Case, kernel: GpuKernel, inputs: tuple[DeviceArray, ...]) -> list[DeviceArray]:
    """Of the kernel for one copy of the inputs: these themselves, and what else it takes."""
    if case.operation == "grouped_matmul":
        x, w, sizes = inputs
        host = (np.broadcast_to(np.uint8(0), x.shape), np.broadcast_to(np.uint8(0), w.shape), sizes.numpy())
        made = case.how.operands(case, host)
        operands = [*(to_gpu(array) for array in made[:-3]), x, w, to_gpu(made[-1])]
    else:
        operands = list(inputs)
    _check(case, kernel, operands)
    return operands


def _check(case: Case, kernel: GpuKernel, operands: list[DeviceArray]) -> None:
    """Raises KernelError where the kernel is not this case's: addresses alone would not tell."""
    found = [(a.shape, a.nbytes) for a in operands]
    wanted = [(t.shape, _bytes(t)) for t in kernel.operands]
    if found != wanted:
        raise KernelError(
            f"the kernel of {case.name} takes other arrays", got=[s for s, _ in found], expected=[s for s, _ in wanted],
            hint="make the bundle again: its cases have changed",
        )  # fmt: skip


def _bytes(array: ArrayType) -> int:
    return int(np.prod(array.shape, dtype=np.int64)) * array.memory_dtype.itemsize
