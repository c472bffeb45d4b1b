"""Timing and tuning on a real GPU: what no stand-in can tell."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mosaic_gpu
from mosaic_gpu.runtime import driver
from mosaic_gpu.runtime.device_array import DeviceArray
from mosaic_gpu.runtime.devices import device
from mosaic_gpu.runtime.peaks import throughput_of_device
from mosaic_gpu.runtime.timing import time_calls
from tests.support.examples import example

pytestmark = pytest.mark.gpu


def test_writing_memory_is_as_fast_as_memory_and_no_faster() -> None:
    peak = throughput_of_device(device(0)).dram_bytes_per_s
    memory = DeviceArray((1 << 30,), np.uint8)
    timing = time_calls(lambda i: driver.call("cuMemsetD8Async", memory.pointer, 0, memory.nbytes, 0))
    rate = memory.nbytes / (timing.median * 1e-6)
    assert 0.4 * peak < rate < 1.1 * peak


def test_a_cold_cache_is_slower_than_a_warm_one() -> None:
    source, target = DeviceArray((1 << 22,), np.uint8), DeviceArray((1 << 22,), np.uint8)

    def run(i: int) -> None:
        driver.call("cuMemcpyDtoDAsync", target.pointer, source.pointer, source.nbytes, 0)

    assert time_calls(run, cold_l2=True).median > time_calls(run).median


def test_a_matrix_product_is_tuned_and_its_results_are_right() -> None:
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.normal(size=(1024, 1024)), jnp.bfloat16) for _ in range(2))
    expected = np.asarray(jnp.dot(a.astype(jnp.float32), b.astype(jnp.float32)))
    tuned = mosaic_gpu.autotune(
        lambda block: functools.partial(example("matmul").matmul, block=block, out_dtype="float32"),
        {"block": [(16, 16, 16), (64, 64, 64), (128, 128, 64)]},
        a,
        b,
        check=functools.partial(np.testing.assert_allclose, desired=expected, rtol=2e-2, atol=0.5),
        cache=False,
        progress=False,
    )
    assert [c.status for c in tuned.candidates] == ["measured"] * 3
    assert tuned.candidates[-1].config == {"block": (16, 16, 16)}
    np.testing.assert_allclose(jax.jit(tuned.kernel)(a, b), expected, rtol=2e-2, atol=0.5)
