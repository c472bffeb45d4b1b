"""Moving values between threads through shared memory: the one mechanism.

Tiles are written to a buffer in the exchange region, all threads meet, and tiles are read from it: what
differs between the two sides is where each says an element lies.  A buffer that does not fit is moved in
rounds, one window of addresses after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.types import storage_bits
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.access import (
    MAX_ACCESS_BYTES,
    Address,
    load_registers,
    register_addresses,
    store_registers,
    thread_reach,
)
from mosaic_gpu.lowering.nvvm.conversion import Conversion
from mosaic_gpu.lowering.nvvm.memref import MemRef, row_major
from mosaic_gpu.lowering.nvvm.predicates import Condition, Coordinates, all_of

BANK_ROW_BYTES = 128
"""Shared memory has 32 banks of 4 bytes (CUDA programming guide, shared memory)."""


@dataclass(frozen=True)
class Side:
    """One side of an exchange: a tile in a layout, and where in the buffer its elements lie.

    Attributes:
      layout, shape: the tile's.
      element: the type of its elements in registers.
      strides: elements between neighbours along each dimension of the tile.
      start: the place of element (0, .., 0), in elements.
      extents: coordinates below these, one a dimension, are moved; others are skipped.
    """

    layout: Layout
    shape: tuple[int, ...]
    element: ir.Type
    strides: tuple[int, ...]
    start: int
    extents: tuple[int, ...]

    @property
    def element_bytes(self) -> int:
        """Bytes one element takes."""
        return storage_bits(self.element) // 8

    @property
    def width(self) -> int:
        """Elements in one access: neighbours in the buffer, aligned, all inside or all outside of the extents."""
        near = [d for d, s in enumerate(self.strides) if s == 1 and self.extents[d] > 1]
        if not near:
            return 1
        dim = near[-1]
        others = [s for d, s in enumerate(self.strides) if d != dim and self.extents[d] > 1]
        common = math.gcd(self.start, self.extents[dim], self.layout.vector_width(dim, self.shape), *others)
        return min(common & -common, MAX_ACCESS_BYTES // self.element_bytes)


def padded_extents(layout: Layout, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape rounded up to whole base tiles: every coordinate that a register has."""
    return tuple(r * n for r, n in zip(layout.reps(shape), layout.base, strict=True))


def exchange(
    conversion: Conversion, writes: Sequence[tuple[ir.Value, Side]], reads: Sequence[Side], size_bytes: int
) -> list[ir.Value]:
    """Writes tiles to a buffer of `size_bytes` bytes and reads others from it; gives the vectors read."""
    window = min(size_bytes, conversion.shared.window_bytes())
    results: list[ir.Value | None] = [None] * len(reads)
    for low in range(0, max(size_bytes, 1), max(window, 1)):
        whole = None if window == size_bytes else (low, window)
        base = conversion.shared.exchange(window)
        for value, side in writes:
            _write(conversion, value, side, base, whole)
        emit.barrier()
        for number, side in enumerate(reads):
            results[number] = _read(conversion, side, base, whole, results[number])
    return [r for r in results if r is not None]


def publish(conversion: Conversion, value: ir.Value, side: Side, size_bytes: int) -> ir.Value:
    """Writes a tile to a buffer that fits the exchange region; a pointer to it, when all threads may read."""
    base = conversion.shared.exchange(size_bytes)
    _write(conversion, value, side, base, None)
    emit.barrier()
    return base


def _write(conversion: Conversion, value: ir.Value, side: Side, base: ir.Value, window: tuple[int, int] | None) -> None:
    holder = conversion.threads.is_holder(side.layout)
    memref, addresses, conditions = _places(conversion, side, base, window)
    conditions = [all_of((c, True if holder is None else holder)) for c in conditions]
    store_registers(memref, addresses, conditions, side.width, value)


def _read(
    conversion: Conversion, side: Side, base: ir.Value, window: tuple[int, int] | None, before: ir.Value | None
) -> ir.Value:
    memref, addresses, conditions = _places(conversion, side, base, window)
    return load_registers(memref, addresses, conditions, side.width, before)


