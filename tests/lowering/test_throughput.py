"""The peaks of GPUs: against what NVIDIA states for the whole GPU."""

from __future__ import annotations

import pytest

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.targets import TARGETS
from mosaic_gpu.lowering.throughput import throughput_of


@pytest.mark.parametrize(
    ("target", "kind", "stated"),
    [
        ("sm_80", "f16", 312e12), ("sm_80", "tf32", 156e12), ("sm_80", "i8", 624e12), ("sm_80", "f64", 19.5e12),
        ("sm_86", "bf16", 149.7e12), ("sm_86", "tf32", 74.8e12), ("sm_86", "i8", 299.3e12),
        ("sm_87", "i8", 85e12),
        ("sm_89", "f16", 366e12), ("sm_89", "f8", 733e12),
        ("sm_90a", "f16", 989.4e12), ("sm_90a", "tf32", 494.7e12), ("sm_90a", "f8", 1978.9e12),
        ("sm_100a", "bf16", 2.25e15), ("sm_100a", "f8", 4.5e15),
        ("sm_120a", "bf16", 209.5e12), ("sm_120a", "i8", 838e12),
    ],
)  # fmt: skip
def test_the_tensor_cores_together_are_as_fast_as_the_vendor_states(target: str, kind: str, stated: float) -> None:
    assert throughput_of(target).tensor_flops_per_s(kind) == pytest.approx(stated, rel=0.02)


@pytest.mark.parametrize(
    ("target", "stated"), [("sm_80", 19.5e12), ("sm_86", 37.4e12), ("sm_89", 91.6e12), ("sm_120", 104.8e12)]
)
def test_float32_is_as_fast_as_the_vendor_states(target: str, stated: float) -> None:
    assert throughput_of(target).fp32_flops_per_s == pytest.approx(stated, rel=0.01)


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_peaks_for_its_multiprocessors(name: str) -> None:
    peaks = throughput_of(name)
    assert peaks.multiprocessors == TARGETS[name].multiprocessors
    assert peaks.source
    assert ("f8" in peaks.tensor) == ("fp8" in TARGETS[name].features)


def test_kinds_that_the_tensor_cores_do_not_take_have_no_rate() -> None:
    assert throughput_of("sm_86").tensor_flops_per_s("f64") == 0
    assert throughput_of("sm_80").tensor_flops_per_s("f8") == 0


def test_another_gpu_of_the_architecture_keeps_what_is_not_known_of_it() -> None:
    h100 = throughput_of("sm_90a")
    h200 = h100.of_device(name="H200", multiprocessors=132, clock_ghz=0, dram_bytes_per_s=4.8e12, l2_bytes=0)
    assert (h200.gpu, h200.dram_bytes_per_s) == ("H200", 4.8e12)
    assert (h200.clock_ghz, h200.l2_bytes, h200.l2_bytes_per_s) == (h100.clock_ghz, h100.l2_bytes, h100.l2_bytes_per_s)


def test_the_l2_cache_runs_at_the_clock_of_the_gpu() -> None:
    h100 = throughput_of("sm_90a")
    slower = h100.of_device(name="x", multiprocessors=1, clock_ghz=h100.clock_ghz / 2, dram_bytes_per_s=1, l2_bytes=1)
    assert slower.l2_bytes_per_s == pytest.approx(h100.l2_bytes_per_s / 2)


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="sm_75"):
        throughput_of("sm_75")
