"""Index maps outside of kernels, against Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu.lowering.jaxpr.index_maps import affine_forms, evaluate

I32 = jax.ShapeDtypeStruct((), jnp.int32)
MAPS: list[Callable[[Any, Any], Any]] = [
    lambda i, j: i + 2 * j,
    lambda i, j: i // 3 - j % 2,
    lambda i, j: (i - 4) // 3,
    lambda i, j: (i - 4) % 3,
    lambda i, j: lax.div(i - 4, 3) + lax.rem(i - 4, 3),
    lambda i, j: jnp.where((i > j) & (i != 5), i, -j),
    lambda i, j: jnp.clip(i * j, 2, 9),
    lambda i, j: jnp.minimum(i, 3) + jnp.maximum(j, 1),
    lambda i, j: (i << 2) + (j >> 1) + (i ^ j),
    lambda i, j: abs(i - j) + jnp.sign(i - j),
]


@pytest.mark.parametrize("number", range(len(MAPS)))
def test_a_map_is_evaluated_at_every_point_as_jax_does(number: int) -> None:
    index_map = MAPS[number]
    i, j = (a.reshape(-1) for a in np.indices((9, 7), dtype=np.int32))
    found = evaluate(jax.make_jaxpr(index_map)(I32, I32), [i.astype(np.int64), j.astype(np.int64)])
    assert found is not None
    np.testing.assert_array_equal(found[0], jax.vmap(index_map)(i, j))


def test_references_to_index_operands_do_no_harm_to_what_does_not_use_them() -> None:
    def traced(index_map: Callable[..., Any]) -> Any:
        """The index map as Pallas traces it, with a table behind the program ids."""
        block = pl.BlockSpec((1, 1), index_map)
        spec = mosaic_gpu.PrefetchScalarGridSpec(1, grid=(9, 7), in_specs=[block], out_specs=block)
        out = jax.ShapeDtypeStruct((99, 99), jnp.float32)
        kernel = pl.pallas_call(lambda *refs: None, out, grid_spec=spec, compiler_params=mosaic_gpu.CompilerParams())
        (call,) = mosaic_gpu.trace_calls(kernel, np.zeros(9, np.int32), np.zeros((99, 99), np.float32))
        return call.grid_mapping.block_mappings[0].index_map_jaxpr

    gathering = traced(lambda i, j, table: (2 * i + j, table[i]))
    assert affine_forms(gathering, 2) == [(2, 1), None]
    points = [a.reshape(-1) for a in np.indices((9, 7))]
    assert evaluate(gathering, points) is None
    found = evaluate(traced(lambda i, j, table: (2 * i + j, i)), points)
    assert found is not None
    np.testing.assert_array_equal(found[0], 2 * points[0] + points[1])


def test_what_is_no_integer_arithmetic_is_not_evaluated() -> None:
    jaxpr = jax.make_jaxpr(lambda i: jnp.sqrt(i.astype(jnp.float32)).astype(jnp.int32))(I32)
    assert evaluate(jaxpr, [np.arange(3)]) is None


@pytest.mark.parametrize(
    ("index_map", "expected"),
    [
        (lambda i, j: (3 * i - j + 2, 0), [(3, -1), (0, 0)]),
        (lambda i, j: (2 * (i + jax.jit(lambda k: 4 * k)(j)), -i), [(2, 8), (-1, 0)]),
        (lambda i, j: (i * j, i // 2, j), [None, None, (0, 1)]),
        (lambda i, j: (i.astype(jnp.int16).astype(jnp.int32) * jnp.int32(5), 7), [(5, 0), (0, 0)]),
    ],
)
def test_affine_forms_are_the_coefficients_of_the_ids(index_map: Any, expected: Any) -> None:
    assert affine_forms(jax.make_jaxpr(index_map)(I32, I32), 2) == expected
