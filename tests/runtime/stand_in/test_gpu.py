"""Kernels called through cuda-python: which arrays are taken, what is launched, and what is refused."""

from __future__ import annotations

import dataclasses
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu import DeviceArray, KernelError, ToolError, UnsupportedError
from mosaic_gpu.runtime import dlpack, loaded
from mosaic_gpu.runtime import driver as cuda
from mosaic_gpu.runtime.devices import default_target, device
from mosaic_gpu.runtime.gpu import GpuCaller
from mosaic_gpu.runtime.interface import ArrayType
from tests.support import gpu_kernels
from tests.support.stand_in import Driver

X = np.random.default_rng(1).normal(size=64).astype(np.float32)


@dataclasses.dataclass
class ForeignArray:
    """An array of another library with `__cuda_array_interface__` alone."""

    memory: DeviceArray
    changes: dict[str, Any]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.memory.__cuda_array_interface__, **self.changes}


class DlpackArray:
    """An array of another library with DLPack alone."""

    def __init__(self, memory: DeviceArray) -> None:
        self.memory = memory
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.streams.append(stream)
        return self.memory.__dlpack__(stream=stream)


@pytest.fixture(autouse=True)
def no_current_context() -> Iterator[None]:
    """Takes back what `_enter` did."""
    yield
    cuda.call("cuCtxSetCurrent", 0)


def _enter() -> None:
    """Makes the first GPU's context this thread's, as PyTorch or CuPy would have done."""
    cuda.call("cuCtxSetCurrent", device(0).context)


def compiled(driver: Driver, fn: Any, *arrays: Any, **options: Any) -> Any:
    """A `pallas_call` compiled, and known to the stand-in."""
    kernel = mosaic_gpu.compile(fn, *arrays, **options)
    driver.add_kernel(kernel)
    return kernel


def plus(x: Any, y: Any) -> Any:
    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + y_ref[...]

    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out, compiler_params=mosaic_gpu.CompilerParams(), name="plus")(x, y)


def test_the_default_target_is_that_of_the_gpu() -> None:
    assert default_target() == "sm_90a"
    assert mosaic_gpu.compile(plus, X, X).target == "sm_90a"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float8_e4m3fn", "bool"])
def test_arrays_on_the_gpu_give_arrays_on_the_gpu(driver: Driver, dtype: str) -> None:
    def flip(x: Any) -> Any:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = jnp.flip(x_ref[...])

        return pl.pallas_call(
            kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=mosaic_gpu.CompilerParams()
        )(x)

    x = np.asarray(jnp.asarray(X).astype(dtype))
    kernel = compiled(driver, flip, x)
    result = kernel(DeviceArray.of(x))
    assert isinstance(result, DeviceArray)
    np.testing.assert_array_equal(result.numpy().view(np.uint8), x[::-1].copy().view(np.uint8))


def test_arrays_of_numpy_run_on_the_gpu_where_there_is_one(driver: Driver) -> None:
    kernel = compiled(driver, plus, X, X)
    result = kernel(X, jnp.asarray(X))
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, X + X)
    assert [launch[0] for launch in driver.launches] == ["plus"]


def test_results_go_to_given_arrays(driver: Driver) -> None:
    kernel = compiled(driver, plus, X, X)
    out = DeviceArray(X.shape, X.dtype)
    assert kernel.launch(DeviceArray.of(X), X, out=out) is out
    np.testing.assert_array_equal(out.numpy(), X + X)


def test_a_result_that_aliases_an_operand_is_that_operand(driver: Driver) -> None:
    def double(x: Any) -> Any:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] * 2

        params = mosaic_gpu.CompilerParams()
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(kernel, out, compiler_params=params, input_output_aliases={0: 0})(x)

    x = DeviceArray.of(X)
    assert compiled(driver, double, X)(x) is x
    np.testing.assert_array_equal(x.numpy(), X * 2)


def test_an_empty_grid_launches_nothing_and_gives_what_the_simulator_gives(driver: Driver) -> None:
    call = GpuCaller(gpu_kernels.add_one(driver, grid=(0, 1, 1)))
    (result,) = call([DeviceArray.of(X)])
    assert np.isnan(result.numpy()).all()
    assert driver.launches == []


