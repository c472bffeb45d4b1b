"""mma.sync against plain loops over the fragment tables of the PTX ISA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import UnsupportedError
from tests.simulator import models
from tests.simulator.harness import launch

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, int, int]

FLOATS: list[tuple[Shape, str, str, str, str]] = [
    ((16, 8, 8), "f16", "f16", "f32", "f32"), ((16, 8, 8), "f16", "f16", "f16", "f16"),
    ((16, 8, 16), "f16", "f16", "f32", "f32"), ((16, 8, 16), "f16", "f16", "f16", "f16"),
    ((16, 8, 8), "bf16", "bf16", "f32", "f32"), ((16, 8, 16), "bf16", "bf16", "f32", "f32"),
    ((16, 8, 4), "tf32", "tf32", "f32", "f32"), ((16, 8, 8), "tf32", "tf32", "f32", "f32"),
    ((16, 8, 32), "e4m3", "e4m3", "f32", "f32"), ((16, 8, 32), "e4m3", "e5m2", "f32", "f32"),
    ((16, 8, 32), "e5m2", "e5m2", "f16", "f16"), ((16, 8, 16), "e5m2", "e4m3", "f32", "f32"),
    ((8, 8, 4), "f64", "f64", "f64", "f64"), ((16, 8, 4), "f64", "f64", "f64", "f64"),
    ((16, 8, 8), "f64", "f64", "f64", "f64"), ((16, 8, 16), "f64", "f64", "f64", "f64"),
]  # fmt: skip
INTEGERS: list[tuple[Shape, str, str, str, str]] = [
    (shape, a, b, "s32", "s32")
    for shapes, pairs in (
        (((8, 8, 16), (16, 8, 16), (16, 8, 32)), (("s8", "s8"), ("u8", "s8"), ("u8", "u8"))),
        (((8, 8, 32), (16, 8, 32), (16, 8, 64)), (("s4", "s4"), ("s4", "u4"))),
    )
    for shape in shapes
    for a, b in pairs
]  # fmt: skip


def run_mma(name: str, registers: list[Array], results: int) -> Array:
    """Runs one mma on the registers (32, n) of A, B and C; the registers of D."""
    lines = [".reg .b64 %base, %at; .reg .b32 %lane; mov.u32 %lane, %tid.x;"]
    operands = []
    for i, array in enumerate([*registers, np.zeros((32, results), registers[2].dtype)]):
        bits, count = 8 * array.dtype.itemsize, array.shape[1]
        names = [f"%v{i}_{j}" for j in range(count)]
        lines.append(f".reg .b{bits} {', '.join(names)};")
        operands.append("{" + ", ".join(names) + "}")
        if i < 3:
            lines.append(f"ld.param.u64 %base, [p{i}]; mad.wide.u32 %at, %lane, {count * bits // 8}, %base;")
            lines += [f"ld.global.b{bits} {n}, [%at+{j * bits // 8}];" for j, n in enumerate(names)]
    lines.append(f"mma.sync.aligned.{name} {operands[3]}, {operands[0]}, {operands[1]}, {operands[2]};")
    out = np.full((32, results), 0xA5, registers[2].dtype)
    size = out.dtype.itemsize
    lines.append(f"ld.param.u64 %base, [p3]; mad.wide.u32 %at, %lane, {results * size}, %base;")
    lines += [f"st.global.b{8 * size} [%at+{j * size}], %v3_{j};" for j in range(results)]
    launch("\n".join(lines), [*(np.ascontiguousarray(r) for r in registers), out])
    return out


def accumulators(m: int, kind: str) -> int:
    return m * 8 // 32 // (2 if kind == "f16" else 1)


@pytest.mark.parametrize(("shape", "ka", "kb", "kd", "kc"), FLOATS + INTEGERS)
def test_a_product_agrees_with_the_tables(shape: Shape, ka: str, kb: str, kd: str, kc: str) -> None:
    m, n, k = shape
    rng = np.random.default_rng(hash((m, k)) % 1000)
    a, b = models.random_matrix(rng, (m, k), ka), models.random_matrix(rng, (k, n), kb)
    c = rng.integers(-99, 99, (m, n)).astype(models.DTYPES[kc])
    registers = [
        models.fragments(x, kind, which, shape) for x, kind, which in ((a, ka, "a"), (b, kb, "b"), (c, kc, "c"))
    ]
    d = run_mma(f"m{m}n{n}k{k}.row.col.{kd}.{ka}.{kb}.{kc}", registers, accumulators(m, kd))
    np.testing.assert_array_equal(
        models.gather_accumulator(d, kd, m), models.product(a, b, c).astype(models.DTYPES[kd])
    )


@pytest.mark.parametrize(("word", "want"), [("", -(2**31) + 6), (".satfinite", 2**31 - 1)])
def test_integer_accumulators_wrap_or_saturate(word: str, want: int) -> None:
    a, b, c = np.ones((16, 16), np.int8), np.ones((16, 8), np.int8), np.full((16, 8), 2**31 - 10, np.int32)
    registers = [
        models.fragments(x, kind, w, (16, 8, 16)) for x, kind, w in ((a, "s8", "a"), (b, "s8", "b"), (c, "s32", "c"))
    ]
    d = run_mma(f"m16n8k16.row.col{word}.s32.s8.s8.s32", registers, 4)
    np.testing.assert_array_equal(models.gather_accumulator(d, "s32", 16), want)


@pytest.mark.parametrize("operation", ["and", "xor"])
@pytest.mark.parametrize("shape", [(8, 8, 128), (16, 8, 128), (16, 8, 256)])
def test_single_bits_are_counted(operation: str, shape: Shape) -> None:
    rng = np.random.default_rng(3)
    m, n, k = shape
    a, b = rng.integers(0, 2, (m, k)).astype(np.uint8), rng.integers(0, 2, (k, n)).astype(np.uint8)
    c = rng.integers(-9, 9, (m, n)).astype(np.int32)
    registers = [
        models.fragments(a, "b1", "a", shape),
        models.fragments(b, "b1", "b", shape),
        models.fragments(c, "s32", "c", shape),
    ]
    d = run_mma(f"m{m}n{n}k{k}.row.col.s32.b1.b1.s32.{operation}.popc", registers, accumulators(m, "s32"))
    pairs = a[:, :, None] & b[None] if operation == "and" else a[:, :, None] ^ b[None]
    np.testing.assert_array_equal(models.gather_accumulator(d, "s32", m), pairs.sum(1).astype(np.int32) + c)


def test_infinities_and_nan_come_out_canonical_and_overflow_becomes_infinity() -> None:
    a, b, c = np.zeros((16, 16), np.float16), np.zeros((16, 8), np.float16), np.zeros((16, 8), np.float32)
    a[0, 0], a[1, 0], a[1, 1], b[0, :], b[1, :] = np.inf, np.inf, -np.inf, 1, 1
    c[2, :], c[3, :] = -np.nan, 3e38
    registers = [
        models.fragments(x, kind, w, (16, 8, 16)) for x, kind, w in ((a, "f16", "a"), (b, "f16", "b"), (c, "f32", "c"))
    ]
    d = models.gather_accumulator(run_mma("m16n8k16.row.col.f32.f16.f16.f32", registers, 4), "f32", 16)
    assert (d[0] == np.inf).all()
    assert (d[1:3].view(np.uint32) == 0x7FFFFFFF).all()
    assert (d[3] == np.float32(3e38)).all()


def test_tf32_ignores_the_low_bits_of_its_operands() -> None:
    a = np.full((16, 8), np.uint32(0x3F800000 | 0x1FFF)).view(np.float32)
    b, c = np.ones((8, 8), np.float32), np.zeros((16, 8), np.float32)
    registers = [
        models.fragments(x, kind, w, (16, 8, 8)) for x, kind, w in ((a, "tf32", "a"), (b, "tf32", "b"), (c, "f32", "c"))
    ]
    np.testing.assert_array_equal(
        models.gather_accumulator(run_mma("m16n8k8.row.col.f32.tf32.tf32.f32", registers, 4), "f32", 16), 8
    )


def test_half_precision_accumulators_round_once() -> None:
    a, b, c = np.full((16, 16), 1, np.float16), np.full((16, 8), 2.0**-11, np.float16), np.ones((16, 8), np.float16)
    registers = [models.fragments(x, "f16", w, (16, 8, 16)) for x, w in ((a, "a"), (b, "b"), (c, "c"))]
    d = models.gather_accumulator(run_mma("m16n8k16.row.col.f16.f16.f16.f16", registers, 2), "f16", 16)
    np.testing.assert_array_equal(d, np.float16(1 + 16 * 2.0**-11))


@pytest.mark.parametrize(
    "name", ["m8n8k4.row.col.f32.f16.f16.f32", "m16n8k16.row.row.f32.f16.f16.f32", "m16n8k16.row.col.f32.f16.f16.f16"]
)
def test_shapes_that_are_not_known_are_refused(name: str) -> None:
    registers = [np.zeros((32, n), np.uint32) for n in (4, 2, 4)]
    with pytest.raises(UnsupportedError, match="mma"):
        run_mma(name, registers, 4)


def test_movmatrix_transposes() -> None:
    x = np.random.default_rng(0).integers(0, 1 << 16, (3, 8, 8)).astype(np.uint16)
    out = np.zeros_like(x)
    body = """.reg .b32 %r<4>; .reg .b64 %a<4>; mov.u32 %r0, %tid.x; ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1];
    mad.wide.u32 %a0, %r0, 4, %a0; mad.wide.u32 %a1, %r0, 4, %a1; ld.global.b32 %r1, [%a0];
    movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; st.global.b32 [%a1], %r2;"""
    launch(body, [x, out], block=96)
    np.testing.assert_array_equal(out, x.transpose(0, 2, 1))
