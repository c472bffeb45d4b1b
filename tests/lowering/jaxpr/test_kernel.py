"""The kernel around the body: arguments, aliases, grid, lines of the source, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu
from mosaic_gpu.dialect._mlir import ir
from tests.support.calls import call
from tests.support.dialect_ir import ints, lowered, named

X = jnp.ones((8, 6))
ROWS = pl.BlockSpec((2, 6), lambda i: (i, 0))


def double(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = 2 * x_ref[...]


def test_arguments_are_whole_arrays_inputs_first() -> None:
    with lowered(call(double, (8, 6), grid=(4,), in_specs=[ROWS], out_specs=ROWS), X) as ops:
        (kernel,) = named(ops, "mgpu.kernel")
        assert [str(a.type) for a in kernel.regions[0].blocks[0].arguments] == [
            '!mgpu.ref<tensor<8x6xf32>, "gmem">'
        ] * 2
        assert ir.IntegerAttr(kernel.attributes["num_inputs"]).value == 1
        assert ints(kernel, "aliases") == [0, 1]
        assert ints(kernel, "grid") == [4]
        assert ir.StringAttr(kernel.attributes["sym_name"]).value == "double"


def test_an_aliased_output_is_its_inputs_memory() -> None:
    def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + y_ref[...]

    with lowered(call(body, (8, 6), input_output_aliases={1: 0}), X, X) as ops:
        assert ints(named(ops, "mgpu.kernel")[0], "aliases") == [0, 1, 1]


def test_sequential_dimensions_are_loops_in_order_and_parallel_ones_the_grid() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + pl.program_id(1)

    spec = pl.BlockSpec((1, 6), lambda i, j, k: (j, 0))
    with lowered(call(body, (8, 6), grid=(3, 8, 5), in_specs=[spec], out_specs=spec), X) as ops:
        assert ints(named(ops, "mgpu.kernel")[0], "grid") == [8]
        outer, inner = named(ops, "scf.for")
        assert inner.parent == outer
        bounds = [loop.operands[1].owner.operation.attributes["value"] for loop in (outer, inner)]
        assert [ir.IntegerAttr(b).value for b in bounds] == [3, 5]
        assert len(named(ops, "mgpu.program_id")) == 1


def test_every_operation_of_the_body_carries_the_users_line() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        value = x_ref[...]
        o_ref[...] = value * 3 + 1

    first = body.__code__.co_firstlineno
    with lowered(call(body, (8, 6)), X) as ops:
        load, store = named(ops, "mgpu.load")[0], named(ops, "mgpu.store")[0]
        assert f'"{__file__}":{first + 1}:' in str(load.location)
        assert f'"{__file__}":{first + 2}:' in str(store.location)
        assert f'"{__file__}":{first + 2}:' in str(named(ops, "arith.mulf")[0].location)
        assert not [op for op in ops if "unknown" in str(op.location) and op.name != "builtin.module"]


def test_a_jax_function_called_in_the_kernel_counts_as_the_line_that_calls_it() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jax.nn.relu(x_ref[...])

    with lowered(call(body, (8, 6)), X) as ops:
        lines = {str(op.location) for op in named(ops, "arith.maximumf") + named(ops, "arith.maxnumf")}
        assert lines
        assert all(f'"{__file__}":{body.__code__.co_firstlineno + 1}:' in line for line in lines)


def test_primitives_without_a_rule_are_refused_together_at_the_first_ones_line() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        value = x_ref[...] + 1

        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            o_ref[...] = lax.linalg.cholesky(value @ value)
            o_ref[...] = jnp.linalg.eigh(value)[1]

    kernel = call(body, (6, 6), grid=(1,), out_specs=pl.BlockSpec((6, 6), lambda i: (0, 0)))
    with pytest.raises(mosaic_gpu.UnsupportedError, match=r"'\w+' is not supported inside a kernel") as caught:
        mosaic_gpu.compile(kernel, jnp.ones((6, 6)))
    assert "cholesky" in str(caught.value)
    assert "eigh" in str(caught.value)
    assert caught.value.source is not None
    assert caught.value.source.line == body.__code__.co_firstlineno + 5


def test_an_error_in_a_nested_function_names_its_own_line() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        def step(i: Any, carry: Any) -> Any:
            return carry + x_ref[pl.ds(i, 9), :].sum()

        o_ref[...] = jnp.full_like(o_ref, lax.fori_loop(0, 3, step, 0.0))

    with (
        pytest.raises(mosaic_gpu.KernelError, match="longer than its dimension") as caught,
        lowered(call(body, (8, 6)), X),
    ):
        pass
    assert caught.value.source is not None
    assert caught.value.source.line == body.__code__.co_firstlineno + 2


@pytest.mark.parametrize(
    "memory",
    [plgpu.Barrier(), plgpu.SemaphoreType.REGULAR, plgpu.GMEM((8,), jnp.int32)],
)
def test_scratch_that_is_no_plain_memory_is_refused_by_name(memory: Any) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + pl.run_scoped(lambda ref: jnp.float32(0), memory)

    with (
        pytest.raises(mosaic_gpu.UnsupportedError, match=r"scratch memory|dtype") as caught,
        lowered(call(body, (8, 6)), X),
    ):
        pass
    assert caught.value.source is not None
    assert caught.value.source.line == body.__code__.co_firstlineno + 1