def test_computed_bounds_launch_as_many_blocks_as_run_at_once(driver: Driver) -> None:
    def rows(n: Any, x: Any) -> Any:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] + 1

        spec = pl.BlockSpec((1, 64), lambda i: (i, 0))
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        params = mosaic_gpu.CompilerParams()
        return pl.pallas_call(kernel, out, grid=(n,), in_specs=[spec], out_specs=spec, compiler_params=params)(x)

    driver.configure(multiprocessors=3)
    device.cache_clear()
    x = np.tile(X, (4, 1))
    kernel = compiled(driver, rows, np.int32(4), x)
    result = kernel.launch(np.int64(4), DeviceArray.of(x))
    np.testing.assert_array_equal(result.numpy(), x + 1)
    ((_, grid, _, _, _),) = driver.launches
    assert grid[0] % 3 == 0
    assert 3 <= grid[0] <= 3 * 32
    device.cache_clear()


def rows_doubled(x: Any, y: Any) -> Any:
    """2 x + y in blocks of 4 rows, for any number of rows."""

    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = 2 * x_ref[...] + y_ref[...]

    block = pl.BlockSpec((4, 16), lambda i: (i, 0))
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    options = {"grid": (pl.cdiv(x.shape[0], 4),), "in_specs": [block, block], "out_specs": block}
    return pl.pallas_call(kernel, out, compiler_params=mosaic_gpu.CompilerParams(), name="rows", **options)(x, y)


def of_any_size(driver: Driver) -> Any:
    rows = jax.ShapeDtypeStruct(export.symbolic_shape("n, 16"), np.float32)
    kernel = mosaic_gpu.compile(rows_doubled, rows, rows)
    driver.add(kernel.cubin, kernel.ptx)
    return kernel


def test_one_kernel_takes_arrays_of_all_sizes(driver: Driver) -> None:
    kernel = of_any_size(driver)
    before = driver.count("cuModuleLoadData")
    for n in (1, 4, 13, 64):
        x = np.random.default_rng(n).normal(size=(n, 16)).astype(np.float32)
        result = kernel.launch(DeviceArray.of(x), DeviceArray.of(x[::-1].copy()))
        assert result.shape == (n, 16)
        np.testing.assert_array_equal(result.numpy(), 2 * x + x[::-1])
        np.testing.assert_array_equal(kernel(x, x), 2 * x + x)
    assert driver.count("cuModuleLoadData") <= before + 1


def test_what_a_library_refuses_is_an_error_in_its_words(driver: Driver) -> None:
    class NeedsGradients(DlpackArray):
        def __dlpack__(self, *, stream: Any = None) -> Any:
            raise BufferError("Can't export tensors that require gradient")

    with pytest.raises(KernelError, match="cannot be given to a kernel: Can't export tensors that require gradient"):
        GpuCaller(gpu_kernels.add_one(driver))([NeedsGradients(DeviceArray.of(X))])


def test_arrays_spread_over_devices_are_read_through_the_host(driver: Driver) -> None:
    class Spread:
        dtype, shape = X.dtype, X.shape

        def __dlpack_device__(self) -> Any:
            raise BufferError("__dlpack__ only supported for unsharded arrays.")

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return X

    (result,) = GpuCaller(gpu_kernels.add_one(driver))([Spread()])
    np.testing.assert_array_equal(result.numpy(), X + 1)


def test_sizes_that_disagree_are_refused_before_the_launch(driver: Driver) -> None:
    kernel = of_any_size(driver)
    x, y = DeviceArray.of(np.zeros((5, 16), np.float32)), DeviceArray.of(np.zeros((6, 16), np.float32))
    with pytest.raises(KernelError, match=r"disagree\n  got: operand 1 of shape \[6, 16\]\n .*\[n, 16\] where n = 5"):
        kernel.launch(x, y)
    with pytest.raises(
        KernelError, match=r"result 0 of kernel 'rows' has another type.*\n.*\n  expected: float32\[5, 16\]"
    ):
        kernel.launch(x, x, out=y)
    assert driver.launches == []


