"""Values from other lanes of the warp (PTX ISA, `shfl.sync`), for vectors of any element type."""

from __future__ import annotations

from collections.abc import Callable

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.nvvm import emit

ALL_LANES = 0xFFFFFFFF


def shuffle_xor(vector: ir.Value, lane_mask: int) -> ir.Value:
    """The vector that the lane with number `lane ^ lane_mask` holds."""
    return _by_words(vector, lambda word: _shuffle("bfly", word, emit.const(lane_mask)))


def shuffle_from(vector: ir.Value, lane: ir.Value) -> ir.Value:
    """The vector that lane number `lane` (i32) holds."""
    return _by_words(vector, lambda word: _shuffle("idx", word, lane))


def _shuffle(kind: str, word: ir.Value, lane: ir.Value) -> ir.Value:
    attributes = {"kind": ir.Attribute.parse(f"#nvvm<shfl_kind {kind}>")}
    return emit.value("nvvm.shfl.sync", emit.i32(), [emit.const(ALL_LANES), word, lane, emit.const(31)], attributes)


def _by_words(vector: ir.Value, move: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """Applies `move` to the vector's bits, 32 at a time."""
    element = emit.element(vector.type)
    if element == emit.i1():
        return emit.compare(emit.NE, _by_words(emit.convert_int(vector, 8, signed=False), move), 0)
    count, bits = emit.length(vector), emit.bits_of(element)
    if bits == 64:
        words = emit.bitcast(vector, emit.vector_type(2 * count, emit.i32()))
        return emit.bitcast(_move_all(words, move), vector.type)
    per_word = 32 // bits
    padded = -(-count // per_word) * per_word
    filled = vector if padded == count else emit.pick(vector, [*range(count), *[-1] * (padded - count)])
    words = emit.bitcast(filled, emit.vector_type(padded // per_word, emit.i32()))
    moved = emit.bitcast(_move_all(words, move), filled.type)
    return emit.pick(moved, range(count))


def _move_all(words: ir.Value, move: Callable[[ir.Value], ir.Value]) -> ir.Value:
    return emit.from_elements([move(emit.extract(words, i)) for i in range(emit.length(words))])
