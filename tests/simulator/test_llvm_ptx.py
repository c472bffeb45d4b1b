"""What LLVM's NVPTX back end emits for vectors of each type, against NumPy and ml_dtypes."""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.simulator import load

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES: dict[str, Any] = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "half": np.float16, "bfloat": ml_dtypes.bfloat16, "float": np.float32, "double": np.float64,
}  # fmt: skip
INTEGERS, FLOATS = ["i8", "i16", "i32", "i64"], ["half", "bfloat", "float", "double"]
#: (to, of): all pairs but f16 and bf16, which LLVM does not convert directly.
CONVERSIONS = [(to, of) for to in DTYPES for of in DTYPES if to != of and {to, of} != {"half", "bfloat"}]
THREADS, LANES = 64, 4


@cache
def machine() -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    return target.create_target_machine(cpu="sm_90a", features="+ptx86", opt=3)


def run(computation: str, declarations: str, operands: list[tuple[str, Array]], result: str) -> Array:
    """Compiles and runs `%r = ..` on <4 x T> operands %a, %b, ..; returns the results of all threads."""
    pointers = "".join(f"ptr addrspace(1) %p{i}, " for i in range(len(operands)))
    loads = "\n".join(
        f"%q{i} = getelementptr <{LANES} x {kind}>, ptr addrspace(1) %p{i}, i32 %t\n"
        f"%{'abc'[i]} = load <{LANES} x {kind}>, ptr addrspace(1) %q{i}"
        for i, (kind, _) in enumerate(operands)
    )
    text = f"""{declarations}
    declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
    define ptx_kernel void @k({pointers}ptr addrspace(1) %o) {{
    %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
    {loads}
    {computation}
    %q = getelementptr <{LANES} x {result}>, ptr addrspace(1) %o, i32 %t
    store <{LANES} x {result}> %r, ptr addrspace(1) %q
    ret void
    }}"""
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = "nvptx64-nvidia-cuda", str(machine().target_data)
    out = np.zeros(THREADS * LANES, DTYPES[result])
    load(machine().emit_assembly(module)).launch("k", 1, THREADS, [*[x for _, x in operands], out])
    return out


def numbers(kind: str, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    dtype = DTYPES[kind]
    if kind in INTEGERS:
        limits = np.iinfo(dtype)
        x = rng.integers(limits.min, limits.max, THREADS * LANES, dtype, endpoint=True)
        x[:6] = [0, 1, -1, limits.min, limits.max, 2]
        return np.asarray(rng.permutation(x))
    x = (rng.standard_normal(THREADS * LANES) * 2.0 ** rng.integers(-12, 12, THREADS * LANES)).astype(dtype)
    x[:8] = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5]).astype(dtype)
    return np.asarray(rng.permutation(x))


def assert_same(got: Array, want: Array) -> None:
    """Equal values; NaN equals NaN and the zeros differ by their sign."""
    assert got.dtype == want.dtype
    got64, want64 = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got if got.dtype.kind in "iu" else got64, want if want.dtype.kind in "iu" else want64)
    np.testing.assert_array_equal(np.signbit(got64[~np.isnan(got64)]), np.signbit(want64[~np.isnan(want64)]))


def wrapped(function: Any) -> Any:
    return lambda a, b: function(a, b).astype(a.dtype)


def unsigned(function: Any) -> Any:
    def apply(a: Array, b: Array) -> Array:
        kind = f"u{a.itemsize}"
        return np.asarray(function(a.view(kind), b.view(kind))).astype(kind).view(a.dtype)

    return apply


def rounded(function: Any) -> Any:
    """Halves and bf16 compute in float32 (exact enough for one operation) and round once."""

    def apply(a: Array, b: Array) -> Array:
        wide = a.dtype if a.dtype.itemsize > 2 else np.dtype(np.float32)
        with np.errstate(all="ignore"):
            return np.asarray(function(a.astype(wide), b.astype(wide)).astype(a.dtype))

    return apply


