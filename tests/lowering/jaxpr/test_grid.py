"""Which dimensions run in parallel: only those whose steps certainly write different blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu
from mosaic_gpu.lowering.jaxpr import grid
from mosaic_gpu.lowering.jaxpr.grid import GridPlan, plan_grid
from tests.support.calls import call
from tests.support.dialect_ir import kernel_call_of

BIG = 2**17


def plan(index_map: Callable[..., Any], grid: tuple[int, ...], block: Any = (1, 1), **rest: Any) -> GridPlan:
    """The plan for a kernel whose output has this index map."""

    def body(*refs: Any) -> None:
        refs[0][...] = jnp.zeros_like(refs[0])

    shape = tuple(getattr(b, "block_size", b) or 1 for b in block)
    kernel = call(body, tuple(n * 4 for n in shape), grid=grid, out_specs=pl.BlockSpec(block, index_map), **rest)
    return plan_grid(kernel_call_of(kernel))


@pytest.mark.parametrize(
    ("index_map", "grid", "sequential"),
    [
        (lambda i, j: (i, j), (3, 4), ()),
        (lambda i, j: (j, i), (3, 4), ()),
        (lambda i, j: (i, 0), (3, 4), (1,)),
        (lambda i, j: (0, 0), (3, 4), (0, 1)),
        (lambda i, j: (0, 0), (3, 1), (0,)),
        (lambda i, j: (i + j, 0), (3, 4), (0, 1)),
        (lambda i, j: (i + j, j), (3, 4), ()),
        (lambda i, j: (4 * i + j, 0), (3, 4), ()),
        (lambda i, j: (3 * i + j, 0), (3, 4), (0, 1)),
        (lambda i, j: (7 - 2 * i, j), (3, 4), ()),
        (lambda i, j: (4 * i + j, 0), (BIG, 4), ()),
        (lambda i, j: (3 * i + j, 0), (BIG, 4), (0, 1)),
        (lambda i, j: (i - j, 0), (BIG, 4), (0, 1)),
        (lambda i, j: (i // 2, i % 2), (6, 1), ()),
        (lambda i, j: (i // 2, 0), (6, 1), (0,)),
        (lambda i, j: (jax.lax.select(i < 3, i, 5 - i), j), (6, 2), (0,)),
        (lambda i, j: (i * i, j), (6, 2), ()),
    ],
)
def test_a_dimension_is_parallel_where_the_block_tells_its_steps_apart(
    index_map: Callable[..., Any], grid: tuple[int, ...], sequential: tuple[int, ...]
) -> None:
    parallel = tuple(d for d in range(2) if d not in sequential)
    assert plan(index_map, grid) == GridPlan(grid, parallel, sequential)


def test_element_blocks_must_not_overlap() -> None:
    assert plan(lambda i: (4 * i,), (3,), (pl.Element(4),)).sequential == ()
    assert plan(lambda i: (3 * i,), (3,), (pl.Element(4),)).sequential == (0,)


def test_scratch_memory_makes_the_grid_sequential() -> None:
    scratch = [plgpu.SMEM((4,), jnp.float32)]
    assert plan(lambda i: (i,), (3,), (1,), scratch_shapes=scratch).sequential == (0,)


def test_a_dimension_that_no_index_has_is_told_without_looking_at_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "evaluate", lambda *_: pytest.fail("the steps of a plain grid are looked at"))
    assert plan(lambda i, j, k: (i, j), (32, 16, 64)).sequential == (2,)


def test_what_the_user_says_counts() -> None:
    scratch = [plgpu.SMEM((4,), jnp.float32)]
    said = plan(lambda i, j: (i, j), (3, 4), semantics=("sequential", "parallel"), scratch_shapes=scratch)
    assert (said.parallel, said.sequential) == ((1,), (0,))


def test_an_empty_dimension_leaves_no_loops() -> None:
    assert plan(lambda i, j: (0, 0), (3, 0)) == GridPlan((3, 0), (0, 1), ())


@pytest.mark.parametrize(
    ("in_map", "sequential"), [(lambda i: (i,), ()), (lambda i: (0,), (0,)), (lambda i: (i + 1,), (0,))]
)
def test_an_aliased_input_must_have_the_outputs_blocks(in_map: Callable[..., Any], sequential: tuple[int, ...]) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    specs = {"in_specs": [pl.BlockSpec((2,), in_map)], "out_specs": pl.BlockSpec((2,), lambda i: (i,))}
    kernel = call(body, (8,), grid=(4,), input_output_aliases={0: 0}, **specs)
    assert plan_grid(kernel_call_of(kernel, jnp.ones(8))).sequential == sequential


def test_vmapped_dimensions_are_parallel_also_with_scratch() -> None:
    def body(x_ref: Any, o_ref: Any, s_ref: Any) -> None:
        s_ref[...] = x_ref[...]
        o_ref[...] = s_ref[...]

    spec = pl.BlockSpec((2,), lambda i: (i,))
    scratch = [plgpu.SMEM((2,), jnp.float32)]
    kernel = call(body, (8,), grid=(4,), in_specs=[spec], out_specs=spec, scratch_shapes=scratch)
    found = plan_grid(kernel_call_of(jax.vmap(kernel), jnp.ones((3, 8))))
    assert found == GridPlan((3, 4), (0,), (1,), separated=(1,))


def test_an_unknown_word_is_an_error() -> None:
    with pytest.raises(mosaic_gpu.KernelError, match="dimension_semantics"):
        plan(lambda i: (i,), (3,), (1,), semantics=("sideways",))
