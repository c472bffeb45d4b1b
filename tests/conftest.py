"""What holds for all tests: JAX's devices, how Hypothesis draws, and when tests that need a GPU are left out."""

from __future__ import annotations

import ctypes
import os

import hypothesis
import pytest

# Read by JAX when its first array is made: the tests of shard_map and pmap need several host devices.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4".strip()

# Code that an earlier run compiled proves nothing about the compiler of today.
os.environ["MOSAIC_GPU_CACHE_DIR"] = ""

# A first example compiles a kernel, so the time of one example says nothing; a run draws the same examples each time.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.register_profile("search", deadline=None, max_examples=500, print_blob=True)
hypothesis.settings.load_profile("repeatable")


def has_gpu() -> bool:
    """Whether the NVIDIA driver is installed and sees a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--backend`: what the numerics tests run their kernels on."""
    backends = ("both", "simulator", "interpreter", "jax")
    parser.addoption("--backend", choices=backends, default="both", help="what runs kernels")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips the tests marked `gpu` on a machine without one."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))
