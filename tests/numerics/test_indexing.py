"""Reading and writing parts of references: every kind of index, in range and out of it.

Out of range: a negative index counts from the end, once; then reads clamp (a slice so that it fits), and
writes through index arrays are dropped, as the interpreter of JAX does.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as mosaic
from jax.experimental.pallas import triton as plgpu

import mosaic_gpu
from tests.support.backends import Run
from tests.support.calls import call, random

WILD = np.array([0, 3, -1, 9, 10, -10, -11, 25, -25, 2**31 - 1, -(2**31)], np.int32)
"""Indices in and out of a dimension of 10."""


compiled = pytest.mark.usefixtures("not_in_jax")
"""For what JAX's interpreter cannot do (some strided and transposed references), or does otherwise."""


def wrapped(index: Any, n: int) -> Any:
    """Negative indices counted from the end, once."""
    index = np.asarray(index, np.int64)
    return np.where(index < 0, index + n, index)


def read_place(index: Any, n: int, size: int = 1) -> Any:
    """Where a read of `size` elements at `index` starts."""
    return np.clip(wrapped(index, n), 0, n - size)


@pytest.mark.parametrize(
    "index",
    [
        np.s_[::2],
        np.s_[1::2],
        np.s_[2:5],
        np.s_[-4:],
        np.s_[::3, 1:8:2],
        np.s_[..., -1],
        np.s_[-2],
        np.s_[3, 4],
    ],
)
def test_static_indices_are_numpys(run: Run, index: Any) -> None:
    check_read(run, index)


@compiled
@pytest.mark.parametrize("index", [np.s_[-1, -8:-2:3], np.s_[:, 0:0], np.s_[3:3, 1]])
def test_static_indices_that_jaxs_interpreter_cannot_do(run: Run, index: Any) -> None:
    check_read(run, index)


def check_read(run: Run, index: Any) -> None:
    x = random(9, 8)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[index]

    np.testing.assert_array_equal(run(call(body, x[index].shape), x), x[index])


@pytest.mark.parametrize("index", [np.s_[::2], np.s_[1:7:3], np.s_[2:5], np.s_[:, ::2], np.s_[-1], np.s_[..., 3]])
def test_static_writes_touch_nothing_else(run: Run, index: Any) -> None:
    x = random(8, 8)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[index] = x_ref[index]

    expected = np.zeros_like(x)
    expected[index] = x[index]
    np.testing.assert_array_equal(run(call(body, (8, 8)), x), expected)


def test_chained_views_compose(run: Run) -> None:
    x = random(12, 10)

    def body(x_ref: Any, o_ref: Any) -> None:
        view = x_ref.at[2:11:2].at[1:].at[:, 3]
        o_ref[...] = view[1:4]

    np.testing.assert_array_equal(run(call(body, (3,)), x), x[2:11:2][1:][:, 3][1:4])


def test_part_of_an_array_is_written(run: Run) -> None:
    x, y = random(8), random(8) + 1

    def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[2:5] = x_ref[2:5] * y_ref[2:5]

    np.testing.assert_array_equal(run(call(body, (8,)), x, y)[2:5], (x * y)[2:5])


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8, np.int16])
def test_traced_scalars_wrap_and_clamp(run: Run, dtype: Any) -> None:
    x = random(10)
    indices = np.array([0, 3, 9, 10, 100] + ([-1, -10, -11, -100] if dtype != np.uint8 else [200]), dtype)

    def body(x_ref: Any, i_ref: Any, o_ref: Any) -> None:
        for n in range(len(indices)):
            o_ref[n] = x_ref[i_ref[n]]

    expected = x[read_place(indices, 10)]
    np.testing.assert_array_equal(run(call(body, indices.shape), x, indices), expected)


def test_traced_starts_of_slices_are_clamped_so_that_the_slice_fits(run: Run) -> None:
    x = random(10)

    def body(x_ref: Any, i_ref: Any, o_ref: Any) -> None:
        for n in range(len(WILD)):
            o_ref[n] = x_ref[pl.ds(i_ref[n], 4)]

    expected = np.stack([x[s : s + 4] for s in read_place(WILD, 10, 4)])
    np.testing.assert_array_equal(run(call(body, (len(WILD), 4)), x, WILD), expected)


