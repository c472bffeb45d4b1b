"""From the parameters of a `pallas_call` equation to compiled code, each made once."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from mosaic_gpu.checks import check_params
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.lowering.kernel_call import KernelCall
from mosaic_gpu.lowering.targets import parse_target
from mosaic_gpu.options import DEFAULT_TARGET, CompilerParams, lowering_options
from mosaic_gpu.runtime.devices import default_target
from mosaic_gpu.runtime.gpu_kernel import GpuKernel
from mosaic_gpu.runtime.interface import ArrayType, Program
from mosaic_gpu.runtime.sizes import Size

if TYPE_CHECKING:
    from mosaic_gpu.lowering.pipeline import Observer


def kernel_call(
    params: Mapping[str, Any],
    target: str | None = None,
    bounds: Sequence[Any] = (),
    bound_sizes: tuple[str | None, ...] = (),
) -> KernelCall:
    """The `KernelCall` of an equation's parameters, checked.

    Arguments:
      target: takes the place of the target in the compiler parameters.
      bounds: abstract values of the equation's operands; the first are the grid's bounds that are computed.
      bound_sizes: see `KernelCall`.

    Raises:
      KernelError, UnsupportedError: a rule is broken (see `checks`); no IR was made.
    """
    given = params["compiler_params"]
    choices = given if isinstance(given, CompilerParams) else CompilerParams()
    if target is None:
        target = choices.target or default_target() or DEFAULT_TARGET
    check_params(params, choices, target, bounds)
    mapping = params["grid_mapping"]
    return KernelCall(
        name=kernel_name(params["jaxpr"]),
        jaxpr=params["jaxpr"],
        grid_mapping=mapping,
        out_avals=tuple(params["out_avals"]),
        input_output_aliases=tuple(params["input_output_aliases"]),
        options=lowering_options(choices, parse_target(target).name, mapping.vmapped_dims, len(mapping.grid)),
        bound_sizes=bound_sizes,
    )


def kernel_name(jaxpr: Any) -> str:
    """The kernel's name as an identifier of PTX (PTX ISA 4.4): the `name=` given, or its function's."""
    name = re.sub(r"^\W+|\W+$", "", jaxpr.debug_info.func_name or "", flags=re.ASCII)
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    usable = name.strip("_") and not name[0].isdigit() and name != "WARP_SZ"
    return name if usable else f"kernel_{name}".rstrip("_")


@dataclass
class Compilation:
    """A kernel on its way through the stages: PTX at once, the cubin when it is asked for.

    Attributes:
      ptx: the artifact of stage "ptx".
      program: what a runtime needs.
      seconds: time of each stage that ran, by name.
    """

    ptx: Any
    program: Program
    seconds: dict[str, float]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _cubin: Any = None

    def cubin(self, call: KernelCall) -> Any:
        """The artifact of stage "cubin"; `call` is what this is the compilation of."""
        from mosaic_gpu.cache import compile_cubin

        with self._lock:
            if self._cubin is None:
                self._cubin = compile_cubin(self.ptx, call.options, _record(self.seconds))
            return self._cubin


def gpu_kernel(call: KernelCall, compilation: Compilation) -> GpuKernel:
    """What the driver needs to run `call`, the cubin included."""
    program, launch = compilation.program, compilation.ptx.launch
    return GpuKernel(
        name=call.name,
        entry=launch.entry,
        target=call.options.target,
        cubin=bytes(compilation.cubin(call).data),
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        operands=program.operands,
        results=program.results,
        aliases=program.aliases,
        bound_sizes=program.bound_sizes,
        symbols=program.symbols,
        tensor_maps=launch.tensor_maps,
        cluster=launch.cluster,
        programmatic=launch.programmatic,
    )


# Keyed by the jaxpr itself, which JAX keeps for as long as a function can be called again: the code of a
# kernel goes with its jaxpr, and nothing is compared by a text that could leave something out.
_COMPILATIONS: WeakKeyDictionary[Any, dict[Any, Compilation]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def compilation_of(call: KernelCall) -> Compilation:
    """The compilation of `call`, made when it is first asked for."""
    key = _key(call)
    with _LOCK:
        found = _COMPILATIONS.setdefault(call.jaxpr, {}).get(key)
    if found is None:
        found = _compile(call)
        with _LOCK:
            found = _COMPILATIONS.setdefault(call.jaxpr, {}).setdefault(key, found)
    return found


def adopt(call: KernelCall, ptx: Any, cubin: Any, seconds: Mapping[str, float]) -> Compilation:
    """Makes what another process compiled the compilation of `call`, unless there is one."""
    made = Compilation(ptx, _program(call, ptx), dict(seconds), _cubin=cubin)
    with _LOCK:
        return _COMPILATIONS.setdefault(call.jaxpr, {}).setdefault(_key(call), made)


def _key(call: KernelCall) -> Any:
    return (call.name, call.grid_mapping, call.out_avals, call.input_output_aliases, call.options, call.bound_sizes)


def _compile(call: KernelCall) -> Compilation:
    from mosaic_gpu.cache import compile_ptx

    seconds: dict[str, float] = {}
    ptx = compile_ptx(call, _record(seconds))
    return Compilation(ptx, _program(call, ptx), seconds)


def _record(times: dict[str, float]) -> Observer:
    def observer(stage: Any, artifact: Any, seconds: float) -> None:
        times[stage.name] = seconds

    return observer


def _program(call: KernelCall, ptx: Any) -> Program:
    launch, inputs = ptx.launch, len(call.array_avals) - len(call.out_avals)
    bounds = (ArrayType((), np.dtype(np.int32)),) * call.num_bounds
    bound_sizes = call.bound_sizes or (None,) * call.num_bounds
    arrays = tuple(_array_type(aval) for aval in call.array_avals)
    grid = launch.grid
    if grid[0] < 0:
        grid = (parse_target(call.options.target).multiprocessors, *grid[1:])
    return Program(
        name=call.name,
        ptx=ptx.text,
        entry=launch.entry,
        grid=grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        operands=(*bounds, *arrays[:inputs]),
        results=arrays[inputs:],
        aliases=tuple((call.num_bounds + source, target) for source, target in call.input_output_aliases),
        bound_sizes=tuple(None if size is None else Size(size) for size in bound_sizes),
        symbols=tuple(Size(str(size)) for size in call.symbols),
        tensor_maps=launch.tensor_maps,
        cluster=launch.cluster,
        programmatic=launch.programmatic,
    )


def _array_type(aval: Any) -> ArrayType:
    shape = tuple(Size(str(size)) if compat.is_symbolic(size) else int(size) for size in aval.shape)
    return ArrayType(shape, np.dtype(aval.dtype))
