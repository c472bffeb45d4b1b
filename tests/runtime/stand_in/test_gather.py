"""Operands that are not row-major, or start anywhere, are copied on the GPU: any strides, any element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu import DeviceArray, KernelError
from mosaic_gpu.runtime import driver as cuda
from mosaic_gpu.runtime.devices import device
from mosaic_gpu.runtime.gather import gather, merged
from mosaic_gpu.runtime.gpu import GpuCaller
from tests.support import gpu_kernels
from tests.support.gpu_kernels import Lying
from tests.support.stand_in import Driver

BASE = np.random.default_rng(4).integers(0, 255, (6, 5, 8)).astype(np.float32)
VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.T,
    "permuted": lambda x: x.transpose(1, 0, 2),
    "every_second": lambda x: x[::2, :, ::3],
    "reversed": lambda x: x[::-1, :, ::-1],
    "broadcast": lambda x: np.broadcast_to(x[:, :1, 2:3], (6, 7, 3)),
    "column": lambda x: x[:, 2, 3],
    "element": lambda x: x[3, 2, 1:2],
    "shifted": lambda x: x.reshape(-1)[1:201],
    "scalar_repeated": lambda x: np.broadcast_to(x[1, 1, 1:2], (4, 4)),
}


def check(base: Any, view: Any) -> None:
    """The copy of a view of an array on the GPU is what NumPy makes of it."""
    memory, dest = DeviceArray.of(base), DeviceArray(view.shape, view.dtype)
    lying = Lying(memory, base, view)
    pointer = lying.__cuda_array_interface__["data"][0]
    with device(0).active():
        gather(pointer, dest.pointer, view.shape, view.strides, view.dtype.itemsize, device(0), 0)
    np.testing.assert_array_equal(dest.numpy(), view)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, "float32") for name in VIEWS] + [("reversed", dtype) for dtype in ("uint8", "float16", "int64")],
)
def test_a_view_becomes_row_major(driver: Driver, name: str, dtype: str) -> None:
    base = BASE.astype(dtype)
    check(base, VIEWS[name](base))
    assert driver.errors == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_strides_will_do(driver: Driver, data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 5))
    base = np.random.default_rng(1).integers(0, 99, data.draw(st.tuples(*[st.integers(1, 5)] * rank))).astype(np.int16)
    steps = tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1, -2]))) for _ in range(rank))
    check(base, base[steps].transpose(data.draw(st.permutations(range(rank)))))


def test_dimensions_that_lie_together_are_one() -> None:
    assert merged((2, 3, 4), (48, 16, 4)) == [(24, 4)]
    assert merged((2, 1, 4), (64, 999, 4)) == [(4, 4), (2, 64)]
    assert merged((4, 2), (4, 16)) == [(2, 16), (4, 4)]
    assert merged((5, 5), (0, 0)) == [(25, 0)]


def _plus_one(driver: Driver, shape: tuple[int, ...], **options: Any) -> Any:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 1

    out = jax.ShapeDtypeStruct(shape, np.float32)
    call = pl.pallas_call(kernel, out, compiler_params=mosaic_gpu.CompilerParams(), **options)
    compiled = mosaic_gpu.compile(call, out)
    driver.add(compiled.cubin, compiled.ptx)
    return compiled


@pytest.mark.parametrize("name", ["transposed", "shifted", "broadcast"])
def test_operands_of_a_launch_are_copied_where_they_must_be(driver: Driver, name: str) -> None:
    view = VIEWS[name](BASE)
    x = Lying(DeviceArray.of(BASE), BASE, view)
    np.testing.assert_array_equal(_plus_one(driver, view.shape).launch(x).numpy(), view + 1)
    assert [entry for entry, *_ in driver.launches] == ["gather", "kernel"]
    np.testing.assert_array_equal(x.memory.numpy(), BASE)


def test_the_copy_waits_for_the_arrays_stream(driver: Driver) -> None:
    cuda.call("cuCtxSetCurrent", device(0).context)
    first, second = (int(cuda.call("cuStreamCreate", 1)) for _ in range(2))
    (once,) = GpuCaller(gpu_kernels.add_one(driver))([DeviceArray.of(BASE[0, 0].repeat(8))], stream=first)
    base = np.zeros(64, np.float32)
    x = Lying(once, base, base[::-1])
    x.__cuda_array_interface__["stream"] = first
    (twice,) = GpuCaller(gpu_kernels.add_one(driver))([x], stream=second)
    np.testing.assert_array_equal(twice.numpy(), BASE[0, 0].repeat(8)[::-1] + 2)
    for stream in (first, second):
        cuda.call("cuStreamDestroy", stream)
    cuda.call("cuCtxSetCurrent", 0)


def test_an_operand_that_is_a_result_and_given_results_are_not_copied(driver: Driver) -> None:
    x = Lying(DeviceArray.of(BASE), BASE, BASE.T)
    with pytest.raises(KernelError, match=r"operand 0 of kernel 'kernel' is not row-major"):
        _plus_one(driver, BASE.T.shape, input_output_aliases={0: 0}).launch(x)
    with pytest.raises(KernelError, match=r"result 0 of kernel 'kernel' is not row-major"):
        _plus_one(driver, BASE.T.shape).launch(DeviceArray.of(BASE.T), out=x)
    assert driver.launches == []


def test_nothing_is_copied_while_a_graph_is_captured(driver: Driver) -> None:
    cuda.call("cuCtxSetCurrent", device(0).context)
    kernel, x = _plus_one(driver, BASE.T.shape), Lying(DeviceArray.of(BASE), BASE, BASE.T)
    out = DeviceArray(BASE.T.shape, np.float32)
    stream = cuda.call("cuStreamCreate", 1)
    cuda.call("cuStreamBeginCapture", stream, cuda.bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    with pytest.raises(KernelError, match="is not row-major"):
        kernel.launch(x, out=out, stream=stream)
    cuda.call("cuGraphDestroy", cuda.call("cuStreamEndCapture", stream))
    cuda.call("cuStreamDestroy", stream)
    cuda.call("cuCtxSetCurrent", 0)
