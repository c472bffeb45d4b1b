"""Bit operations: logic, shifts, prmt, lop3, bfe, bfi, popc, clz and their like."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.ptx import TYPES, Immediate, Register
from mosaic_gpu.simulator.registry import Decoder, Kernel, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]
U32, U64 = np.uint32, np.uint64


@instruction("and", "or", "xor")
def exec_and(d: Decoder) -> Operation:
    ufuncs: dict[str, Any] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    return d.binary(ufuncs[d.instruction.opcode], d.type())


@instruction("not")
def exec_not(d: Decoder) -> Operation:
    return d.unary(np.invert, d.type())


@instruction("cnot")
def exec_cnot(d: Decoder) -> Operation:
    return d.unary(lambda a, out: np.equal(a, 0, out), d.type())


@instruction("shl", "shr")
def exec_shl(d: Decoder) -> Operation:
    """A shift by the width or more gives 0 (or the sign): NumPy defines it the same way."""
    kind = d.type()
    ufunc: Any = np.left_shift if d.instruction.opcode == "shl" else np.right_shift
    dtype, amount = TYPES[kind], d.operand(2)
    most = 8 * dtype.itemsize
    if isinstance(amount, Immediate):
        d.count(3)
        o, a = d.dst(0, kind), d.src(1, kind)
        by = dtype.type(min(amount.value & 0xFFFFFFFF, most))

        def run(slots: list[Array], frame: Any) -> None:
            ufunc(slots[a], by, slots[o])

        return run
    if dtype == U32:
        return d.binary(ufunc, kind, second="u32")
    return d.binary(lambda a, b, out: ufunc(a, np.minimum(b, most).astype(dtype), out), kind, second="u32")


@instruction("shf")
def exec_shf(d: Decoder) -> Operation:
    left = d.need(("l", "r")) == "l"
    wrap = d.need(("wrap", "clamp")) == "wrap"

    def kernel(a: Array, b: Array, c: Array, out: Array) -> None:
        by = (c & U32(31) if wrap else np.minimum(c, U32(32))).astype(U64)
        pair = (b.astype(U64) << U64(32)) | a
        out[...] = (pair << by) >> U64(32) if left else pair >> by

    return d.ternary(_low_word(kernel), ("b32", "b32", "u32"), d.type())


def _low_word(kernel: Kernel) -> Kernel:
    def run(a: Array, b: Array, c: Array, out: Array) -> None:
        wide = np.empty(len(out), U64)
        kernel(a, b, c, wide)
        out[...] = wide.astype(U32)

    return run


@instruction("prmt")
def exec_prmt(d: Decoder) -> Operation:
    mode = d.one_of(("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"))
    if mode:
        raise d.refuse(f"modifier .{mode}")
    return d.ternary(_permute, ("b32", "b32", "b32"), d.type())


def _permute(a: Array, b: Array, selector: Array, out: Array) -> None:
    pair = (b.astype(U64) << U64(32)) | a
    total = np.zeros(len(out), U32)
    for i in range(4):
        nibble = (selector >> U32(4 * i)) & U32(15)
        byte = (pair >> ((nibble & U32(7)).astype(U64) * U64(8))).astype(U32) & U32(0xFF)
        sign = (byte >> U32(7)) * U32(0xFF)
        total |= np.where(nibble & U32(8), sign, byte) << U32(8 * i)
    out[...] = total


@instruction("lop3")
def exec_lop3(d: Decoder) -> Operation:
    if d.one_of(("BoolOp", "and", "or")):
        raise d.refuse("the predicate form")
    table = d.operand(4)
    if not isinstance(table, Immediate):
        raise d.fail("the table must be a constant")
    bits, kind = table.value, d.type()
    o, a, b, c = d.dst(0, kind), d.src(1, kind), d.src(2, kind), d.src(3, kind)

    def run(slots: list[Array], frame: Any) -> None:
        x, y, z = slots[a], slots[b], slots[c]
        total: Any = U32(0)
        for row in range(8):
            if bits >> row & 1:
                total = total | ((x if row & 4 else ~x) & (y if row & 2 else ~y) & (z if row & 1 else ~z))
        slots[o][...] = total

    return run


@instruction("bfe")
def exec_bfe(d: Decoder) -> Operation:
    kind = d.type()
    width = 8 * TYPES[kind].itemsize
    signed = kind[0] == "s"

    def kernel(a: Array, b: Array, c: Array, out: Array) -> None:
        start, length = (b & U32(0xFF)).astype(np.int64), (c & U32(0xFF)).astype(np.int64)
        bits = a.view(f"u{width // 8}").astype(U64)
        field = np.where(start < width, bits >> np.minimum(start, 63).astype(U64), U64(0))
        field = np.where(length < 64, field & ((U64(1) << np.minimum(length, 63).astype(U64)) - U64(1)), field)
        if signed:
            top = np.minimum(start + length - 1, width - 1)
            sign = np.where(length > 0, (bits >> np.maximum(top, 0).astype(U64)) & U64(1), U64(0)) == 1
            kept = np.minimum(length, np.maximum(width - start, 0))
            fill = np.where(kept < 64, ~U64(0) << np.minimum(kept, 63).astype(U64), U64(0))
            field = np.where(sign, field | fill, field)
        out[...] = field.astype(f"u{width // 8}").view(out.dtype)

    return d.ternary(kernel, (kind, "u32", "u32"), kind)


@instruction("bfi")
def exec_bfi(d: Decoder) -> Operation:
    kind = d.type()
    width = 8 * TYPES[kind].itemsize
    d.count(5)
    o, a, b = d.dst(0, kind), d.src(1, kind), d.src(2, kind)
    c, n = d.src(3, "u32"), d.src(4, "u32")

    def run(slots: list[Array], frame: Any) -> None:
        start, length = (slots[c] & U32(0xFF)).astype(np.int64), (slots[n] & U32(0xFF)).astype(np.int64)
        ones = np.where(length < 64, (U64(1) << np.minimum(length, 63).astype(U64)) - U64(1), ~U64(0))
        shift = np.minimum(start, 63).astype(U64)
        mask = np.where(start < width, ones << shift, U64(0))
        field = slots[a].astype(U64) << shift
        slots[o][...] = ((slots[b].astype(U64) & ~mask) | (field & mask)).astype(slots[o].dtype)

    return run


@instruction("bfind")
def exec_bfind(d: Decoder) -> Operation:
    amount, kind = d.flag("shiftamt"), d.type()
    width = 8 * TYPES[kind].itemsize

    def kernel(a: Array, out: Array) -> None:
        bits = np.where(a < 0, ~a, a) if kind[0] == "s" else a
        top = width - 1 - leading_zeros(bits.astype(U64), 64) + (64 - width)
        found = bits != 0
        out[...] = np.where(found, (width - 1 - top) if amount else top, -1).astype(np.int32).view(U32)

    return d.unary(kernel, kind, "u32")


def leading_zeros(bits: Array, width: int) -> Array:
    """The zeros above the highest one of `width`-bit unsigned numbers, as int64."""
    value = bits.astype(U64)
    high, low = (value >> U64(32)).astype(np.float64), (value & U64(0xFFFFFFFF)).astype(np.float64)
    length = np.where(high > 0, 32 + np.frexp(high)[1], np.frexp(low)[1])
    result: Array = (width - length).astype(np.int64)
    return result


@instruction("clz")
def exec_clz(d: Decoder) -> Operation:
    kind = d.type()
    width = 8 * TYPES[kind].itemsize

    def kernel(a: Array, out: Array) -> None:
        out[...] = leading_zeros(a, width)

    return d.unary(kernel, kind, "u32")


@instruction("popc")
def exec_popc(d: Decoder) -> Operation:
    return d.unary(lambda a, out: np.copyto(out, np.bitwise_count(a)), d.type(), "u32")


@instruction("brev")
def exec_brev(d: Decoder) -> Operation:
    kind = d.type()

    def kernel(a: Array, out: Array) -> None:
        width = a.dtype.itemsize
        octets = np.ascontiguousarray(a).view(np.uint8).reshape(-1, width)
        flipped = np.packbits(np.unpackbits(octets, axis=1, bitorder="little")[:, ::-1], axis=1, bitorder="little")
        out[...] = np.ascontiguousarray(flipped).view(a.dtype).reshape(-1)

    return d.unary(kernel, kind)


@instruction("szext")
def exec_szext(d: Decoder) -> Operation:
    wrap, kind = d.need(("wrap", "clamp")) == "wrap", d.type()

    def kernel(a: Array, b: Array, out: Array) -> None:
        keep = (b & U32(31) if wrap else np.minimum(b, U32(32))).astype(np.int64)
        wide = np.left_shift(a.astype(np.int64 if kind[0] == "s" else U64), (64 - keep).astype(a.dtype))
        whole = np.right_shift(wide, (64 - keep).astype(wide.dtype))
        out[...] = np.where(keep == 0, 0, whole).astype(out.dtype)

    return d.binary(kernel, kind, second="u32")


@instruction("bmsk")
def exec_bmsk(d: Decoder) -> Operation:
    wrap = d.need(("wrap", "clamp")) == "wrap"

    def kernel(a: Array, b: Array, out: Array) -> None:
        start, length = (a & 31, b & 31) if wrap else (np.minimum(a, U32(32)), np.minimum(b, U32(32)))
        ones = (U64(1) << length.astype(U64)) - U64(1)
        out[...] = (ones << start.astype(U64)).astype(U32)

    return d.binary(kernel, d.type(), second="u32")


@instruction("fns")
def exec_fns(d: Decoder) -> Operation:
    def kernel(mask: Array, base: Array, offset: Array, out: Array) -> None:
        masks, bases, offsets = np.broadcast_arrays(mask, base, offset)
        for i, (m, b, n) in enumerate(zip(masks.tolist(), bases.tolist(), offsets.tolist(), strict=True)):
            out[i if len(masks) == len(out) else slice(None)] = _find_nth(m, b, n)

    return d.ternary(kernel, ("b32", "b32", "s32"), d.type())


def _find_nth(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    lanes = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [i for i in lanes if mask >> i & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else 0xFFFFFFFF


@instruction("dp4a", "dp2a")
def exec_dp4a(d: Decoder) -> Operation:
    """dp4a: the bytes of a times those of b; dp2a: the halves of a times the lower or upper two bytes of b."""
    halves = d.instruction.opcode == "dp2a"
    first = 2 if halves and d.need(("lo", "hi")) == "hi" else 0
    a_type, b_type = d.type(0), d.type(1)
    result = "s32" if "s32" in (a_type, b_type) else "u32"
    if not isinstance(d.operand(1), Register | Immediate):
        raise d.fail("a register expected")

    def parts(x: Array, kind: str, size: int) -> Array:
        raw = np.ascontiguousarray(x).view(f"{'i' if kind == 's32' else 'u'}{size}")
        return raw.reshape(-1, 4 // size).astype(np.int64)

    def kernel(a: Array, b: Array, c: Array, out: Array) -> None:
        right = parts(b, b_type, 1)
        left = parts(a, a_type, 2 if halves else 1)
        total = (left * right[:, first : first + left.shape[1]]).sum(axis=1) + c
        out[...] = total.astype(out.dtype)

    return d.ternary(kernel, (a_type, b_type, result), result)


@instruction("sad")
def exec_sad(d: Decoder) -> Operation:
    kind = d.type()
    return d.ternary(lambda a, b, c, out: np.add(c, np.where(a < b, b - a, a - b), out), (kind,) * 3, kind)