def test_a_kernel_for_all_sizes_is_captured_with_the_sizes_at_hand(driver: Driver) -> None:
    _enter()
    kernel = of_any_size(driver)
    values = np.random.default_rng(0).normal(size=(23, 16)).astype(np.float32)  # a size that no other test has
    x, out = DeviceArray.of(values), DeviceArray(values.shape, values.dtype)
    stream = cuda.call("cuStreamCreate", 0)  # one that waits for the default stream
    cuda.call("cuStreamBeginCapture", stream, cuda.bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    kernel.launch(x, x, out=out, stream=stream)
    graph = cuda.call("cuStreamEndCapture", stream)
    executable = cuda.call("cuGraphInstantiate", graph, 0)
    for factor in (1, 2):
        x.fill(values * factor)
        cuda.call("cuGraphLaunch", executable, stream)
        cuda.call("cuStreamSynchronize", stream)
        np.testing.assert_allclose(out.numpy(), values * factor * 3, rtol=1e-6)
    cuda.call("cuGraphExecDestroy", executable)
    cuda.call("cuGraphDestroy", graph)
    cuda.call("cuStreamDestroy", stream)


def test_bounds_that_are_no_integers_are_refused(driver: Driver) -> None:
    def rows(n: Any, x: Any) -> Any:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] + 1

        spec = pl.BlockSpec((1, 64), lambda i: (i, 0))
        params = mosaic_gpu.CompilerParams()
        options = {"grid": (n,), "in_specs": [spec], "out_specs": spec, "compiler_params": params}
        return pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), **options)(x)

    x = np.tile(X, (4, 1))
    kernel = compiled(driver, rows, np.int32(4), x)
    for bound in (2.5, np.ones(2, np.int32)):
        with pytest.raises(KernelError, match="a bound of the grid is not an integer"):
            kernel.launch(bound, DeviceArray.of(x))


@pytest.mark.parametrize("kind", ["interface", "dlpack"])
def test_arrays_of_other_libraries_are_taken_as_they_are(driver: Driver, kind: str) -> None:
    memory = DeviceArray.of(X)
    array = ForeignArray(memory, {}) if kind == "interface" else DlpackArray(memory)
    (result,) = GpuCaller(gpu_kernels.add_one(driver))([array])
    np.testing.assert_array_equal(result.numpy(), X + 1)


class Tensor(ForeignArray):
    """As PyTorch's: the library is known by the module of the class."""

    __module__ = "torch"
    device = "cuda:0"


