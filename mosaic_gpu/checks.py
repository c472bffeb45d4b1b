"""Every rule on a kernel that can be checked before any IR is made.

Nothing here, and nothing that runs before it, imports the MLIR bindings.  Each `check_<rule>` raises a
`KernelError` where the kernel is wrong and an `UnsupportedError` where it is valid but not supported, naming
the dimension, operand or value at fault; `check_params` runs them all and adds the kernel's line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mosaic_gpu.check_blocks import check_array_size, check_block, check_dtype, check_known_sizes
from mosaic_gpu.check_values import check_values
from mosaic_gpu.errors import KernelError, MosaicGpuError, SourceLine, UnsupportedError
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.lowering.jaxpr.sources import equation_source
from mosaic_gpu.lowering.targets import Target, parse_target

MAX_EXTENT = 2**31 - 1
"""The largest grid bound: a program id is a 32-bit integer."""

MAX_BLOCKS = (2**31 - 1) * 65_535
"""Blocks in a grid: CUDA's limit along x times the one along y (CUDA C++ Programming Guide, compute capabilities)."""

_SEMANTICS = ("parallel", "sequential")
_SCRATCH_SPACES = ("smem", "vmem", "default")
"""`vmem` is what kernels written for TPUs call the fast memory of a program: here shared memory."""


def check_params(params: Mapping[str, Any], choices: Any, target: Any, bounds: Sequence[Any] = ()) -> None:
    """Checks the parameters of a `pallas_call` equation, and what the user chose for it.

    Arguments:
      params: of the equation.
      choices: the `CompilerParams`.
      target: the name of the architecture to compile for.
      bounds: abstract values of the equation's operands, of which the computed bounds are the first.

    Raises:
      KernelError, UnsupportedError: ending with the line of the kernel, or of the value in it.
    """
    try:
        check_dynamic_bounds(params["grid_mapping"], bounds)
        _check(params, choices, target)
    except MosaicGpuError as error:
        raise error.at(kernel_source(params["jaxpr"])) from error.__cause__


def kernel_source(jaxpr: Any) -> SourceLine | None:
    """The line where the function behind `jaxpr` is defined; None where JAX kept none."""
    info = jaxpr.debug_info
    if not info.func_filename or info.func_lineno is None:
        return None
    return SourceLine(info.func_filename, info.func_lineno, info.func_name)


def _check(params: Mapping[str, Any], choices: Any, target: Any) -> None:
    mapping, jaxpr = params["grid_mapping"], params["jaxpr"]
    machine = parse_target(target)
    check_num_warps(choices.num_warps)
    check_switches(choices)
    check_programmatic_launch(choices.programmatic_launch, machine)
    check_call(params)
    check_grid(mapping.grid, mapping.vmapped_dims, choices.dynamic_grid == "allow")
    check_dimension_semantics(choices.dimension_semantics, len(mapping.grid) - len(mapping.vmapped_dims))
    check_index_operands(mapping)
    for block in mapping.block_mappings:
        check_block(block)
    check_aliases(params["input_output_aliases"], mapping)
    check_written_inputs(jaxpr, params["input_output_aliases"], mapping)
    check_scratch(mapping.scratch_avals, machine)
    check_values(jaxpr)


def check_num_warps(num_warps: Any) -> None:
    """None, or a power of two up to 32."""
    if num_warps is None:
        return
    fits = type(num_warps) is int and 1 <= num_warps <= 32 and num_warps & (num_warps - 1) == 0
    if not fits:
        raise KernelError(
            "num_warps is not a number of warps a block can have",
            got=repr(num_warps),
            expected="None, 1, 2, 4, 8, 16 or 32",
            hint="leave num_warps out, and it is chosen by the sizes of the tiles",
        )


def check_switches(choices: Any) -> None:
    """`approx_math`, `dynamic_grid`, `warp_specialize` and `max_concurrent_steps` hold one of their values."""
    if type(choices.approx_math) is not bool:
        raise KernelError("approx_math is not a bool", got=repr(choices.approx_math), expected="True or False")
    if choices.dynamic_grid not in ("allow", "refuse"):
        raise KernelError("dynamic_grid is not known", got=repr(choices.dynamic_grid), expected="'allow' or 'refuse'")
    if choices.warp_specialize is not None and type(choices.warp_specialize) is not bool:
        raise KernelError(
            "warp_specialize is not a bool", got=repr(choices.warp_specialize), expected="None, True or False"
        )
    steps = choices.max_concurrent_steps
    if steps is not None and (type(steps) is not int or steps < 1):
        raise KernelError("max_concurrent_steps is not a number of steps", got=repr(steps), expected="None, 1, 2, ..")


