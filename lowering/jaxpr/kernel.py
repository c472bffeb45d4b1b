"""One `pallas_call` as one `mgpu.kernel`: arguments, grid, blocks, scratch, and the body inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_kernel import SEPARATED, KernelOp, ProgramIdOp
from mosaic_gpu.dialect.types import ref_type
from mosaic_gpu.errors import InternalError, KernelError, SourceLine, UnsupportedError
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.blocks import block_view, check_block
from mosaic_gpu.lowering.jaxpr.compat import function_source, jaxpr_params, written_refs
from mosaic_gpu.lowering.jaxpr.context import KernelState, lower_jaxpr
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.grid import GridPlan, plan_grid
from mosaic_gpu.lowering.jaxpr.open_arrays import root_shape
from mosaic_gpu.lowering.jaxpr.registry import RULES
from mosaic_gpu.lowering.jaxpr.scratch_refs import alloc_scratch
from mosaic_gpu.lowering.jaxpr.sources import equation_source
from mosaic_gpu.lowering.jaxpr.tiles import Extent, loop_over, loop_over_tiles
from mosaic_gpu.lowering.kernel_call import KernelCall

_PRINT = "kernels cannot call Python; to look at values use pl.debug_print"
_HINTS = {
    "debug_callback": _PRINT,
    "io_callback": _PRINT,
    "pure_callback": _PRINT,
    "check": "switch pl.enable_debug_checks off, or test the condition outside of the kernel",
    "pallas_call": "call the inner kernel's function as a plain function of references",
}


def lower_call(call: KernelCall) -> ir.Module:
    """The verified module of `call`; see `lower_kernel`."""
    where = function_source(call.jaxpr)
    source = None if where is None else SourceLine(where[0], where[1], call.name)
    try:
        _check_call(call)
        with ir.Location.unknown() if where is None else ir.Location.file(where[0], where[1], 0):
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                _emit_kernel(call, plan_grid(call))
    except (KernelError, UnsupportedError) as error:
        raise error.at(source) from error.__cause__
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise InternalError(f"the lowering of kernel {call.name!r} emitted invalid IR: {error}") from error
    return module


def _check_call(call: KernelCall) -> None:
    """Refuses what no rule can, before anything is emitted."""
    mapping = call.grid_mapping
    if call.jaxpr.constvars:
        shapes = ", ".join(str(v.aval) for v in call.jaxpr.constvars)
        raise UnsupportedError(
            f"kernel {call.name!r} captures constant arrays ({shapes})", hint="pass them as inputs of the kernel"
        )
    for block in mapping.block_mappings:
        check_block(block)
    _check_inputs_unwritten(call)
    _check_primitives(call)


def _check_inputs_unwritten(call: KernelCall) -> None:
    written = written_refs(call.jaxpr)
    aliased = {source for source, _ in call.input_output_aliases}
    indices = len(call.index_avals)
    for i, var in enumerate(call.jaxpr.invars[: indices + call.grid_mapping.num_inputs]):
        if var in written and i not in aliased:
            what = call.grid_mapping.block_mappings[i - indices].origin if i >= indices else f"args[{i}]"
            raise KernelError(
                f"the kernel writes to its input {what}",
                hint=f"write to an output, and say input_output_aliases={{{i}: output}} if it is the same array",
            )


def _check_primitives(call: KernelCall) -> None:
    """Refuses the first primitive without a rule, and names the others."""
    missing = list(dict.fromkeys(_unknown_primitives(call.jaxpr, None)))
    if missing:
        name, source = missing[0]
        others = sorted({n for n, _ in missing} - {name})
        also = f"; nor are {', '.join(map(repr, others))}" if others else ""
        raise UnsupportedError(
            f"jax primitive {name!r} is not supported inside a kernel{also} (in kernel {call.name!r})",
            hint=_HINTS.get(name, ""),
            source=source,
        )


def _unknown_primitives(jaxpr: Any, outer: SourceLine | None) -> Iterator[tuple[str, SourceLine | None]]:
    """Their names and lines; `outer` is the line that what is inside of JAX's functions counts as."""
    for equation in jaxpr.eqns:
        source = equation_source(equation) or outer
        if equation.primitive.name not in RULES:
            yield equation.primitive.name, source
        else:
            for inner in jaxpr_params(equation.params):
                yield from _unknown_primitives(inner, source)


