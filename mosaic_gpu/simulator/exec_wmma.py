"""wmma.load, wmma.mma and wmma.store (PTX ISA, "Warp Level Matrix Instructions").

PTX leaves the layout of wmma's fragments open.  Here they are those of mma.sync (see `fragments.py`), as on
the hardware; where a fragment has more registers than the matrix has elements for (f16), it holds all of
them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.simulator.exec_matrix import require_warp, whole_warps
from mosaic_gpu.simulator.exec_memory import fetch, place_name, put
from mosaic_gpu.simulator.exec_mma import (
    Fragment,
    Product,
    destinations,
    parse_shape,
    refuse_word,
    take_words,
    write_fragment,
)
from mosaic_gpu.simulator.fragments import BITS, a_table, b_table, c_table, invert, per_register, registers_of
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.memory import Access
from mosaic_gpu.simulator.ptx import TYPES, Address, Register
from mosaic_gpu.simulator.registry import Decoder, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]
_WIDE = ((16, 16, 16), (8, 32, 16), (32, 8, 16))
_SHAPES = {
    "f16": _WIDE, "bf16": _WIDE, "s8": _WIDE, "u8": _WIDE, "tf32": ((16, 16, 8),), "f64": ((8, 8, 4),),
    "s4": ((8, 8, 32),), "u4": ((8, 8, 32),), "b1": ((8, 8, 128),),
}  # fmt: skip
_F16_REGISTERS = 8


@instruction("wmma", converges=True)
def exec_wmma(d: Decoder) -> Operation:
    words = take_words(d)
    what = words.pop(0) if words else ""
    if what not in ("load", "store", "mma"):
        raise d.refuse()
    if what == "mma":
        return _mma(d, words)
    which = words.pop(0) if words else ""
    if which not in (("a", "b", "c") if what == "load" else ("d",)):
        raise d.fail("a fragment expected")
    require_warp(d)
    return _transfer(d, which, words)


def _sync(d: Decoder, words: list[str]) -> None:
    if words[:2] != ["sync", "aligned"]:
        raise d.refuse()
    del words[:2]


@dataclass(frozen=True)
class _Place:
    """A fragment: its matrix is `rows` x `columns`, its registers hold it `copies` times."""

    rows: int
    columns: int
    table: Array
    kind: str
    registers: int
    copies: int


def _place(d: Decoder, which: str, shape: tuple[int, int, int], kind: str) -> _Place:
    m, n, k = shape
    if which in "cd":
        return _Place(m, n, c_table(m, n, kind), kind, registers_of(m, n, kind, accumulator=True), 1)
    rows, columns = (m, k) if which == "a" else (n, k)
    table = a_table(m, k, kind) if which == "a" else b_table(n, k, kind)
    registers = registers_of(rows, columns, kind)
    return _Place(rows, columns, table, kind, registers, _F16_REGISTERS // registers if kind == "f16" else 1)


def _transfer(d: Decoder, which: str, words: list[str]) -> Operation:
    """wmma.load and wmma.store: .sync.aligned.layout.shape{.ss}.type"""
    _sync(d, words)
    if len(words) < 3:
        raise d.refuse()
    layout, shape, kind = words.pop(0), parse_shape(d, words.pop(0)), words.pop()
    space = words.pop(0).partition("::")[0] if words else ""
    refuse_word(d, words)
    if layout not in ("row", "col") or kind not in BITS or BITS[kind] < 8 or space not in ("", "global", "shared"):
        raise d.refuse()
    if not any(shape in shapes for shapes in _SHAPES.values()):
        raise d.refuse("this shape")
    place = _place(d, which, shape, kind)
    load = which != "d"
    d.count(2, 3)
    address = d.address(1 if load else 0)
    stride = _stride(d, place, layout)
    if load:
        targets = destinations(d, 0, place.registers * place.copies, kind)
        return _load(d, _Window(d, address, space, place, which, layout, stride), targets)
    sources = Fragment.of(d, 1, place.table, kind, place.registers)
    return _store(_Window(d, address, space, place, which, layout, stride), sources)


def _stride(d: Decoder, place: _Place, layout: str) -> int:
    """The slot of the stride between rows (or columns), in elements."""
    if len(d.operands) == 3:
        return d.src(2, "u32")
    return d.slots.constant(np.uint32(place.columns if layout == "row" else place.rows), TYPES["u32"])


class _Window:
    """The matrix in memory: one element per register position of each lane."""

    def __init__(
        self, d: Decoder, address: Address, space: str, place: _Place, which: str, layout: str, stride: int
    ) -> None:
        wide = not (isinstance(address.base, Register) and TYPES[address.base.type].itemsize == 4)
        self.d, self.space, self.place, self.stride = d, space, place, stride
        self.base = d.source(address.base, "u64" if wide else "u32")
        self.offset = address.offset
        self.bytes = BITS[place.kind] // 8
        # B's table is that of its transpose: its rows are columns of B.
        along_rows = (layout == "row") != (which == "b")
        each = 2 if which in "cd" and place.kind == "f16" else 1 if which in "cd" else per_register(place.kind)
        flat = invert(place.table)
        row, column = flat // place.columns, flat % place.columns
        line, within = (row, column) if along_rows else (column, row)
        # (registers, lanes, elements) -> (lanes, registers * elements)
        order = (place.registers, 32, each)
        self.line = line.reshape(order).transpose(1, 0, 2).reshape(32, -1)
        self.within = within.reshape(order).transpose(1, 0, 2).reshape(32, -1)
        self.each = each
        self.dtype = np.dtype(f"u{self.bytes}")
        what = place_name(space, "matrix load" if which != "d" else "matrix store")
        self.access = d.layout.note_access(Access(d.instruction, space, 0, 0, self.bytes, what))

    def frame(self, slots: list[Array], frame: Frame) -> tuple[Frame, list[Array]]:
        """A frame with a thread for each element, and the addresses in slot 0."""
        whole_warps(self.d, frame)
        base = np.broadcast_to(slots[self.base], frame.n).astype(np.int64) + self.offset
        stride = np.broadcast_to(slots[self.stride], frame.n).astype(np.int64)
        for value in (base, stride):
            lanes = value.reshape(-1, 32)
            if (lanes != lanes[:, :1]).any():
                raise frame.error(self.d.instruction, "the lanes of a warp give different addresses or strides", 0)
        line, within = (np.tile(x, (frame.n // 32, 1)) for x in (self.line, self.within))
        address = base[:, None] + (line * stride[:, None] + within) * self.bytes
        count = address.shape[1]
        each = Frame(frame.wave, np.repeat(frame.ids, count), frame.n * count, frame.V)
        return each, [address.reshape(-1).view(np.uint64)]


def _load(d: Decoder, window: _Window, targets: list[int]) -> Operation:
    place = window.place

    def run(slots: list[Array], frame: Frame) -> None:
        each, addresses = window.frame(slots, frame)
        values = np.empty(each.n, window.dtype)
        for region, index, chosen in window.access.reach(addresses, each):
            values[... if chosen is None else chosen] = fetch(
                window.access, region, index, window.dtype, 1, each, chosen
            )
        words = values.view(np.uint64 if place.kind == "f64" else np.uint32).reshape(frame.n, place.registers)
        for i, target in enumerate(targets):
            slots[target][...] = words[:, i % place.registers]

    return run


def _store(window: _Window, sources: Fragment) -> Operation:
    def run(slots: list[Array], frame: Frame) -> None:
        each, addresses = window.frame(slots, frame)
        words = np.stack([np.broadcast_to(slots[a], frame.n) for a in sources.sources], axis=1)
        values = np.ascontiguousarray(words).view(window.dtype).reshape(-1)
        for region, index, chosen in window.access.reach(addresses, each):
            part = values if chosen is None else values[chosen]
            put(window.access, region, index, window.dtype, [part], each, chosen)

    return run


def _mma(d: Decoder, words: list[str]) -> Operation:
    """wmma.mma: {.and.popc}.sync.aligned.alayout.blayout.shape{.dtype.atype.btype.ctype | .dtype.ctype}"""
    operation = next((w for w in words if w in ("xor", "and")), "and")
    words = [w for w in words if w not in ("xor", "and", "popc")]
    saturate = "satfinite" in words
    words = [w for w in words if w not in ("satfinite", "rn")]
    _sync(d, words)
    if len(words) < 5 or any(w not in ("row", "col") for w in words[:2]):
        raise d.refuse()
    shape, types = parse_shape(d, words[2]), words[3:]
    if len(types) == 2:
        types = [types[0], "f16", "f16", types[1]]
    if len(types) != 4 or any(t not in BITS for t in types):
        raise d.refuse()
    product = Product(*shape, (types[0], types[1], types[2], types[3]), saturate, operation)
    if shape not in _SHAPES.get(types[1], ()) or not product.allowed():
        raise d.refuse("this shape with these types")
    require_warp(d)
    d.count(4)
    return _product(d, product)


def _product(d: Decoder, product: Product) -> Operation:
    shape = (product.m, product.n, product.k)
    places = [_place(d, which, shape, kind) for which, kind in zip("dabc", product.types, strict=True)]
    targets = destinations(d, 0, places[0].registers, product.types[0])
    a, b, c = (Fragment.of(d, i, p.table, p.kind, p.registers, copies=p.copies) for i, p in enumerate(places) if i)
    scatter = invert(places[0].table)

    def run(slots: list[Array], frame: Frame) -> None:
        whole_warps(d, frame)
        result = product.compute(a.elements(slots, frame), b.elements(slots, frame), c.bits(slots, frame))
        write_fragment(slots, targets, result, scatter)

    return run