def check_programmatic_launch(wanted: Any, target: Target) -> None:
    """A bool, and True only for an architecture that has `griddepcontrol` (PTX ISA)."""
    if type(wanted) is not bool:
        raise KernelError("programmatic_launch is not a bool", got=repr(wanted), expected="True or False")
    if wanted and "griddepcontrol" not in target.features:
        raise UnsupportedError(
            f"programmatic_launch=True needs griddepcontrol, which {target.name} has not",
            expected="a target from sm_90 on",
        )


def check_call(params: Mapping[str, Any]) -> None:
    """The kernel closes over nothing and is not meant for a mesh of other hardware."""
    if params["mesh"] is not None:
        raise UnsupportedError("a kernel over a mesh of cores is not supported", got=params["mesh"])
    if params["jaxpr"].constvars:
        captured = ", ".join(str(v.aval) for v in params["jaxpr"].constvars)
        raise UnsupportedError(
            "the kernel uses references or arrays from outside of it",
            got=captured,
            hint="pass them to the kernel as operands",
        )


def check_grid(grid: Sequence[Any], vmapped: Sequence[int], allows_dynamic: bool = True) -> None:
    """Every bound is an int from 0 on, or known at run time only where the user allows that."""
    for dim, bound in enumerate(grid):
        where = _dimension(dim, vmapped)
        if not compat.is_dynamic_bound(bound):
            _check_bound(bound, where)
        elif not allows_dynamic:
            raise UnsupportedError(
                f"the grid bound of {where} is a traced value, and dynamic_grid is 'refuse'",
                expected="a Python int",
                hint="make it a Python int: int(n) of a NumPy integer, static_argnums of jax.jit for an argument",
            )
    blocks = math.prod(bound for bound in grid if not compat.is_dynamic_bound(bound))
    if blocks > MAX_BLOCKS:
        raise KernelError("the grid has more blocks than a GPU can launch", got=blocks, expected=f"<= {MAX_BLOCKS}")


def _dimension(dim: int, vmapped: Sequence[int]) -> str:
    """A dimension of the grid as its author counts them: `vmapped` ones are jax.vmap's."""
    own = dim - sum(1 for d in vmapped if d < dim)
    return "a dimension added by jax.vmap" if dim in vmapped else f"dimension {own}"


def check_dynamic_bounds(mapping: Any, bounds: Sequence[Any]) -> None:
    """The bounds that are known at run time (their abstract values, in order) are single integers."""
    dims = [d for d, bound in enumerate(mapping.grid) if compat.is_dynamic_bound(bound)]
    for dim, aval in zip(dims, bounds, strict=False):
        _check_traced_bound(aval, _dimension(dim, mapping.vmapped_dims))


def _check_traced_bound(bound: Any, where: str) -> None:
    """`bound`: an array, a tracer or an abstract value."""
    if not np.issubdtype(bound.dtype, np.integer) or math.prod(bound.shape) != 1:
        raise KernelError(
            f"the grid bound of {where} is not an integer",
            got=f"{bound.dtype}{list(bound.shape)}",
            expected="an int, or an array of one integer",
        )


def check_grid_argument(grid: Any, source: SourceLine | None) -> Any:
    """The `grid` argument of a `pallas_call` as JAX takes it, with NumPy's integers made Python's.

    JAX takes every bound that is no Python int for a traced one; here only arrays of one integer are.

    Raises KernelError, at `source`, for a bound that is neither an integer nor such an array.
    """
    bounds = grid if isinstance(grid, (tuple, list)) else (grid,)
    if any(isinstance(bound, tuple) for bound in bounds):
        return grid  # a named grid
    checked = [int(bound) if isinstance(bound, np.integer) else bound for bound in bounds]
    try:
        for dim, bound in enumerate(checked):
            if compat.is_traced(bound):
                _check_traced_bound(bound, f"dimension {dim}")
            elif not compat.is_symbolic(bound):
                _check_bound(bound, f"dimension {dim}")
    except KernelError as error:
        raise error.at(source) from None
    return tuple(checked)


def _check_bound(bound: Any, where: str) -> None:
    if type(bound) is not int:
        raise KernelError(f"the grid bound of {where} is not an int", got=repr(bound), expected="an int >= 0")
    if not 0 <= bound <= MAX_EXTENT:
        expected = f"an int from 0 to {MAX_EXTENT}"
        raise KernelError(f"the grid bound of {where} is out of range", got=bound, expected=expected)


