"""What kernels print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu


def printed(body: Callable[..., None], *arrays: Any, **rest: Any) -> Any:
    """What the simulator prints for a kernel with one result of one int32."""
    out = jax.ShapeDtypeStruct((1,), jnp.int32)
    kernel = pl.pallas_call(body, out, compiler_params=mosaic_gpu.CompilerParams(), **rest)
    _, stats = mosaic_gpu.compile(kernel, *arrays).simulate(*arrays)
    return stats.printed


def test_scalars_of_every_kind_are_printed_once_a_block() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = 0
        pl.debug_print("n = {}, f = {}, b = {}", x_ref[0], x_ref[1].astype(jnp.float32) / 2, x_ref[1] > 3)

    text = "".join(printed(body, np.array([-5, 3], np.int32)))
    assert "n = -5, f = 1.5" in text
    assert text.count("n =") == 1


def test_every_block_of_a_grid_prints() -> None:
    def body(o_ref: Any) -> None:
        o_ref[0] = 0
        pl.debug_print("block {}", pl.program_id(0))

    text = "".join(printed(body, grid=(4,), out_specs=pl.BlockSpec((1,), lambda i: (0,))))
    assert sorted(line for line in text.splitlines() if line) == [f"block {i}" for i in range(4)]


def test_text_and_constants_are_printed() -> None:
    def body(o_ref: Any) -> None:
        o_ref[0] = 0
        jax.debug.print("{{x}} is {x}, 100%", x=3)

    assert "{x} is 3, 100%" in "".join(printed(body))


def test_an_array_is_printed_whole() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = 0
        pl.debug_print("x: {}", x_ref[...])

    text = "".join(printed(body, np.array([11, -22, 33], np.int32)))
    assert all(number in text for number in ("11", "-22", "33"))


def test_a_format_specification_is_refused_by_name() -> None:
    def body(o_ref: Any) -> None:
        o_ref[0] = 0
        jax.debug.print("{:.2f}", pl.program_id(0) * 1.0)

    with pytest.raises(mosaic_gpu.UnsupportedError, match=r":\.2f"):
        printed(body, grid=(1,), out_specs=pl.BlockSpec((1,), lambda i: (0,)))
