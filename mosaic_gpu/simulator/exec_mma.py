"""mma.sync: D = A B + C by one warp (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions").

The layout of the fragments is in `fragments.py`, the arithmetic in `matrix_values.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.simulator.exec_matrix import require_warp, whole_warps
from mosaic_gpu.simulator.fragments import BITS, a_table, b_table, c_table, invert, registers_of
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.matrix_values import (
    INTEGERS,
    accumulate,
    accumulator_bits,
    chain64,
    decode,
    multiply,
)
from mosaic_gpu.simulator.registry import Decoder, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]
_SHAPES = {
    "f16": ((16, 8, 8), (16, 8, 16)),
    "bf16": ((16, 8, 8), (16, 8, 16)),
    "tf32": ((16, 8, 4), (16, 8, 8)),
    "f64": ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)),
    "fp8": ((16, 8, 16), (16, 8, 32)),
    "int8": ((8, 8, 16), (16, 8, 16), (16, 8, 32)),
    "int4": ((8, 8, 32), (16, 8, 32), (16, 8, 64)),
    "b1": ((8, 8, 128), (16, 8, 128), (16, 8, 256)),
}
_FAMILY = {"e4m3": "fp8", "e5m2": "fp8", "s8": "int8", "u8": "int8", "s4": "int4", "u4": "int4"}


@dataclass(frozen=True)
class Product:
    """What a matrix instruction computes: the shape and the types of D, A, B and C."""

    m: int
    n: int
    k: int
    types: tuple[str, str, str, str]
    saturate: bool = False
    operation: str = "and"

    def allowed(self) -> bool:
        """True if the types go together, whatever the shape."""
        d, a, b, c = self.types
        if a in INTEGERS:
            return d == c == "s32" and _FAMILY.get(a, a) == _FAMILY.get(b, b)
        if a == "f64":
            return d == b == c == "f64"
        if a == "f16":
            return b == "f16" and d in ("f16", "f32") and c in ("f16", "f32")
        if a in ("e4m3", "e5m2"):
            return b in ("e4m3", "e5m2") and d == c and d in ("f16", "f32")
        return a == b and d == c == "f32"

    def compute(self, a: Array, b: Array, c: Array) -> Array:
        """Elements of A (.., M, K), of B's transpose (.., N, K), bits of C (.., M, N) -> bits of D."""
        if self.types[1] == "f64":
            return chain64(a, b, c.view(np.float64)).view(np.uint64)
        result, kind = self.types[0], self.types[3]
        if kind == "f16" and result == "f32":
            c = c.view(np.float16).astype(np.float32).view(np.uint32)
        elif kind == "f32" and result == "f16":
            return accumulate(multiply(a, b) + c.view(np.float32), None, "f16")
        return accumulate(multiply(a, b, self.operation), c, result, saturate=self.saturate)


def parse_shape(d: Decoder, word: str) -> tuple[int, int, int]:
    """m16n8k16 as three numbers."""
    match = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", word)
    if match is None:
        raise d.fail(f".{word} is no shape")
    return int(match[1]), int(match[2]), int(match[3])


def take_words(d: Decoder) -> list[str]:
    """All modifiers in order; the caller answers for each of them."""
    words = list(d.instruction.modifiers)
    d.words, d.types = [], []
    return words


def refuse_word(d: Decoder, words: list[str]) -> None:
    """Refuses the modifiers that are left over."""
    if words:
        raise d.refuse(f"modifier .{words[0]}")


@instruction("mma", converges=True)
def exec_mma(d: Decoder) -> Operation:
    words = take_words(d)
    if words[:2] != ["sync", "aligned"]:
        raise d.refuse()
    del words[:2]
    saturate = "satfinite" in words
    operation = next((w for w in words if w in ("xor", "and")), "and")
    words = [w for w in words if w not in ("satfinite", "popc", "xor", "and")]
    if len(words) != 7 or words[1:3] != ["row", "col"] or any(w not in BITS for w in words[3:]):
        raise d.refuse()
    product = Product(*parse_shape(d, words[0]), (words[3], words[4], words[5], words[6]), saturate, operation)
    kind = product.types[1]
    fits = product.allowed() and words[3] == words[6]
    if (product.m, product.n, product.k) not in _SHAPES.get(_FAMILY.get(kind, kind), ()) or not fits:
        raise d.refuse("this shape with these types")
    require_warp(d)
    d.count(4)
    return warp_product(d, product)


