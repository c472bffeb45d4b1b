"""The tests for a real GPU (tests/runtime/test_gpu.py) pass on the stand-in, as far as they need neither JAX's CUDA
plugin nor another library: so they are ready when there is a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest

import mosaic_gpu
from tests.runtime import test_gpu
from tests.runtime.test_gpu import *  # noqa: F403 (the tests themselves)
from tests.support import gpu_kernels
from tests.support.stand_in import Driver

pytestmark: list[Any] = []  # without the marker `gpu`


@pytest.fixture(autouse=True)
def known(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tells the stand-in of every kernel that is compiled, and makes long arrays short."""
    compile_kernel, assembled = mosaic_gpu.compile, gpu_kernels.kernel

    def compile_known(*arguments: Any, **options: Any) -> Any:
        compiled = compile_kernel(*arguments, **options)
        driver.add(compiled.cubin, compiled.ptx)
        return compiled

    monkeypatch.setattr(mosaic_gpu, "compile", compile_known)
    monkeypatch.setattr(gpu_kernels, "kernel", lambda _, *rest, **fields: assembled(driver, *rest, **fields))
    monkeypatch.setattr(test_gpu, "LONG", test_gpu.LONG[:2048])
