"""Loads, stores, gathers and scatters through views of any kind, against NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_kernel import BarrierOp
from mosaic_gpu.dialect.ops_memory import AllocOp, GatherOp, ScatterOp, SubviewOp
from mosaic_gpu.dialect.types import SMEM, element_of, ref_space, ref_type
from tests.lowering.nvvm.harness import Array, array_attr, i32, int_attr, load, ptx_of, run, store, tile
from tests.lowering.nvvm.layouts import random_array, random_dtype, random_layout, random_shape


@dataclass(frozen=True)
class Box:
    """A subview: what the op takes, one entry a dimension of its source."""

    offsets: list[int]
    sizes: list[int]
    strides: list[int]
    dropped: list[int]
    checked: list[int]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(n for d, n in enumerate(self.sizes) if d not in self.dropped)

    def source_index(self, index: tuple[int, ...]) -> tuple[int, ...]:
        rest = iter(index)
        steps = [0 if d in self.dropped else next(rest) for d in range(len(self.sizes))]
        return tuple(o + k * i for o, k, i in zip(self.offsets, self.strides, steps, strict=True))

    def holds(self, source: tuple[int, ...], index: tuple[int, ...]) -> bool:
        places = zip(self.source_index(index), source, self.checked, strict=True)
        return all(0 <= i < n or not checked for i, n, checked in places)

    def of(self, ref: ir.Value, offsets: list[ir.Value]) -> ir.Value:
        type_ = ref_type(self.shape, element_of(ref.type), ref_space(ref.type))
        arrays = [array_attr(a) for a in (self.sizes, self.strides, self.dropped, self.checked)]
        return SubviewOp(type_, ref, offsets, *arrays).result


def random_box(rng: np.random.Generator, source: tuple[int, ...]) -> Box:
    """A box that may leave its source in checked dimensions, and lies inside in the others."""
    offsets, sizes, strides, checked = [], [], [], []
    dropped = [d for d in range(len(source)) if rng.random() < 0.3]
    for d, extent in enumerate(source):
        step = int(rng.choice([1, 1, 1, 2, 3, -1]))
        is_checked = rng.random() < 0.5
        most = 12 if is_checked else (extent - 1) // abs(step) + 1
        size = 1 if d in dropped else int(rng.integers(1, most + 1))
        span = (size - 1) * abs(step)
        low = int(rng.integers(-6, extent + 6)) if is_checked else int(rng.integers(0, extent - span))
        offsets.append(low if step > 0 or is_checked else low + span)
        sizes.append(size)
        strides.append(step)
        checked.append(int(is_checked))
    return Box(offsets, sizes, strides, dropped, checked)


def poisoned(shape: tuple[int, ...], like: Array) -> Array:
    """What `run` fills outputs with."""
    count = int(np.prod(shape)) * like.dtype.itemsize
    return np.frombuffer(b"\xa5" * count, np.uint8).copy().view(like.dtype).reshape(shape)


@pytest.mark.parametrize("seed", range(60))
def test_views_of_views_load_and_store_what_numpy_indexing_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    source = random_shape(rng, int(rng.integers(1, 4)), 24)
    boxes = [random_box(rng, source)]
    if boxes[0].shape and seed % 2:
        boxes.append(random_box(rng, boxes[0].shape))
    shape, dtype = boxes[-1].shape, random_dtype(rng)
    layout = random_layout(rng, shape) if shape else None
    x, other, mask = random_array(rng, source, dtype), random_array(rng, shape, dtype), rng.random(shape) < 0.6
    offsets = np.array([o for b in boxes for o in b.offsets], np.int32)
    has_mask, has_other, is_dynamic = (bool(rng.random() < 0.5) for _ in range(3))

    def offset(table: ir.Value, number: int) -> ir.Value:
        if not is_dynamic:
            return i32(int(offsets[number]))
        return load(Box([number], [1], [1], [0], [0]).of(table, [i32(number)]))

    def view(ref: ir.Value, table: ir.Value) -> ir.Value:
        first = 0
        for box in boxes:
            ref = box.of(ref, [offset(table, first + d) for d in range(len(box.offsets))])
            first += len(box.offsets)
        return ref

    def body(ref: ir.Value, table: ir.Value, m: ir.Value, o: ir.Value, out: ir.Value, written: ir.Value) -> None:
        masked = {"mask": load(m, layout)} if has_mask else {}
        instead = {"other": load(o, layout)} if has_other else {}
        store(load(view(ref, table), layout, **masked, **instead), out)
        store(load(o, layout), view(written, table), **masked)

    found, written = run(body, [x, offsets, mask, other], [(shape, dtype), (source, dtype)])
    expected = other.copy() if has_other else np.zeros(shape, dtype)
    expected_written = poisoned(source, x)
    for index in np.ndindex(*shape):
        place, inside = index, bool(mask[index]) or not has_mask
        for box, extents in reversed(list(zip(boxes, [source, boxes[0].shape], strict=False))):
            inside &= box.holds(extents, place)
            place = box.source_index(place)
        if inside:
            expected[index] = x[place]
            expected_written[place] = other[index]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(written.view(np.uint8), expected_written.view(np.uint8))


@pytest.mark.parametrize("seed", range(24))
def test_gathers_and_scatters_go_where_their_indices_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    source, shape = random_shape(rng, int(rng.integers(1, 4))), random_shape(rng, int(rng.integers(0, 3)), 12)
    layout, dtype = random_layout(rng, shape) if shape else None, random_dtype(rng)
    x, mask, is_masked = random_array(rng, source, dtype), rng.random(shape) < 0.6, seed % 2 == 0
    index_type = (np.int32, np.int64)[seed % 3 == 0]
    indices = [np.asarray(rng.integers(0, n, shape)).astype(index_type) for n in source]
    # Only one element may be written to a place: more are a race.
    first = np.zeros(shape, np.bool_)
    first.flat[np.unique(np.ravel_multi_index(tuple(indices), source), return_index=True)[1]] = True
    write = first & mask if is_masked else first

    def body(ref: ir.Value, m: ir.Value, w: ir.Value, *refs: ir.Value) -> None:
        *tables, out, written = refs
        where = [load(t, layout) for t in tables]
        masked = {"mask": load(m, layout)} if is_masked else {}
        value = GatherOp(tile(shape, element_of(ref.type), layout), ref, where, **masked).result
        store(value, out)
        ScatterOp(value, written, where, **({} if write.all() else {"mask": load(w, layout)}))

    found, written = run(body, [x, mask, write, *indices], [(shape, dtype), (source, dtype)])
    picked = x[tuple(indices)]
    np.testing.assert_array_equal(found, np.where(mask, picked, np.zeros((), dtype)) if is_masked else picked)
    expected = poisoned(source, x)
    chosen = tuple(i[write] for i in indices)
    expected[chosen] = x[chosen]
    np.testing.assert_array_equal(written.view(np.uint8), expected.view(np.uint8))


def test_a_gather_through_a_checked_view_reads_zero_outside() -> None:
    box, layout = Box([-2], [8], [1], [], [1]), Layout.blocked((8,), 1)
    x, where = np.arange(1, 6, dtype=np.float32), np.arange(8, dtype=np.int32)

    def body(ref: ir.Value, table: ir.Value, out: ir.Value) -> None:
        view = box.of(ref, [i32(-2)])
        store(GatherOp(tile((8,), element_of(ref.type), layout), view, [load(table, layout)]).result, out)

    (found,) = run(body, [x, where], [((8,), np.float32)], 1)
    np.testing.assert_array_equal(found, [0, 0, 1, 2, 3, 4, 5, 0])


def test_a_check_does_not_wrap_around_in_32_bits() -> None:
    box, layout = Box([1], [8], [2**30], [], [1]), Layout.blocked((8,), 1)
    x = np.arange(1, 11, dtype=np.float32)

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(load(box.of(ref, [i32(1)]), layout), out)

    (found,) = run(body, [x], [((8,), np.float32)], 1)
    np.testing.assert_array_equal(found, [2, 0, 0, 0, 0, 0, 0, 0])


def test_tiles_stay_in_their_allocations() -> None:
    shape = (16, 20)
    layouts = Layout.blocked(shape, 4, 2), Layout.blocked(shape, 4, 1, order=(0, 1))
    x = np.random.default_rng(0).random(shape, np.float32)

    def body(ref: ir.Value, out: ir.Value) -> None:
        kept = []
        for number in range(2):
            alloc = AllocOp(ref_type(shape, element_of(ref.type), SMEM))
            alloc.operation.attributes["mgpu.offset"] = int_attr(number * 1280)
            store(load(ref, layouts[number]), alloc.result)
            kept.append(alloc.result)
        BarrierOp()
        store(load(kept[0], layouts[1]), out)

    (found,) = run(body, [x], [(shape, np.float32)], smem_bytes=2560)
    np.testing.assert_array_equal(found, x)


def test_whole_aligned_rows_are_moved_sixteen_bytes_at_a_time() -> None:
    layout = Layout.blocked((8, 512), 4, 8)
    x = np.zeros((8, 512), np.float16)
    text, _ = ptx_of(lambda ref, out: store(load(ref, layout), out), [x, x], 1, 4)
    assert text.count("ld.global.nc.v4.b32") == text.count("st.global.v4.b32") == 4
    assert text.count("ld.global") == 4
    assert "setp" not in text


def test_an_input_that_is_also_written_is_not_read_through_the_read_only_path() -> None:
    layout = Layout.blocked((512,), 4, 4)

    def body(ref: ir.Value, out: ir.Value) -> None:
        kernel = ref.owner.owner
        kernel.attributes["aliases"] = array_attr([0, 0])
        store(load(ref, layout), out)

    text, _ = ptx_of(body, [np.zeros(512, np.float32)] * 2, 1, 4)
    assert ".nc" not in text


def test_replicated_elements_are_stored_by_one_thread_each() -> None:
    layout = Layout.parse("4 r: l:0;1;2;0;0 w:0;0")

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(load(ref, layout), out)

    text, _ = ptx_of(body, [np.zeros(4, np.float32)] * 2, 1, 4)
    assert "@%p" in next(line for line in text.splitlines() if "st.global" in line)
    (found,) = run(body, [np.arange(4, dtype=np.float32)], [((4,), np.float32)])
    np.testing.assert_array_equal(found, np.arange(4))
