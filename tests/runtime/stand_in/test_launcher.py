"""The native launcher, called by XLA: by its CPU client here, whose memory is the stand-in's device memory."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu.kernel import compilation_of
from mosaic_gpu.launcher import CUSTOM_CALL_TARGET, register_library
from mosaic_gpu.registration import _custom_call_attributes, _map_numbers
from mosaic_gpu.runtime.gpu_kernel import GpuKernel
from tests.support import gpu_kernels
from tests.support.stand_in import ROOT, Driver, build_host_launcher, install

X = np.random.default_rng(1).normal(size=64).astype(np.float32)
F32 = 11


@pytest.fixture(autouse=True, scope="session")
def launcher() -> None:
    """Makes XLA's CPU client know the custom call; a first launch makes its context and stream."""
    driver = install()
    register_library(build_host_launcher(), "MosaicGpuKernelOnHost", CUSTOM_CALL_TARGET, "Host")
    on_cuda(driver, _plus, X, X)(X, X)


def _plus(x: Any, y: Any) -> Any:
    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + y_ref[...]

    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out, compiler_params=mosaic_gpu.CompilerParams(), name="plus")(x, y)


def on_cuda(driver: Driver, fn: Any, *arrays: Any) -> Any:
    """`fn` lowered for CUDA, with its kernels as custom calls, as a function that XLA's CPU client runs."""
    for call in mosaic_gpu.trace_calls(fn, *arrays):
        driver.add_kernel(mosaic_gpu.CompiledKernel(call, compilation_of(call)))
    checks = [export.DisabledSafetyCheck.platform()]
    exported = export.export(jax.jit(fn), platforms=["cuda"], disabled_checks=checks)(*arrays)
    return jax.jit(export.deserialize(exported.serialize()).call)


def attributes_of(kernel: GpuKernel, **changes: Any) -> dict[str, Any]:
    """The custom call's attributes, some changed."""
    arrays = [(F32, len(a.shape), *a.shape) for a in (*kernel.operands, *kernel.results)]
    attributes: dict[str, Any] = {
        "version": 2,
        "name": kernel.name,
        "entry": kernel.entry,
        "target": kernel.target,
        "cubin": kernel.cubin,
        "key": f"{kernel.name} {hash(kernel.cubin)}",
        "shared_bytes": kernel.shared_bytes,
        "programmatic": int(kernel.programmatic),
        "grid": kernel.grid,
        "block": kernel.block,
        "cluster": kernel.cluster,
        "arguments": [number for array in arrays for number in array],
        "aliases": [],
        "tensor_maps": [number for facts in kernel.tensor_maps for number in _map_numbers(facts)],
        **changes,
    }
    lists = ("grid", "block", "cluster", "arguments", "aliases", "tensor_maps")
    return {
        key: np.asarray(value, np.int64) if key in lists else np.int64(value) if isinstance(value, int) else value
        for key, value in attributes.items()
    }


def launch(kernel: GpuKernel, *arrays: Any, **changes: Any) -> Any:
    """Runs the custom call with a kernel's attributes, some changed."""
    results = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in kernel.results]
    call = jax.ffi.ffi_call(CUSTOM_CALL_TARGET, results, has_side_effect=True)
    made = jax.jit(lambda *a: call(*a, **attributes_of(kernel, **changes)))(*arrays)
    return jax.block_until_ready(made)


def sized(driver: Driver, kernel: GpuKernel, *sizes: int) -> None:
    """Tells the stand-in how many bytes the arrays of `kernel` take: XLA's memory is not its own."""
    key = hashlib.sha256(kernel.cubin).hexdigest()
    driver.add(kernel.cubin, driver._images[key].ptx, sizes)


def test_a_program_for_cuda_runs_its_kernels_through_the_launcher(driver: Driver) -> None:
    run = on_cuda(driver, lambda x, y: _plus(_plus(x, y) * 2, y).sum(), X, X)
    before = driver.count("cuModuleLoadData")
    np.testing.assert_allclose(run(X, X), (X * 5).sum(), rtol=1e-5)
    np.testing.assert_allclose(run(X, X), (X * 5).sum(), rtol=1e-5)
    assert [name for name, *_ in driver.launches] == ["plus"] * 4
    assert driver.count("cuModuleLoadData") == before  # the kernel of the first launch, see `launcher`


def test_kernels_inside_scan_and_vmap_run(driver: Driver) -> None:
    def steps(x: Any) -> Any:
        body = jax.vmap(lambda row: _plus(row, row))
        return jax.lax.scan(lambda carry, _: (body(carry), None), x, None, length=3)[0]

    x = X.reshape(4, 16)
    np.testing.assert_array_equal(on_cuda(driver, steps, x)(x), x * 8)


def test_an_aliased_operand_is_written_in_place(driver: Driver) -> None:
    def double(x: Any) -> Any:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = o_ref[...] + x_ref[...]

        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        params = mosaic_gpu.CompilerParams()
        return pl.pallas_call(kernel, out, compiler_params=params, input_output_aliases={0: 0})(x)

    np.testing.assert_array_equal(on_cuda(driver, double, X)(X), X * 2)


