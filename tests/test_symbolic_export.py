"""`jax.export` with symbolic dimensions: one compiled kernel for all sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu.launcher import CUSTOM_CALL_TARGET
from tests.support.calls import call, random


def symbolic(shape: str, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    """An array of these sizes, for instance "b, 128"."""
    return jax.ShapeDtypeStruct(export.symbolic_shape(shape), dtype)


def twice(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * 2


def by_rows(x: Any, rows: int = 8, **rest: Any) -> Any:
    """2 x, in blocks of some rows."""
    spec = pl.BlockSpec((rows, *x.shape[1:]), lambda i: (i, *[0] * (x.ndim - 1)))
    return call(twice, x.shape, x.dtype, grid=(pl.cdiv(x.shape[0], rows),), in_specs=[spec], out_specs=spec, **rest)(x)


@pytest.mark.parametrize("rest", ["", ", 128", ", 5, 3"])
def test_one_compilation_serves_all_sizes(rest: str) -> None:
    compiled = mosaic_gpu.compile(by_rows, symbolic(f"b{rest}"))
    assert compiled.launch_facts.grid == (-1, 1, 1)
    for n in (0, 1, 7, 8, 13, 64, 3000):
        x = random(n, *(int(size) for size in rest.split(",") if size.strip()))
        np.testing.assert_array_equal(compiled(x), 2 * x)


def test_rows_beyond_the_end_are_zero_and_not_written() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.broadcast_to(x_ref[...].sum(axis=0, keepdims=True), o_ref.shape)

    def summed(n: Any, x: Any) -> Any:
        spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
        return call(body, x.shape, grid=(n,), in_specs=[spec], out_specs=spec)(x)

    compiled = mosaic_gpu.compile(summed, 1, symbolic("b, 128"))
    x = random(13, 128)
    expected = np.repeat([x[:8].sum(axis=0), x[8:].sum(axis=0)], [8, 5], axis=0)
    for blocks in (2, 100):  # blocks that lie outside altogether do nothing
        np.testing.assert_allclose(compiled(blocks, x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("b", "s"), [(1, 1), (3, 5), (2, 16), (4, 17), (0, 3), (3, 0)])
def test_two_symbolic_sizes(b: int, s: int) -> None:
    def rows(x: Any) -> Any:
        spec = pl.BlockSpec((None, 8, 16), lambda i, j: (i, j, 0))
        grid = (x.shape[0], pl.cdiv(x.shape[1], 8))
        return call(twice, x.shape, grid=grid, in_specs=[spec], out_specs=spec)(x)

    compiled = mosaic_gpu.compile(rows, symbolic("b, s, 16"))
    x = random(b, s, 16)
    np.testing.assert_array_equal(compiled(x), 2 * x)


def test_blocks_outside_of_a_row_of_rows_do_not_reach_the_next_one() -> None:
    def body(index_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    def gathered(index: Any, x: Any) -> Any:
        spec = mosaic_gpu.PrefetchScalarGridSpec(
            1,
            grid=(5,),
            in_specs=[pl.BlockSpec((1, 4, 16), lambda i, index: (index[i, 0], index[i, 1], 0))],
            out_specs=pl.BlockSpec((1, 4, 16), lambda i, index: (i, 0, 0)),
        )
        return call(body, (5, 4, 16), grid_spec=spec)(index, x)

    index = np.array([[1, 1], [0, 2], [-1, 0], [0, -1], [3, 0]], np.int32)
    compiled = mosaic_gpu.compile(gathered, index, symbolic("b, s, 16"))
    x = random(3, 6, 16)
    expected = np.zeros((5, 4, 16), np.float32)
    expected[0, :2] = x[1, 4:]
    np.testing.assert_array_equal(compiled(index, x), expected)


def test_a_sum_over_a_symbolic_size() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...].sum(axis=0, keepdims=True)

    def total(x: Any) -> Any:
        specs = [pl.BlockSpec((8, 64), lambda i: (i, 0))]
        out = pl.BlockSpec((1, 64), lambda i: (0, 0))
        return call(body, (1, 64), grid=(pl.cdiv(x.shape[0], 8),), in_specs=specs, out_specs=out)(x)

    compiled = mosaic_gpu.compile(total, symbolic("b, 64"))
    for n in (1, 20, 64):
        x = random(n, 64)
        np.testing.assert_allclose(compiled(x), x.sum(axis=0, keepdims=True), rtol=1e-5, atol=1e-5)


def test_an_array_of_another_type_is_named_by_the_number_that_its_caller_knows() -> None:
    compiled = mosaic_gpu.compile(by_rows, symbolic("b, 128"))
    with pytest.raises(mosaic_gpu.KernelError, match=r"array 0 does not fit .*\n  got: int32\[5, 128\]"):
        compiled.simulate(np.ones((5, 128), np.int32))


def test_sizes_that_are_expressions() -> None:
    def doubled(x: Any, y: Any) -> Any:
        def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] + y_ref[...]

        spec = pl.BlockSpec((4, 32), lambda i: (i, 0))
        half = pl.BlockSpec((4, 32), lambda i: (i // 2, 0))
        grid = (pl.cdiv(y.shape[0], 4),)
        return call(body, y.shape, grid=grid, in_specs=[half, spec], out_specs=spec)(x, y)

    b = export.symbolic_shape("b")[0]
    shapes = [jax.ShapeDtypeStruct((n, 32), jnp.float32) for n in (b, 2 * b)]
    compiled = mosaic_gpu.compile(doubled, *shapes)
    x, y = random(8, 32), random(16, 32)
    expected = y + np.repeat(x.reshape(2, 4, 32), 2, axis=0).reshape(16, 32)
    np.testing.assert_array_equal(compiled(x, y), expected)
    message = r"disagree\n  got: operand 1 of shape \[15, 32\]\n  expected: \[2\*b, 32\] where b = 8"
    with pytest.raises(mosaic_gpu.KernelError, match=message):
        compiled(x, y[:15])


@pytest.mark.parametrize(
    "function", [by_rows, jax.vmap(call(twice, (128,))), lambda x: by_rows(x, input_output_aliases={0: 0})]
)
def test_the_exported_module_serves_all_sizes(function: Callable[..., Any]) -> None:
    exported = export.export(jax.jit(function), platforms=["cuda"])(symbolic("b, 128"))
    again = export.deserialize(exported.serialize())
    assert _custom_call(again.mlir_module()).count("tensor<?x128xf32>") == 2
    for n in (1, 20):
        lowered = jax.jit(again.call).trace(random(n, 128)).lower(lowering_platforms=("cuda",))
        line = _custom_call(str(_refined(lowered)))
        assert line.count(f"tensor<{n}x128xf32>") == 2
        assert "?" not in line.split("operand_layouts")[1]


def _custom_call(module: str) -> str:
    (line,) = (line for line in module.splitlines() if f"custom_call @{CUSTOM_CALL_TARGET}" in line)
    return re.sub(r'cubin = "[^"]*"', "", line)


def _refined(lowered: Any) -> Any:
    """What JAX makes of the module before XLA compiles it."""
    from jax._src.interpreters import mlir

    return mlir.refine_polymorphic_shapes(lowered.compiler_ir())


def test_symbolic_sizes_where_a_kernel_needs_static_ones_are_refused_by_name() -> None:
    def columns(x: Any) -> Any:
        spec = pl.BlockSpec((8, 128), lambda j: (0, j))
        return call(twice, x.shape, grid=(pl.cdiv(x.shape[1], 128),), in_specs=[spec], out_specs=spec)(x)

    with pytest.raises(mosaic_gpu.UnsupportedError, match=r"args\[0\] has a symbolic size in dimension 1"):
        mosaic_gpu.compile(columns, symbolic("8, s"))

    def table(index: Any, x: Any) -> Any:
        def body(index_ref: Any, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        spec = pl.BlockSpec((8, 16), lambda i, index: (index[i], 0))
        grid_spec = mosaic_gpu.PrefetchScalarGridSpec(1, grid=(4,), in_specs=[spec], out_specs=spec)
        return call(body, (32, 16), grid_spec=grid_spec)(index, x)

    with pytest.raises(mosaic_gpu.UnsupportedError, match="scalar operand 0 has a symbolic size in dimension 0"):
        mosaic_gpu.compile(table, symbolic("b", jnp.int32), random(32, 16))

    def elements(x: Any) -> Any:
        spec = pl.BlockSpec((pl.Element(8), pl.Element(16)), lambda i: (8 * i, 0))
        return call(twice, x.shape, grid=(4,), in_specs=[spec], out_specs=spec)(x)

    with pytest.raises(mosaic_gpu.UnsupportedError, match=r"symbolic size, and a pl.Element block in dimension 0"):
        mosaic_gpu.compile(elements, symbolic("b, 16"))