def test_writes_of_slices_with_traced_starts_are_clamped_as_well(run: Run) -> None:
    x = random(4)

    def body(x_ref: Any, i_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros_like(o_ref)
        for n in range(len(WILD)):
            o_ref[n, pl.ds(i_ref[n], 4)] = x_ref[...]

    expected = np.zeros((len(WILD), 10), np.float32)
    for n, start in enumerate(read_place(WILD, 10, 4)):
        expected[n, start : start + 4] = x
    np.testing.assert_array_equal(run(call(body, expected.shape), x, WILD), expected)


def test_a_strided_slice_with_a_traced_start_is_read_element_by_element(run: Run) -> None:
    x = random(10)
    starts = np.array([0, 3, 6, -1, -3, 8, 12], np.int32)

    def body(x_ref: Any, i_ref: Any, o_ref: Any) -> None:
        for n in range(len(starts)):
            o_ref[n] = x_ref[pl.ds(i_ref[n], 3, stride=2)]

    expected = x[read_place(starts[:, None] + 2 * np.arange(3), 10)]
    np.testing.assert_array_equal(run(call(body, (len(starts), 3)), x, starts), expected)


@compiled
def test_a_strided_slice_with_a_traced_start_is_written(run: Run) -> None:
    x = random(3)
    starts = np.array([0, 3, -3, 8], np.int32)

    def body(x_ref: Any, i_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros_like(o_ref)
        for n in range(len(starts)):
            o_ref[n, pl.ds(i_ref[n], 3, stride=2)] = x_ref[...]

    expected = np.zeros((len(starts), 10), np.float32)
    for n, start in enumerate(starts):
        places = wrapped(start + 2 * np.arange(3), 10)
        inside = (places >= 0) & (places < 10)
        expected[n, places[inside]] = x[inside]
    np.testing.assert_array_equal(run(call(body, expected.shape), x, starts), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, ml_dtypes.bfloat16, np.float64, np.uint16])
def test_index_arrays_read_clamped(run: Run, dtype: Any) -> None:
    with jax.enable_x64(dtype == np.float64):
        x = (10 * random(10)).astype(dtype)

        def body(x_ref: Any, i_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[i_ref[...]]

        result = run(call(body, WILD.shape, dtype), x, WILD)
    np.testing.assert_array_equal(result, x[read_place(WILD, 10)])


@compiled
def test_index_arrays_of_64_bits_count_with_all_their_bits(run: Run) -> None:
    with jax.enable_x64(True):
        x, indices = random(10), np.array([0, 2, -1, 9, 2**40, -(2**40), 2**32 + 1], np.int64)

        def body(x_ref: Any, i_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[i_ref[...]]

        result = run(call(body, indices.shape), x, indices)
    np.testing.assert_array_equal(result, x[read_place(indices, 10)])


def test_rows_by_an_index_array(run: Run) -> None:
    x, rows = random(16, 8), np.array([0, 2, 5, 7], np.int32)

    def body(x_ref: Any, i_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[i_ref[...]]

    np.testing.assert_array_equal(run(call(body, (4, 8)), x, rows), x[rows])


@pytest.mark.parametrize(
    "index",
    [
        lambda a, b: np.s_[a, b],
        lambda a, b: np.s_[a[:, None], b[None, :]],
        lambda a, b: np.s_[:, a],
        lambda a, b: np.s_[1:5:2, :, b],
        lambda a, b: np.s_[a, :, b],
        lambda a, b: np.s_[:, a, b],
        lambda a, b: np.s_[2, :, b],
        lambda a, b: np.s_[a, 1:3, 4],
        lambda a, b: np.s_[..., a[:, None] + b],
    ],
)
def test_index_arrays_next_to_slices_order_dimensions_as_numpy_does(run: Run, index: Any) -> None:
    x = random(6, 5, 7)
    a, b = np.array([0, 3, 2], np.int32), np.array([1, 0, 3], np.int32)

    def body(x_ref: Any, a_ref: Any, b_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[index(a_ref[...], b_ref[...])]

    expected = x[index(a, b)]
    np.testing.assert_array_equal(run(call(body, expected.shape), x, a, b), expected)


def test_index_arrays_write_and_drop_what_is_outside(run: Run) -> None:
    x = random(len(WILD))
    places = np.array([3, 1, -1, 10, -11, 25, -25, 0, -3, 2**31 - 1, -(2**31)], np.int32)

    def body(x_ref: Any, i_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[i_ref[...]] = x_ref[...]

    expected = np.zeros(10, np.float32)
    inside = (wrapped(places, 10) >= 0) & (wrapped(places, 10) < 10)
    expected[wrapped(places, 10)[inside]] = x[inside]
    np.testing.assert_array_equal(run(call(body, (10,)), x, places), expected)


def test_index_arrays_write_next_to_slices(run: Run) -> None:
    x, a = random(3, 4), np.array([4, 0, 2], np.int32)

    def body(x_ref: Any, a_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[1, a_ref[...], ::2] = x_ref[...]

    expected = np.zeros((2, 5, 8), np.float32)
    expected[1][a, ::2] = x
    np.testing.assert_array_equal(run(call(body, (2, 5, 8)), x, a), expected)


def test_swap_gives_what_was_there(run: Run) -> None:
    x = random(6)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        o_ref[4:6] = jax.ref.swap(o_ref, slice(1, 3), jnp.zeros(2))

    expected = x.copy()
    expected[1:3], expected[4:6] = 0, x[1:3]
    np.testing.assert_array_equal(run(call(body, (6,)), x), expected)


def test_addupdate_adds_in_place(run: Run) -> None:
    x = random(6)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        jax.ref.addupdate(o_ref, slice(1, 4), x_ref[:3])

    expected = x.copy()
    expected[1:4] += x[:3]
    np.testing.assert_array_equal(run(call(body, (6,)), x), expected)


def test_addupdate_through_an_index_array_adds_for_every_mention(run: Run) -> None:
    x, places = random(8), np.array([0, 2, 2, 5, -1, 2, 9, 0], np.int32)

    def body(x_ref: Any, i_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.ones_like(o_ref)
        jax.ref.addupdate(o_ref, (i_ref[...],), x_ref[...])

    expected = np.ones(7, np.float32)
    for place, value in zip(wrapped(places, 7), x, strict=True):
        if 0 <= place < 7:
            expected[place] += value
    np.testing.assert_allclose(run(call(body, (7,)), x, places), expected, rtol=1e-6)


@compiled
def test_reshaped_and_transposed_references(run: Run) -> None:
    x = random(6, 8)

    def body(x_ref: Any, a_ref: Any, b_ref: Any, c_ref: Any) -> None:
        a_ref[...] = x_ref.reshape(4, 12)[...]
        b_ref.T[...] = x_ref[...]
        c_ref[...] = x_ref.reshape(2, 3, 8).at[1].reshape(24)[3:20:2]

    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((4, 12), (8, 6), (9,))]
    a, b, c = run(pl.pallas_call(body, shapes, compiler_params=mosaic_gpu.CompilerParams()), x)
    np.testing.assert_array_equal(a, x.reshape(4, 12))
    np.testing.assert_array_equal(b, x.T)
    np.testing.assert_array_equal(c, x.reshape(2, 3, 8)[1].reshape(24)[3:20:2])


def test_writing_part_of_a_reshaped_reference(run: Run) -> None:
    x = random(5)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros_like(o_ref)
        o_ref.reshape(3, 8)[1, 2:7] = x_ref[...]

    expected = np.zeros(24, np.float32)
    expected[10:15] = x
    np.testing.assert_array_equal(run(call(body, (6, 4)), x), expected.reshape(6, 4))


def test_bitcast_references(run: Run) -> None:
    x = random(4, 6)

    def body(x_ref: Any, a_ref: Any, b_ref: Any) -> None:
        a_ref[...] = x_ref.bitcast(jnp.int32)[...]
        b_ref[...] = x_ref.bitcast(jnp.int16)[...]

    shapes = [jax.ShapeDtypeStruct((4, 6), jnp.int32), jax.ShapeDtypeStruct((8, 6), jnp.int16)]
    a, b = run(pl.pallas_call(body, shapes, compiler_params=mosaic_gpu.CompilerParams()), x)
    np.testing.assert_array_equal(a, x.view(np.int32))
    np.testing.assert_array_equal(b, x.view(np.int16).reshape(4, 6, 2).swapaxes(1, 2).reshape(8, 6))


def test_masked_loads_give_other_where_the_mask_is_false_or_nothing_is_there(run: Run) -> None:
    x = random(10)

    def body(x_ref: Any, o_ref: Any) -> None:
        places = jnp.arange(8)
        o_ref[0] = plgpu.load(x_ref.at[pl.ds(0, 8)], mask=places % 3 != 0, other=7.0)
        o_ref[1] = plgpu.load(x_ref.at[pl.ds(pl.program_id(0) + 6, 8)], mask=places < 4, other=jnp.arange(8) * 1.0)

    places = np.arange(8)
    expected = np.stack([np.where(places % 3 != 0, x[:8], 7.0), np.where(places < 4, np.pad(x, 4)[10:18], places)])
    np.testing.assert_array_equal(run(call(body, (2, 8), grid=(1,)), x), expected)


@compiled
def test_masked_stores_leave_the_rest_alone(run: Run) -> None:
    x = random(8)

    def body(x_ref: Any, i_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros_like(o_ref)
        plgpu.store(o_ref.at[0, pl.ds(1, 8)], x_ref[...], mask=x_ref[...] > 0)
        plgpu.store(o_ref.at[1, pl.ds(i_ref[0], 8)], x_ref[...], mask=jnp.arange(8) < 5)

    expected = np.zeros((2, 10), np.float32)
    expected[0, 1:9] = np.where(x > 0, x, 0)
    expected[1, 5:10] = x[:5]
    np.testing.assert_array_equal(run(call(body, (2, 10)), x, np.array([5], np.int32)), expected)


def test_one_byte_floats_are_read_and_written(run: Run) -> None:
    x = random(5, 7).astype(ml_dtypes.float8_e4m3fn)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        o_ref[1, 2:5] = x_ref[3, 0:3]

    expected = x.copy()
    expected[1, 2:5] = x[3, 0:3]
    result = run(call(body, (5, 7), jnp.float8_e4m3fn), x)
    np.testing.assert_array_equal(result.view(np.uint8), expected.view(np.uint8))


def test_a_histogram_by_scalars(run: Run) -> None:
    x = np.random.default_rng(0).integers(0, 5, 40).astype(np.int32)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros_like(o_ref)

        def count(i: Any, _: None) -> None:
            o_ref[x_ref[i]] += 1

        jax.lax.fori_loop(0, 40, count, None)

    np.testing.assert_array_equal(run(call(body, (5,), jnp.int32), x), np.bincount(x, minlength=5))


@pytest.mark.parametrize(
    ("atomic", "meaning"),
    [
        (plgpu.atomic_add, np.add),
        (plgpu.atomic_max, np.maximum),
        (plgpu.atomic_min, np.minimum),
        (plgpu.atomic_and, np.bitwise_and),
        (plgpu.atomic_or, np.bitwise_or),
        (plgpu.atomic_xor, np.bitwise_xor),
        (plgpu.atomic_xchg, lambda old, new: new),
    ],
)
@compiled
def test_atomics_change_what_is_there_and_give_what_was(run: Run, atomic: Any, meaning: Any) -> None:
    x, places = np.arange(20, dtype=np.int32) * 7 % 31, np.array([3, 0, 3, 7, 3, 1, 0, 5], np.int32)

    def body(x_ref: Any, i_ref: Any, total_ref: Any, old_ref: Any) -> None:
        total_ref[...] = x_ref[:8]
        old_ref[0] = atomic(total_ref, (i_ref[...],), x_ref[8:16])
        old_ref[1] = atomic(total_ref, (slice(None),), x_ref[:8] * 0 + 6, mask=x_ref[:8] > 9)

    shapes = [jax.ShapeDtypeStruct(s, jnp.int32) for s in ((8,), (2, 8))]
    total, old = run(pl.pallas_call(body, shapes, compiler_params=mosaic_gpu.CompilerParams()), x, places)
    expected, found = x[:8].copy(), np.zeros((2, 8), np.int32)
    for n, place in enumerate(places):
        found[0, n] = expected[place]
        expected[place] = meaning(expected[place], x[8 + n])
    found[1] = expected
    expected = np.where(x[:8] > 9, meaning(expected, np.int32(6)), expected)
    np.testing.assert_array_equal(total, expected)
    np.testing.assert_array_equal(old, found)


@compiled
def test_compare_and_swap(run: Run) -> None:
    def body(x_ref: Any, o_ref: Any, memory_ref: Any) -> None:
        memory_ref[...] = x_ref[0]
        o_ref[0] = plgpu.atomic_cas(memory_ref, jnp.int32(5), jnp.int32(8))
        o_ref[1] = memory_ref[...]
        o_ref[2] = plgpu.atomic_cas(memory_ref, jnp.int32(5), jnp.int32(9))
        o_ref[3] = memory_ref[...]

    kernel = call(body, (4,), jnp.int32, scratch_shapes=[mosaic.SMEM((), jnp.int32)])
    np.testing.assert_array_equal(run(kernel, np.array([5], np.int32)), [5, 8, 8, 8])


def test_atomics_between_parallel_steps_are_refused() -> None:
    def body(o_ref: Any) -> None:
        plgpu.atomic_add(o_ref, (0,), 1)

    spec = pl.BlockSpec((1,), lambda i: (0,))
    kernel = call(body, (1,), jnp.int32, grid=(4,), out_specs=spec, semantics=("parallel",))
    with pytest.raises(mosaic_gpu.UnsupportedError, match="atomic"):
        mosaic_gpu.compile(kernel)


@compiled
def test_atomics_of_steps_that_share_a_block_add_up(run: Run) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        plgpu.atomic_add(o_ref, (0,), x_ref[...].sum())

    x = np.arange(12, dtype=np.int32)
    specs = {"in_specs": [pl.BlockSpec((3,), lambda i: (i,))], "out_specs": pl.BlockSpec((1,), lambda i: (0,))}
    np.testing.assert_array_equal(run(call(body, (1,), jnp.int32, grid=(4,), **specs), x), [66])
