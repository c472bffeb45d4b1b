"""Static facts about a reference: where its view lies in its root, and how wide an access may be.

A reference is a root (a kernel argument or an `mgpu.alloc`, row-major) under a chain of `mgpu.subview`.
Every dimension of the view comes from one dimension of the root, because subviews only offset, step and
drop dimensions; so a view has one element stride a dimension, and its start is a sum of offsets times
the root's row strides.  For

    %v = subview %x[%i * 4, 0] sizes [1, 1024] dropped [0] checked [1, 0]      x: 64x1024xf32

the view's shape is (1024), its stride (1), its start a multiple of 4096 elements, and dimension 0 of the
root is checked.  What is known of an offset is the largest power of two that surely divides it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_memory import AllocOp, SubviewOp, ints
from mosaic_gpu.dialect.types import element_of, ref_space, shape_of, storage_bits

ROOT_ALIGNMENT_BYTES = 16
MAX_VECTOR_BYTES = 16
MAX_DIVISOR = 1 << 30

_THROUGH = {"arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.index_castui"}
_COMMON = {
    "arith.addi", "arith.subi", "arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui", "arith.remsi", "arith.remui",
    "arith.ori", "arith.xori",
}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """A bound to test before an access: `level` is the number of the subview in `RefView.chain`.

    Element i of the view is in bounds if 0 <= (its coordinate along `source_dim` of that subview's source) <
    `limit`.  `view_dim` is the dimension of the whole view that moves this coordinate; None where it was dropped.
    """

    level: int
    source_dim: int
    limit: int
    view_dim: int | None


@dataclass(frozen=True)
class RefView:
    """What is known of a reference before the kernel runs.

    Attributes:
      root: the kernel's block argument, or the result of the `mgpu.alloc`.
      space: "gmem" or "smem".
      shape: the view's shape.
      strides: elements between neighbours along each dimension of the view.
      root_dims: the root's dimension that each dimension of the view comes from.
      root_shape, root_strides: of the whole root, row-major; strides in elements.
      element_bytes: bytes one element takes.
      chain: the subviews, from the root to the value.
      checks: the bounds of all checked dimensions, from the root on.
      bounds: for each dimension of the root the lowest and highest coordinate that the view may touch; None where
        that is not known.
      start_divisor: a power of two that divides the number of elements from the root's start to the view's.
      vector_limit: the most elements (a power of two) that one access along `vector_dim` may take so that every
        such access that starts at a multiple of it is aligned, and wholly inside or wholly outside of the
        view and of every checked bound.
      vector_dim: the dimension along which neighbours are adjacent in memory; None where there is none.
    """

    root: Any
    space: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    root_dims: tuple[int, ...]
    root_shape: tuple[int, ...]
    root_strides: tuple[int, ...]
    element_bytes: int
    chain: tuple[Any, ...]
    checks: tuple[Check, ...]
    bounds: tuple[tuple[int, int] | None, ...]
    start_divisor: int
    vector_limit: int
    vector_dim: int | None

    @property
    def is_checked(self) -> bool:
        """Whether some access through the view may lie outside and has to be masked."""
        return bool(self.checks)


def view_of(ref: Any) -> RefView:
    """The static facts of the reference value `ref`."""
    chain, root = _chain(ref)
    root_shape = shape_of(root.type)
    root_strides = _row_strides(root_shape)
    dims, steps = list(range(len(root_shape))), [1] * len(root_shape)
    start_divisor, checks = MAX_DIVISOR, []
    for level, op in enumerate(chain):
        dropped, strides = ints(op.dropped), ints(op.strides)
        for d, offset in enumerate(op.offsets):
            start_divisor = min(start_divisor, _product(divisor(offset), steps[d] * root_strides[dims[d]]))
        checks += _checks_of(chain, level)
        kept = [d for d in range(len(dims)) if d not in dropped]
        steps = [steps[d] * strides[d] for d in kept]
        dims = [dims[d] for d in kept]
    shape = shape_of(ref.type)
    view_strides = tuple(s * root_strides[d] for s, d in zip(steps, dims, strict=True))
    element_bytes = storage_bits(element_of(ref.type)) // 8
    near = [d for d, n in enumerate(shape) if n > 1 and view_strides[d] == 1]
    vector_dim = near[-1] if near else None
    limit = 1
    if vector_dim is not None:
        aligned = min(
            [start_divisor, *(_power(s) for d, s in enumerate(view_strides) if d != vector_dim and shape[d] > 1)]
        )
        limit = min(
            MAX_VECTOR_BYTES // element_bytes,
            aligned,
            _power(shape[vector_dim]),
            _check_limit(chain, checks, vector_dim),
        )
    return RefView(
        root, ref_space(root.type), shape, view_strides, tuple(dims), root_shape, root_strides, element_bytes,
        tuple(chain), tuple(checks), _bounds(chain, root_shape), start_divisor, max(1, limit), vector_dim,
    )  # fmt: skip


def vector_elements(view: RefView, layout: Layout | None) -> int:
    """Elements of one load or store of a tile in `layout` through `view`: a power of two, at most 16 bytes of them.

    That many consecutive registers are adjacent in memory, aligned to their size, and all inside or all
    outside of the tile and the checked bounds: testing the first one is enough.  A mask is not considered.
    """
    if layout is None or view.vector_dim is None:
        return 1
    return min(view.vector_limit, _power(layout.vector_width(view.vector_dim, view.shape)))


def divisor(value: Any) -> int:
    """A power of two, at most `MAX_DIVISOR`, that divides the integer `value` whatever the program's inputs are."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return _argument_divisor(value, owner)
    op = owner.operation
    name, operands = op.name, op.operands
    if name == "arith.constant":
        attr = op.attributes["value"]
        return _power(attr.value) if isinstance(attr, ir.IntegerAttr) else 1
    if name in _THROUGH:
        return divisor(operands[0])
    if name in _COMMON:
        return min(divisor(operands[0]), divisor(operands[1]))
    if name == "arith.muli":
        return _product(divisor(operands[0]), divisor(operands[1]))
    if name == "arith.andi":
        return max(divisor(operands[0]), divisor(operands[1]))
    if name == "arith.shli":
        return _product(divisor(operands[0]), 1 << min(30, max(0, constant_int(operands[1]) or 0)))
    if name == "arith.select":
        return min(divisor(operands[1]), divisor(operands[2]))
    if name == "scf.if":
        number = list(op.results).index(value)
        return min(divisor(_terminator(region).operands[number]) for region in op.regions)
    return 1


def constant_int(value: Any) -> int | None:
    """The integer that `value` always is, where it comes from an `arith.constant`."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return None
    attr = owner.operation.attributes["value"]
    return int(attr.value) if isinstance(attr, ir.IntegerAttr) else None


def _argument_divisor(value: Any, block: Any) -> int:
    """A loop's counter is its lower bound plus a number of steps; nothing is known of other block arguments."""
    parent = block.owner.operation
    if parent.name == "scf.for" and ir.BlockArgument(value).arg_number == 0:
        return min(divisor(parent.operands[0]), divisor(parent.operands[2]))
    return 1


def _terminator(region: Any) -> Any:
    operations = region.blocks[0].operations
    return operations[len(operations) - 1]


def _chain(ref: Any) -> tuple[list[Any], Any]:
    chain: list[Any] = []
    value = ref
    while not isinstance(value.owner, ir.Block):
        op = value.owner.opview
        if isinstance(op, AllocOp):
            break
        if not isinstance(op, SubviewOp):
            raise TypeError(f"{op.operation.name} does not make a reference")
        chain.append(op)
        value = op.source
    return chain[::-1], value


def _checks_of(chain: list[Any], level: int) -> list[Check]:
    """The checked bounds of subview `level`, each with the dimension of the final view that moves it."""
    op, found = chain[level], []
    sizes = shape_of(op.source.type)
    for d, checked in enumerate(ints(op.checked)):
        if checked:
            dim: int | None = d
            for later in chain[level:]:
                dropped = ints(later.dropped)
                dim = None if dim is None or dim in dropped else dim - sum(e < dim for e in dropped)
            found.append(Check(level, d, sizes[d], dim))
    return found


def _bounds(chain: list[Any], root_shape: tuple[int, ...]) -> tuple[tuple[int, int] | None, ...]:
    found: list[tuple[int, int] | None] = [(0, n - 1) for n in root_shape]
    dims, steps = list(range(len(root_shape))), [1] * len(root_shape)
    starts: list[int | None] = [0] * len(root_shape)
    for op in chain:
        sizes, strides, dropped = ints(op.sizes), ints(op.strides), ints(op.dropped)
        for d, offset in enumerate(op.offsets):
            start, constant = starts[dims[d]], constant_int(offset)
            start = None if start is None or constant is None else start + constant * steps[d]
            steps[d] *= strides[d]
            starts[dims[d]] = start
            last = None if start is None else start + (sizes[d] - 1) * steps[d]
            found[dims[d]] = None if start is None or last is None else (min(start, last), max(start, last))
        kept = [d for d in range(len(dims)) if d not in dropped]
        dims, steps = [dims[d] for d in kept], [steps[d] for d in kept]
    return tuple(found)


def _check_limit(chain: list[Any], checks: list[Check], vector_dim: int) -> int:
    """The most elements along `vector_dim` that no checked bound separates."""
    limit, dim, start = MAX_DIVISOR, vector_dim, MAX_DIVISOR
    bounds = {(c.level, c.source_dim): c.limit for c in checks if c.view_dim == vector_dim}
    for level in reversed(range(len(chain))):
        op = chain[level]
        kept = [d for d in range(len(op.offsets)) if d not in ints(op.dropped)]
        dim = kept[dim]
        start = min(start, divisor(op.offsets[dim]))
        if (level, dim) in bounds:
            limit = min(limit, start, _power(bounds[level, dim]))
    return limit


def _row_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    return tuple(strides)


def _power(n: int) -> int:
    """The largest power of two, up to `MAX_DIVISOR`, that divides n (everything divides 0)."""
    return min(MAX_DIVISOR, n & -n) if n else MAX_DIVISOR


def _product(a: int, b: int) -> int:
    return min(MAX_DIVISOR, a * _power(b))
