"""Loads and stores of a tile's registers, piece by piece.

A piece is a run of consecutive registers that are neighbours in memory: one instruction of at most 16
bytes.  A piece that surely lies inside is a plain load or store; any other is a predicated instruction in inline
PTX, with the values of a load that does not happen tied in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.memref import MemRef, SwizzledBox
from mosaic_gpu.lowering.nvvm.predicates import Condition, Coordinates
from mosaic_gpu.lowering.nvvm.registers import memory_element

INT32_REACH = 2**31 - 1
MAX_ACCESS_BYTES = 16


@dataclass(frozen=True)
class Address:
    """`constant` bytes after `pointer`."""

    pointer: ir.Value
    constant: int


def register_addresses(memref: MemRef, coordinates: Coordinates) -> list[Address]:
    """The address of each register's element; registers share as few pointers as possible."""
    if memref.box is not None:
        return swizzled_addresses(memref, memref.box, coordinates)
    pointers: dict[tuple[int, ...], ir.Value] = {}
    addresses = []
    for split in coordinates.splits:
        if split.flipped not in pointers:
            pointers[split.flipped] = _thread_pointer(memref, coordinates, split.flipped)
        steps = sum(a * s for a, s in zip(split.added, memref.strides, strict=True))
        addresses.append(Address(pointers[split.flipped], steps * memref.element_bytes))
    return addresses


def swizzled_addresses(memref: MemRef, box: SwizzledBox, coordinates: Coordinates) -> list[Address]:
    """The addresses of elements in swizzled memory.  Raises UnsupportedError for tiles of other than two dimensions."""
    if coordinates.layout.rank != 2:
        raise UnsupportedError("an access to several swizzled tiles at once")
    return _linear_addresses(memref, box, coordinates) if box.is_whole else _general_addresses(memref, box, coordinates)


def _linear_addresses(memref: MemRef, box: SwizzledBox, coordinates: Coordinates) -> list[Address]:
    """For a view that starts where the tile does: a thread's and a register's part of an offset are XORed.

    Bits that only registers touch are added instead, so that they become constants.
    """
    panels, threads, layout = box.panels, coordinates.threads, coordinates.layout
    inner = [panels.in_panel(*image) for image in layout.thread_images]
    panel = [panels.panel(image[1]) for image in layout.thread_images]
    masks = _union(inner), _union(panel)
    pointers: dict[tuple[int, int], ir.Value] = {}
    addresses = []
    for offset in layout.register_offsets(coordinates.shape):
        parts = panels.in_panel(*offset), panels.panel(offset[1])
        flips = parts[0] & masks[0], parts[1] & masks[1]
        if flips not in pointers:
            total = _flipped_sum(threads.number(inner), flips[0], 1)
            number = _flipped_sum(threads.number(panel), flips[1], panels.panel_bytes)
            if total is not None and number is not None:
                total = emit.add(total, number)
            total = number if total is None else total
            pointers[flips] = memref.pointer if total is None else emit.gep(memref.pointer, total)
        constant = (parts[0] ^ flips[0]) + (parts[1] ^ flips[1]) * panels.panel_bytes
        addresses.append(Address(pointers[flips], constant))
    return addresses


def _flipped_sum(number: ir.Value | None, flip: int, scale: int) -> ir.Value | None:
    return None if number is None else emit.mul(emit.xor(number, flip), scale)


