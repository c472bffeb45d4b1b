"""The stand-in refuses what the driver refuses (CUDA driver API), with the same status; asked through cuda-python."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import ToolError
from mosaic_gpu.lowering.tensor_maps import TensorMapFacts
from mosaic_gpu.runtime import driver as cuda
from mosaic_gpu.runtime.devices import device
from mosaic_gpu.runtime.map_encoder import MapEncoder, map_memory
from tests.support import gpu_kernels
from tests.support.stand_in import Driver


@pytest.fixture(autouse=True)
def in_context() -> Iterator[None]:
    with device(0).active():
        yield


def refused(status: str, name: str, *arguments: Any) -> None:
    """Expects a call to fail with `status`."""
    with pytest.raises(ToolError, match=f"{name} failed: CUDA_ERROR_{status}"):
        cuda.call(name, *arguments)


def function_of(driver: Driver, code: str, target: str = "sm_90a") -> tuple[Any, Any]:
    kernel = gpu_kernels.kernel(driver, code, target=target)
    module = cuda.call("cuModuleLoadData", kernel.cubin)
    return module, cuda.call("cuModuleGetFunction", module, kernel.entry.encode())


def test_the_initialisation_takes_no_flags(driver: Driver) -> None:
    assert driver.library.cuInit(1) == 1
    assert driver.library.cuInit(0) == 0


def test_a_module_must_be_a_cubin_for_the_gpu(driver: Driver) -> None:
    refused("INVALID_IMAGE", "cuModuleLoadData", b"no cubin" * 20)
    refused("NO_BINARY_FOR_GPU", "cuModuleLoadData", gpu_kernels.kernel(driver, gpu_kernels.ADD_ONE, "sm_80").cubin)


def test_a_function_must_be_in_the_module(driver: Driver) -> None:
    module, _ = function_of(driver, gpu_kernels.ADD_ONE)
    refused("NOT_FOUND", "cuModuleGetFunction", module, b"add_two")
    cuda.call("cuModuleUnload", module)
    refused("INVALID_HANDLE", "cuModuleUnload", module)


@pytest.mark.parametrize(
    ("grid", "block", "shared", "status"),
    [
        ((0, 1, 1), (32, 1, 1), 0, "INVALID_VALUE"),
        ((1, 65_536, 1), (32, 1, 1), 0, "INVALID_VALUE"),
        ((1, 1, 1), (1025, 1, 1), 0, "INVALID_VALUE"),
        ((1, 1, 1), (1, 1, 65), 0, "INVALID_VALUE"),
        ((1, 1, 1), (32, 32, 2), 0, "INVALID_VALUE"),
        ((1, 1, 1), (32, 1, 1), 49_153, "INVALID_VALUE"),
    ],
)
def test_a_launch_beyond_the_limits_is_refused(
    driver: Driver, grid: tuple[int, ...], block: tuple[int, ...], shared: int, status: str
) -> None:
    module, function = function_of(driver, gpu_kernels.CLUSTER)
    refused(status, "cuLaunchKernel", function, *grid, *block, shared, 0, 0, 0)
    cuda.call("cuModuleUnload", module)
    assert driver.launches == []


def test_dynamic_shared_memory_beyond_48_kib_must_be_asked_for(driver: Driver) -> None:
    module, function = function_of(driver, gpu_kernels.SHARED)
    limit = cuda.bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    refused("INVALID_VALUE", "cuFuncSetAttribute", function, limit, 232_449)
    cuda.call("cuFuncSetAttribute", function, limit, 232_448)
    assert cuda.call("cuFuncGetAttribute", limit, function) == 232_448
    cuda.call("cuModuleUnload", module)


GOOD = TensorMapFacts(argument=0, element_bytes=2, dims=(64, 16), strides_bytes=(128,), box=(64, 8), swizzle=128)


def test_a_tensor_map_that_keeps_the_rules_is_made() -> None:
    memory = map_memory()
    MapEncoder(GOOD, "")(4096, ctypes.addressof(memory))
    assert any(memory.raw)


@pytest.mark.parametrize(
    ("pointer", "change"),
    [
        (4104, {}),
        (0, {}),
        (4096, {"strides_bytes": (120,)}),
        (4096, {"strides_bytes": (1 << 40,)}),
        (4096, {"box": (64, 257)}),
        (4096, {"box": (64, 0)}),
        (4096, {"box": (4, 8)}),
        (4096, {"box": (128, 8)}),
        (4096, {"swizzle": 64}),
        (4096, {"dims": (64, 0)}),
        (4096, {"dims": (64, (1 << 31) + 1)}),
        (4096, {"dims": (8,) * 6, "strides_bytes": (16,) * 5, "box": (8,) * 6}),
    ],
)
def test_a_tensor_map_that_breaks_a_rule_is_refused(pointer: int, change: dict[str, Any]) -> None:
    facts = TensorMapFacts(**{**vars(GOOD), **change})
    with pytest.raises(
        ToolError, match="cuTensorMapEncodeTiled failed for kernel k, argument 0: CUDA_ERROR_INVALID_VALUE"
    ):
        MapEncoder(facts, "kernel k")(pointer, ctypes.addressof(map_memory()))


def test_a_tensor_map_must_start_at_a_multiple_of_64_bytes() -> None:
    memory = ctypes.create_string_buffer(320)
    start = ctypes.addressof(memory) + -ctypes.addressof(memory) % 64
    MapEncoder(GOOD, "")(4096, start)
    with pytest.raises(ToolError, match="CUDA_ERROR_INVALID_VALUE"):
        MapEncoder(GOOD, "")(4096, start + 32)


def test_memory_is_checked_and_runs_out(driver: Driver) -> None:
    memory = cuda.call("cuMemAlloc", 1000)
    source = np.zeros(1001, np.uint8)
    refused("INVALID_VALUE", "cuMemcpyHtoD", memory, source.ctypes.data, 1001)
    refused("INVALID_VALUE", "cuMemcpyDtoH", source.ctypes.data, int(memory) + 1, 1000)
    refused("INVALID_VALUE", "cuMemFree", int(memory) + 1)
    driver.configure(memory_bytes=4096)
    refused("OUT_OF_MEMORY", "cuMemAlloc", 4096)
    cuda.call("cuMemFree", memory)
    refused("INVALID_VALUE", "cuMemFree", memory)


def test_work_on_a_stream_waits_until_something_waits_for_it(driver: Driver) -> None:
    stream = cuda.call("cuStreamCreate", 1)
    memory, seen = cuda.call("cuMemAlloc", 16), np.zeros(16, np.uint8)
    cuda.call("cuMemsetD8Async", memory, 7, 16, stream)
    cuda.call("cuMemcpyDtoHAsync", seen.ctypes.data, memory, 16, stream)
    assert not seen.any()
    refused("NOT_READY", "cuStreamQuery", stream)
    cuda.call("cuStreamSynchronize", stream)
    assert (seen == 7).all()
    cuda.call("cuMemFree", memory)
    cuda.call("cuStreamDestroy", stream)
    refused("INVALID_HANDLE", "cuStreamSynchronize", stream)


def test_streams_that_block_run_in_order_with_the_default_stream(driver: Driver) -> None:
    blocking, memory, seen = cuda.call("cuStreamCreate", 0), cuda.call("cuMemAlloc", 4), np.zeros(4, np.uint8)
    cuda.call("cuMemsetD8Async", memory, 1, 4, blocking)
    cuda.call("cuMemcpyDtoH", seen.ctypes.data, memory, 4)
    assert (seen == 1).all()
    cuda.call("cuMemFree", memory)
    cuda.call("cuStreamDestroy", blocking)


def test_events_order_streams_and_time_them(driver: Driver) -> None:
    first, second = cuda.call("cuStreamCreate", 1), cuda.call("cuStreamCreate", 1)
    start, end = cuda.call("cuEventCreate", 0), cuda.call("cuEventCreate", 0)
    memory, seen = cuda.call("cuMemAlloc", 4), np.zeros(4, np.uint8)
    cuda.call("cuEventRecord", start, first)
    cuda.call("cuMemsetD8Async", memory, 3, 4, first)
    cuda.call("cuEventRecord", end, first)
    refused("NOT_READY", "cuEventElapsedTime", start, end)
    cuda.call("cuStreamWaitEvent", second, end, 0)
    cuda.call("cuMemcpyDtoHAsync", seen.ctypes.data, memory, 4, second)
    cuda.call("cuStreamSynchronize", second)
    assert (seen == 3).all()
    assert cuda.call("cuEventElapsedTime", start, end) >= 0
    cuda.call("cuMemFree", memory)
    for name, handles in (("cuEventDestroy", (start, end)), ("cuStreamDestroy", (first, second))):
        for handle in handles:
            cuda.call(name, handle)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("cuMemAlloc", (16,)), ("cuModuleLoadData", (b"",)), ("cuCtxSynchronize", ()), ("cuMemFree", (0,))],
)
def test_calls_that_a_capture_does_not_allow_spoil_it(driver: Driver, name: str, arguments: tuple[Any, ...]) -> None:
    stream = cuda.call("cuStreamCreate", 1)
    cuda.call("cuStreamBeginCapture", stream, cuda.bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    refused("STREAM_CAPTURE_UNSUPPORTED", name, *arguments)
    refused("STREAM_CAPTURE_INVALIDATED", "cuStreamEndCapture", stream)
    cuda.call("cuStreamDestroy", stream)


def test_inside_relaxed_capture_they_are_allowed(driver: Driver) -> None:
    stream = cuda.call("cuStreamCreate", 1)
    cuda.call("cuStreamBeginCapture", stream, cuda.bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    with cuda.relaxed_capture():
        cuda.call("cuMemFree", cuda.call("cuMemAlloc", 16))
    cuda.call("cuGraphDestroy", cuda.call("cuStreamEndCapture", stream))
    cuda.call("cuStreamDestroy", stream)


def test_a_lost_context_answers_every_call_with_the_fault(driver: Driver) -> None:
    driver.fail("cuMemAlloc", 700)
    for _ in range(2):
        refused("ILLEGAL_ADDRESS", "cuMemAlloc", 16)
    refused("ILLEGAL_ADDRESS", "cuCtxSynchronize")
    driver.heal()
    cuda.call("cuCtxSynchronize")


def test_a_planned_failure_comes_after_the_good_calls(driver: Driver) -> None:
    driver.fail("cuCtxSynchronize", 999, skip=2)
    cuda.call("cuCtxSynchronize")
    cuda.call("cuCtxSynchronize")
    refused("UNKNOWN", "cuCtxSynchronize")
    cuda.call("cuCtxSynchronize")
