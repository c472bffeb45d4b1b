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
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import element_of, ref_space, shape_of, storage_bits
from mosaic_gpu.errors import InternalError

ROOT_ALIGNMENT_BYTES = 16
MAX_VECTOR_BYTES = 16
MAX_DIVISOR = 1 << 30

_THROUGH = {"arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.index_castui"}
_COMMON = {
    f"arith.{op}" for op in ("addi", "subi", "maxsi", "minsi", "maxui", "minui", "remsi", "remui", "ori", "xori")
}


@dataclass(frozen=True)
class Step:
    """One subview of a chain, its fields as Python values; see `mgpu.subview`.  `limits`: the source's shape."""

    op: Any
    limits: tuple[int, ...]
    offsets: tuple[Any, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    checked: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the view."""
        return tuple(self.sizes[d] for d in self.kept)


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
      bounds: for each dimension of the root the lowest and highest coordinate that the view may touch; None where
        that is not known.
      start_divisor: a power of two that divides the number of elements from the root's start to the view's.
      vector_dim: the dimension along which neighbours are adjacent in memory; None where there is none.
      vector_limit: the most elements (a power of two) that one access along `vector_dim` may take so that every
        such access that starts at a multiple of it is aligned, and wholly inside or wholly outside of the
        view and of every checked bound.
    """

    root: Any
    space: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    root_dims: tuple[int, ...]
    root_shape: tuple[int, ...]
    root_strides: tuple[int, ...]
    element_bytes: int
    chain: tuple[Step, ...]
    bounds: tuple[tuple[int, int] | None, ...]
    start_divisor: int
    vector_dim: int | None
    vector_limit: int

    @property
    def is_checked(self) -> bool:
        """Whether some access through the view may lie outside and has to be masked."""
        return any(any(step.checked) for step in self.chain)


def view_of(ref: Any) -> RefView:
    """The static facts of the reference value `ref`."""
    ops, root = _subviews(ref)
    tile_type = root.type
    root_shape, element_bytes = shape_of(tile_type), storage_bits(element_of(tile_type)) // 8
    chain = _steps(ops, root_shape)
    root_strides = row_strides(root_shape)
    dims, factors = list(range(len(root_shape))), [1] * len(root_shape)
    start_divisor = MAX_DIVISOR
    for step in chain:
        for d, offset in enumerate(step.offsets):
            start_divisor = min(start_divisor, _product(divisor(offset), factors[d] * root_strides[dims[d]]))
        factors = [factors[d] * step.strides[d] for d in step.kept]
        dims = [dims[d] for d in step.kept]
    shape = chain[-1].shape if chain else root_shape
    strides = tuple(f * root_strides[d] for f, d in zip(factors, dims, strict=True))
    near = [d for d, n in enumerate(shape) if n > 1 and strides[d] == 1]
    vector_dim = near[-1] if near else None
    limit = 1
    if vector_dim is not None:
        rows = (_power(s) for d, s in enumerate(strides) if d != vector_dim and shape[d] > 1)
        most = (MAX_VECTOR_BYTES // element_bytes, start_divisor, _power(shape[vector_dim]))
        limit = max(1, min(*most, _check_limit(chain, vector_dim), *rows))
    return RefView(
        root=root,
        space=ref_space(tile_type),
        shape=shape,
        strides=strides,
        root_dims=tuple(dims),
        root_shape=root_shape,
        root_strides=root_strides,
        element_bytes=element_bytes,
        chain=tuple(chain),
        bounds=_bounds(chain, root_shape),
        start_divisor=start_divisor,
        vector_dim=vector_dim,
        vector_limit=limit,
    )


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


def row_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements between neighbours along each dimension of a row-major array of `shape`."""
    strides = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    return tuple(strides)


def _subviews(ref: Any) -> tuple[list[tuple[Any, list[Any]]], Any]:
    """The subview operations above a reference with their operands, outermost first, and the root.

    Every access to a reference value or its type costs the bindings some 15 us: there is one of each here.
    """
    found: list[tuple[Any, list[Any]]] = []
    value = ref
    while not isinstance(owner := value.owner, ir.Block):
        op = owner.operation
        if op.name == "mgpu.alloc":
            break
        if op.name != "mgpu.subview":
            raise InternalError(f"{op.name} does not make a reference")
        operands = list(op.operands)
        found.append((op, operands))
        value = operands[0]
    return found[::-1], value


def _steps(ops: list[tuple[Any, list[Any]]], root_shape: tuple[int, ...]) -> list[Step]:
    chain: list[Step] = []
    for op, operands in ops:
        attributes = op.attributes
        sizes, strides, checked, dropped = (ints(attributes[key]) for key in ("sizes", "strides", "checked", "dropped"))
        kept = tuple(d for d in range(len(sizes)) if d not in dropped)
        limits = chain[-1].shape if chain else root_shape
        chain.append(Step(op, limits, tuple(operands[1:]), sizes, strides, checked, kept))
    return chain


def _bounds(chain: list[Step], root_shape: tuple[int, ...]) -> tuple[tuple[int, int] | None, ...]:
    found: list[tuple[int, int] | None] = [(0, n - 1) for n in root_shape]
    dims, factors = list(range(len(root_shape))), [1] * len(root_shape)
    starts: list[int | None] = [0] * len(root_shape)
    for step in chain:
        for d, offset in enumerate(step.offsets):
            start, constant = starts[dims[d]], constant_int(offset)
            start = None if start is None or constant is None else start + constant * factors[d]
            factors[d] *= step.strides[d]
            starts[dims[d]] = start
            last = None if start is None else start + (step.sizes[d] - 1) * factors[d]
            found[dims[d]] = None if start is None or last is None else (min(start, last), max(start, last))
        dims, factors = [dims[d] for d in step.kept], [factors[d] for d in step.kept]
    return tuple(found)


def _check_limit(chain: list[Step], vector_dim: int) -> int:
    """The most elements along `vector_dim` that no checked bound separates."""
    limit, dim, start = MAX_DIVISOR, vector_dim, MAX_DIVISOR
    for step in reversed(chain):
        dim = step.kept[dim]
        if step.strides[dim] != 1:  # there and back again: two reversals
            return 1
        start = min(start, divisor(step.offsets[dim]))
        if step.checked[dim]:
            limit = min(limit, start, _power(step.limits[dim]))
    return limit


def _power(n: int) -> int:
    """The largest power of two, up to `MAX_DIVISOR`, that divides n (everything divides 0)."""
    return min(MAX_DIVISOR, n & -n) if n else MAX_DIVISOR


def _product(a: int, b: int) -> int:
    return min(MAX_DIVISOR, a * _power(b))