def test_computed_bounds_are_read_from_device_memory(driver: Driver) -> None:
    def rows(n: Any, x: Any) -> Any:
        def kernel(x_ref: Any, _: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] + 1

        spec = pl.BlockSpec((1, 16), lambda i: (i, 0))
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        options = {"grid": (n,), "in_specs": [spec, spec], "out_specs": spec, "input_output_aliases": {1: 0}}
        return pl.pallas_call(kernel, out, compiler_params=mosaic_gpu.CompilerParams(), **options)(x, jnp.zeros_like(x))

    x = X.reshape(4, 16)
    run = on_cuda(driver, rows, np.int32(4), x)
    for n in (4, 2, 0):
        np.testing.assert_array_equal(run(np.int32(n), x), np.where(np.arange(4)[:, None] < n, x + 1, 0))


def test_eight_threads_at_once_load_a_kernel_once(driver: Driver) -> None:
    kernel = gpu_kernels.add_one(driver, name="threads")
    sized(driver, kernel, 64 * 4, 64 * 4)
    before, right = driver.count("cuModuleLoadData"), []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(4):
            right.append(np.array_equal(launch(kernel, X)[0], X + 1))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 32
    assert driver.count("cuModuleLoadData") == before + 1


def test_tensor_maps_are_encoded_for_xlas_buffers(driver: Driver) -> None:
    kernel = gpu_kernels.tma(driver)
    sized(driver, kernel, 16 * 32 * 4, 8 * 8 * 4)
    x = np.random.default_rng(3).normal(size=(16, 32)).astype(np.float32)
    np.testing.assert_array_equal(launch(kernel, x)[0], x[4:12, 8:16])


def test_a_compiled_matmul_moves_its_operands_by_tma(driver: Driver) -> None:
    a, b, expected = gpu_kernels.matrices()
    before = driver.count("cuTensorMapEncodeTiled")
    np.testing.assert_allclose(on_cuda(driver, gpu_kernels.matmul, a, b)(a, b), expected, atol=1e-4)
    assert driver.count("cuTensorMapEncodeTiled") > before


def test_clusters_and_programmatic_launches_reach_the_driver(driver: Driver) -> None:
    kernel = gpu_kernels.add_one(driver, blocks=32, cluster=(16, 1, 1), programmatic=True, name="attributes")
    sized(driver, kernel, 32 * 32 * 4, 32 * 32 * 4)
    before = driver.count("programmatic")
    x = np.tile(X, 16)
    np.testing.assert_array_equal(launch(kernel, x)[0], x + 1)
    assert driver.launches[-1][3] == (16, 1, 1)
    assert driver.count("programmatic") == before + 1


@pytest.mark.parametrize("programmatic", [True, False])
def test_a_compiled_kernels_wish_to_start_early_reaches_the_driver(driver: Driver, programmatic: bool) -> None:
    def chain(x: Any) -> Any:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] + 1

        params = mosaic_gpu.CompilerParams(programmatic_launch=programmatic)
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        shift = pl.pallas_call(kernel, out, compiler_params=params, name="shift")
        return shift(shift(x))

    before = driver.count("programmatic")
    np.testing.assert_array_equal(on_cuda(driver, chain, X)(X), X + 1 + 1)
    assert [name for name, *_ in driver.launches] == ["shift", "shift"]
    assert driver.count("programmatic") == before + (2 if programmatic else 0)


@pytest.fixture
def add_one(driver: Driver) -> GpuKernel:
    """A kernel for float32[64]."""
    kernel = gpu_kernels.add_one(driver)
    sized(driver, kernel, 64 * 4, 64 * 4)
    return kernel


def test_much_shared_memory_is_asked_for(driver: Driver) -> None:
    array = gpu_kernels.floats(32)
    fields = {"shared_bytes": 200_000, "operands": (array,), "results": (array,)}
    kernel = gpu_kernels.kernel(driver, gpu_kernels.SHARED, **fields)
    sized(driver, kernel, 32 * 4, 32 * 4)
    np.testing.assert_array_equal(launch(kernel, X[:32])[0], X[:32])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 1}, r"the call has version 1, this launcher runs version 2; export the program again"),
        ({"arguments": [F32, 1, 64]}, "the call has more arrays than the kernel takes"),
        ({"arguments": [F32, 1, 64] * 3}, "the call has fewer arrays than the kernel takes"),
        ({"arguments": [4, 1, 64, F32, 1, 64]}, "operand 0 has another dtype than the kernel was compiled for"),
        ({"arguments": [F32, 1, 64, F32, 2, 8, 8]}, "result 0 has another rank than the kernel was compiled for"),
        ({"arguments": [F32, 1, 64, F32, 1, 65]}, "result 0 has another shape than the kernel was compiled for"),
        ({"aliases": [0, 0]}, "operand 0 is to be overwritten, but XLA gave it other memory"),
        ({"grid": [1, 1]}, "grid, block and cluster must have three numbers each"),
        ({"name": 7}, "the call has no attribute 'name' of the type it must have"),
        ({"tensor_maps": [5, 4, 0, 1, 64, 64]}, "a tensor map is malformed"),
        ({"tensor_maps": [0, 4, 0, 2, 64]}, "a tensor map is malformed"),
        ({"entry": "add_two", "key": "1"}, "cuModuleGetFunction failed: CUDA_ERROR_NOT_FOUND: named symbol not found"),
        ({"cubin": b"no cubin" * 20, "key": "2"}, r"CUDA_ERROR_INVALID_IMAGE.*\(the code is for sm_90a\)"),
        ({"shared_bytes": 300_000, "key": "3"}, r"cuFuncSetAttribute \(dynamic shared memory\) failed"),
        ({"block": [2048, 1, 1]}, "cuLaunchKernelEx failed: CUDA_ERROR_INVALID_VALUE: invalid argument"),
        ({"cluster": [3, 1, 1]}, "cuLaunchKernelEx failed: CUDA_ERROR_INVALID_CLUSTER_SIZE"),
    ],
)
def test_a_call_that_does_not_fit_is_an_error_with_the_kernels_name(
    add_one: GpuKernel, driver: Driver, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"mosaic_gpu kernel '(add_one|\?|)': .*{message}"):
        launch(add_one, X, **changes)
    assert driver.launches == []
    np.testing.assert_array_equal(launch(add_one, X)[0], X + 1)


