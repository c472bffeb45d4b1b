"""On a real GPU: the same kernels through cuda-python, jax.jit, a CUDA graph and a bundle.

Run with `pytest -m gpu tests/runtime/test_gpu.py`; jax.jit on the GPU needs a jax with CUDA and the launcher.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu import DeviceArray
from mosaic_gpu.bundle import write_bundle
from mosaic_gpu.kernel import gpu_kernel
from mosaic_gpu.launcher import find_launcher
from mosaic_gpu.runtime import driver as cuda
from mosaic_gpu.runtime.devices import default_target, device
from mosaic_gpu.runtime.gpu import GpuCaller
from tests.support import gpu_kernels

pytestmark = pytest.mark.gpu

X = np.random.default_rng(2).normal(size=(30, 1000)).astype(np.float32)


def softmax(x: Any) -> Any:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        e = jnp.exp(x_ref[...] - x_ref[...].max(axis=-1, keepdims=True))
        o_ref[...] = e / e.sum(axis=-1, keepdims=True)

    block = pl.BlockSpec((4, 1000), lambda i: (i, 0))
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    params = mosaic_gpu.CompilerParams()
    options = {"grid": (8,), "in_specs": [block], "out_specs": block}
    return pl.pallas_call(kernel, out, compiler_params=params, name="softmax", **options)(x)


def expected(x: Any) -> Any:
    e = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def close(result: Any, x: Any = X) -> None:
    np.testing.assert_allclose(np.asarray(result), expected(x), rtol=2e-6, atol=1e-7)


def test_through_cuda_python() -> None:
    kernel = mosaic_gpu.compile(softmax, X)
    close(kernel(X))
    close(kernel(DeviceArray.of(X)).numpy())
    kernel.unload()


def test_a_matmul_with_tma() -> None:
    a, b, product = gpu_kernels.matrices()
    kernel = mosaic_gpu.compile(gpu_kernels.matmul, a, b)
    np.testing.assert_allclose(kernel(DeviceArray.of(a), DeviceArray.of(b)).numpy(), product, atol=1e-4)


def test_a_cuda_graph_replays_a_launch() -> None:
    kernel = mosaic_gpu.compile(softmax, X)
    x, out = DeviceArray.of(X), DeviceArray(X.shape, X.dtype)
    with device(0).active():
        stream = cuda.call("cuStreamCreate", 1)
        cuda.call("cuStreamBeginCapture", stream, cuda.bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
        kernel.launch(x, out=out, stream=stream)
        executable = cuda.call("cuGraphInstantiate", cuda.call("cuStreamEndCapture", stream), 0)
        for values in (X, X[::-1].copy()):
            x.fill(values)
            cuda.call("cuGraphLaunch", executable, stream)
            close(out.numpy(), values)


def test_a_bundle(tmp_path: Path) -> None:
    kernel = mosaic_gpu.compile(softmax, X)
    write_bundle(tmp_path / "b", [(gpu_kernel(kernel._call, kernel._compilation), kernel.ptx)])
    close(mosaic_gpu.load_bundle(tmp_path / "b")["softmax"](X))


def test_clusters_shared_memory_and_tensor_maps() -> None:
    if default_target() != "sm_90a":
        pytest.skip("the code is for sm_90a")
    x = np.random.default_rng(0).normal(size=(16, 32)).astype(np.float32)
    np.testing.assert_array_equal(GpuCaller(gpu_kernels.tma(None))([DeviceArray.of(x)])[0].numpy(), x[4:12, 8:16])
    array = gpu_kernels.floats(32)
    fields = {"shared_bytes": 200_000, "operands": (array,), "results": (array,)}
    shared = GpuCaller(gpu_kernels.kernel(None, gpu_kernels.SHARED, **fields))
    np.testing.assert_array_equal(shared([DeviceArray.of(x[0])])[0].numpy(), x[0])
    clustered = GpuCaller(gpu_kernels.add_one(None, blocks=32, cluster=(8, 1, 1), programmatic=True))
    y = np.resize(x, 1024)
    np.testing.assert_array_equal(clustered([DeviceArray.of(y)])[0].numpy(), y + 1)


def test_inside_jit() -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("jax without CUDA")
    if find_launcher() is None:
        pytest.skip("the launcher is not built: mosaic-gpu build-launcher")
    x = jnp.asarray(X)
    close(jax.jit(lambda x: softmax(x * 1.0))(x))
    close(mosaic_gpu.compile(softmax, x)(x))
    a, b, product = gpu_kernels.matrices()
    np.testing.assert_allclose(jax.jit(gpu_kernels.matmul)(a, b), product, atol=1e-4)