def test_pytorchs_stream_is_taken_and_its_allocator_makes_the_results(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    _enter()
    stream = cuda.call("cuStreamCreate", 1)
    torch = types.ModuleType("torch")
    torch.float32 = np.float32  # type: ignore[attr-defined]
    torch.empty = lambda shape, dtype, device: Tensor(DeviceArray(shape, dtype), {})  # type: ignore[attr-defined]
    current = types.SimpleNamespace(cuda_stream=int(stream))
    torch.cuda = types.SimpleNamespace(current_stream=lambda device: current)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    x = Tensor(DeviceArray.of(X), {})
    (result,) = GpuCaller(gpu_kernels.add_one(driver))([x])
    assert type(result) is Tensor
    assert driver.launches == []  # it waits on that stream
    cuda.call("cuStreamSynchronize", stream)
    np.testing.assert_array_equal(result.memory.numpy(), X + 1)
    cuda.call("cuStreamDestroy", stream)


def test_work_that_an_array_waits_for_is_waited_for(driver: Driver) -> None:
    _enter()
    first, second = (int(cuda.call("cuStreamCreate", 1)) for _ in range(2))
    call = GpuCaller(gpu_kernels.add_one(driver))
    (once,) = call([DeviceArray.of(X)], stream=first)
    (twice,) = call([once], stream=second)
    cuda.call("cuStreamSynchronize", second)
    (thrice,) = call([DlpackArray(twice)], stream=first)
    np.testing.assert_array_equal(thrice.numpy(), X + 1 + 1 + 1)
    for stream in (first, second):
        cuda.call("cuStreamDestroy", stream)


def test_dlpack_gives_and_takes_and_frees(driver: Driver) -> None:
    x = DeviceArray.of(X.reshape(8, 8))
    before = driver.count("allocations")
    taken = dlpack.take(x.__dlpack__(stream=-1))
    assert (taken.pointer, taken.shape, taken.dtype, taken.device) == (x.pointer, (8, 8), np.float32, 0)
    assert taken.strides == (32, 4)
    unused = x.__dlpack__()
    del x, unused
    assert driver.count("allocations") == before
    del taken
    assert driver.count("allocations") == before - 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": (32,)}, r"operand 0 of kernel 'add_one' has another type.*\n  got: float32\[32\]"),
        ({"typestr": "<i4"}, "another type than it was compiled for"),
        ({"strides": (6,)}, "is not row-major"),
        ({"data": (2, False)}, "16 does not divide"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(driver: Driver, changes: dict[str, Any], message: str) -> None:
    memory = DeviceArray.of(X)
    if "data" in changes:
        changes = {"data": (memory.pointer + 2, False)}
    with pytest.raises(KernelError, match=message):
        GpuCaller(gpu_kernels.add_one(driver))([ForeignArray(memory, changes)])
    assert driver.launches == []


def test_an_array_on_another_gpu_is_refused(driver: Driver) -> None:
    driver.configure(devices=2)
    array = floats = gpu_kernels.floats(64)
    call = GpuCaller(gpu_kernels.kernel(driver, gpu_kernels.ADD_ONE, operands=(array,), results=(floats,)))
    with pytest.raises(KernelError, match="is on another GPU"):
        call([DeviceArray.of(X, device(1))], out=[DeviceArray((64,), np.float32, device(0))])


def test_each_gpu_loads_a_kernel_once(driver: Driver) -> None:
    driver.configure(devices=2)
    call = GpuCaller(gpu_kernels.add_one(driver, name="each"))
    before = driver.count("modules")
    for ordinal in (0, 1, 0, 1):
        (result,) = call([DeviceArray.of(X, device(ordinal))])
        np.testing.assert_array_equal(result.numpy(), X + 1)
        assert result.device.ordinal == ordinal
    assert driver.count("modules") == before + 2
    call.unload()
    assert driver.count("modules") == before


def test_unloading_leaves_an_equal_kernel_of_another_caller(driver: Driver) -> None:
    kernel = gpu_kernels.add_one(driver, name="equal")
    first, second = GpuCaller(kernel), GpuCaller(dataclasses.replace(kernel))
    before = driver.count("modules")
    x = DeviceArray.of(X)
    first([x])
    second([x])
    assert driver.count("modules") == before + 1
    first.unload()
    first.unload()
    (result,) = second([x])
    np.testing.assert_array_equal(result.numpy(), X + 1)
    second.unload()
    assert driver.count("modules") == before
    first([x])
    assert driver.count("modules") == before + 1
    first.unload()


def test_threads_that_ask_at_once_load_a_kernel_once(driver: Driver) -> None:
    call = GpuCaller(gpu_kernels.add_one(driver, name="at_once"))
    before = driver.count("cuModuleLoadData")
    start, wrong = threading.Barrier(4), []

    def work() -> None:
        start.wait()
        for _ in range(5):
            (result,) = call([DeviceArray.of(X)])
            if not np.array_equal(result.numpy(), X + 1):
                wrong.append(result)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert driver.count("cuModuleLoadData") == before + 1


def test_clusters_are_launched(driver: Driver) -> None:
    pairs = ArrayType((32, 2), np.dtype(np.uint32))
    call = GpuCaller(
        gpu_kernels.kernel(
            driver, gpu_kernels.CLUSTER, grid=(32, 1, 1), block=(1, 1, 1), cluster=(16, 1, 1), results=(pairs,)
        )
    )
    (result,) = call([])
    expected = np.stack([np.arange(32) % 16, np.full(32, 16)], axis=1)
    np.testing.assert_array_equal(result.numpy(), expected)


def test_a_cluster_that_does_not_divide_the_grid_is_the_drivers_error(driver: Driver) -> None:
    pairs = ArrayType((3, 2), np.dtype(np.uint32))
    kernel = gpu_kernels.kernel(driver, gpu_kernels.CLUSTER, grid=(3, 1, 1), cluster=(2, 1, 1), results=(pairs,))
    with pytest.raises(
        ToolError, match=r"cuLaunchKernelEx failed for kernel 'cluster': CUDA_ERROR_INVALID_CLUSTER_SIZE"
    ):
        GpuCaller(kernel)([])


def test_kernels_in_a_chain_may_each_start_before_the_one_before_has_ended(driver: Driver) -> None:
    def shift(x: Any, name: str, programmatic: bool) -> Any:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] + 1

        params = mosaic_gpu.CompilerParams(programmatic_launch=programmatic)
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(kernel, out, compiler_params=params, name=name)(x)

    first, second, plain = (
        compiled(driver, lambda x, n=name, p=p: shift(x, n, p), X)  # type: ignore[misc]
        for name, p in (("first", True), ("second", True), ("plain", False))
    )
    before = driver.count("programmatic")
    x = DeviceArray.of(X)
    np.testing.assert_array_equal(plain(second(first(x))).numpy(), X + 1 + 1 + 1)
    assert [name for name, *_ in driver.launches] == ["first", "second", "plain"]
    assert driver.count("programmatic") == before + 2
    assert driver.count("cuLaunchKernelEx") >= 2


@pytest.mark.parametrize("shared_bytes", [1024, 49_152, 49_153, 232_448])
def test_all_the_shared_memory_of_a_block_can_be_used(driver: Driver, shared_bytes: int) -> None:
    array = gpu_kernels.floats(32)
    kernel = gpu_kernels.kernel(
        driver, gpu_kernels.SHARED, shared_bytes=shared_bytes // 16 * 16, operands=(array,), results=(array,)
    )
    (result,) = GpuCaller(kernel)([DeviceArray.of(X[:32])])
    np.testing.assert_array_equal(result.numpy(), X[:32])


def test_more_shared_memory_than_the_gpu_has_is_refused_before_the_launch(driver: Driver) -> None:
    array = gpu_kernels.floats(32)
    fields = {"shared_bytes": 232_464, "operands": (array,), "results": (array,)}
    with pytest.raises(KernelError, match="more shared memory than a block of Stand-in GPU may have"):
        GpuCaller(gpu_kernels.kernel(driver, gpu_kernels.SHARED, **fields))([DeviceArray.of(X[:32])])


def test_tensor_maps_are_encoded_for_the_arrays_at_hand(driver: Driver) -> None:
    call = GpuCaller(gpu_kernels.tma(driver))
    for seed in (1, 2):
        x = np.random.default_rng(seed).normal(size=(16, 32)).astype(np.float32)
        (result,) = call([DeviceArray.of(x)])
        np.testing.assert_array_equal(result.numpy(), x[4:12, 8:16])
    assert driver.errors == []


def test_a_compiled_matmul_moves_its_operands_by_tma(driver: Driver) -> None:
    a, b, expected = gpu_kernels.matrices()
    kernel = compiled(driver, gpu_kernels.matmul, a, b)
    assert kernel.launch_facts.tensor_maps
    np.testing.assert_allclose(kernel(DeviceArray.of(a), DeviceArray.of(b)).numpy(), expected, atol=1e-4)


def test_a_tensor_map_that_the_driver_refuses_names_the_argument(driver: Driver) -> None:
    kernel = gpu_kernels.tma(driver)
    (facts,) = kernel.tensor_maps
    wrong = dataclasses.replace(kernel, tensor_maps=(dataclasses.replace(facts, strides_bytes=(120,)),))
    with pytest.raises(
        ToolError, match=r"cuTensorMapEncodeTiled failed for kernel 'tma', argument 0: CUDA_ERROR_INVALID_"
    ):
        GpuCaller(wrong)([DeviceArray.of(np.zeros((16, 32), np.float32))])


def test_code_for_another_gpu_is_refused(driver: Driver) -> None:
    call = GpuCaller(gpu_kernels.add_one(driver, target="sm_80"))
    with pytest.raises(UnsupportedError, match=r"compiled for another GPU than Stand-in GPU\n.*9\.0\n.*sm_80"):
        call([DeviceArray.of(X)])


@pytest.mark.parametrize(
    ("target", "capability", "runs"),
    [
        ("sm_80", (8, 0), True), ("sm_80", (8, 9), True), ("sm_89", (8, 6), False), ("sm_80", (9, 0), False),
        ("sm_90a", (9, 0), True), ("sm_100a", (10, 3), False), ("sm_100", (10, 3), True), ("sm_90", (10, 0), False),
    ],
)  # fmt: skip
def test_a_cubin_runs_on_its_major_version_only(target: str, capability: tuple[int, int], runs: bool) -> None:
    assert loaded.runs_on(target, capability) == runs


def test_a_launch_is_captured_and_replayed(driver: Driver) -> None:
    _enter()
    modes = cuda.bindings().CUstreamCaptureMode
    call = GpuCaller(gpu_kernels.add_one(driver, name="captured"))  # not loaded yet: that happens in the capture
    x, out = DeviceArray.of(X), DeviceArray(X.shape, X.dtype)
    stream = cuda.call("cuStreamCreate", 1)
    cuda.call("cuStreamBeginCapture", stream, modes.CU_STREAM_CAPTURE_MODE_GLOBAL)
    call([x], out=[out], stream=stream)
    (made,) = call([out], stream=stream)
    graph = cuda.call("cuStreamEndCapture", stream)
    assert driver.launches == []
    executable = cuda.call("cuGraphInstantiate", graph, 0)
    for values in (X, X * 3):
        x.fill(values)
        cuda.call("cuGraphLaunch", executable, stream)
        np.testing.assert_array_equal(made.numpy(), values + 1 + 1)
    for name, handle in (("cuGraphExecDestroy", executable), ("cuGraphDestroy", graph), ("cuStreamDestroy", stream)):
        cuda.call(name, handle)


def test_host_arrays_cannot_be_captured(driver: Driver) -> None:
    _enter()
    stream = cuda.call("cuStreamCreate", 1)
    cuda.call("cuStreamBeginCapture", stream, cuda.bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    with pytest.raises(KernelError, match="cannot be copied while a CUDA graph is captured"):
        GpuCaller(gpu_kernels.add_one(driver))([X], stream=stream)
    cuda.call("cuGraphDestroy", cuda.call("cuStreamEndCapture", stream))
    cuda.call("cuStreamDestroy", stream)


_CALLS = (
    "cuMemAlloc", "cuMemcpyHtoD", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncGetAttribute", "cuFuncSetAttribute",
    "cuThreadExchangeStreamCaptureMode", "cuTensorMapEncodeTiled", "cuLaunchKernel", "cuStreamSynchronize",
    "cuMemcpyDtoH",
)  # fmt: skip


@pytest.mark.parametrize(("status", "words"), [(2, "CUDA_ERROR_OUT_OF_MEMORY: out of memory"), (4242, "4242")])
@pytest.mark.parametrize("function", _CALLS)
def test_a_failure_of_any_call_is_an_error_with_its_name_and_the_drivers_words(
    driver: Driver, function: str, status: int, words: str
) -> None:
    kernel = dataclasses.replace(gpu_kernels.tma(driver), name=f"{function}{status}", shared_bytes=50_000)
    call = GpuCaller(kernel)
    x = np.random.default_rng(0).normal(size=(16, 32)).astype(np.float32)
    before = driver.count("modules")
    driver.fail(function, status)
    with pytest.raises(ToolError, match=rf"{function} failed.*{words}"):
        call([DeviceArray.of(x)])[0].numpy()
    (result,) = call([DeviceArray.of(x)])
    np.testing.assert_array_equal(result.numpy(), x[4:12, 8:16])
    call.unload()
    assert driver.count("modules") == before


def test_a_kernel_that_faults_loses_the_context_and_the_error_says_what_to_do(driver: Driver) -> None:
    x = DeviceArray.of(X)
    array = gpu_kernels.floats(64)
    kernel = gpu_kernels.kernel(driver, gpu_kernels.ADD_ONE, grid=(4, 1, 1), operands=(array,), results=(array,))
    (result,) = GpuCaller(kernel)([x])  # the launch itself goes well
    with pytest.raises(ToolError, match=r"cuStreamSynchronize failed: CUDA_ERROR_LAUNCH_FAILED.*\n.*context is lost"):
        result.numpy()
    with pytest.raises(ToolError, match="CUDA_ERROR_LAUNCH_FAILED"):
        DeviceArray((4,), np.float32)
    assert "out-of-bounds" in driver.errors[0]
    driver.heal()


def test_too_large_an_array_is_an_error_with_its_size(driver: Driver) -> None:
    with pytest.raises(ToolError, match=r"cuMemAlloc failed for an array of 2147483648 bytes.*OUT_OF_MEMORY"):
        DeviceArray((1 << 31,), np.uint8)


def test_streams_of_any_library_are_taken(driver: Driver) -> None:
    class Torch:
        cuda_stream = 1

    class Cupy:
        ptr = 1

    class CudaCore:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 1)

    call = GpuCaller(gpu_kernels.add_one(driver))
    for stream in (Torch(), Cupy(), CudaCore(), 1):
        np.testing.assert_array_equal(call([DeviceArray.of(X)], stream=stream)[0].numpy(), X + 1)
    with pytest.raises(KernelError, match="the stream is none"):
        call([DeviceArray.of(X)], stream="first")