_CALLS = (
    "cuCtxGetCurrent", "cuStreamGetCtx", "cuCtxPushCurrent", "cuModuleLoadData", "cuModuleGetFunction",
    "cuFuncGetAttribute", "cuFuncSetAttribute", "cuTensorMapEncodeTiled", "cuLaunchKernelEx",
)  # fmt: skip


@pytest.mark.parametrize("function", _CALLS)
def test_a_failure_of_any_call_is_an_error_with_the_drivers_words(driver: Driver, function: str) -> None:
    kernel = gpu_kernels.tma(driver)
    sized(driver, kernel, 16 * 32 * 4, 8 * 8 * 4)
    x = np.random.default_rng(3).normal(size=(16, 32)).astype(np.float32)
    changes = {"key": function, "shared_bytes": 60_000}
    before = driver.count("modules")
    driver.fail(function, 2)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"kernel 'tma': .*CUDA_ERROR_OUT_OF_MEMORY: out of memory"):
        launch(kernel, x, **changes)
    np.testing.assert_array_equal(launch(kernel, x, **changes)[0], x[4:12, 8:16])
    assert driver.count("modules") == before + 1


def test_a_fault_of_the_kernel_is_the_streams_error(driver: Driver) -> None:
    kernel = gpu_kernels.add_one(driver, blocks=2, grid=(4, 1, 1), name="fault")
    sized(driver, kernel, 64 * 4, 64 * 4)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the stream failed: unspecified launch failure"):
        launch(kernel, X)
    with pytest.raises(jax.errors.JaxRuntimeError, match="CUDA_ERROR_LAUNCH_FAILED"):
        launch(kernel, X)


_FRESH = """
import sys
from pathlib import Path
import numpy as np
from jax import export
from mosaic_gpu.launcher import CUSTOM_CALL_TARGET, register_library
from tests.support.stand_in import build_host_launcher, install

driver, folder = install(), Path(sys.argv[1])
driver.add((folder / "cubin").read_bytes(), (folder / "ptx").read_text(), [256] * 3)
register_library(build_host_launcher(), "MosaicGpuKernelOnHost", CUSTOM_CALL_TARGET, "Host")
exported = export.deserialize(bytearray((folder / "exported").read_bytes()))
x = np.arange(64, dtype=np.float32)
np.testing.assert_array_equal(exported.call(x, x), x * 2)
assert not [name for name in sys.modules if name.startswith(("torch_mlir", "mosaic_gpu.dialect"))]
print([name for name, *_ in driver.launches])
"""


def test_an_exported_program_runs_in_a_fresh_process(driver: Driver, tmp_path: Path) -> None:
    compiled = mosaic_gpu.compile(_plus, X, X)
    checks = [export.DisabledSafetyCheck.platform()]
    exported = export.export(jax.jit(_plus), platforms=["cuda"], disabled_checks=checks)(X, X)
    (tmp_path / "exported").write_bytes(exported.serialize())
    (tmp_path / "cubin").write_bytes(compiled.cubin)
    (tmp_path / "ptx").write_text(compiled.ptx)
    command = [sys.executable, "-c", _FRESH, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['plus']\n"


def test_the_attributes_of_the_tests_are_those_of_the_compiler(driver: Driver) -> None:
    compiled = mosaic_gpu.compile(_plus, X, X)
    program = compiled._compilation.program
    program = dataclasses.replace(program, cluster=(2, 1, 1), programmatic=True)
    written = _custom_call_attributes(program, compiled.target, compiled.cubin)
    assert (written["cluster"], written["programmatic"]) == ((2, 1, 1), 1)
    assert set(written) | {"arguments", "aliases"} == set(attributes_of(gpu_kernels.add_one(driver)))
