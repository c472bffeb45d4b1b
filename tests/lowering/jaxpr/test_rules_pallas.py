"""Pallas' own primitives, and the formats of prints."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu.dialect._mlir import ir
from tests.support.calls import call
from tests.support.dialect_ir import lowered, named

N = jnp.array([3, 5], jnp.int32)


def print_of(show: Any) -> tuple[str, list[str], list[str]]:
    """Format, kinds, and types of the values of the one print of a kernel that calls `show(n_ref)`."""

    def body(n_ref: Any, o_ref: Any) -> None:
        o_ref[...] = n_ref[...]
        show(n_ref)

    with lowered(call(body, (2,), jnp.int32), N) as ops:
        (op,) = named(ops, "mgpu.debug_print")
        kinds = [ir.StringAttr(k).value for k in op.attributes["kinds"]]
        return ir.StringAttr(op.attributes["format"]).value, kinds, [str(v.type) for v in op.operands]


def test_scalars_are_passed_in_64_bits_with_their_kinds() -> None:
    def show(n_ref: Any) -> None:
        n = n_ref[0]
        pl.debug_print("{} {} {} {}", n, n.astype(jnp.uint8), n > 0, n.astype(jnp.bfloat16))

    assert print_of(show) == ("{} {} {} {}", ["int", "uint", "bool", "float"], ["i64"] * 4)


def test_one_tile_is_passed_as_it_is() -> None:
    assert print_of(lambda r: pl.debug_print("n: {}", r[...])) == ("n: {}", ["int"], ["tensor<2xi32>"])


def test_names_numbers_and_constants_are_put_in_their_places() -> None:
    found = print_of(lambda r: jax.debug.print("{b}-{0}-{a} {{}}", r[0], a=7, b=r[1]))
    assert found == ("{}-{}-{} {{}}", ["int"] * 3, ["i64"] * 3)


def test_values_follow_a_text_without_placeholders() -> None:
    assert print_of(lambda r: pl.debug_print("n is", r[0]))[0] == "n is {}"


def test_a_text_without_placeholders_is_printed_as_it_is() -> None:
    assert print_of(lambda r: pl.debug_print("a {{ b"))[0] == "a {{{{ b"


def test_a_format_that_is_wrong_is_the_kernels_error() -> None:
    with pytest.raises(mosaic_gpu.KernelError, match="format"):
        print_of(lambda r: pl.debug_print("{} {", r[0]))


@pytest.mark.parametrize(
    ("show", "message"),
    [
        (lambda r: pl.debug_print("{} {}", r[...], r[0]), "several values"),
        (lambda r: pl.debug_print("{:3d}", r[0]), ":3d"),
        (lambda r: pl.debug_print("{} {}", r[0]), "no argument"),
    ],
)
def test_prints_that_are_not_supported_are_refused_by_name(show: Any, message: str) -> None:
    with pytest.raises(mosaic_gpu.UnsupportedError, match=message):
        print_of(show)


def test_hints_are_the_value_itself() -> None:
    def body(n_ref: Any, o_ref: Any) -> None:
        o_ref[...] = pl.multiple_of(n_ref[...], 8)

    with lowered(call(body, (2,), jnp.int32), N) as ops:
        assert named(ops, "mgpu.store")[0].operands[0] == named(ops, "mgpu.load")[0].results[0]


def test_num_programs_of_a_static_grid_is_a_constant() -> None:
    def body(o_ref: Any) -> None:
        o_ref[0] = pl.num_programs(1)

    spec = pl.BlockSpec((1,), lambda i, j: (0,))
    with lowered(call(body, (1,), jnp.int32, grid=(2, 7), out_specs=spec)) as ops:
        value = named(ops, "mgpu.store")[0].operands[0].owner.operation
        assert ir.IntegerAttr(value.attributes["value"]).value == 7


def test_run_scoped_allocates_shared_memory() -> None:
    from jax.experimental.pallas import mosaic_gpu as plgpu

    def body(n_ref: Any, o_ref: Any) -> None:
        def scoped(a_ref: Any, b_ref: Any) -> None:
            a_ref[...] = n_ref[...]
            b_ref[...] = a_ref[0] > 1
            o_ref[...] = a_ref[...]

        pl.run_scoped(scoped, plgpu.SMEM((2,), jnp.int32), plgpu.SMEM((), jnp.bool_))

    with lowered(call(body, (2,), jnp.int32), N) as ops:
        assert [str(op.results[0].type) for op in named(ops, "mgpu.alloc")] == [
            '!mgpu.ref<tensor<2xi32>, "smem">',
            '!mgpu.ref<tensor<i1>, "smem">',
        ]


def test_reciprocal_divides() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = pl.reciprocal(x_ref[...], approx=True)

    with lowered(call(body, (4,)), jnp.ones(4)) as ops:
        assert len(named(ops, "arith.divf")) == 1
