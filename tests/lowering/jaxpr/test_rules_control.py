"""Control flow: the loops and branches that are emitted, and that references are never carried."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mosaic_gpu
from tests.support.calls import call
from tests.support.dialect_ir import lowered, named

N = jnp.array([3, 5], jnp.int32)


def carried(loop: Any) -> list[str]:
    return [str(r.type) for r in loop.results]


def test_a_counting_loop_of_known_length_carries_no_counter() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = lax.fori_loop(0, 8, lambda i, t: t + i, x_ref[...])

    with lowered(call(body, (4,), jnp.int32), jnp.ones(4, jnp.int32)) as ops:
        (loop,) = named(ops, "scf.for")
        assert carried(loop) == ["tensor<4xi32>"]


def test_a_counting_loop_of_computed_length_is_a_for_loop() -> None:
    def body(n_ref: Any, o_ref: Any) -> None:
        def step(i: Any, total: Any) -> Any:
            o_ref[i % 4] = total
            return total + i

        o_ref[0] = lax.fori_loop(n_ref[0], n_ref[1], step, jnp.int32(1))

    with lowered(call(body, (4,), jnp.int32), N) as ops:
        (loop,) = named(ops, "scf.for")
        assert carried(loop) == ["i32"]
        assert not named(ops, "scf.while")


@pytest.mark.parametrize(
    ("go_on", "step"),
    [
        (lambda c: c[0] < 100, lambda c: (c[0] * 2, c[1] + 1)),
        (lambda c: c[0] < c[1], lambda c: (c[0] + 1, c[1] - 1)),
        (lambda c: c[0] <= 5, lambda c: (c[0] + 1, c[1])),
        (lambda c: c[0] < 5, lambda c: (c[0] + 2, c[1])),
    ],
)
def test_any_other_loop_stays_a_while_loop(go_on: Any, step: Any) -> None:
    def body(n_ref: Any, o_ref: Any) -> None:
        a, b = lax.while_loop(go_on, step, (n_ref[0], n_ref[1]))
        o_ref[0], o_ref[1] = a, b

    with lowered(call(body, (2,), jnp.int32), N) as ops:
        assert len(named(ops, "scf.while")) == 1
        assert not named(ops, "scf.for")


def test_when_is_one_branch_on_the_condition_itself() -> None:
    def body(n_ref: Any, o_ref: Any) -> None:
        @pl.when(n_ref[0] > 2)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

    with lowered(call(body, (4,)), N) as ops:
        (branch,) = named(ops, "scf.if")
        assert str(branch.operands[0].type) == "i1"
        assert branch.operands[0].owner.operation == named(ops, "arith.cmpi")[-1]


def test_a_condition_that_is_known_leaves_one_branch() -> None:
    def body(o_ref: Any) -> None:
        @pl.when(pl.program_id(0) < 3)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

    with lowered(call(body, (4,), grid=(3,), out_specs=pl.BlockSpec((4,), lambda i: (0,)))) as ops:
        assert not named(ops, "scf.if")


def test_a_switch_is_a_chain_of_branches() -> None:
    def body(n_ref: Any, o_ref: Any) -> None:
        o_ref[...] = lax.switch(n_ref[0], [lambda: 1.0, lambda: 2.0, lambda: 3.0, lambda: 4.0]) + jnp.zeros(4)

    with lowered(call(body, (4,)), N) as ops:
        assert len(named(ops, "scf.if")) == 3


def test_branches_and_loops_use_references_from_outside() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        def step(i: Any, _: None) -> None:
            @pl.when(x_ref[i] > 0)
            def _() -> None:
                o_ref[i] = x_ref[i]

        lax.fori_loop(0, 4, step, None)

    with lowered(call(body, (4,)), jnp.ones(4)) as ops:
        types = [
            str(v.type) for op in named(ops, "scf.for") + named(ops, "scf.if") for v in (*op.operands, *op.results)
        ]
        assert types
        assert not [t for t in types if "ref" in t]


def test_natural_numbers_are_divided_by_one_instruction() -> None:
    def body(o_ref: Any) -> None:
        o_ref[0] = pl.program_id(0) // 3 + pl.program_id(0) % 3

    with lowered(call(body, (1,), jnp.int32, grid=(9,), out_specs=pl.BlockSpec((1,), lambda i: (0,)))) as ops:
        assert len(named(ops, "arith.divsi")) == len(named(ops, "arith.remsi")) == 1
        assert not named(ops, "arith.select")


def test_a_callback_is_refused_with_what_to_do() -> None:
    def body(n_ref: Any, o_ref: Any) -> None:
        jax.debug.callback(print, n_ref[0])
        o_ref[...] = jnp.zeros_like(o_ref)

    with pytest.raises(mosaic_gpu.UnsupportedError, match="debug_callback") as caught:
        mosaic_gpu.compile(call(body, (4,)), N)
    assert "debug_print" in str(caught.value)
