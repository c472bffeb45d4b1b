"""`compile`, what a compiled kernel tells of itself, and the `pallas_call` wrapper."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu

X = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
OUT = jax.ShapeDtypeStruct((4, 8), jnp.float32)


def softmax_kernel(x_ref: Any, o_ref: Any) -> None:
    e = jnp.exp(x_ref[...] - x_ref[...].max(axis=-1, keepdims=True))
    o_ref[...] = e / e.sum(axis=-1, keepdims=True)


def double_kernel(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = 2 * x_ref[...]


def _call(kernel: Any = double_kernel, **options: Any) -> Any:
    return pl.pallas_call(kernel, OUT, compiler_params=mosaic_gpu.CompilerParams(), **options)


def test_a_compiled_kernel_runs_without_jax_arrays_or_a_gpu() -> None:
    k = mosaic_gpu.compile(_call(softmax_kernel), X)
    e = np.exp(X.astype(np.float64))
    result = k(X)
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result, e / e.sum(axis=-1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(k(jnp.asarray(X)), result)


@pytest.mark.parametrize(
    ("stage", "part"),
    [("dialect", "mgpu.kernel"), ("layouts", "#mgpu.layout"), ("nvvm", "llvm.func"), ("llvm", "define")],
)
def test_every_stage_can_be_looked_at(stage: str, part: str) -> None:
    assert part in mosaic_gpu.compile(_call(), X).ir(stage)


def test_ptx_cubin_sass_resources_launch_and_timings() -> None:
    k = mosaic_gpu.compile(_call(), X, target="sm_90a")
    assert k.name == "double_kernel"
    assert k.target == "sm_90a"
    assert f".entry {k.launch_facts.entry}(" in k.ptx
    assert ".target sm_90a" in k.ptx
    assert k.cubin[:4] == b"\x7fELF"
    assert 0 < k.resources.registers <= 255
    assert k.resources.spill_bytes == 0
    assert k.launch_facts.grid == (1, 1, 1)
    assert k.launch_facts.block[0] % 32 == 0
    assert "EXIT" in k.sass
    assert all(seconds >= 0 for seconds in k.timings.values())


def test_only_shapes_and_dtypes_count() -> None:
    shape = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    assert mosaic_gpu.compile(_call(), shape).ptx == mosaic_gpu.compile(_call(), X).ptx


def test_a_kernel_without_parameters_of_ours_compiles_too() -> None:
    np.testing.assert_array_equal(mosaic_gpu.compile(pl.pallas_call(double_kernel, OUT), X)(X), 2 * X)


def test_the_target_is_the_arguments_else_the_parameters_else_hopper() -> None:
    call = pl.pallas_call(double_kernel, OUT, compiler_params=mosaic_gpu.CompilerParams(target="sm_80"))
    assert mosaic_gpu.compile(call, X, target="9.0a").target == "sm_90a"
    assert mosaic_gpu.compile(call, X).target == "sm_80"
    assert mosaic_gpu.compile(_call(), X).target == "sm_90a"


@pytest.mark.parametrize(
    ("target", "error"),
    [("gfx950", mosaic_gpu.UnsupportedError), ("1.5", mosaic_gpu.UnsupportedError), ("x", mosaic_gpu.KernelError)],
)
def test_a_wrong_target_is_an_error_by_name(target: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=target):
        mosaic_gpu.compile(_call(), X, target=target)


@pytest.mark.parametrize("target", ["8.9", "12.1", "9.0a", "sm_90a"])
def test_targets_go_by_many_names(target: str) -> None:
    assert mosaic_gpu.compile(_call(), X, target=target).cubin[:4] == b"\x7fELF"


def _two(x: Any) -> Any:
    return _call(name="first")(x) + jax.jit(_call(softmax_kernel))(x)


def test_one_of_several_kernels_is_chosen_by_name() -> None:
    assert mosaic_gpu.compile(_two, X, name="first").name == "first"
    np.testing.assert_array_equal(mosaic_gpu.compile(_two, X, name="first")(X), 2 * X)
    assert [call.name for call in mosaic_gpu.trace_calls(_two, X)] == ["first", "softmax_kernel"]


@pytest.mark.parametrize(("name", "got"), [(None, "'first', 'softmax_kernel'"), ("third", "'first', 'softmax_kernel'")])
def test_an_ambiguous_or_absent_kernel_is_an_error_that_lists_them(name: str | None, got: str) -> None:
    with pytest.raises(mosaic_gpu.KernelError, match=f"kernels called: {got}"):
        mosaic_gpu.compile(_two, X, name=name)


def test_a_function_without_a_kernel_is_an_error() -> None:
    with pytest.raises(mosaic_gpu.KernelError, match="kernels called: none"):
        mosaic_gpu.compile(jnp.sin, X)


def test_kernels_are_found_inside_control_flow_and_derivatives() -> None:
    def loop(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, c: jax.lax.cond(c.sum() > 0, _call(), lambda c: c, c), x)

    assert [call.name for call in mosaic_gpu.trace_calls(loop, X)] == ["double_kernel"]
    custom = jax.custom_vjp(_call())
    custom.defvjp(lambda x: (_call()(x), x), lambda x, g: (_call(softmax_kernel)(g),))
    assert [call.name for call in mosaic_gpu.trace_calls(custom, X)] == ["double_kernel"]
    gradient = jax.grad(lambda x: custom(x).sum())
    assert {call.name for call in mosaic_gpu.trace_calls(gradient, X)} == {"double_kernel", "softmax_kernel"}


def test_arrays_of_another_shape_are_refused_by_the_compiled_kernel() -> None:
    with pytest.raises(mosaic_gpu.KernelError, match=r"got: float32\[8, 4\]\n  expected: float32\[4, 8\]"):
        mosaic_gpu.compile(_call(), X)(X.T)


def test_numpy_arrays_of_64_bits_are_taken_as_jax_takes_them() -> None:
    x = X.astype(np.float64)
    result = mosaic_gpu.compile(_call(), x)(x)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, 2 * X)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a b-c", "a_b_c"),
        ("", "double_kernel"),
        ("9lives", "kernel_9lives"),
        ("λ", "kernel"),
        ("WARP_SZ", "kernel_WARP_SZ"),
    ],
)
def test_any_name_becomes_an_entry_point(name: str, expected: str) -> None:
    k = mosaic_gpu.compile(_call(name=name or None), X)
    assert k.name == expected
    assert k.cubin[:4] == b"\x7fELF"


def test_lambdas_are_kernels() -> None:
    k = mosaic_gpu.compile(_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] + 1)), X)
    np.testing.assert_array_equal(k(X), X + 1)


def test_the_wrapper_fills_the_parameters_in() -> None:
    call = mosaic_gpu.pallas_call(double_kernel, OUT, grid=(np.int64(1),), backend="mosaic_gpu")
    np.testing.assert_array_equal(jax.jit(call)(X), 2 * X)


def test_the_wrapper_leaves_other_kernels_to_jax() -> None:
    call = mosaic_gpu.pallas_call(double_kernel, OUT, backend=None, interpret=True)
    np.testing.assert_array_equal(jax.jit(call)(X), 2 * X)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"backend": "triton"}, mosaic_gpu.UnsupportedError, "backend 'triton'"),
        ({"compiler_params": plgpu.CompilerParams()}, mosaic_gpu.KernelError, "another backend's"),
        ({"grid": (2.0,)}, mosaic_gpu.KernelError, "dimension 0 is not an int\n  got: 2.0"),
        ({"grid": (2, None)}, mosaic_gpu.KernelError, "dimension 1 is not an int\n  got: None"),
        ({"grid": (True,)}, mosaic_gpu.KernelError, "dimension 0 is not an int\n  got: True"),
        ({"grid": -1}, mosaic_gpu.KernelError, "dimension 0 is out of range\n  got: -1"),
        ({"grid": "3"}, mosaic_gpu.KernelError, "dimension 0 is not an int\n  got: '3'"),
    ],
)
def test_the_wrapper_checks_before_jax_does(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        mosaic_gpu.pallas_call(double_kernel, OUT, **options)
    line = double_kernel.__code__.co_firstlineno
    assert str(caught.value).endswith(f"{__file__}:{line} in double_kernel")


def test_a_kernel_of_64_bits_runs_outside_of_enable_x64() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 1

    x = np.arange(5, dtype=np.int64) + 2**40
    with jax.enable_x64(True):
        compiled = mosaic_gpu.compile(
            pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=mosaic_gpu.CompilerParams()),
            x,
        )
    np.testing.assert_array_equal(compiled.simulate(x)[0][0], x + 1)
    np.testing.assert_array_equal(compiled(x), x + 1)
