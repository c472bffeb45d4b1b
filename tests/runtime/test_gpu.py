"""On a real GPU: the same kernels through cuda-python, jax.jit, CUDA graphs, bundles and the arrays of other libraries.

Run with `pytest -m gpu`.  What needs a JAX with CUDA and the launcher, PyTorch or CuPy is skipped where they are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu import DeviceArray, KernelError
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
    np.testing.assert_allclose(np.asarray(result), expected(x), rtol=1e-5, atol=1e-7)


def test_through_cuda_python() -> None:
    kernel = mosaic_gpu.compile(softmax, X)
    close(kernel(X))
    close(kernel(DeviceArray.of(X)).numpy())
    kernel.unload()


def test_a_matmul_with_tma() -> None:
    a, b, product = gpu_kernels.matrices()
    kernel = mosaic_gpu.compile(gpu_kernels.matmul, a, b)
    np.testing.assert_allclose(kernel(DeviceArray.of(a), DeviceArray.of(b)).numpy(), product, atol=1e-4)


@contextmanager
def captured(stream: Any) -> Iterator[list[Any]]:
    """Captures what is launched on `stream`; gives a list, to which it adds the executable graph."""
    made: list[Any] = []
    cuda.call("cuStreamBeginCapture", stream, cuda.bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    yield made
    graph = cuda.call("cuStreamEndCapture", stream)
    made.append(cuda.call("cuGraphInstantiate", graph, 0))
    cuda.call("cuGraphDestroy", graph)


@pytest.fixture
def stream() -> Iterator[Any]:
    """A stream that does not wait for the default one, in the first GPU's context."""
    with device(0).active():
        made = cuda.call("cuStreamCreate", 1)
        yield made
        cuda.call("cuStreamSynchronize", made)
        cuda.call("cuStreamDestroy", made)


def test_a_cuda_graph_replays_a_launch(stream: Any) -> None:
    kernel = mosaic_gpu.compile(softmax, X)
    x, out = DeviceArray.of(X), DeviceArray(X.shape, X.dtype)
    with captured(stream) as made:
        kernel.launch(x, out=out, stream=stream)
    for values in (X, X[::-1].copy()):
        x.fill(values)
        cuda.call("cuGraphLaunch", made[0], stream)
        close(out.numpy(), values)
    cuda.call("cuGraphExecDestroy", made[0])