INTEGER_OPERATIONS: dict[str, Any] = {
    "add": wrapped(np.add), "sub": wrapped(np.subtract), "mul": wrapped(np.multiply), "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
    "udiv": unsigned(lambda a, b: a // np.maximum(b, 1)), "urem": unsigned(lambda a, b: a % np.maximum(b, 1)),
    "shl": lambda a, b: a << (b & (8 * a.itemsize - 1)), "ashr": lambda a, b: a >> (b & (8 * a.itemsize - 1)),
    "lshr": unsigned(lambda a, b: a >> (b & (8 * a.itemsize - 1))),
}  # fmt: skip


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", INTEGER_OPERATIONS)
def test_integer_vectors(name: str, kind: str) -> None:
    a, b = numbers(kind, 1), numbers(kind, 2)
    vector = f"<{LANES} x {kind}>"
    safe = "%s = add %V %b, zeroinitializer"
    if name in ("udiv", "urem"):
        safe = (
            f"%z = icmp eq {vector} %b, zeroinitializer\n"
            f"%s = select <{LANES} x i1> %z, {vector} {ones(kind)}, {vector} %b"
        )
    if name in ("shl", "ashr", "lshr"):
        safe = f"%s = and {vector} %b, {ones(kind, 8 * a.itemsize - 1)}"
    got = run(f"{safe.replace('%V', vector)}\n%r = {name} {vector} %a, %s", "", [(kind, a), (kind, b)], kind)
    with np.errstate(all="ignore"):
        assert_same(got, INTEGER_OPERATIONS[name](a, b))


def ones(kind: str, value: int = 1) -> str:
    return "<" + ", ".join([f"{kind} {value}"] * LANES) + ">"


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(
    ("name", "function"), [("fadd", np.add), ("fsub", np.subtract), ("fmul", np.multiply), ("fdiv", np.divide)]
)
def test_float_vectors(name: str, function: Any, kind: str) -> None:
    a, b = numbers(kind, 1), numbers(kind, 2)
    got = run(f"%r = {name} <{LANES} x {kind}> %a, %b", "", [(kind, a), (kind, b)], kind)
    assert_same(got, rounded(function)(a, b))


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(("name", "function"), [("minnum", np.fmin), ("maximum", np.maximum)])
def test_float_minima(name: str, function: Any, kind: str) -> None:
    a, b = numbers(kind, 1), numbers(kind, 2)
    b = np.where(a.astype(np.float64) == 0, np.float64(3), b.astype(np.float64)).astype(b.dtype)
    vector, suffix = f"<{LANES} x {kind}>", {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}[kind]
    intrinsic = f"@llvm.{name}.v{LANES}{suffix}"
    declaration = f"declare {vector} {intrinsic}({vector}, {vector})"
    got = run(f"%r = call {vector} {intrinsic}({vector} %a, {vector} %b)", declaration, [(kind, a), (kind, b)], kind)
    assert_same(got, rounded(function)(a, b))


@pytest.mark.parametrize("kind", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("order", ["lt", "ge"])
def test_comparisons_and_selections(order: str, kind: str) -> None:
    a, b = numbers(kind, 1), numbers(kind, 2)
    vector = f"<{LANES} x {kind}>"
    compare = f"icmp s{order}" if kind in INTEGERS else f"fcmp o{order}"
    got = run(
        f"%c = {compare} {vector} %a, %b\n%r = select <{LANES} x i1> %c, {vector} %a, {vector} %b",
        "",
        [(kind, a), (kind, b)],
        kind,
    )
    holds = a < b if order == "lt" else a >= b
    want = np.where(holds, a.view(f"u{a.itemsize}"), b.view(f"u{a.itemsize}")).view(a.dtype)
    assert_same(got, want)


@pytest.mark.parametrize(("to", "of"), CONVERSIONS)
def test_conversions(to: str, of: str) -> None:
    a = numbers(of, 3)
    size = {k: np.dtype(v).itemsize for k, v in DTYPES.items()}
    if of in INTEGERS and to in INTEGERS:
        name = "sext" if size[of] < size[to] else "trunc"
    elif of in INTEGERS:
        name = "sitofp"
    elif to in INTEGERS:
        name = "fptosi"
        limit = 2.0 ** (8 * size[to] - 1) - 1
        a = np.clip(np.nan_to_num(a.astype(np.float64), posinf=0, neginf=0), -limit * 0.99, limit * 0.99).astype(
            a.dtype
        )
    else:
        name = "fpext" if size[of] < size[to] else "fptrunc"
    got = run(f"%r = {name} <{LANES} x {of}> %a to <{LANES} x {to}>", "", [(of, a)], to)
    with np.errstate(all="ignore"):
        assert_same(got, convert(a, of, to))


def convert(a: Array, of: str, to: str) -> Array:
    """NumPy's conversion, through a type that holds the source exactly."""
    if to == "bfloat" and a.dtype.itemsize == 8:
        want = [float(np.float64(x)) for x in a]
        return np.array([nearest_bf16(x) for x in want], ml_dtypes.bfloat16)
    if to == "half" and of == "i64":
        return a.astype(np.float64).astype(np.float16)
    if of in ("half", "bfloat"):
        a = a.astype(np.float32)
    return np.asarray(np.trunc(a) if to in INTEGERS and a.dtype.kind == "f" else a).astype(DTYPES[to])


def nearest_bf16(x: float) -> float:
    """The bf16 nearest to a double, ties to even."""
    if x == 0 or not np.isfinite(x):
        return x
    fraction, exponent = np.frexp(x)
    return float(np.ldexp(np.rint(np.ldexp(fraction, 8)), exponent - 8))
