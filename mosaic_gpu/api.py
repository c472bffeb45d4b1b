"""What a user calls: compile a kernel and look at it, or build a `pallas_call` for this compiler."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import pallas as pl

from mosaic_gpu.checks import check_grid_argument
from mosaic_gpu.errors import KernelError, SourceLine, UnsupportedError, ends_at_kernel
from mosaic_gpu.kernel import Compilation, compilation_of, gpu_kernel, kernel_call
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.lowering.kernel_call import KernelCall
from mosaic_gpu.options import CompilerParams
from mosaic_gpu.runtime.device_array import is_on_gpu
from mosaic_gpu.runtime.devices import device_count
from mosaic_gpu.runtime.gpu import GpuCaller
from mosaic_gpu.runtime.interface import Array, LoadedProgram, RunStats
from mosaic_gpu.runtime.known_sizes import given_types
from mosaic_gpu.runtime.run import run
from mosaic_gpu.runtime.simulated import SimulatedRuntime

BACKEND = "mosaic_gpu"


class CompiledKernel:
    """A kernel compiled for one target.

    Calling it on arrays, one an operand of the kernel, gives its results: one array where it has one, else a tuple.
    Arrays of the host run on the GPU where there is one and else on the simulator, and give NumPy arrays; arrays in a
    GPU's memory run there and give such arrays (see `launch`).
    """

    def __init__(self, call: KernelCall, compilation: Compilation) -> None:
        self._call = call
        self._compilation = compilation
        self._loaded: LoadedProgram | None = None

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.name!r} for {self.target}>"

    @property
    def name(self) -> str:
        """The kernel's name, also of its entry point."""
        return self._call.name

    @property
    def target(self) -> str:
        """The GPU architecture it was compiled for."""
        return self._call.options.target

    def ir(self, stage: str = "dialect") -> str:
        """The kernel as stage `stage` of the pipeline leaves it: "dialect", "layouts", "nvvm" or "llvm".

        Raises KernelError where there is no such stage.
        """
        from mosaic_gpu.lowering.pipeline import show_call

        return str(show_call(self._call, stage))

    @property
    def ptx(self) -> str:
        """The PTX text."""
        return self._compilation.program.ptx

    @property
    def cubin(self) -> bytes:
        """The binary for the target; made when first asked for.  Raises ToolError without an assembler."""
        return bytes(self._compilation.cubin(self._call).data)

    @property
    def sass(self) -> str:
        """The machine code as text.  Raises ToolError where no disassembler is installed."""
        from mosaic_gpu.lowering.sass import disassemble

        return disassemble(self.cubin)

    @property
    def resources(self) -> Any:
        """What the kernel takes, read from the cubin: registers, shared memory, spills (see `Resources`)."""
        return self._compilation.cubin(self._call).resources

    @property
    def launch_facts(self) -> Any:
        """Entry point, grid, block and dynamic shared memory of a launch (see `LaunchFacts`)."""
        return self._compilation.ptx.launch

    @property
    def timings(self) -> dict[str, float]:
        """Seconds of each stage that ran."""
        return dict(self._compilation.seconds)

    def __call__(self, *operands: Any) -> Any:
        """Runs the kernel; see the class.  On a GPU as `launch` does."""
        leaves = jax.tree.leaves(operands)
        on_gpu = any(is_on_gpu(leaf) for leaf in leaves)
        if on_gpu or device_count() > 0:
            return self.launch(*operands) if on_gpu else self._run_on_gpu(leaves)
        results, _ = self.simulate(*operands)
        return results[0] if len(results) == 1 else tuple(results)

    def launch(self, *operands: Any, out: Any = None, stream: Any = None) -> Any:
        """Enqueues the kernel on a GPU and returns its results at once: the stream will have written them.

        May be captured into a CUDA graph, once it ran outside of one or with `out` given.

        Arguments:
          operands: arrays in the memory of one GPU: anything with DLPack or `__cuda_array_interface__` (JAX, PyTorch,
            CuPy, our `DeviceArray`), row-major, at addresses that 16 divides; arrays of the host are copied there.
          out: array or arrays for the results; None makes new ones, of the library of the first operand on the GPU.
          stream: a CUDA stream of any library, or its address; None takes the current one of that library.

        Raises:
          KernelError: an array does not fit.
          UnsupportedError: the GPU does not run code of the kernel's target.
          ToolError: there is no GPU, or the driver refuses.
        """
        leaves = jax.tree.leaves(operands)
        targets = None if out is None else jax.tree.leaves(out)
        results = self._on_gpu(leaves, targets, stream)
        return results[0] if len(results) == 1 else tuple(results)

    def unload(self) -> None:
        """Gives the code back to the driver; a CUDA graph that holds the kernel must not be launched again."""
        if "_on_gpu" in vars(self):
            self._on_gpu.unload()

    @functools.cached_property
    def _on_gpu(self) -> GpuCaller:
        return GpuCaller(gpu_kernel(self._call, self._compilation))

    def _run_on_gpu(self, leaves: list[Any]) -> Any:
        """Arrays of the host in and out."""
        made = zip(self._on_gpu(self._operands(leaves)), self._compilation.program.results, strict=True)
        results = [array.numpy().astype(type_.dtype, copy=False) for array, type_ in made]
        return results[0] if len(results) == 1 else tuple(results)

    def simulate(self, *operands: Any, poison: int | None = None) -> tuple[list[Array], RunStats]:
        """Runs the kernel on the simulator: the results, and what the run tells.

        Arguments:
          operands: arrays of the kernel's operand types, or pytrees of them: bounds of the grid that are computed (but
            for those that the sizes of the arrays tell), then operands for index maps, then inputs.
          poison: a byte that fills the results before the run, in place of the usual values (NaN and so on).

        Raises:
          KernelError: an operand has another shape or dtype than the kernel was compiled for.
          SimulationError: the kernel does something that a GPU would not survive.
        """
        program = self._compilation.program
        if self._loaded is None:
            self._loaded = SimulatedRuntime().load(program)
        return run(program, self._loaded, self._operands(jax.tree.leaves(operands)), poison)

    def _operands(self, leaves: list[Any]) -> list[Array]:
        """The operands as NumPy arrays: of the kernel's dtype as they are, others of the dtype that JAX gives them."""
        types = given_types(self._compilation.program)
        dtypes = [*(t.dtype for t in types), *[None] * len(leaves)]
        return [_as_operand(leaf, dtype) for leaf, dtype in zip(leaves, dtypes, strict=False)]


