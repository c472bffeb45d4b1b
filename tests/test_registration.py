"""A kernel inside JAX's transformations, on the CPU platform: what jit and its friends give is what NumPy gives."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import mosaic_gpu
from mosaic_gpu import kernel as kernel_module

X = np.arange(8, dtype=np.float32)


def _plus_one(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + 1


def _flip(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = ~x_ref[...]


def plus_one(x: Any, kernel: Callable[..., None] = _plus_one, **options: Any) -> Any:
    """x + 1, by one block."""
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out, compiler_params=mosaic_gpu.CompilerParams(), **options)(x)


def by_rows(x: Any) -> Any:
    """x + 1, by a block of a row each."""
    spec = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0))
    return plus_one(x, grid=(x.shape[0],), in_specs=[spec], out_specs=spec)


def _mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))


def _same(result: Any, expected: Any) -> None:
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))


def test_called_outside_of_jit() -> None:
    _same(plus_one(jnp.asarray(X)), X + 1)


def test_in_jit_twice_over() -> None:
    _same(jax.jit(lambda x: plus_one(plus_one(x) * 2))(X), (X + 1) * 2 + 1)


@pytest.mark.parametrize("axis", [0, 1])
def test_in_vmap_over_any_axis(axis: int) -> None:
    x = X.reshape(2, 4)
    _same(jax.jit(jax.vmap(plus_one, in_axes=axis, out_axes=axis))(x), x + 1)


def test_in_nested_vmap_of_a_kernel_with_a_grid() -> None:
    x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    _same(jax.vmap(jax.vmap(by_rows))(x), x + 1)


def test_in_vmap_with_dimension_semantics() -> None:
    def call(x: Any) -> Any:
        params = mosaic_gpu.CompilerParams(dimension_semantics=("sequential",))
        spec = pl.BlockSpec((4,), lambda i: (i,))
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(_plus_one, out, grid=(2,), in_specs=[spec], out_specs=spec, compiler_params=params)(x)

    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    _same(jax.vmap(call)(x), x + 1)


def test_in_scan() -> None:
    result, sums = jax.jit(lambda x: jax.lax.scan(lambda c, _: (plus_one(c), c.sum()), x, None, length=3))(X)
    _same(result, X + 3)
    _same(sums, np.array([28, 36, 44], np.float32))


@pytest.mark.parametrize("taken", [True, False])
def test_in_cond(taken: bool) -> None:
    _same(jax.jit(lambda p, x: jax.lax.cond(p, plus_one, lambda x: x, x))(taken, X), X + 1 if taken else X)


def test_in_a_while_loop() -> None:
    _same(jax.jit(lambda x: jax.lax.while_loop(lambda c: c.sum() < 60, plus_one, x))(X), X + 4)


def _differentiable(x: Any) -> Any:
    return plus_one(x)


differentiable = jax.custom_vjp(_differentiable)
differentiable.defvjp(lambda x: (plus_one(x), None), lambda _, g: (plus_one(g),))


def test_in_grad_through_custom_vjp() -> None:
    _same(jax.jit(jax.grad(lambda x: (3 * differentiable(x)).sum()))(X), np.full(8, 4, np.float32))


def test_in_checkpoint() -> None:
    gradient = jax.grad(jax.checkpoint(lambda x: differentiable(jnp.sin(x)).sum()))(X)
    np.testing.assert_allclose(gradient, 2 * np.cos(X), rtol=1e-6)


def test_in_shard_map_over_four_devices_with_a_collective() -> None:
    def body(x: Any) -> Any:
        return jax.lax.psum(plus_one(x), "i")

    sharded = jax.shard_map(body, mesh=_mesh(), in_specs=P("i"), out_specs=P(), check_vma=False)
    _same(jax.jit(sharded)(X), (X + 1).reshape(4, 2).sum(axis=0))


def test_in_pmap_over_four_devices() -> None:
    x = X.reshape(4, 2)
    _same(jax.pmap(plus_one)(x), x + 1)


def test_on_an_operand_that_is_sharded_over_four_devices() -> None:
    _same(jax.jit(plus_one)(jax.device_put(X, NamedSharding(_mesh(), P("i")))), X + 1)


def test_on_another_device_than_the_first() -> None:
    result = jax.jit(plus_one)(jax.device_put(X, jax.devices()[2]))
    _same(result, X + 1)
    assert result.devices() == {jax.devices()[2]}


def test_an_aliased_operand_is_copied_unless_it_is_donated() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[2:4] = x_ref[2:4] + 1

    def call(x: Any) -> Any:
        return plus_one(x, body, input_output_aliases={0: 0})

    x, expected = jnp.asarray(X), np.array([0, 1, 3, 4, 4, 5, 6, 7], np.float32)
    _same(jax.jit(call)(x), expected)
    _same(x, X)
    _same(jax.jit(call, donate_argnums=0)(x), expected)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 4, 5)])
def test_arrays_of_rank_zero_and_of_no_elements(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    _same(jax.jit(plus_one)(x), x + 1)


@pytest.mark.parametrize("grid", [(0,), (4, 0)])
def test_an_empty_grid_leaves_results_as_pallas_interpreter_does(grid: tuple[int, ...]) -> None:
    _same(jax.jit(lambda x: plus_one(x, grid=grid))(X), np.full(8, np.nan, np.float32))
    _same(jax.jit(lambda x: plus_one(x, grid=grid, interpret=True))(X), np.full(8, np.nan, np.float32))


_INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int4", "uint4"]
_FLOATS = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("dtype", [*_INTEGERS, *_FLOATS])
def test_every_dtype_passes_through(dtype: str) -> None:
    def copy(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    x = jnp.arange(7).astype(dtype)
    _same(jax.jit(lambda x: plus_one(x, copy))(x), x)


def test_bools_pass_through() -> None:
    _same(jax.jit(lambda x: plus_one(x, _flip))(X > 3), ~(X > 3))


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
def test_64_bit_dtypes_where_they_are_enabled(dtype: str) -> None:
    with jax.enable_x64(True):
        x = jnp.arange(7).astype(dtype)
        _same(jax.jit(plus_one)(x), x + 1)


def test_other_kernels_and_interpreted_ones_are_left_to_jax() -> None:
    out = jax.ShapeDtypeStruct((8,), jnp.float32)
    with pytest.raises(ValueError, match="Only interpret mode is supported on CPU"):
        jax.jit(pl.pallas_call(_plus_one, out))(X)
    _same(jax.jit(pl.pallas_call(_plus_one, out, interpret=True))(X), X + 1)


def test_interpret_wins_over_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_module, "compilation_of", None)
    _same(jax.jit(lambda x: plus_one(x, interpret=True))(X), X + 1)


def test_another_platform_is_refused_by_name() -> None:
    with pytest.raises(mosaic_gpu.UnsupportedError, match="do not run on platform 'rocm'"):
        jax.jit(plus_one).trace(X).lower(lowering_platforms=("rocm",))


def test_a_second_jit_of_the_same_call_does_not_compile_again(monkeypatch: pytest.MonkeyPatch) -> None:
    call = pl.pallas_call(
        _plus_one, jax.ShapeDtypeStruct((8,), jnp.float32), compiler_params=mosaic_gpu.CompilerParams()
    )
    _same(jax.jit(call)(X), X + 1)
    monkeypatch.setattr(kernel_module, "_compile", None)
    _same(jax.jit(lambda x: call(x) * 2)(X), (X + 1) * 2)


def test_after_clear_caches_and_a_changed_environment_it_compiles_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("MOSAIC_GPU_TEST_VARIABLE", "1")
        _same(jax.jit(plus_one)(X), X + 1)
    jax.clear_caches()
    _same(jax.jit(plus_one)(X), X + 1)


def test_two_threads_compile_and_run_at_once() -> None:
    results: dict[int, Any] = {}
    start = threading.Barrier(2)

    def work(number: int) -> None:
        start.wait()
        for n in range(1, 4):
            results[number * 10 + n] = np.asarray(jax.jit(plus_one)(jnp.full(number * 10 + n, number, jnp.float32)))

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [11, 12, 13, 21, 22, 23]
    for size, result in results.items():
        _same(result, np.full(size, size // 10 + 1, np.float32))


def test_a_kernel_can_print(capfd: pytest.CaptureFixture[str]) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        pl.debug_print("hello {}", pl.program_id(0))

    spec = pl.BlockSpec((4,), lambda i: (i,))
    _same(jax.jit(lambda x: plus_one(x, body, grid=(2,), in_specs=[spec], out_specs=spec))(X), X)
    assert sorted(capfd.readouterr().out.split()) == ["0", "1", "hello", "hello"]


def test_debug_prints_the_kernel_as_jax_gives_it_and_in_the_dialect(capsys: pytest.CaptureFixture[str]) -> None:
    _same(jax.jit(lambda x: plus_one(x, debug=True))(X), X + 1)
    printed = capsys.readouterr().out
    assert "The jaxpr of kernel _plus_one" in printed
    assert "mgpu.kernel" in printed


@pytest.mark.parametrize("shape", [(), (3,)])
def test_captured_numpy_scalars_work_and_captured_arrays_say_what_to_do(shape: tuple[int, ...]) -> None:
    captured = np.full(shape, 2, np.float32)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * captured

    x = np.ones(3, np.float32)
    if shape:
        with pytest.raises(ValueError, match=r"captures constants.*You should pass them as inputs"):
            plus_one(x, body)
    else:
        _same(plus_one(x, body), 2 * x)


def test_the_code_of_a_kernel_goes_with_the_kernel() -> None:
    call = pl.pallas_call(
        _plus_one, jax.ShapeDtypeStruct((5,), jnp.float32), compiler_params=mosaic_gpu.CompilerParams()
    )
    before = len(kernel_module._COMPILATIONS)
    compiled = mosaic_gpu.compile(call, np.ones(5, np.float32))
    assert len(kernel_module._COMPILATIONS) == before + 1
    del call, compiled
    jax.clear_caches()
    gc.collect()
    assert len(kernel_module._COMPILATIONS) <= before
