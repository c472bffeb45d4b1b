"""Checks what `assign-layouts` promises: the rules that the conversion to NVVM relies on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.attrs import LAYOUT_NAMES, layout_of, named_layout
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import is_tile, shape_of
from mosaic_gpu.lowering.passes.assign_layouts import scalar_tile_layout
from mosaic_gpu.lowering.passes.walk import body_of, kernels, walk

_ANY = frozenset(
    {"mgpu.reshape", "mgpu.slice", "mgpu.concatenate", "mgpu.convert_layout", "mgpu.debug_print", "scf.yield"}
) | {"scf.condition"}


def check_layouts(module: ir.Module) -> list[str]:
    """One sentence for each op that breaks a rule of `assign_layouts`; an empty list where all hold."""
    return [
        f"{op.name}: {fault}"
        for kernel in kernels(module)
        for op in walk(body_of(kernel))
        for fault in _faults(op, ir.IntegerAttr(kernel.attributes["num_warps"]).value)
    ]


def _faults(op: Any, num_warps: int) -> Iterator[str]:
    operands, results = list(op.operands), list(op.results)
    tiles = [v for v in (*operands, *results) if is_tile(v.type)]
    for value in tiles:
        layout = layout_of(value.type)
        if layout is None or layout.num_warps != num_warps:
            yield f"a tile has layout {layout}, not one of {num_warps} warps"
            return
    if not tiles or op.name in _ANY:
        return
    rule = _RULES.get(op.name)
    if rule is not None:
        yield from rule(op, operands, results, num_warps)
    elif len({layout_of(v.type) for v in tiles}) > 1:
        yield f"tiles of one op have layouts {sorted({str(layout_of(v.type)) for v in tiles})}"


def _expect(what: str, got: Layout | None, expected: Layout | None) -> Iterator[str]:
    if got != expected:
        yield f"{what} has layout {got}, not {expected}"


def _reduce(op: Any, operands: Sequence[Any], results: Sequence[Any], num_warps: int) -> Iterator[str]:
    layouts = [layout_of(v.type) for v in operands[: len(results)]]
    for layout, result in zip(layouts, results, strict=True):
        yield from _expect("an operand", layout, layouts[0])
        if is_tile(result.type) and layout is not None:
            yield from _expect("a result", layout_of(result.type), layout.slice(ints(op.attributes["axes"])))


def _broadcast(op: Any, operands: Sequence[Any], results: Sequence[Any], num_warps: int) -> Iterator[str]:
    operand, result = operands[0].type, results[0].type
    layout = layout_of(result)
    if is_tile(operand) and layout is not None:
        source = layout.broadcast_source(ints(op.attributes["dimensions"]), shape_of(operand), shape_of(result))
        yield from _expect("the operand", layout_of(operand), source)


def _transpose(op: Any, operands: Sequence[Any], results: Sequence[Any], num_warps: int) -> Iterator[str]:
    layout = layout_of(operands[0].type)
    if layout is not None:
        yield from _expect(
            "the result", layout_of(results[0].type), layout.transpose(ints(op.attributes["permutation"]))
        )


def _bitcast(op: Any, operands: Sequence[Any], results: Sequence[Any], num_warps: int) -> Iterator[str]:
    narrow, wide = sorted((operands[0].type, results[0].type), key=lambda t: len(shape_of(t)))
    less, more = layout_of(narrow), layout_of(wide)
    if len(shape_of(narrow)) == len(shape_of(wide)):
        yield from _expect("the result", layout_of(results[0].type), layout_of(operands[0].type))
    elif less is None:
        yield from _expect("the tile", more, scalar_tile_layout(shape_of(wide)[-1], num_warps))
    else:
        yield from _expect("the tile of narrow elements", more, less.append(shape_of(wide)[-1]))


def _dot(op: Any, operands: Sequence[Any], results: Sequence[Any], num_warps: int) -> Iterator[str]:
    for value, name in zip((*operands, *results), (*LAYOUT_NAMES, LAYOUT_NAMES[-1]), strict=True):
        if is_tile(value.type):
            yield from _expect(f"the tile of {name}", layout_of(value.type), named_layout(op, name))


def _carried(pairs: Sequence[tuple[Any, Any]]) -> Iterator[str]:
    for a, b in pairs:
        yield from _expect("a carried or yielded tile", layout_of(a.type), layout_of(b.type))


def _ends(op: Any) -> list[list[Any]]:
    blocks = [region.blocks[0].operations for region in op.regions if len(region.blocks)]
    return [list(ops[len(ops) - 1].operation.operands) for ops in blocks]


def _for(op: Any, operands: Sequence[Any], results: Sequence[Any], num_warps: int) -> Iterator[str]:
    arguments = list(op.regions[0].blocks[0].arguments)[1:]
    for others in (operands[3:], arguments, _ends(op)[0]):
        yield from _carried(list(zip(others, results, strict=True)))


def _while(op: Any, operands: Sequence[Any], results: Sequence[Any], num_warps: int) -> Iterator[str]:
    before, after = (list(region.blocks[0].arguments) for region in op.regions)
    condition, again = _ends(op)
    pairs = ((operands, before), (again, before), (condition[1:], after), (after, results))
    for a, b in pairs:
        yield from _carried(list(zip(a, b, strict=True)))


def _branches(op: Any, operands: Sequence[Any], results: Sequence[Any], num_warps: int) -> Iterator[str]:
    for end in _ends(op):
        yield from _carried(list(zip(end, results, strict=True)))


_RULES = {
    "mgpu.reduce": _reduce,
    "mgpu.broadcast": _broadcast,
    "mgpu.transpose": _transpose,
    "mgpu.bitcast": _bitcast,
    "mgpu.dot": _dot,
    "scf.for": _for,
    "scf.while": _while,
    "scf.if": _branches,
    "scf.index_switch": _branches,
}
