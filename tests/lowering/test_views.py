"""Static facts of references, against what the subviews say of the array."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.lowering.passes.walk import body_of, kernels, walk
from mosaic_gpu.lowering.pipeline import compilation_context
from mosaic_gpu.lowering.views import MAX_DIVISOR, RefView, divisor, vector_elements, view_of


def _ref(shape: tuple[int, ...], element: str) -> str:
    return f'!mgpu.ref<tensor<{"".join(f"{n}x" for n in shape)}{element}>, "gmem">'


def subview(
    name: str, source: str, old: str, new: str, offsets: list[str], sizes: list[int], strides: list[int], **rest: Any
) -> str:
    """The text of an `mgpu.subview`; `rest`: dropped, checked."""
    dropped, checked = rest.get("dropped", []), rest.get("checked", [0] * len(sizes))
    types = ", ".join([old, *("i32" for _ in offsets)])
    return (
        f'{name} = "mgpu.subview"({", ".join([source, *offsets])}) {{sizes = {sizes}, strides = {strides}, '
        f"dropped = {dropped}, checked = {checked}, operandSegmentSizes = array<i32: 1, {len(offsets)}>}} "
        f": ({types}) -> {new}"
    )


@contextmanager
def kernel(body: str, argument: str) -> Iterator[list[Any]]:
    """The operations of a kernel with one argument %a and %p, a program id of which nothing is known."""
    text = f""""mgpu.kernel"() ({{
    ^bb0(%a: {argument}):
      %p = "mgpu.program_id"() {{axis = 0 : i32}} : () -> i32
      {body}
    }}) {{grid = [4], num_warps = 4 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0]}} : () -> ()"""
    with compilation_context():
        module = ir.Module.parse(text)
        yield list(walk(body_of(kernels(module)[0])))


@contextmanager
def view(
    shape: tuple[int, ...], element: str, offsets: list[str], sizes: list[int], strides: list[int], **rest: Any
) -> Iterator[RefView]:
    """The facts of one subview; an offset is an int or an expression `%p * n`."""
    lines, names = [], []
    for d, offset in enumerate(offsets):
        factor = offset.removeprefix("%p * ") if offset.startswith("%p") else offset
        lines.append(f"%c{d} = arith.constant {factor} : i32")
        if offset.startswith("%p"):
            lines.append(f"%m{d} = arith.muli %p, %c{d} : i32")
        names.append(f"%m{d}" if offset.startswith("%p") else f"%c{d}")
    kept = tuple(n for d, n in enumerate(sizes) if d not in rest.get("dropped", []))
    old, new = _ref(shape, element), _ref(kept, element)
    lines.append(subview("%v", "%a", old, new, names, sizes, strides, **rest))
    with kernel("\n".join(lines), old) as ops:
        yield view_of(ops[-1].results[0])


def test_a_row_of_a_matrix_is_a_contiguous_view() -> None:
    with view((64, 1024), "f32", ["%p * 4", "0"], [1, 1024], [1, 1], dropped=[0], checked=[1, 0]) as facts:
        assert (facts.shape, facts.strides, facts.root_dims) == ((1024,), (1,), (1,))
        assert facts.root_strides == (1024, 1)
        assert facts.start_divisor == 4096
        assert (facts.vector_dim, facts.vector_limit) == (0, 4)
        assert facts.is_checked
        assert facts.bounds == (None, (0, 1023))


@pytest.mark.parametrize(
    ("shape", "element", "offsets", "sizes", "strides", "checked", "vector"),
    [
        ((1024,), "f32", ["0"], [1024], [1], [0], 4),
        ((1024,), "bf16", ["0"], [1024], [1], [0], 8),
        ((1024,), "i8", ["0"], [1024], [1], [0], 16),
        ((1024,), "i1", ["0"], [1024], [1], [0], 16),
        ((1024,), "f64", ["0"], [1024], [1], [0], 2),
        ((1024,), "f32", ["%p * 2"], [512], [1], [0], 2),
        ((1024,), "f32", ["%p * 1"], [512], [1], [0], 1),
        ((1024,), "f32", ["0"], [1022], [1], [0], 2),
        ((1024,), "f32", ["0"], [512], [2], [0], 1),
        ((1024,), "f32", ["1023"], [1024], [-1], [0], 1),
        ((1022,), "f32", ["%p * 4"], [1024], [1], [1], 2),
        ((1024,), "f32", ["%p * 4"], [1024], [1], [1], 4),
        ((4, 129), "f32", ["0", "0"], [4, 128], [1, 1], [0, 0], 1),
        ((4, 130), "f32", ["0", "0"], [4, 128], [1, 1], [0, 0], 2),
        ((1, 129), "f32", ["0", "0"], [1, 128], [1, 1], [0, 0], 4),
        ((8, 128), "f32", ["0", "0"], [8, 1], [1, 1], [0, 0], 1),
    ],
)
def test_vectors_are_as_wide_as_alignment_and_bounds_allow(
    shape: tuple[int, ...],
    element: str,
    offsets: list[str],
    sizes: list[int],
    strides: list[int],
    checked: list[int],
    vector: int,
) -> None:
    with view(shape, element, offsets, sizes, strides, checked=checked) as facts:
        assert facts.vector_limit == vector


@given(st.data())
def test_every_vector_is_aligned_and_not_cut_by_a_bound(data: st.DataObject) -> None:
    size, root = data.draw(st.integers(1, 24)), data.draw(st.integers(1, 40))
    factor = data.draw(st.integers(0, 8))
    with view((3, root), "f32", ["1", f"%p * {factor}"], [1, size], [1, 1], checked=[0, 1]) as facts:
        width = facts.vector_limit
    for step in range(5):
        for first in range(0, size, width):
            coordinates = [factor * step + first + i for i in range(width)]
            assert (root + coordinates[0]) % width == 0
            assert len({0 <= c < root for c in coordinates}) == 1
            assert first + width <= size


def test_a_view_of_a_view_adds_offsets_and_multiplies_strides() -> None:
    row, even = _ref((128,), "f32"), _ref((64,), "f32")
    lines = [
        "%c = arith.constant 8 : i32",
        subview("%v", "%a", _ref((64, 1024), "f32"), row, ["%c", "%c"], [1, 128], [1, 1], dropped=[0]),
        "%z = arith.constant 2 : i32",
        subview("%w", "%v", row, even, ["%z"], [60], [2]).replace("tensor<64xf32>", "tensor<60xf32>"),
    ]
    with kernel("\n".join(lines), _ref((64, 1024), "f32")) as ops:
        facts = view_of(ops[-1].results[0])
        assert (facts.shape, facts.strides, facts.root_dims) == ((60,), (2,), (1,))
        assert facts.bounds == ((8, 8), (10, 128))
        assert len(facts.chain) == 2
        assert facts.chain[1].limits == (128,)


def test_two_reversals_make_no_vector() -> None:
    ref = _ref((64,), "f32")
    lines = ["%c = arith.constant 63 : i32"]
    for name, source in (("%v", "%a"), ("%w", "%v")):
        lines.append(subview(name, source, ref, ref, ["%c"], [64], [-1], checked=[1]))
    with kernel("\n".join(lines), ref) as ops:
        assert view_of(ops[-1].results[0]).strides == (1,)
        assert view_of(ops[-1].results[0]).vector_limit == 1


def test_a_whole_argument_is_a_view_of_itself() -> None:
    with kernel("", _ref((4, 6), "f32")) as ops:
        facts = view_of(ops[0].parent.regions[0].blocks[0].arguments[0])
        assert (facts.shape, facts.strides, facts.vector_limit, facts.is_checked) == ((4, 6), (6, 1), 2, False)
        assert facts.bounds == ((0, 3), (0, 5))


def test_a_rank_zero_reference_has_no_vector() -> None:
    with kernel("", _ref((), "f32")) as ops:
        facts = view_of(ops[0].parent.regions[0].blocks[0].arguments[0])
        assert (facts.shape, facts.vector_dim, facts.vector_limit) == ((), None, 1)


def test_the_layout_may_allow_less_than_the_view() -> None:
    with view((4, 1024), "f32", ["0", "0"], [4, 1024], [1, 1]) as facts:
        assert vector_elements(facts, Layout.blocked((4, 1024), 4, 4)) == 4
        assert vector_elements(facts, Layout.blocked((4, 1024), 4, 2)) == 2
        assert vector_elements(facts, Layout.blocked((4, 1024), 4, 4, order=(0, 1))) == 1
        assert vector_elements(facts, None) == 1


DIVISORS = {
    "a_constant": ("%r = arith.constant 24 : i32", 8),
    "zero": ("%r = arith.constant 0 : i32", MAX_DIVISOR),
    "a_negative_constant": ("%r = arith.constant -6 : i32", 2),
    "an_unknown": ("%r = arith.addi %p, %p : i32", 1),
    "a_product": ("%r = arith.muli %p, %c12 : i32", 4),
    "a_sum": ("%m = arith.muli %p, %c12 : i32\n%r = arith.addi %m, %c8 : i32", 4),
    "a_difference": ("%m = arith.muli %p, %c8 : i32\n%r = arith.subi %c12, %m : i32", 4),
    "a_shift": ("%r = arith.shli %p, %c3 : i32", 8),
    "a_clamp": ("%m = arith.muli %p, %c8 : i32\n%n = arith.maxsi %m, %c0 : i32\n%r = arith.minsi %n, %c12 : i32", 4),
    "a_mask": ("%n = arith.constant -16 : i32\n%r = arith.andi %p, %n : i32", 16),
    "an_extension": ("%m = arith.muli %p, %c8 : i32\n%r = arith.extsi %m : i32 to i64", 8),
    "a_choice": ("%b = arith.cmpi slt, %p, %c3 : i32\n%r = arith.select %b, %c8, %c12 : i32", 4),
    "a_branch": (
        "%b = arith.cmpi slt, %p, %c3 : i32\n"
        "%r = scf.if %b -> (i32) {\n scf.yield %c8 : i32\n} else {\n scf.yield %c12 : i32\n}",
        4,
    ),
}


@pytest.mark.parametrize("name", DIVISORS)
def test_the_divisor_of(name: str) -> None:
    text, expected = DIVISORS[name]
    constants = "\n".join(f"%c{n} = arith.constant {n} : i32" for n in (0, 3, 8, 12))
    with kernel(f"{constants}\n{text}", _ref((4,), "f32")) as ops:
        last = [op for op in ops if op.name not in ("scf.yield",)][-1]
        assert divisor(last.results[0]) == expected


def test_a_loops_counter_is_divisible_as_its_start_and_step() -> None:
    body = """%c8 = arith.constant 8 : i32
      %c12 = arith.constant 12 : i32
      scf.for %i = %c8 to %p step %c12 : i32 {
        %r = arith.addi %i, %i : i32
      }"""
    with kernel(body, _ref((4,), "f32")) as ops:
        add = next(op for op in ops if op.name == "arith.addi")
        assert divisor(add.operands[0]) == 4
