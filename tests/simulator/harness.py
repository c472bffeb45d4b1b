"""Small PTX kernels around single instructions, and the values to try them on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from mosaic_gpu.simulator import LaunchResult, load

Array = np.ndarray[Any, np.dtype[Any]]
HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
_BYTES = {"pred": 1, "f16x2": 4, "bf16x2": 4, "bf16": 2, "tf32": 4, "e4m3x2": 2, "e5m2x2": 2}

F32_EDGES = np.array(
    [0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x00800001, 0x3F800000, 0x3F800001,
     0xBF800000, 0x3F7FFFFF, 0x40000000, 0x4B000000, 0x4B800001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
     0x7FC00000, 0xFFC12345, 0x7F812345, 0x3EFFFFFF, 0x3F000000, 0x3FC00000, 0x4F000000, 0xCF000000, 0x5F000000],
    np.uint32,
).view(np.float32)  # fmt: skip
F64_EDGES = np.array(
    [0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.0, -1.0, 1.0000000000000002, 0.5, 1.5, 2.5, 1e300, -1e300,
     1.7976931348623157e308, np.inf, -np.inf, np.nan, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**64, 255.5, 1e-310]
)  # fmt: skip


def size_of(kind: str) -> int:
    """The bytes of a PTX type."""
    return _BYTES[kind] if kind in _BYTES else int(kind.lstrip("bsuf")) // 8


def kernel_text(body: str, params: Sequence[str], declarations: str = "", name: str = "k") -> str:
    """A PTX module with one entry; `params` are types, named p0, p1, .."""
    declared = ", ".join(f".param .{kind} p{i}" for i, kind in enumerate(params))
    return f"{HEADER}{declarations}\n.visible .entry {name}({declared})\n{{\n{body}\nret;\n}}\n"


def launch(
    body: str, args: Sequence[Any], *, block: Any = 32, grid: Any = 1, declarations: str = "", **options: Any
) -> LaunchResult:
    """Runs a body whose parameters are 64-bit pointers for arrays and .u32 or .f32 for scalars."""
    kinds = ["u64" if isinstance(a, np.ndarray) else "f32" if isinstance(a, float) else "u32" for a in args]
    text = kernel_text(body, kinds, declarations)
    return load(text).launch("k", grid, block, list(args), **options)


def evaluate(instruction: str, result: str, *operands: tuple[str, Array], before: str = "") -> Array:
    """Runs one instruction on arrays, a thread per element.

    `instruction` names its result %d and its operands %a, %b, %c, %e, %f; `result` and each operand's first item
    are PTX types of 8 bits or more, f16 and bf16 given as their bits.
    Gives the bits of the result, unsigned.
    """
    names = "abcefgh"
    n = len(operands[0][1])
    lines = [".reg .b32 %t<4>; .reg .b64 %addr<12>; mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x;",
             "mad.lo.s32 %t3, %t1, %t2, %t0;"]  # fmt: skip
    arrays = []
    for i, (kind, values) in enumerate(operands):
        size = size_of(kind)
        lines += _register(names[i], kind, size) + _load(names[i], i, size)
        arrays.append(np.ascontiguousarray(values))
        if arrays[-1].nbytes != n * size:
            raise ValueError(f"operand %{names[i]}: {arrays[-1].dtype} is not .{kind}")
    width = size_of(result)
    lines += _register("d", result, width)
    at = len(operands)
    lines += [before, instruction]
    lines += [f"ld.param.u64 %addr{at}, [p{at}]; mad.wide.s32 %addr{at}, %t3, {width}, %addr{at};",
              f"st.global.b{8 * width} [%addr{at}], %d;"]  # fmt: skip
    out = np.full(n, 0xA5, f"u{width}")
    launch("\n".join(lines), [*arrays, out], block=1, grid=n)
    return out


def _register(name: str, kind: str, size: int) -> list[str]:
    return [f".reg .b{max(16, 8 * size)} %{name};"]


def _load(name: str, index: int, size: int) -> list[str]:
    return [f"ld.param.u64 %addr{index}, [p{index}]; mad.wide.s32 %addr{index}, %t3, {size}, %addr{index};",
            f"ld.global.b{8 * size} %{name}, [%addr{index}];"]  # fmt: skip


def pairs(*values: Array) -> tuple[Array, ...]:
    """All combinations of the elements."""
    return tuple(np.ascontiguousarray(g.reshape(-1)) for g in np.meshgrid(*values, indexing="ij"))


def integers(kind: str, seed: int = 0) -> Array:
    """Edge values and random values of an integer type."""
    dtype = np.dtype({"s": "i", "u": "u", "b": "u"}[kind[0]] + str(int(kind[1:]) // 8))
    limits = np.iinfo(dtype)
    edges = [0, 1, 2, 3, 7, 31, 32, limits.max, limits.max - 1, limits.min, limits.min + 1, limits.max // 2 + 1]
    if dtype.kind == "i":
        edges += [-1, -2, -7]
    random = np.random.default_rng(seed).integers(limits.min, limits.max, 9, dtype, endpoint=True)
    return np.concatenate([np.array(edges, dtype), random])


def singles(seed: int = 0, count: int = 14) -> Array:
    """Edge values and random values of float32, many of them close to one another."""
    rng = np.random.default_rng(seed)
    random = rng.standard_normal(count).astype(np.float32) * np.exp2(rng.integers(-30, 30, count)).astype(np.float32)
    return np.concatenate([F32_EDGES, random.astype(np.float32)])


def canonical(values: Array) -> Array:
    """The bits of float32 values with every NaN as PTX gives it."""
    return np.where(np.isnan(values), np.uint32(0x7FFFFFFF), values.astype(np.float32).view(np.uint32))


def half_edges(kind: str, seed: int = 0) -> Array:
    """Edge values and random bits of f16 or bf16, as bits."""
    one, infinity, most = (0x3C00, 0x7C00, 0x7BFF) if kind == "f16" else (0x3F80, 0x7F80, 0x7F7F)
    edges = [0, 0x8000, 1, 0x8001, one, one | 0x8000, one + 1, most, most | 0x8000, infinity, infinity | 0x8000, 0x7FFF]
    random = np.random.default_rng(seed).integers(0, 1 << 16, 12)
    return np.concatenate([np.array(edges), random]).astype(np.uint16)


def half_values(bits: Array, kind: str) -> Array:
    """The float64 values of f16 or bf16 bits."""
    return bits.view(np.float16 if kind == "f16" else ml_dtypes.bfloat16).astype(np.float64)


def assert_bits(got: Array, want: Array, *operands: Array) -> None:
    """Equal bit for bit; names the first operands that differ."""
    got, want = got.reshape(-1), want.reshape(-1).view(got.dtype)
    wrong = np.flatnonzero(got != want)
    if len(wrong):
        i = wrong[0]
        case = [x.reshape(-1)[i] for x in operands]
        raise AssertionError(f"{len(wrong)} of {len(got)} differ; first {case}: got {got[i]:#x}, want {want[i]:#x}")