def _places(
    conversion: Conversion, side: Side, base: ir.Value, window: tuple[int, int] | None
) -> tuple[MemRef, list[Address], list[Condition]]:
    """Memory, address and condition of each piece."""
    low = 0 if window is None else window[0]
    pointer = emit.gep(base, side.start * side.element_bytes - low)
    memref = MemRef(pointer, side.element, side.shape, side.strides, (), invariant=False)
    coordinates = Coordinates(conversion.threads, side.layout, side.shape)
    starts = range(0, len(coordinates), side.width)
    addresses = register_addresses(memref, coordinates)[:: side.width]
    conditions = [all_of(coordinates.below(r, d, n) for d, n in enumerate(side.extents)) for r in starts]
    if window is not None:
        reach = thread_reach(memref, coordinates)
        spans = _Window(base, side.start * side.element_bytes - low, window[1], reach)
        conditions = [all_of((c, spans.holds(a))) for c, a in zip(conditions, addresses, strict=True)]
    return memref, addresses, conditions


@dataclass(frozen=True)
class _Window:
    """The first `size` bytes from `base`; tiles start `start` bytes from there, threads spread over +-`reach`."""

    base: ir.Value
    start: int
    size: int
    reach: int

    def holds(self, address: Address) -> Condition:
        """Whether an access at `address` is inside; a piece never straddles an end."""
        first = self.start + address.constant
        if first + self.reach < 0 or first - self.reach >= self.size:
            return False
        offsets = [emit.value("llvm.ptrtoint", emit.i64(), [p]) for p in (address.pointer, self.base)]
        offset = emit.add(emit.binary("subi", *offsets), address.constant)
        return emit.compare(emit.ULT, offset, self.size)


def convert_through_memory(
    conversion: Conversion, value: ir.Value, shape: tuple[int, ...], source: Layout, dest: Layout
) -> ir.Value:
    """The vector of a tile in layout `source`, in layout `dest`.

    The buffer holds whole base tiles of the source, so that nothing has to be skipped when it is written (what is
    padding is not read); rows that would all start at the same bank are spread by 16 bytes.
    """
    element = emit.element(value.type)
    size = storage_bits(element) // 8
    extents = padded_extents(source, shape)
    pitch = list(extents)
    if pitch[-1] * size % BANK_ROW_BYTES == 0 and math.prod(pitch[:-1]) > 1:
        pitch[-1] += MAX_ACCESS_BYTES // size
    write = Side(source, shape, element, row_major(pitch), 0, extents)
    read = replace(write, layout=dest, extents=shape)
    return exchange(conversion, [(value, write)], [read], math.prod(pitch) * size)[0]


def from_partner(conversion: Conversion, value: ir.Value, thread_mask: int) -> ir.Value:
    """The vector that the thread with number `tid ^ thread_mask`, of another warp, holds."""
    threads = 1 << conversion.threads.num_bits
    size = storage_bits(emit.element(value.type)) // 8
    at_once = max(1, conversion.shared.window_bytes() // (threads * size))
    count = emit.length(value)
    parts: ir.Value | None = None
    for first in range(0, count, at_once):
        chosen = emit.pick(value, range(first, min(count, first + at_once)))
        moved = _partner_round(conversion, chosen, thread_mask, threads * size)
        parts = moved if parts is None else emit.append(parts, moved)
    if parts is None:
        raise AssertionError("a vector has elements")
    return parts


def _partner_round(conversion: Conversion, value: ir.Value, thread_mask: int, row_bytes: int) -> ir.Value:
    """Register i of thread t lies at `i * row_bytes + t * element size`: no two lanes share a bank."""
    element, count, tid = emit.element(value.type), emit.length(value), conversion.threads.tid
    size = storage_bits(element) // 8
    base = conversion.shared.exchange(count * row_bytes)
    memref = MemRef(base, element, (count,), (1,), (), invariant=False)
    sure: list[Condition] = [True] * count
    own, other = (emit.gep(base, emit.mul(t, size)) for t in (tid, emit.xor(tid, thread_mask)))
    store_registers(memref, [Address(own, i * row_bytes) for i in range(count)], sure, 1, value)
    emit.barrier()
    return load_registers(memref, [Address(other, i * row_bytes) for i in range(count)], sure, 1, None)
