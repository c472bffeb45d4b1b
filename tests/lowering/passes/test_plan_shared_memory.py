"""Where allocations lie in shared memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosaic_gpu.errors import KernelError
from mosaic_gpu.lowering.diagnostics import parse_module
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.plan_shared_memory import Buffer, PlanSharedMemory, place
from mosaic_gpu.lowering.pipeline import compilation_context

buffers = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 20), st.integers(0, 10)), max_size=12)


@given(buffers)
def test_those_that_live_together_lie_apart(drawn: list[tuple[int, int, int]]) -> None:
    placed = place([Buffer(None, size, first, first + length) for size, first, length in drawn])
    for i, a in enumerate(placed):
        assert a.offset % a.alignment == 0
        for b in placed[:i]:
            together = a.first <= b.last and b.first <= a.last
            assert not together or a.end <= b.offset or b.end <= a.offset


def test_a_gap_is_filled() -> None:
    sizes: list[tuple[int, int, int]] = [(128, 0, 9), (256, 0, 2), (128, 0, 9), (256, 4, 9)]
    placed = place([Buffer(None, size, first, last) for size, first, last in sizes])
    assert [b.offset for b in placed] == [0, 128, 384, 128]


def kernel(shape: str) -> str:
    alloc = f'"mgpu.alloc"() : () -> !mgpu.ref<tensor<{shape}xf32>, "smem"> loc("kernel.py":7:3)'
    store = f'"mgpu.store"(%c, %b) {{operandSegmentSizes = array<i32: 1, 1, 0>}} : (tensor<{shape}xf32>,'
    return f""""mgpu.kernel"() ({{
      %c = arith.constant dense<0.0> : tensor<{shape}xf32>
      %b = {alloc}
      {store} !mgpu.ref<tensor<{shape}xf32>, "smem">) -> ()
    }}) {{grid = [1], num_warps = 4 : i32, num_inputs = 0 : i32, sym_name = "f", aliases = []}} : () -> ()"""


def plan(shape: str, target: str) -> Any:
    with compilation_context():
        module = parse_module(kernel(shape), "test")
        PlanSharedMemory().apply(module, LoweringOptions(target=target))
        return str(module)


def test_more_than_the_target_has_is_refused_with_a_table() -> None:
    with pytest.raises(KernelError) as caught:
        plan("256x256", "sm_90a")
    message = str(caught.value)
    assert "262144 bytes at offset        0  256x256 f32  kernel.py:7" in message
    assert "at most 232448 bytes on sm_90a" in message
    assert caught.value.source is not None
    assert caught.value.source.line == 7


def test_the_limit_is_the_targets() -> None:
    assert "mgpu.smem_bytes = 131072" in plan("128x256", "sm_90a")
    with pytest.raises(KernelError, match="on sm_89"):
        plan("128x256", "sm_89")