def shift(x: Any, programmatic: bool = True) -> Any:
    """x + 1 by many short blocks."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 1

    block = pl.BlockSpec((1024,), lambda i: (i,))
    params = mosaic_gpu.CompilerParams(programmatic_launch=programmatic)
    options = {"grid": (x.size // 1024,), "in_specs": [block], "out_specs": block, "compiler_params": params}
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), name="shift", **options)(x)


LONG = np.random.default_rng(3).integers(0, 99, 1 << 20).astype(np.float32)


@pytest.mark.parametrize("programmatic", [True, False])
def test_a_chain_of_kernels_that_start_early_keeps_its_order(stream: Any, programmatic: bool) -> None:
    _needs_hopper()
    kernel = mosaic_gpu.compile(lambda x: shift(x, programmatic), LONG)
    assert kernel.launch_facts.programmatic == programmatic
    x, first, second = DeviceArray.of(LONG), DeviceArray.of(0 * LONG), DeviceArray.of(0 * LONG)
    kernel.launch(x, out=first, stream=stream)
    for _ in range(100):  # each reads what the one before wrote, and overwrites what that one read
        kernel.launch(first, out=second, stream=stream)
        kernel.launch(second, out=first, stream=stream)
    np.testing.assert_array_equal(first.numpy(), LONG + 201)


def test_such_a_chain_is_captured_and_replayed(stream: Any) -> None:
    _needs_hopper()
    kernel = mosaic_gpu.compile(shift, LONG)
    x, first, second = DeviceArray.of(LONG), DeviceArray.of(0 * LONG), DeviceArray.of(0 * LONG)
    with captured(stream) as made:
        kernel.launch(x, out=first, stream=stream)
        for _ in range(10):
            kernel.launch(first, out=second, stream=stream)
            kernel.launch(second, out=first, stream=stream)
    for factor in (1, 2, 3):
        x.fill(LONG * factor)
        cuda.call("cuGraphLaunch", made[0], stream)
        np.testing.assert_array_equal(first.numpy(), LONG * factor + 21)
    cuda.call("cuGraphExecDestroy", made[0])


def test_a_matmul_by_warps_that_part_waits_in_both(stream: Any) -> None:
    _needs_hopper()
    a, b, product = gpu_kernels.matrices()
    options = {"programmatic_launch": True, "warp_specialize": True}
    kernel = mosaic_gpu.compile(lambda a, b: gpu_kernels.matmul(a, b, **options), a, b)
    x, y, out = DeviceArray.of(a), DeviceArray.of(b), DeviceArray(product.shape, np.float32)
    for _ in range(50):
        kernel.launch(x, y, out=out, stream=stream)
    np.testing.assert_allclose(out.numpy(), product, atol=1e-4)


def _needs_hopper() -> None:
    if device(0).capability < (9, 0):
        pytest.skip("a GPU before Hopper")


@pytest.mark.parametrize("view", ["transposed", "shifted", "reversed"])
def test_operands_that_lie_otherwise_are_copied(view: str) -> None:
    base = np.arange(64 * 48, dtype=np.float32).reshape(64, 48)
    shapes = {"transposed": base.T, "shifted": base.reshape(-1)[1:2049], "reversed": base[::-1, ::-2]}
    array = shapes[view]
    lying = gpu_kernels.Lying(DeviceArray.of(base), base, array)

    def negate(x: Any) -> Any:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = -x_ref[...]

        params = mosaic_gpu.CompilerParams()
        return pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=params)(x)

    np.testing.assert_array_equal(mosaic_gpu.compile(negate, array).launch(lying).numpy(), -array)


def rows_of_any_number(x: Any) -> Any:
    block = pl.BlockSpec((4, x.shape[1]), lambda i: (i, 0))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = 2 * x_ref[...]

    options = {"grid": (pl.cdiv(x.shape[0], 4),), "in_specs": [block], "out_specs": block, "name": "rows"}
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out, compiler_params=mosaic_gpu.CompilerParams(), **options)(x)


def test_one_kernel_and_one_bundle_for_all_sizes(tmp_path: Path) -> None:
    kernel = mosaic_gpu.compile(rows_of_any_number, jax.ShapeDtypeStruct(export.symbolic_shape("n, 100"), np.float32))
    write_bundle(tmp_path / "b", [(gpu_kernel(kernel._call, kernel._compilation), kernel.ptx)])
    bundled = mosaic_gpu.load_bundle(tmp_path / "b")["rows"]
    for n in (1, 7, 1000, 5000):
        x = np.random.default_rng(n).normal(size=(n, 100)).astype(np.float32)
        np.testing.assert_array_equal(kernel(DeviceArray.of(x)).numpy(), 2 * x)
        np.testing.assert_array_equal(bundled(x), 2 * x)


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


@pytest.fixture
def jax_on_gpu() -> None:
    """Skips where JAX cannot run our kernels on the GPU."""
    if jax.default_backend() != "gpu":
        pytest.skip("jax without CUDA")
    if find_launcher() is None:
        pytest.skip("the launcher is not built: mosaic-gpu build-launcher")


def test_inside_jit(jax_on_gpu: None) -> None:
    x = jnp.asarray(X)
    close(jax.jit(lambda x: softmax(x * 1.0))(x))
    a, b, product = gpu_kernels.matrices()
    np.testing.assert_allclose(jax.jit(gpu_kernels.matmul)(a, b), product, atol=1e-4)


def test_arrays_of_jax_in_and_out(jax_on_gpu: None) -> None:
    kernel = mosaic_gpu.compile(softmax, X)
    result = kernel(jnp.asarray(X) * 1.0)
    assert isinstance(result, jax.Array)
    close(result * 1.0)
    a, b, product = gpu_kernels.matrices()  # bfloat16, which goes through DLPack
    found = mosaic_gpu.compile(gpu_kernels.matmul, a, b)(jnp.asarray(a), jnp.asarray(b))
    np.testing.assert_allclose(np.asarray(found), product, atol=1e-4)


def test_kernels_that_start_early_inside_scan(jax_on_gpu: None) -> None:
    _needs_hopper()
    steps = jax.jit(lambda x: jax.lax.scan(lambda c, _: (shift(shift(c)) * 1.0, None), x, None, length=20)[0])
    np.testing.assert_array_equal(np.asarray(steps(jnp.asarray(LONG))), LONG + 40)


def test_an_exported_program(jax_on_gpu: None) -> None:
    exported = export.export(jax.jit(rows_of_any_number), platforms=["cuda"])(
        jax.ShapeDtypeStruct(export.symbolic_shape("n, 1000"), np.float32)
    )
    again = export.deserialize(exported.serialize())
    for n in (3, 30):
        np.testing.assert_array_equal(np.asarray(again.call(jnp.asarray(X[:n]))), 2 * X[:n])


def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch without CUDA")
    kernel = mosaic_gpu.compile(softmax, X)
    x = torch.from_numpy(X).cuda()
    result = kernel.launch(x * 1.0)
    assert isinstance(result, torch.Tensor)
    close((result * 1.0).cpu())
    close(kernel.launch(x.t().contiguous().t()).cpu())  # not row-major
    with torch.cuda.stream(torch.cuda.Stream()):
        y = x.flip(0)
        close(kernel.launch(y).cpu(), X[::-1])
    with pytest.raises(KernelError, match="require"):
        kernel.launch(x.clone().requires_grad_())
    graph, out = torch.cuda.CUDAGraph(), torch.empty_like(x)
    with torch.cuda.graph(graph):
        kernel.launch(x, out=out)
    x.copy_(x.flip(0))
    graph.replay()
    close(out.cpu(), X[::-1])
    a, b, product = gpu_kernels.matrices()
    tensors = [torch.from_numpy(m.astype(np.float32)).cuda().to(torch.bfloat16) for m in (a, b)]
    found = mosaic_gpu.compile(gpu_kernels.matmul, a, b).launch(*tensors)
    np.testing.assert_allclose(found.cpu(), product, atol=1e-4)


def test_arrays_of_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    kernel = mosaic_gpu.compile(softmax, X)
    x = cupy.asarray(X)
    result = kernel.launch(x)
    assert isinstance(result, cupy.ndarray)
    close(result.get())
    close(kernel.launch(x[::-1]).get(), X[::-1])