@instruction("movmatrix", converges=True)
def exec_movmatrix(d: Decoder) -> Operation:
    """Transposes an 8x8 matrix of 16-bit elements, a row of which four lanes hold (PTX ISA, "movmatrix")."""
    if take_words(d) != ["sync", "aligned", "m8n8", "trans", "b16"]:
        raise d.refuse()
    d.count(2)
    o, a = d.dst(0, "b32"), d.src(1, "b32")
    require_warp(d)

    def run(slots: list[Array], frame: Frame) -> None:
        whole_warps(d, frame)
        words = np.ascontiguousarray(np.broadcast_to(slots[a], frame.n))
        rows = words.view(np.uint16).reshape(-1, 8, 8)
        slots[o][...] = np.ascontiguousarray(rows.transpose(0, 2, 1)).view(np.uint32).reshape(-1)

    return run


def warp_product(d: Decoder, product: Product) -> Operation:
    """D, A, B and C are operands 0 to 3, in registers."""
    m, n, k = product.m, product.n, product.k
    kd, ka, kb, kc = product.types
    targets = destinations(d, 0, registers_of(m, n, kd, accumulator=True), kd)
    a = Fragment.of(d, 1, a_table(m, k, ka), ka, registers_of(m, k, ka))
    b = Fragment.of(d, 2, b_table(n, k, kb), kb, registers_of(n, k, kb))
    c = Fragment.of(d, 3, c_table(m, n, kc), kc, registers_of(m, n, kc, accumulator=True))
    scatter = invert(c_table(m, n, kd))

    def run(slots: list[Array], frame: Frame) -> None:
        whole_warps(d, frame)
        result = product.compute(a.elements(slots, frame), b.elements(slots, frame), c.bits(slots, frame))
        write_fragment(slots, targets, result, scatter)

    return run


def register_type(kind: str) -> str:
    """The PTX type of the registers that hold elements of a kind."""
    return "b64" if kind == "f64" else "b32"


def destinations(d: Decoder, index: int, count: int, kind: str) -> list[int]:
    """The slots of a vector of results."""
    items = d.vector(index)
    if len(items) != count:
        raise d.fail(f"operand {index + 1}: {count} registers expected, got {len(items)}")
    return [d.destination(item, register_type(kind)) for item in items]


def write_fragment(slots: list[Array], targets: list[int], result: Array, scatter: Array) -> None:
    """Bits of D (warps, M, N) -> registers; `scatter` is the inverse of D's table."""
    words = np.ascontiguousarray(result.reshape(len(result), -1)[:, scatter])
    words = words.view(np.uint64 if words.dtype.itemsize == 8 else np.uint32).reshape(len(result), len(targets), 32)
    for i, target in enumerate(targets):
        slots[target][...] = words[:, i].reshape(-1)


@dataclass(frozen=True)
class Fragment:
    """An operand in registers: slots, and the position of each element."""

    sources: tuple[int, ...]
    table: Array
    kind: str

    @classmethod
    def of(cls, d: Decoder, index: int, table: Array, kind: str, count: int, *, copies: int = 1) -> Fragment:
        """Operand `index`, a vector of `count` registers, which holds everything `copies` times."""
        items = d.vector(index)
        if len(items) != count * copies:
            raise d.fail(f"operand {index + 1}: {count * copies} registers expected, got {len(items)}")
        sources = [d.source(item, register_type(kind)) for item in items]
        return cls(tuple(sources[:count]), table, kind)

    def words(self, slots: list[Array], frame: Frame) -> Array:
        """(warps, registers * 32) words."""
        words = np.empty((frame.n // 32, len(self.sources), 32), slots[self.sources[0]].dtype)
        for i, source in enumerate(self.sources):
            words[:, i] = slots[source].reshape(-1, 32) if len(slots[source]) > 1 else slots[source]
        return words.reshape(len(words), -1)

    def elements(self, slots: list[Array], frame: Frame) -> Array:
        """(warps, *table's shape) as numbers."""
        return decode(self.words(slots, frame), self.kind)[:, self.table]

    def bits(self, slots: list[Array], frame: Frame) -> Array:
        """(warps, *table's shape) as bits."""
        return self.words(slots, frame).view(accumulator_bits(self.kind))[:, self.table]