def _emit_kernel(call: KernelCall, plan: GridPlan) -> None:
    scalars = [ref_type((), emit.i32())] * call.num_scalars
    arrays = [ref_type(root_shape(a.shape), element_type(a.dtype)) for a in call.array_avals]
    types = [*scalars, *arrays]
    op = KernelOp(
        sym_name=ir.StringAttr.get(call.name),
        grid=emit.int_array(plan.launched),
        num_warps=emit.int_attr(0),
        num_inputs=emit.int_attr(call.num_operands),
        aliases=emit.int_array(_alias_numbers(call, len(types))),
    )
    body = op.body.blocks.append(*types)
    with ir.InsertionPoint(body):
        references = list(body.arguments)
        scratch = [alloc_scratch(aval) for aval in call.grid_mapping.scratch_avals]
        extents = _extents(plan, references[: call.num_bounds])
        loaded = [emit.load(size) for size in references[call.num_bounds : call.num_scalars]]
        sizes = dict(zip(call.symbols, loaded, strict=True))
        with _steps(plan, extents) as steps:
            _emit_body(call, references[call.num_scalars :], sizes, extents, steps, scratch)


def _alias_numbers(call: KernelCall, count: int) -> list[int]:
    """For each argument of the kernel, the first one that is the same memory."""
    numbers = list(range(count))
    for source, target in call.aliases:
        numbers[call.num_operands + target] = numbers[source]
    return numbers


def _extents(plan: GridPlan, bounds: Sequence[ir.Value]) -> list[Extent]:
    """The extents of all dimensions; those that are computed are loaded from `bounds`, in order."""
    loaded = iter(bounds)
    return [emit.load(next(loaded)) if extent is None else extent for extent in plan.extents]


@contextmanager
def _steps(plan: GridPlan, extents: Sequence[Extent]) -> Iterator[list[ir.Value]]:
    """What is emitted inside runs once a step of the grid; gives the step's number (i32) in each dimension.

    Sequential dimensions are loops, the slowest outside.
    """
    ids: dict[int, ir.Value] = {}
    with ExitStack() as stack:
        if plan.is_persistent:
            digits = stack.enter_context(loop_over_tiles([extents[d] for d in plan.parallel], plan.limits))
        else:
            digits = [ProgramIdOp(emit.int_attr(i)).result for i in range(len(plan.parallel))]
        ids.update(zip(plan.parallel, digits, strict=True))
        for d in plan.sequential:
            extent = extents[d]
            upper = emit.int_constant(extent) if isinstance(extent, int) else extent
            ids[d] = stack.enter_context(loop_over(emit.int_constant(0), upper, emit.int_constant(1)))
            if d in plan.separated:
                ids[d].owner.owner.operation.attributes[SEPARATED] = ir.UnitAttr.get()
        yield [ids[d] for d in range(len(extents))]


def _emit_body(
    call: KernelCall,
    references: Sequence[ir.Value],
    sizes: Mapping[Any, ir.Value],
    extents: Sequence[Extent],
    steps: Sequence[ir.Value],
    scratch: Sequence[ir.Value],
) -> None:
    """One step.

    `references`: the kernel's arguments for index operands, inputs and outputs; `sizes`: the values of `call.symbols`.
    """
    mapping = call.grid_mapping
    seen = [d for d in range(len(steps)) if d not in mapping.vmapped_dims]
    index_maps = KernelState(call.options, call.name)
    kernel = KernelState(
        call.options,
        call.name,
        program_ids=tuple(steps[d] for d in seen),
        grid=tuple(extents[d] for d in seen),
        exclusive="parallel" not in (call.options.dimension_semantics or ()),
    )
    indices = references[: len(call.index_avals)]
    pairs = zip(mapping.block_mappings, references[len(indices) :], strict=True)
    views = [block_view(index_maps, block, array, [*steps, *indices], sizes) for block, array in pairs]
    lower_jaxpr(kernel, call.jaxpr, [*indices, *views, *scratch])
