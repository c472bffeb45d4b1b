"""Views and masks of references: what is emitted where the indices are known, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import mosaic_gpu
from tests.support.calls import call
from tests.support.dialect_ir import ints, lowered, named

X = jnp.ones((8, 6))


def kernel(read: Callable[[Any], Any], **rest: Any) -> Any:
    """A kernel that stores the sum of `read(x_ref)`."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.full_like(o_ref, read(x_ref).sum())

    return call(body, (2,), **rest)


@pytest.mark.parametrize(
    ("read", "sizes", "strides", "dropped"),
    [
        (lambda r: r[1:7:2], [3, 6], [2, 1], []),
        (lambda r: r[-1], [1, 6], [1, 1], [0]),
        (lambda r: r[2, 3:5], [1, 2], [1, 1], [0]),
        (lambda r: r[pl.ds(pl.program_id(0), 3), 0], [3, 1], [1, 1], [1]),
    ],
)
def test_boxes_become_views(read: Any, sizes: list[int], strides: list[int], dropped: list[int]) -> None:
    with lowered(kernel(read, grid=(2,), out_specs=pl.BlockSpec((2,), lambda i: (0,))), X) as ops:
        view = named(ops, "mgpu.subview")[0]
        assert (ints(view, "sizes"), ints(view, "strides"), ints(view, "dropped")) == (sizes, strides, dropped)
        assert ints(view, "checked") == [0, 0]
        assert not named(ops, "mgpu.gather")


def test_the_whole_reference_needs_no_view() -> None:
    with lowered(kernel(lambda r: r[:, 0:6]), X) as ops:
        assert not named(ops, "mgpu.subview")


def test_a_start_that_is_known_to_fit_is_not_clamped() -> None:
    def read(ref: Any) -> Any:
        return lax.fori_loop(0, 4, lambda i, t: t + ref[pl.ds(2 * i, 2), :].sum(), 0.0)

    with lowered(kernel(read), X) as ops:
        assert not named(ops, "arith.maxsi")
        assert not named(ops, "arith.minsi")


def test_an_unknown_start_is_wrapped_and_clamped() -> None:
    with lowered(kernel(lambda r: r[pl.ds(r[0, 0], 3)]), X.astype(jnp.int32)) as ops:
        assert len(named(ops, "arith.select")) == len(named(ops, "arith.maxsi")) == len(named(ops, "arith.minsi")) == 1


def test_index_arrays_become_gathers_without_tests_where_they_are_known_to_be_in_range() -> None:
    with lowered(kernel(lambda r: r[lax.iota(jnp.int32, 4) * 2, 1]), X) as ops:
        assert len(named(ops, "mgpu.gather")) == 1
        assert not named(ops, "arith.cmpi")


def test_a_swap_whose_result_nobody_reads_loads_nothing() -> None:
    def body(o_ref: Any) -> None:
        o_ref[1:5] = jnp.zeros(4)

    with lowered(call(body, (8,))) as ops:
        assert not named(ops, "mgpu.load")
        assert len(named(ops, "mgpu.store")) == 1


def test_a_masked_load_of_places_that_may_be_outside_is_checked() -> None:
    def read(ref: Any) -> Any:
        mask = jnp.ones((4, 6), bool)
        return plgpu.load(ref.at[pl.ds(6 + pl.program_id(0), 4)], mask=mask, other=0)

    with lowered(kernel(read, grid=(2,), out_specs=pl.BlockSpec((2,), lambda i: (0,))), X) as ops:
        assert ints(named(ops, "mgpu.subview")[0], "checked") == [1, 0]
        load = named(ops, "mgpu.load")[0]
        assert [str(v.type) for v in load.operands][1:] == ["tensor<4x6xi1>", "f32"]


def test_transposed_and_reshaped_references_are_read_as_they_lie() -> None:
    with lowered(kernel(lambda r: r.T[...]), X) as ops:
        assert len(named(ops, "mgpu.transpose")) == 1
        assert not named(ops, "mgpu.gather")


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda r: r.at[lax.iota(jnp.int32, 3)].at[1][...], "index array"),
        (lambda r: r.bitcast(jnp.int16).at[3][...], "bitcast"),
        (lambda r: r[r[:, 0] > 0], "[Bb]ool"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(read: Any, message: str) -> None:
    with (
        pytest.raises((mosaic_gpu.UnsupportedError, IndexError, TypeError, ValueError), match=message),
        lowered(kernel(read), X),
    ):
        pass


def test_writing_to_an_input_is_an_error() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        x_ref[0] = jnp.zeros(6)
        o_ref[...] = jnp.zeros(2)

    with pytest.raises(mosaic_gpu.KernelError, match="input"):
        mosaic_gpu.compile(call(body, (2,)), X)


def test_a_captured_array_is_refused_with_what_to_do() -> None:
    table = jnp.arange(6.0)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[0, :] + table

    with pytest.raises(ValueError, match="pass them as inputs"):
        jax.jit(call(body, (6,)))(X)