def _union(numbers: Sequence[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= number
    return mask


def _general_addresses(memref: MemRef, box: SwizzledBox, coordinates: Coordinates) -> list[Address]:
    """For any other view: each register's row and column, and the swizzle of their offset."""
    panels, addresses = box.panels, []
    for split in coordinates.splits:
        row, column = (_place(coordinates.flipped(d, split.flipped[d]), split.added[d], box.start[d]) for d in range(2))
        bytes_ = emit.mul(column, panels.element_bytes)
        inner = emit.and_(bytes_, panels.swizzle - 1)
        offset = emit.add(emit.mul(row, panels.swizzle), inner)
        offset = emit.xor(offset, emit.and_(emit.shr(offset, 3), panels.mask))
        panel = emit.shr(bytes_, panels.swizzle.bit_length() - 1)
        offset = emit.add(offset, emit.mul(panel, panels.panel_bytes))
        addresses.append(Address(emit.gep(memref.pointer, offset), 0))
    return addresses


def _place(thread: ir.Value | None, added: int, start: ir.Value | int) -> ir.Value:
    """The sum of three parts of a coordinate, i32."""
    total = emit.const(added + start) if isinstance(start, int) else emit.add(emit.convert_int(start, 32), added)
    return total if thread is None else emit.add(total, thread)


def _thread_pointer(memref: MemRef, coordinates: Coordinates, flips: tuple[int, ...]) -> ir.Value:
    """The address of the thread's coordinate XOR `flips`."""
    weights = _bit_weights(memref, coordinates)
    if weights is not None and not any(flips):
        offset = coordinates.threads.weighted(weights)
        return memref.pointer if offset is None else emit.gep(memref.pointer, offset)
    bits = 32 if thread_reach(memref, coordinates) <= INT32_REACH else 64
    pointer = memref.pointer
    total: ir.Value | None = None
    for d, flip in enumerate(flips):
        thread = coordinates.flipped(d, flip)
        if thread is not None:
            wide = emit.convert_int(thread, bits, signed=False)
            part = emit.mul(wide, memref.strides[d] * memref.element_bytes)
            total = part if total is None else emit.add(total, part)
    return pointer if total is None else emit.gep(pointer, total)


def thread_reach(memref: MemRef, coordinates: Coordinates) -> int:
    """The most bytes that the thread's part of an address can amount to."""
    strides = zip(coordinates.mask, memref.strides, strict=True)
    return sum(mask * abs(stride) for mask, stride in strides) * memref.element_bytes


def _bit_weights(memref: MemRef, coordinates: Coordinates) -> list[int] | None:
    """Bytes that each bit of the thread's number adds to the address; None where bits do not simply add up."""
    images = coordinates.layout.thread_images
    for d in range(coordinates.layout.rank):
        if sum(image[d] for image in images) != coordinates.mask[d]:
            return None
    if thread_reach(memref, coordinates) > INT32_REACH:
        return None
    return [sum(c * s for c, s in zip(i, memref.strides, strict=True)) * memref.element_bytes for i in images]


def to_memory(vector: ir.Value) -> ir.Value:
    """Register elements as memory elements: a bool becomes a byte 0 or 1."""
    return emit.convert_int(vector, 8, signed=False) if emit.element(vector.type) == emit.i1() else vector


def from_memory(vector: ir.Value, element: ir.Type) -> ir.Value:
    """Memory elements as register elements."""
    return emit.compare(emit.NE, vector, 0) if element == emit.i1() else vector


def load_registers(
    memref: MemRef, addresses: Sequence[Address], conditions: Sequence[Condition], width: int, other: ir.Value | None
) -> ir.Value:
    """The vector of all registers, loaded in pieces of `width`.

    `addresses`, `conditions`: one a piece; `other`: a scalar or vector, as in registers.
    """
    other = None if other is None else to_memory(other)
    pieces = []
    for number, (address, condition) in enumerate(zip(addresses, conditions, strict=True)):
        replacement = None if condition is True else _piece(other, number * width, width)
        pieces.append(load_piece(memref, address, width, condition, replacement))
    return from_memory(emit.concat(pieces), memref.element)


def store_registers(
    memref: MemRef, addresses: Sequence[Address], conditions: Sequence[Condition], width: int, stored: ir.Value
) -> None:
    """Stores the vector of all registers in pieces of `width`; `addresses`, `conditions`: one a piece."""
    values = to_memory(stored)
    for number, (address, condition) in enumerate(zip(addresses, conditions, strict=True)):
        piece = _piece(values, number * width, width)
        if piece is not None and condition is not False:
            store_piece(memref, address, piece, condition)


def _piece(values: ir.Value | None, start: int, width: int) -> ir.Value | None:
    """Registers start .. start + width of a vector, or that often a scalar."""
    if values is None:
        return None
    if not emit.is_vector(values.type):
        return emit.splat(values, width)
    return emit.pick(values, range(start, start + width))


def load_piece(memref: MemRef, address: Address, count: int, condition: Condition, other: ir.Value | None) -> ir.Value:
    """A vector of `count` memory elements; `other` (the same vector, zero for None) where `condition` is false."""
    type_ = emit.vector_type(count, memory_element(memref.element))
    if condition is False:
        return emit.constant(type_, 0) if other is None else other
    if condition is True:
        pointer = emit.gep(address.pointer, address.constant)
        return emit.load(type_, pointer, count * memref.element_bytes, invariant=memref.invariant)
    words = _words(count * memref.element_bytes)
    initial = _split(emit.constant(type_, 0) if other is None else other, words)
    outputs = ",".join(f"${i}" for i in range(words.count))
    text = f"@${words.count} ld.{memref.space}{'.nc' if memref.invariant else ''}{words.suffix} "
    text += f"{_group(outputs, words)}, [${words.count + 1}+{address.constant}];"
    constraints = ",".join([f"={words.constraint}"] * words.count + ["b", "l"] + [str(i) for i in range(words.count)])
    if not memref.invariant:
        constraints += ",~{memory}"
    results = [words.type] * words.count
    operands = [condition, address.pointer, *initial]
    loaded = emit.inline_asm(text, constraints, operands, results, effects=not memref.invariant)
    return _join(loaded, type_, words)


def store_piece(memref: MemRef, address: Address, piece: ir.Value, condition: Condition) -> None:
    """Stores a vector of memory elements where `condition` is true."""
    size = emit.length(piece) * memref.element_bytes
    if condition is False:
        return
    if condition is True:
        emit.store(piece, emit.gep(address.pointer, address.constant), size)
        return
    words = _words(size)
    inputs = ",".join(f"${i + 2}" for i in range(words.count))
    text = f"@$0 st.{memref.space}{words.suffix} [$1+{address.constant}], {_group(inputs, words)};"
    constraints = ",".join(["b", "l"] + [words.constraint] * words.count + ["~{memory}"])
    emit.inline_asm(text, constraints, [condition, address.pointer, *_split(piece, words)], [], effects=True)


@dataclass(frozen=True)
class _Words:
    """How one access is cut into registers: `count` of `bits` bits each."""

    bits: int
    count: int
    memory_bits: int

    @property
    def type(self) -> ir.Type:
        return emit.int_type(self.bits)

    @property
    def constraint(self) -> str:
        return {16: "h", 32: "r", 64: "l"}[self.bits]

    @property
    def suffix(self) -> str:
        vector = f".v{self.count}" if self.count > 1 else ""
        return f"{vector}.b{self.memory_bits}"


def _words(size: int) -> _Words:
    """The registers for `size` bytes.  A single byte travels in 16 bits, the least that PTX has."""
    if size == 1:
        return _Words(16, 1, 8)
    if size == 2:
        return _Words(16, 1, 16)
    return _Words(32, size // 4, 32)


def _group(names: str, words: _Words) -> str:
    return f"{{{names}}}" if words.count > 1 else names


def _split(vector: ir.Value, words: _Words) -> list[ir.Value]:
    """The bits of a vector as words."""
    if words.memory_bits == 8:
        byte = emit.bitcast(emit.extract(vector, 0), emit.int_type(8))
        return [emit.convert_int(byte, 16, signed=False)]
    cast = emit.bitcast(vector, emit.vector_type(words.count, words.type))
    return [emit.extract(cast, i) for i in range(words.count)]


def _join(parts: Sequence[ir.Value], type_: ir.Type, words: _Words) -> ir.Value:
    """The inverse of `_split`."""
    if words.memory_bits == 8:
        return emit.from_elements([emit.convert_int(parts[0], 8)])
    return emit.bitcast(emit.from_elements(parts), type_)