def check_dimension_semantics(semantics: Any, rank: int) -> None:
    """None, or one word for each of the grid's `rank` dimensions."""
    if semantics is None:
        return
    if not isinstance(semantics, tuple):
        raise KernelError("dimension_semantics is not a tuple of words", got=repr(semantics), expected=_SEMANTICS)
    for dim, word in enumerate(semantics):
        if word not in _SEMANTICS:
            raise KernelError(
                f"dimension_semantics has an unknown word for dimension {dim}",
                got=repr(word),
                expected="'parallel' (blocks in any order) or 'sequential' (one block after another)",
            )
    if len(semantics) != rank:
        raise KernelError(
            "dimension_semantics does not fit the grid", got=f"{len(semantics)} words", expected=f"{rank} words"
        )


def check_index_operands(mapping: Any) -> None:
    """The operands for the index maps (PrefetchScalarGridSpec) are arrays that a kernel can hold."""
    for number, reference in enumerate(mapping.index_map_avals[len(mapping.grid) :]):
        what, array = f"scalar operand {number}", getattr(reference, "inner_aval", None)
        if array is None or not compat.is_array(array) or compat.is_extended_dtype(array):
            raise UnsupportedError(f"{what} is not an array of numbers", got=reference)
        check_dtype(array.dtype, what)
        check_known_sizes(array, what)
        check_array_size(array, what)


def check_aliases(aliases: Sequence[tuple[int, int]], mapping: Any) -> None:
    """Each pair names an input and an output of one shape and dtype; none is named twice."""
    blocks, inputs, outputs = mapping.block_mappings, mapping.num_inputs, mapping.num_outputs
    indices = mapping.num_index_operands
    for operand, result in aliases:
        pair = f"input_output_aliases {{{operand}: {result}}}"
        if not (0 <= operand < indices + inputs and 0 <= result < outputs):
            limits = f"input below {indices + inputs}, output below {outputs}"
            raise KernelError(f"{pair} is out of range", expected=limits)
        if operand < indices:
            raise UnsupportedError(
                f"{pair} joins scalar operand {operand} and an output: index maps read it while blocks write",
                hint="pass the array a second time, as an ordinary input, and alias that",
            )
        source, target = blocks[operand - indices].array_aval, blocks[inputs + result].array_aval
        if source.shape != target.shape or source.dtype != target.dtype:
            raise KernelError(f"{pair} joins two different arrays", got=source, expected=target)
    for kind, side in (("input", 0), ("output", 1)):
        named = [pair[side] for pair in aliases]
        for index in named:
            if named.count(index) > 1:
                raise KernelError(f"input_output_aliases names {kind} {index} twice", got=dict(aliases))


def check_written_inputs(jaxpr: Any, aliases: Sequence[tuple[int, int]], mapping: Any) -> None:
    """The kernel writes to no input that is not also an output: JAX's arrays do not change."""
    aliased, indices = {operand for operand, _ in aliases}, mapping.num_index_operands
    for index, equation in sorted(compat.written_arguments(jaxpr).items()):
        if index < indices + mapping.num_inputs and index not in aliased:
            scalar = index < indices
            what = f"scalar operand {index}" if scalar else mapping.block_mappings[index - indices].origin
            raise KernelError(
                f"the kernel writes to {what}, which is an input",
                expected="inputs are only read",
                hint="write to an output, alias the input to one (input_output_aliases), or use scratch memory",
                source=equation_source(equation),
            )


def check_scratch(avals: Sequence[Any], target: Target) -> None:
    """Scratch is arrays in shared memory, and fits there, or accumulators."""
    sizes: dict[str, int] = {}
    for index, aval in enumerate(avals):
        what, inner = f"scratch {index}", getattr(aval, "inner_aval", None)
        if inner is None or compat.is_extended_dtype(inner):
            kind = aval if inner is None else inner
            raise UnsupportedError(f"{what} is no array: barriers and semaphores are not supported", got=kind)
        check_dtype(inner.dtype, what)
        if compat.is_accumulator(aval):
            continue
        if str(aval.memory_space) not in _SCRATCH_SPACES:
            raise UnsupportedError(
                f"{what} is in memory space {str(aval.memory_space)!r}, which this GPU kernel does not have",
                expected="shared memory: jax.experimental.pallas.mosaic_gpu.SMEM(shape, dtype)",
            )
        sizes[f"{what}: {inner.str_short()}"] = math.prod(inner.shape) * max(1, inner.dtype.itemsize)
    total = sum(sizes.values())
    if total > target.max_shared_bytes:
        table = "".join(f"\n  {size:>10} bytes  {what}" for what, size in sizes.items())
        raise KernelError(
            f"the scratch arrays do not fit shared memory{table}",
            got=f"{total} bytes",
            expected=f"at most {target.max_shared_bytes} bytes a block on {target.name}",
            hint="use smaller scratch arrays",
        )
