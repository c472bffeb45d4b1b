"""add, sub, mul, mad, fma, div, rem, abs, neg, min, max on every type."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator import floats, halves, integers
from mosaic_gpu.simulator.ptx import TYPES
from mosaic_gpu.simulator.registry import Decoder, Kernel, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_BOUNDS = {"s8": 8, "s16": 16, "s32": 32, "s64": 64}


def is_float(type_name: str) -> bool:
    """True for the floating types, packed ones included."""
    return "f" in type_name


def float_operation(d: Decoder, arity: int, name: str) -> Operation:
    """An operation of `arity` float operands by name: add, sub, mul, fma, div, sqrt, min, max, .."""
    kind = d.type()
    mode, flush, clamp = d.one_of(_ROUNDINGS, "rn"), d.flag("ftz"), d.flag("sat")
    if kind in _HALVES:
        if mode != "rn":
            raise d.refuse(f"rounding .{mode} of .{kind}")
        kernel = half_kernel(name, kind, clamp=clamp, flush=flush)
    elif kind == "f32":
        kernel = single_kernel(name, mode, flush, clamp)
    else:
        kernel = _double_kernel(name, mode)
    return _emit(d, kernel, kind, arity)


def _emit(d: Decoder, kernel: Kernel, kind: str, arity: int) -> Operation:
    storage = {"f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32"}.get(kind, kind)
    if arity == 1:
        return d.unary(kernel, storage)
    return d.binary(kernel, storage) if arity == 2 else d.ternary(kernel, (storage,) * 3, storage)


def single_kernel(name: str, mode: str, flush: bool, clamp: bool) -> Kernel:
    """The f32 kernel of an operation, with .ftz and .sat around it."""
    plain = _SINGLE_NEAREST[name] if mode == "rn" else _directed_single(name, mode)
    if not flush and not clamp:
        return plain

    def kernel(*arrays: Array) -> None:
        *operands, out = arrays
        plain(*[floats.flush32(x) if flush else x for x in operands], out)
        if flush:
            out[...] = floats.flush32(out)
        if clamp:
            floats.saturate(out)

    return kernel


def _nearest(ufunc: Any) -> Kernel:
    def kernel(*arrays: Array) -> None:
        ufunc(*arrays)
        floats.canonical32(arrays[-1])

    return kernel


def _add32(a: Array, b: Array, out: Array) -> None:
    np.add(a, b, out)
    floats.canonical32(out)


def _sub32(a: Array, b: Array, out: Array) -> None:
    np.subtract(a, b, out)
    floats.canonical32(out)


def _mul32(a: Array, b: Array, out: Array) -> None:
    np.multiply(a, b, out)
    floats.canonical32(out)


_SINGLE_NEAREST: dict[str, Kernel] = {
    "add": _add32, "sub": _sub32, "mul": _mul32, "fma": floats.fma32,
    "div": _nearest(np.divide), "sqrt": _nearest(np.sqrt), "rcp": _nearest(lambda a, out: np.divide(1, a, out)),
}  # fmt: skip


def _directed_single(name: str, mode: str) -> Kernel:
    functions: dict[str, Any] = {
        "add": floats.directed_add32, "mul": floats.directed_mul32, "fma": floats.directed_fma32,
        "div": floats.directed_div32, "sqrt": floats.directed_sqrt32,
        "sub": lambda a, b, m: floats.directed_add32(a, -b, m),
        "rcp": lambda a, m: floats.directed_div32(np.ones_like(a), a, m),
    }  # fmt: skip
    function = functions[name]

    def kernel(*arrays: Array) -> None:
        *operands, out = arrays
        out[...] = function(*operands, mode)
        floats.canonical32(out)

    return kernel


def _double_kernel(name: str, mode: str) -> Kernel:
    if mode == "rn":
        kernels: dict[str, Kernel] = {
            "add": np.add, "sub": np.subtract, "mul": np.multiply, "fma": floats.fma64, "div": np.divide,
            "sqrt": np.sqrt, "rcp": lambda a, out: np.divide(1, a, out),
        }  # fmt: skip
        return kernels[name]

    def kernel(*arrays: Array) -> None:
        *operands, out = arrays
        if name == "sub":
            operands = [operands[0], -operands[1]]
        if name == "rcp":
            operands = [np.ones_like(operands[0]), operands[0]]
        out[...] = floats.exact64({"sub": "add", "rcp": "div"}.get(name, name), tuple(operands), mode)

    return kernel


def _half_value(name: str, kind: str) -> Any:
    """The function from float32 operands to a result that rounds to `kind` rightly."""
    if name in ("add", "sub"):
        return np.add if name == "add" else np.subtract
    if name == "mul":
        return np.multiply if kind == "f16" else (lambda a, b: np.multiply(a, b, dtype=np.float64))
    if name == "fma":
        return _half_fma
    raise KeyError(name)


def _half_fma(a: Array, b: Array, c: Array) -> Array:
    s, e = floats.two_sum(np.multiply(a, b, dtype=np.float64), c.astype(np.float64))
    return floats.round_to_odd(s, e)


def half_kernel(name: str, kind: str, *, clamp: bool = False, relu: bool = False, flush: bool = False) -> Kernel:
    """The kernel of add, sub, mul or fma on f16 or bf16, or pairs of them."""
    element = kind.removesuffix("x2")
    value = _half_value(name, element)

    def compute(operands: list[Array]) -> Array:
        wide = [halves.widen(x, element) for x in operands]
        result = np.array(value(*([halves.flush16(x) for x in wide] if flush else wide)))
        if clamp:
            floats.saturate(result)
        if relu:
            result = np.where(result <= 0, 0, result)
        bits = halves.narrow(result, element)
        return halves.flush_bits(bits) if flush else bits

    return by_halves(compute, kind)


def by_halves(compute: Any, kind: str) -> Kernel:
    """A kernel on bits from a function of lists of 16-bit operands, applied to each half of pairs."""
    if not kind.endswith("x2"):

        def scalar(*arrays: Array) -> None:
            arrays[-1][...] = compute(list(arrays[:-1]))

        return scalar

    def pairs(*arrays: Array) -> None:
        *operands, out = arrays
        lower = compute([halves.low(x) for x in operands])
        upper = compute([halves.high(x) for x in operands])
        out[...] = halves.join(lower, upper)

    return pairs


@instruction("add", "sub")
def exec_add(d: Decoder) -> Operation:
    kind, name = d.type(), d.instruction.opcode
    if is_float(kind):
        return float_operation(d, 2, name)
    if d.flag("cc"):
        return carry_operation(d, 2, name, carry_in=False, carry_out=True)
    if kind in ("u16x2", "s16x2"):
        return d.binary(_packed_add(name), "b32")
    if d.flag("sat"):
        return d.binary(_saturating(name, kind), kind)
    return d.binary(np.add if name == "add" else np.subtract, kind)


def _packed_add(name: str) -> Kernel:
    def kernel(a: Array, b: Array, out: Array) -> None:
        function = np.add if name == "add" else np.subtract
        lower, upper = function(halves.low(a), halves.low(b)), function(halves.high(a), halves.high(b))
        out[...] = halves.join(lower, upper)

    return kernel


def _saturating(name: str, kind: str) -> Kernel:
    limit = 1 << (_BOUNDS[kind] - 1)

    def kernel(a: Array, b: Array, out: Array) -> None:
        wide = a.astype(np.int64) + (b if name == "add" else -b.astype(np.int64))
        out[...] = np.clip(wide, -limit, limit - 1)

    return kernel


@instruction("addc", "subc")
def exec_addc(d: Decoder) -> Operation:
    return carry_operation(d, 2, d.instruction.opcode[:3], carry_in=True, carry_out=d.flag("cc"))


def carry_operation(d: Decoder, arity: int, name: str, *, carry_in: bool, carry_out: bool) -> Operation:
    """add.cc, addc, sub.cc, subc, and mad.cc, madc (as the addition of an already multiplied part)."""
    kind = d.type()
    bits = 8 * TYPES[kind].itemsize
    d.count(3)
    o, a, b = d.dst(0, kind), d.src(1, kind), d.src(2, kind)
    flag = d.carry(read=carry_in, write=carry_out)

    def run(slots: list[Array], frame: Any) -> None:
        slots[o][...], carry = integers.add_with_carry(
            slots[a], slots[b], slots[flag] if carry_in else None, name == "sub", bits
        )
        if carry_out:
            slots[flag][...] = carry

    return run


@instruction("mul")
def exec_mul(d: Decoder) -> Operation:
    kind = d.type()
    if is_float(kind):
        return float_operation(d, 2, "mul")
    how = d.one_of(("lo", "hi", "wide"))
    if how == "wide":
        return d.binary(integers.mul_wide, kind, wide_type(kind))
    if how == "hi":
        return d.binary(integers.mul_high, kind)
    if how != "lo":
        raise d.fail(".lo, .hi or .wide expected")
    return d.binary(np.multiply, kind)


@instruction("mul24", "mad24")
def exec_mul24(d: Decoder) -> Operation:
    kind, how = d.type(), d.one_of(("lo", "hi"))
    if how != "lo" or d.flag("sat"):
        raise d.refuse("only .lo")

    def shorten(x: Array) -> Array:
        short: Array = np.right_shift(np.left_shift(x, x.dtype.type(8)), x.dtype.type(8))
        return short

    if d.instruction.opcode == "mul24":
        return d.binary(lambda a, b, out: np.multiply(shorten(a), shorten(b), out), kind)
    return d.ternary(lambda a, b, c, out: np.add(shorten(a) * shorten(b), c, out), (kind,) * 3, kind)


def wide_type(kind: str) -> str:
    """The type of twice the width."""
    return f"{kind[0]}{2 * int(kind[1:])}"


@instruction("mad")
def exec_mad(d: Decoder) -> Operation:
    kind = d.type()
    if is_float(kind):
        return float_operation(d, 3, "fma")
    how, carry, clamp = d.one_of(("lo", "hi", "wide")), d.flag("cc"), d.flag("sat")
    if carry and how in ("lo", "hi"):
        return _mad_carry(d, how, carry_in=False, carry_out=True)
    if how == "wide":
        return d.ternary(integers.mad_wide, (kind, kind, wide_type(kind)), wide_type(kind))
    if how == "lo":
        return d.ternary(integers.mad_low, (kind,) * 3, kind)
    if how != "hi" or carry:
        raise d.fail(".lo, .hi or .wide expected")
    return d.ternary(integers.mad_high_saturating if clamp else integers.mad_high, (kind,) * 3, kind)


@instruction("madc")
def exec_madc(d: Decoder) -> Operation:
    how = d.need(("lo", "hi"))
    return _mad_carry(d, how, carry_in=True, carry_out=d.flag("cc"))


def _mad_carry(d: Decoder, how: str, *, carry_in: bool, carry_out: bool) -> Operation:
    kind = d.type()
    bits = 8 * TYPES[kind].itemsize
    d.count(4)
    o, a, b, c = d.dst(0, kind), d.src(1, kind), d.src(2, kind), d.src(3, kind)
    flag = d.carry(read=carry_in, write=carry_out)

    def run(slots: list[Array], frame: Any) -> None:
        product = np.empty(np.broadcast_shapes(slots[a].shape, slots[b].shape), slots[a].dtype)
        if how == "hi":
            integers.mul_high(slots[a], slots[b], product)
        else:
            np.multiply(slots[a], slots[b], product)
        total, carry = integers.add_with_carry(product, slots[c], slots[flag] if carry_in else None, False, bits)
        slots[o][...] = total
        if carry_out:
            slots[flag][...] = carry

    return run


@instruction("fma")
def exec_fma(d: Decoder) -> Operation:
    kind = d.type()
    relu = d.flag("relu")
    if relu:
        if kind not in _HALVES:
            raise d.fail(".relu is for f16 and bf16")
        d.one_of(_ROUNDINGS)
        flush = d.flag("ftz")
        return _emit(d, half_kernel("fma", kind, relu=True, flush=flush), kind, 3)
    return float_operation(d, 3, "fma")


@instruction("div")
def exec_div(d: Decoder) -> Operation:
    kind = d.type()
    if not is_float(kind):
        return d.binary(integers.divide_integers, kind)
    if d.one_of(("approx", "full")):
        return _emit(d, single_kernel("div", "rn", d.flag("ftz"), False), kind, 2)
    return float_operation(d, 2, "div")


@instruction("rem")
def exec_rem(d: Decoder) -> Operation:
    return d.binary(integers.remainder_integers, d.type())


@instruction("abs")
def exec_abs(d: Decoder) -> Operation:
    return _sign_operation(d, negate=False)


@instruction("neg")
def exec_neg(d: Decoder) -> Operation:
    return _sign_operation(d, negate=True)


def _sign_operation(d: Decoder, *, negate: bool) -> Operation:
    kind, flush = d.type(), d.flag("ftz")
    if kind in _HALVES:
        sign = 0x8000 if len(kind) < 5 else 0x80008000
        width = "b16" if len(kind) < 5 else "b32"
        if negate:
            return d.unary(lambda a, out: np.bitwise_xor(a, a.dtype.type(sign), out), width)
        return d.unary(lambda a, out: np.bitwise_and(a, ~a.dtype.type(sign), out), width)
    ufunc: Any = np.negative if negate else np.absolute
    if kind != "f32":
        return d.unary(ufunc, kind)

    def kernel(a: Array, out: Array) -> None:
        ufunc(floats.flush32(a) if flush else a, out)
        floats.canonical32(out)

    return d.unary(kernel, kind)


@instruction("min", "max")
def exec_min(d: Decoder) -> Operation:
    kind, largest = d.type(), d.instruction.opcode == "max"
    if not is_float(kind):
        relu = d.flag("relu")
        if kind in ("u16x2", "s16x2"):
            return d.binary(_packed_minimum(kind, largest, relu), "b32")
        return d.binary(_integer_minimum(largest, relu), kind)
    flush, nan = d.flag("ftz"), d.flag("NaN")
    if d.flag("xorsign") or len(d.operands) == 4:
        raise d.refuse("modifier .xorsign" if len(d.operands) == 3 else "three sources")
    return _emit(d, _float_minimum(kind, largest, nan, flush), kind, 2)


def _integer_minimum(largest: bool, relu: bool) -> Kernel:
    ufunc: Any = np.maximum if largest else np.minimum

    def kernel(a: Array, b: Array, out: Array) -> None:
        ufunc(a, b, out=out)
        if relu:
            np.maximum(out, 0, out=out)

    return kernel


def _packed_minimum(kind: str, largest: bool, relu: bool) -> Kernel:
    dtype = np.int16 if kind[0] == "s" else np.uint16
    ufunc: Any = np.maximum if largest else np.minimum

    def kernel(a: Array, b: Array, out: Array) -> None:
        parts = [ufunc(f(a).view(dtype), f(b).view(dtype)) for f in (halves.low, halves.high)]
        if relu:
            parts = [np.maximum(part, 0) for part in parts]
        out[...] = halves.join(*(part.view(np.uint16) for part in parts))

    return kernel


def _float_minimum(kind: str, largest: bool, nan: bool, flush: bool) -> Kernel:
    if kind in _HALVES:
        element = kind.removesuffix("x2")

        def compute(operands: list[Array]) -> Array:
            a, b = (halves.widen(x, element) for x in operands)
            return halves.narrow(floats.minimum(a, b, largest=largest, nan=nan), element)

        return by_halves(compute, kind)

    def kernel(a: Array, b: Array, out: Array) -> None:
        if flush:
            a, b = floats.flush32(a), floats.flush32(b)
        out[...] = floats.minimum(a, b, largest=largest, nan=nan)
        if out.dtype == np.float32:
            floats.canonical32(out)

    return kernel
