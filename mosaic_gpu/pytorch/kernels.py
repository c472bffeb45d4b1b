"""Kernels as steps: launched on CUDA tensors, simulated on CPU tensors."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.kernel import Compilation, compilation_of, gpu_kernel, kernel_call
from mosaic_gpu.lowering.kernel_call import KernelCall
from mosaic_gpu.pytorch.registry import Equation, executes, prepares
from mosaic_gpu.pytorch.values import (
    CARRIERS,
    dtype_name,
    from_numpy,
    to_numpy,
    uncarried,
    widened,
)
from mosaic_gpu.runtime.gpu import GpuCaller
from mosaic_gpu.runtime.gpu_kernel import POINTER_ALIGNMENT
from mosaic_gpu.runtime.interface import LoadedProgram
from mosaic_gpu.runtime.run import run
from mosaic_gpu.runtime.simulated import SimulatedRuntime


class TorchKernel:
    """A compiled kernel that runs on tensors that carry its operands' values.

    Operands are never written to: the memory of one that is aliased to a result is copied.
    """

    def __init__(self, call: KernelCall, compilation: Compilation) -> None:
        self.call, self.compilation = call, compilation
        program = compilation.program
        self.program = program
        self._dtypes = [dtype_name(t.dtype) for t in program.operands]
        self._results = [dtype_name(t.dtype) for t in program.results]
        self._aliased = {operand for operand, _ in program.aliases}
        self._lock = threading.Lock()

    def run(self, device: torch.device, operands: Sequence[Tensor], dtypes: Sequence[str]) -> list[Tensor]:
        """The results for operands of these dtypes, in new tensors."""
        if device.type == "cuda":
            return self._launch(device, operands, dtypes)
        if device.type != "cpu":
            raise UnsupportedError(f"kernels do not run on device {device}", expected="cuda or cpu")
        return self._simulate(operands, dtypes)

    @functools.cached_property
    def _simulation(self) -> LoadedProgram:
        return SimulatedRuntime().load(self.program)

    @functools.cached_property
    def _caller(self) -> GpuCaller:
        return GpuCaller(gpu_kernel(self.call, self.compilation))

    def _simulate(self, operands: Sequence[Tensor], dtypes: Sequence[str]) -> list[Tensor]:
        arrays = [to_numpy(x, name) for x, name in zip(operands, dtypes, strict=True)]
        with self._lock:
            simulation = self._simulation
        results, _ = run(self.program, simulation, arrays)
        return [from_numpy(array, name) for array, name in zip(results, self._results, strict=True)]

    def _launch(self, device: torch.device, operands: Sequence[Tensor], dtypes: Sequence[str]) -> list[Tensor]:
        with self._lock:
            caller = self._caller
        bounds = self.call.num_bounds
        given = [
            _launchable(x, name, i in self._aliased) for i, (x, name) in enumerate(zip(operands, dtypes, strict=True))
        ]
        given[:bounds] = [_bound(x, name) for x, name in zip(operands[:bounds], dtypes[:bounds], strict=True)]
        written = {result: given[operand] for operand, result in self.program.aliases}
        for i, (type_, name) in enumerate(zip(self.program.results, self._results, strict=True)):
            if i not in written:
                written[i] = _border(torch.empty(type_.shape, dtype=CARRIERS[name], device=device), name)
        results = [written[i] for i in range(len(self._results))]
        with torch.cuda.device(device):
            caller(given, results, torch.cuda.current_stream(device).cuda_stream)
        return [x.view(CARRIERS[name]) for x, name in zip(results, self._results, strict=True)]


class KernelCode:
    """A compiled kernel as code: see `code.Code`."""

    def __init__(self, call: KernelCall, compilation: Compilation) -> None:
        self._kernel = TorchKernel(call, compilation)
        operands, results = self._kernel.program.operands, self._kernel.program.results
        self._types = (*operands, *results)
        self.arguments = list(range(len(operands)))
        self.results = list(range(len(operands), len(self._types)))

    def avals(self, slots: Sequence[int]) -> list[Any]:
        """Types of operands and results."""
        return [self._types[slot] for slot in slots]

    def constant_memory(self, device: torch.device) -> set[int]:
        """There are no constants."""
        return set()

    def run(self, device: torch.device, operands: Sequence[Tensor]) -> list[Tensor]:
        """The results."""
        return self._kernel.run(device, operands, [dtype_name(self._types[i].dtype) for i in self.arguments])


def _border(tensor: Tensor, name: str) -> Tensor:
    """A carried tensor as kernels know it; 8-bit floats, which not every library has, as bytes."""
    return tensor if name.startswith("float8") else uncarried(tensor, name)


def _launchable(tensor: Tensor, name: str, written: bool) -> Tensor:
    """The tensor, or a copy where a kernel could not read it as it is, or where the kernel writes to it."""
    plain = tensor.contiguous()
    if plain is tensor and (written or tensor.data_ptr() % POINTER_ALIGNMENT):
        plain = tensor.clone(memory_format=torch.contiguous_format)
    return _border(plain, name)


def _bound(tensor: Tensor, name: str) -> Tensor:
    """A bound of the grid as kernels take it; see `as_bound`."""
    wide = widened(tensor.reshape(()), name)
    if name == "uint64":
        wide = torch.where(wide < 0, 2**31 - 1, wide)
    return wide.clamp(-1, 2**31 - 1).to(torch.int32)


@prepares("pallas_call")
def prepare_pallas_call(equation: Equation) -> None:
    """Compiles the kernel, so that what is wrong with it is told before anything runs."""
    call = kernel_call(equation.params, None, equation.avals_in)
    equation.cache["kernel"] = TorchKernel(call, compilation_of(call))


@executes("pallas_call")
def exec_pallas_call(device: torch.device, equation: Equation, *operands: Tensor, **_: Any) -> list[Tensor]:
    kernel: TorchKernel = equation.cache["kernel"]
    return kernel.run(device, operands, equation.dtypes_in)
