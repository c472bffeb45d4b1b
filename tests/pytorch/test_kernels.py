"""What is handed to the GPU: the launch of a kernel, with host memory and the simulator in the GPU's place."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu.runtime.run import run
from mosaic_gpu.runtime.simulated import SimulatedRuntime

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
values = pytest.importorskip("mosaic_gpu.pytorch.values", reason="PyTorch is not installed")
kernels = pytest.importorskip("mosaic_gpu.pytorch.kernels", reason="PyTorch is not installed")


class Caller:
    """Takes what `GpuCaller` takes, and refuses what that would."""

    def __init__(self, kernel: Any) -> None:
        self.program = kernel.program
        self.streams: list[int] = []

    def __call__(self, operands: Sequence[Any], out: Sequence[Any], stream: int) -> None:
        program = self.program
        for tensor, type_ in zip((*operands, *out), (*program.operands, *program.results), strict=True):
            assert tuple(tensor.shape) == type_.shape
            assert str(tensor.dtype).removeprefix("torch.") in (type_.dtype.name, "uint8")
            assert tensor.is_contiguous()
            assert tensor.data_ptr() % 16 == 0
            assert not tensor.requires_grad
        arrays = [values.to_numpy(x, t.dtype.name) for x, t in zip(operands, program.operands, strict=True)]
        results, _ = run(program, SimulatedRuntime().load(program), arrays)
        for tensor, array in zip(out, results, strict=True):
            tensor.view(torch.uint8).copy_(torch.from_numpy(array.view(np.uint8)))
        self.streams.append(stream)


def launched(monkeypatch: pytest.MonkeyPatch, call: Any, *tensors: Any) -> Any:
    """The results of the kernel that `call` calls, launched."""
    specs = [jax.ShapeDtypeStruct(tuple(t.shape), jnp.dtype(str(t.dtype).removeprefix("torch."))) for t in tensors]
    compiled = mosaic_gpu.compile(call, *specs)
    kernel = kernels.TorchKernel(compiled._call, compiled._compilation)
    kernel._caller = caller = Caller(kernel)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: types.SimpleNamespace(cuda_stream=7))
    dtypes = [str(t.dtype).removeprefix("torch.") for t in tensors]
    carried = [values.carrier(t) for t in tensors]
    found = kernel._launch(torch.device("cpu"), carried, dtypes)
    assert caller.streams == [7]
    return found


def copy_kernel(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def copied(x: jax.Array) -> jax.Array:
    params = mosaic_gpu.CompilerParams()
    return pl.pallas_call(copy_kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=params)(x)


@pytest.mark.parametrize("dtype", ["bool", "uint16", "uint32", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("view", ["whole", "transposed", "misaligned", "expanded"])
def test_operands_are_launched_as_kernels_want_them(monkeypatch: pytest.MonkeyPatch, view: str, dtype: str) -> None:
    x = (torch.arange(128).reshape(8, 16) % 7).to(torch.float32).to(getattr(torch, dtype))
    if view == "transposed":
        x = x.T
    elif view == "misaligned":
        x = x.reshape(-1)[1:]
    elif view == "expanded":
        x = x[:1].expand(4, -1)
    (found,) = launched(monkeypatch, copied, x)
    assert values.uncarried(found, dtype).to(torch.float32).tolist() == x.to(torch.float32).tolist()


def test_an_operand_that_fits_is_not_copied() -> None:
    x = torch.zeros(8, 16)
    assert kernels._launchable(x, "float32", False) is x
    assert kernels._launchable(x, "float32", True).data_ptr() != x.data_ptr()
    assert kernels._launchable(x.reshape(-1)[4:], "float32", False).data_ptr() == x.data_ptr() + 16


def test_memory_that_is_overwritten_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, :] = x_ref[0, :] + 1

    def call(x: jax.Array) -> jax.Array:
        shape, params = jax.ShapeDtypeStruct(x.shape, x.dtype), mosaic_gpu.CompilerParams()
        return pl.pallas_call(kernel, shape, input_output_aliases={0: 0}, compiler_params=params)(x)

    x = torch.ones(2, 8)
    (found,) = launched(monkeypatch, call, x)
    assert found.tolist() == [[2.0] * 8, [1.0] * 8]
    assert x.tolist() == [[1.0] * 8] * 2


@pytest.mark.parametrize(
    ("number", "dtype", "expected"),
    [
        (5, "int64", 5),
        (2**40, "int64", 2**31 - 1),
        (-(2**40), "int64", -1),
        (200, "uint8", 200),
        (65535, "uint16", 65535),
        (2**32 - 1, "uint32", 2**31 - 1),
        (2**63 + 5, "uint64", 2**31 - 1),
        (7, "uint64", 7),
    ],
)
def test_bounds_of_the_grid_are_int32_and_saturate(number: int, dtype: str, expected: int) -> None:
    given = values.carrier(torch.from_numpy(np.array([number], dtype)))
    found = kernels._bound(given, dtype)
    assert (found.dtype, tuple(found.shape), found.item()) == (torch.int32, (), expected)
