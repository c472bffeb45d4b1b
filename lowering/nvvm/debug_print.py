"""`mgpu.debug_print`: thread 0 of each block calls CUDA's `vprintf`.

A tile is brought to shared memory and printed as NumPy prints arrays: rows in brackets, and only the first and
last three of each dimension where there are more than a thousand elements.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.types import element_of, is_tile, shape_of, storage_bits
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.nvvm import emit, fp8
from mosaic_gpu.lowering.nvvm.access import from_memory
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts
from mosaic_gpu.lowering.nvvm.exchange import Side, publish
from mosaic_gpu.lowering.nvvm.memref import row_major
from mosaic_gpu.lowering.nvvm.registers import chosen_layout, is_fp8, is_int4, memory_element, register_element

MAX_VALUES = 32
"""Values that one call of vprintf takes (CUDA programming guide, formatted output)."""
SUMMARY_ABOVE, EDGE = 1000, 3
"""NumPy's print options `threshold` and `edgeitems`."""
_CONVERSIONS = {"int": "%lld", "uint": "%llu", "float": "%g", "bool": "%s"}


@dataclass(frozen=True)
class _Element:
    """An element of the printed tile, by its row-major number."""

    number: int


type _Token = str | _Element | ir.Value


@converts("mgpu.debug_print")
def convert_debug_print(conversion: Conversion, op: Any) -> list[ir.Value]:
    """One call of vprintf; a tile may take several."""
    kinds = [str(ir.StringAttr(k).value) for k in op.kinds]
    values = list(op.values)
    tile = next((v for v in values if is_tile(v.type)), None)
    buffer = None if tile is None else _publish(conversion, tile)
    printed: list[list[_Token]] = [
        list(_array(shape_of(v.type))) if is_tile(v.type) else [conversion.get(v)] for v in values
    ]
    tokens = list(_tokens(str(ir.StringAttr(op.format).value), printed))
    is_first = emit.compare(emit.EQ, conversion.threads.tid, 0)
    branch = emit.op_with_regions("scf.if", [is_first], 2)
    with ir.InsertionPoint(branch.regions[0].blocks.append()):
        if tile is not None and buffer is not None:
            tokens = [_load(buffer, t.number, tile.type) if isinstance(t, _Element) else t for t in tokens]
            kinds = kinds * len(tokens)
        for text, arguments in _calls(tokens, kinds):
            _print(conversion, text, arguments)
        emit.op("scf.yield", [], [])
    return []


def _publish(conversion: Conversion, tile: ir.Value) -> ir.Value:
    """A pointer to the tile, row-major in shared memory.  Raises UnsupportedError where it does not fit."""
    shape, element = shape_of(tile.type), register_element(element_of(tile.type))
    size = math.prod(shape) * (storage_bits(element) // 8)
    if size > conversion.shared.window_bytes():
        raise UnsupportedError(
            "debug_print of an array that does not fit into shared memory",
            got=f"{size} bytes",
            expected=f"at most {conversion.shared.window_bytes()} bytes",
            hint="print a part of it",
        )
    side = Side(chosen_layout(tile.type), shape, element, row_major(shape), 0, shape)
    return publish(conversion, conversion.get(tile), side, size)


def _load(buffer: ir.Value, number: int, type_: ir.Type) -> ir.Value:
    element = element_of(type_)
    size = storage_bits(element) // 8
    vector = emit.vector_type(1, memory_element(element))
    loaded = emit.load(vector, emit.gep(buffer, number * size), size)
    scalar = emit.extract(from_memory(loaded, element), 0)
    if is_fp8(element):
        return fp8.decode(scalar, str(element))
    return emit.binary("shrsi", emit.shl(scalar, 4), 4) if is_int4(element) else scalar


def _array(shape: Sequence[int], start: int = 0, depth: int = 1, rank: int | None = None) -> Iterator[_Token]:
    """What NumPy writes for an array of `shape` whose first element is number `start`."""
    if not shape:
        yield _Element(start)
        return
    total = math.prod(shape) if rank is None else rank
    step, indices = math.prod(shape[1:]), list(range(shape[0]))
    if total > SUMMARY_ABOVE and shape[0] > 2 * EDGE:
        indices = [*range(EDGE), -1, *range(shape[0] - EDGE, shape[0])]
    between = " " if len(shape) == 1 else "\n" * (len(shape) - 1) + " " * depth
    yield "["
    for place, index in enumerate(indices):
        if place:
            yield between
        if index < 0:
            yield "..."
        else:
            yield from _array(shape[1:], start + index * step, depth + 1, total)
    yield "]"


def _tokens(format_: str, printed: Sequence[Sequence[_Token]]) -> Iterator[_Token]:
    """The text of the format with the values in their places, and a line's end."""
    rest = iter(printed)
    for literal, field, _, _ in string.Formatter().parse(format_):
        yield literal
        if field is not None:
            yield from next(rest)
    yield "\n"


def _calls(tokens: Sequence[_Token], kinds: Sequence[str]) -> Iterator[tuple[str, list[tuple[ir.Value, str]]]]:
    """Formats of vprintf, each with its values and their kinds."""
    text, used = "", 0
    arguments: list[tuple[ir.Value, str]] = []
    for token in tokens:
        if isinstance(token, str):
            text += token.replace("%", "%%")
            continue
        if len(arguments) == MAX_VALUES:
            yield text, arguments
            text, arguments = "", []
        if isinstance(token, _Element):
            raise AssertionError("elements are loaded before they are printed")
        text += _CONVERSIONS[kinds[used]]
        arguments.append((token, kinds[used]))
        used += 1
    yield text, arguments


def _print(conversion: Conversion, text: str, arguments: Sequence[tuple[ir.Value, str]]) -> None:
    generic = emit.pointer_type(0)
    emit.declare(conversion.module_body, "vprintf", [generic, generic], emit.i32())
    buffer = _stack(conversion, len(arguments)) if arguments else emit.value("llvm.mlir.zero", generic, [])
    for number, (argument, kind) in enumerate(arguments):
        emit.store(_word(conversion, argument, kind), emit.gep(buffer, 8 * number), 8)
    emit.call("vprintf", [emit.text_constant(conversion.module_body, text), buffer], emit.i32())


def _stack(conversion: Conversion, words: int) -> ir.Value:
    """Local memory for `words` 64-bit values, reserved in the entry block."""
    with conversion.threads.entry:
        count = emit.const(words)
        type_ = {"elem_type": ir.TypeAttr.get(emit.i64()), "alignment": ir.IntegerAttr.get(emit.i64(), 8)}
        return emit.value("llvm.alloca", emit.pointer_type(0), [count], type_)


def _word(conversion: Conversion, argument: ir.Value, kind: str) -> ir.Value:
    """The 64 bits that vprintf expects for a value."""
    if kind == "bool":
        is_true = argument if argument.type == emit.i1() else emit.compare(emit.NE, argument, 0)
        names = [emit.text_constant(conversion.module_body, name) for name in ("True", "False")]
        return emit.select(is_true, *names)
    if isinstance(argument.type, ir.IntegerType):
        return emit.convert_int(argument, 64, signed=kind == "int")
    wide = ir.F64Type.get()
    extended = argument if argument.type == wide else emit.value("arith.extf", wide, [argument])
    return emit.bitcast(extended, emit.i64())
