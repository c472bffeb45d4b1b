"""`mgpu.dot` of each kind at the level of the dialect: orientations, several warpgroups, dots in flight."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.attrs import LAYOUT_NAMES, layout_attr
from mosaic_gpu.dialect.dot_layouts import mma_layouts, wgmma_layouts, wgmma_plan
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_kernel import BarrierOp
from mosaic_gpu.dialect.ops_matmul import PENDING, DotOp, DotWaitOp, FenceAsyncOp
from mosaic_gpu.dialect.ops_memory import AllocOp
from mosaic_gpu.dialect.types import SMEM, element_of, is_tile, ref_type, shape_of
from mosaic_gpu.errors import InternalError, SimulationError
from tests.lowering.nvvm.harness import Array, int_attr, load, ptx_of, run, store, tile

M, N, K = 64, 64, 64


def operands(seed: int, dtype: Any = np.float16) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.integers(-4, 5, (M, K)).astype(dtype), rng.integers(-4, 5, (K, N)).astype(dtype)


def dot(
    kind: str, lhs: ir.Value, rhs: ir.Value, acc: ir.Value, layouts: list[Layout], flags: tuple[int, int] = (0, 0)
) -> ir.Value:
    attributes = [int_attr(n) for n in (*flags, 0, 0)]
    names = ir.StringAttr.get("ieee"), ir.StringAttr.get(kind)
    result = DotOp(acc.type, lhs, rhs, acc, *attributes, *names).result
    for number, (name, layout) in enumerate(zip(LAYOUT_NAMES, layouts, strict=True)):
        if is_tile(result.owner.operands[number].type):
            result.owner.attributes[name] = layout_attr(layout)
    return result


def zeros(layout: Layout, element: ir.Type) -> ir.Value:
    type_ = tile((M, N), element, layout)
    number: Any = ir.FloatAttr.get(element, 0.0)
    return arith.ConstantOp(type_, ir.DenseElementsAttr.get_splat(type_, number)).result


def staged(ref: ir.Value, offset: int) -> ir.Value:
    """A swizzled copy of a matrix in shared memory."""
    memory = AllocOp(ref_type(shape_of(ref.type), element_of(ref.type), SMEM)).result
    memory.owner.attributes["mgpu.offset"] = int_attr(offset)
    memory.owner.attributes["mgpu.swizzle"] = int_attr(128)
    store(load(ref, Layout.blocked(shape_of(ref.type), 4, 8)), memory)
    FenceAsyncOp()
    return memory


def test_fragments_in_registers() -> None:
    a, b = operands(1)
    layouts = mma_layouts(16, M, N, 4)

    def body(x: ir.Value, y: ir.Value, o: ir.Value) -> None:
        acc = zeros(layouts.acc, ir.F32Type.get())
        store(dot("mma", load(x, layouts.lhs), load(y, layouts.rhs), acc, [layouts.lhs, layouts.rhs, layouts.acc]), o)

    (got,) = run(body, [a, b], [((M, N), np.float32)])
    np.testing.assert_array_equal(got, a.astype(np.float32) @ b.astype(np.float32))


LHS, ACC = wgmma_layouts(16, wgmma_plan(M, N, 4), 4)


def two_dots(pending: int | None, waits: bool) -> Any:
    """The sum of two products, the first and second of which may be in flight together."""

    def body(x: ir.Value, y: ir.Value, z: ir.Value, o: ir.Value) -> None:
        left, right, other = (staged(ref, 8192 * i) for i, ref in enumerate((x, y, z)))
        BarrierOp()
        total = zeros(ACC, ir.F32Type.get())
        for rhs in (right, other):
            total = dot("wgmma", left, rhs, total, [LHS, LHS, ACC])
            if pending is not None:
                total.owner.attributes[PENDING] = int_attr(pending)
        store(DotWaitOp(total.type, total, int_attr(0)).result if waits else total, o)

    return body


@pytest.mark.parametrize("pending", [None, 0, 1, 2])
def test_dots_may_be_in_flight_until_they_are_waited_for(pending: int | None) -> None:
    a, b = operands(1)
    c = operands(2)[1]
    (got,) = run(two_dots(pending, waits=True), [a, b, c], [((M, N), np.float32)], smem_bytes=3 * 8192)
    np.testing.assert_array_equal(got, a.astype(np.float32) @ (b.astype(np.float32) + c))


def test_the_simulator_sees_a_dot_that_is_read_in_flight() -> None:
    """Instructions land late there: a missing wait gives a wrong result, or an error, not luck."""
    a, b = operands(1)
    c = operands(2)[1]
    with contextlib.suppress(SimulationError):
        (got,) = run(two_dots(1, waits=False), [a, b, c], [((M, N), np.float32)], smem_bytes=3 * 8192)
        assert not np.array_equal(got, a.astype(np.float32) @ (b.astype(np.float32) + c))


def test_zeros_are_not_loaded_into_the_accumulator() -> None:
    a, b = operands(1)
    text, _ = ptx_of(two_dots(None, waits=True), [a, b, b, np.zeros((M, N), np.float32)], 3, 4, smem_bytes=3 * 8192)
    steps = [line for line in text.splitlines() if "wgmma.mma_async" in line]
    assert len(steps) == 2 * K // 16
    assert ", q, 1, 1" in steps[0]
    assert all(", p, 1, 1" in step for step in steps[1:])


def test_a_kind_that_should_be_gone_is_our_own_error() -> None:
    a, b = operands(1)
    layouts = mma_layouts(16, M, N, 4)

    def body(x: ir.Value, y: ir.Value, o: ir.Value) -> None:
        acc = zeros(layouts.acc, ir.F32Type.get())
        store(dot("fma", load(x, layouts.lhs), load(y, layouts.rhs), acc, [layouts.lhs, layouts.rhs, layouts.acc]), o)

    with pytest.raises(InternalError, match="kind 'fma'"):
        ptx_of(body, [a, b, np.zeros((M, N), np.float32)], 2, 4)