def _as_operand(value: Any, dtype: np.dtype[Any] | None) -> Array:
    array = np.asarray(value)
    if array.dtype == dtype:
        return array
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


@ends_at_kernel
def compile(fn: Callable[..., Any], *args: Any, target: str | None = None, name: str | None = None) -> CompiledKernel:
    """Compiles the kernel that `fn` calls on arguments like `args`; needs no GPU.

    Arguments:
      fn: what `pl.pallas_call` returned, or any function that calls it.
      args: arrays, or `jax.ShapeDtypeStruct`s; only shapes and dtypes count.
      target: the architecture, for instance "sm_90a"; None takes the one in the kernel's parameters, else that of this
        machine's first GPU, else "sm_90a".
      name: the kernel to take, where `fn` calls several.

    Raises:
      KernelError: the kernel is wrong, or `fn` does not call exactly one of that name.
      UnsupportedError: the kernel needs something that is not supported.
    """
    calls = trace_calls(fn, *args, target=target)
    chosen = [call for call in calls if name is None or call.name == name]
    if len(chosen) != 1:
        names = ", ".join(repr(call.name) for call in calls) or "none"
        wanted = "a kernel" if name is None else f"a kernel named {name!r}"
        raise KernelError(
            f"the function does not call exactly one kernel{'' if name is None else f' named {name!r}'}",
            got=f"kernels called: {names}",
            expected=wanted,
            hint="choose one with name=; give each pallas_call a name of its own" if calls else "",
            source=_function_line(fn),
        )
    return CompiledKernel(chosen[0], compilation_of(chosen[0]))


@ends_at_kernel
def trace_calls(fn: Callable[..., Any], *args: Any, target: str | None = None) -> list[KernelCall]:
    """Every kernel that `fn` calls on arguments like `args`, in program order, checked but not compiled."""
    jaxpr = jax.make_jaxpr(fn)(*args)
    equations = _pallas_calls(compat.open_jaxpr(jaxpr))
    return [
        kernel_call(
            equation.params,
            target,
            [v.aval for v in equation.invars],
            compat.bound_sizes(owner, equation, equation.params["grid_mapping"].num_dynamic_grid_bounds),
        )
        for owner, equation in equations
    ]


def _pallas_calls(jaxpr: Any) -> Iterator[tuple[Any, Any]]:
    """The `pallas_call` equations, those in inner jaxprs too, each behind the jaxpr that it is in."""
    for equation in jaxpr.eqns:
        if equation.primitive is compat.pallas_call_p:
            yield jaxpr, equation
            continue
        for inner in compat.jaxpr_params(equation.params):
            yield from _pallas_calls(inner)


def _function_line(fn: Any) -> SourceLine | None:
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    code = getattr(fn, "__code__", None)
    return None if code is None else SourceLine(code.co_filename, code.co_firstlineno, code.co_name)


@ends_at_kernel
def pallas_call(
    kernel: Callable[..., None],
    out_shape: Any,
    *,
    backend: str | None = BACKEND,
    compiler_params: Any = None,
    grid: Any = (),
    interpret: Any = False,
    **options: Any,
) -> Callable[..., Any]:
    """`pl.pallas_call` with this compiler's parameters filled in.

    Arguments:
      kernel, out_shape, grid, interpret, options: as of `jax.experimental.pallas.pallas_call`.
      backend: "mosaic_gpu"; None leaves the choice to JAX, and only then may the parameters be another's.
      compiler_params: a `CompilerParams`; None takes the defaults.

    Raises:
      KernelError: a grid bound, the backend or the parameters are wrong.
      UnsupportedError: another backend.
    """
    source = _function_line(kernel)
    if backend is None:
        return pl.pallas_call(
            kernel, out_shape, compiler_params=compiler_params, grid=grid, interpret=interpret, **options
        )
    if backend != BACKEND:
        raise UnsupportedError(
            f"pallas_call does not know backend {backend!r}", expected=f"{BACKEND!r} or None", source=source
        )
    if compiler_params is None:
        compiler_params = CompilerParams()
    if not isinstance(compiler_params, CompilerParams):
        raise KernelError(
            "the compiler parameters are another backend's",
            got=repr(compiler_params),
            expected="mosaic_gpu.CompilerParams",
            source=source,
        )
    return pl.pallas_call(
        kernel,
        out_shape,
        compiler_params=compiler_params,
        grid=check_grid_argument(grid, source),
        interpret=interpret,
        **options,
    )
