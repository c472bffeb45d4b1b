"""Views of blocks: bounds are checked where, and only where, a block can leave its array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu
from tests.support.calls import call
from tests.support.dialect_ir import ints, lowered, named


def body(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = jnp.zeros_like(o_ref) + x_ref[(0,) * len(x_ref.shape)]


def input_view(shape: tuple[int, ...], block: Any, index_map: Callable[..., Any], grid: tuple[int, ...]) -> Any:
    """Sizes, dropped and checked of the first subview of the input; None where it is used whole."""
    kernel = call(body, (len(grid) + 1,), grid=grid, in_specs=[pl.BlockSpec(block, index_map)])
    with lowered(kernel, jnp.ones(shape)) as ops:
        (whole, *_) = named(ops, "mgpu.kernel")
        argument = whole.regions[0].blocks[0].arguments[0]
        views = [op for op in named(ops, "mgpu.subview") if op.operands[0] == argument]
        # The body itself reads element (0, ..): a view with everything dropped.
        views = [v for v in views if len(ints(v, "dropped")) < len(ints(v, "sizes"))]
        return (ints(views[0], "sizes"), ints(views[0], "dropped"), ints(views[0], "checked")) if views else None


@pytest.mark.parametrize(
    ("shape", "block", "index_map", "grid", "expected"),
    [
        ((8, 6), (4, 6), lambda i: (i, 0), (2,), ([4, 6], [], [0, 0])),
        ((9, 6), (4, 6), lambda i: (i, 0), (3,), ([4, 6], [], [1, 0])),
        ((8, 6), (4, 6), lambda i: (i, 0), (3,), ([4, 6], [], [1, 0])),
        ((8, 6), (4, 6), lambda i: (i - 1, 0), (2,), ([4, 6], [], [1, 0])),
        ((8, 6), (4, 6), lambda i: (i // 2, 0), (4,), ([4, 6], [], [0, 0])),
        ((8, 6), (4, 3), lambda i: (i // 2, i % 2), (4,), ([4, 3], [], [0, 0])),
        ((8, 6), (4, 3), lambda i: (lax.rem(i, 2), 1), (4,), ([4, 3], [], [0, 0])),
        ((8, 6), (None, 6), lambda i: (i, 0), (8,), ([1, 6], [0], [0, 0])),
        ((8, 6), (pl.Element(4), 6), lambda i: (2 * i, 0), (3,), ([4, 6], [], [0, 0])),
        ((8, 6), (pl.Element(4), 6), lambda i: (2 * i, 0), (4,), ([4, 6], [], [1, 0])),
        ((8, 6), (pl.Element(4, (1, 0)), 6), lambda i: (2 * i, 0), (2,), ([4, 6], [], [1, 0])),
        ((8, 6), (8, 6), lambda i: (0, 0), (2,), None),
        ((8, 6), (16, 6), lambda i: (0, 0), (2,), ([16, 6], [], [1, 0])),
    ],
)
def test_a_block_is_checked_where_it_can_leave_its_array(
    shape: Any, block: Any, index_map: Callable[..., Any], grid: Any, expected: Any
) -> None:
    assert input_view(shape, block, index_map, grid) == expected


def test_a_bounded_slice_is_refused() -> None:
    with pytest.raises(mosaic_gpu.UnsupportedError, match="BoundedSlice"):
        input_view((16,), (pl.BoundedSlice(4),), lambda i: (pl.ds(i * 4, 3),), (4,))


def test_transforms_of_memory_are_refused() -> None:
    transforms = (plgpu.TilingTransform((8, 64)),)
    spec = plgpu.BlockSpec((8, 64), lambda i: (i, 0), transforms=transforms)
    with (
        pytest.raises(mosaic_gpu.UnsupportedError, match="transforms"),
        lowered(call(body, (2,), grid=(2,), in_specs=[spec]), jnp.ones((16, 64), jnp.float16)),
    ):
        pass
