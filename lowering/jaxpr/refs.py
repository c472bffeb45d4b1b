"""Reading and writing through references: what `ref[...]`, `ref.at[...]` and Pallas' loads and stores mean.

A reference comes with a chain of transforms.  Boxes (ints, slices) become `mgpu.subview`s; what follows
the last indexer (reshape, transpose, bitcast) acts on the value that is read or written; the rest of the
chain (index arrays; indexers behind a reshape or transpose) becomes one coordinate tile a dimension, for
`mgpu.gather` and `mgpu.scatter`.

Indices outside of a dimension of size n follow one rule, which is that of JAX's interpreter:

* a negative index counts from the end, once (n is added);
* reading: what is still outside is clamped, index arrays element by element, and the start of a slice
  so that the slice fits (as in `lax.dynamic_slice`);
* writing: starts of slices and scalar indices are clamped in the same way; elements of index arrays that are
  outside are dropped (as in `x.at[i].set`);
* a slice with a stride whose start is not known to fit, or a slice or scalar next to an index array or
  behind a reshape, counts as an index array;
* masked loads and stores (`plgpu.load`, `plgpu.store`) neither wrap nor clamp starts: what is outside
  reads as `other` (or zero) and is not written.

An index of 64 bits, or unsigned, is out of range where its value is: it is never cut to 32 bits.
Where an index array names one place twice, one of the values is written, it is not said which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import element_of, is_tile, shape_of
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.compat import BitcastTransform, NDIndexer, ReshapeTransform, TransposeTransform
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.indexing import Coordinates, Rules, box_of, coordinates_of, identity_coordinates
from mosaic_gpu.lowering.jaxpr.value_steps import Step, bitcast_step, reshape_step, transpose_step


@dataclass(frozen=True)
class Access:
    """A place to read or write.

    Attributes:
      view: the reference.
      coordinates: where not None, which elements of `view`, in place of all.
      steps: what turns the elements into the value, and back.
      outside_is_masked: whether elements out of range read as `other`, too (masked loads).
    """

    view: ir.Value
    coordinates: Coordinates | None = None
    steps: tuple[Step, ...] = field(default=())
    outside_is_masked: bool = False

    def read(self, mask: ir.Value | None = None, other: ir.Value | None = None) -> ir.Value:
        """The value; `mask` and `other` have its shape, or are scalars."""
        mask, other = self._in_place(mask), self._in_place(other)
        if self.coordinates is None:
            value = emit.load(self.view, mask, other)
        else:
            inside = self.coordinates.inside if self.outside_is_masked else None
            indices = self.coordinates.indices
            value = emit.gather(self.view, indices, _both(mask, inside, shape_of(indices[0].type)), other)
        return self.from_memory(value)

    def write(self, value: ir.Value, mask: ir.Value | None = None) -> None:
        """Writes `value`, except where `mask` is false."""
        stored, where = self.to_memory(value), self.write_mask(mask)
        if self.coordinates is None:
            emit.store(stored, self.view, where)
        else:
            emit.scatter(stored, self.view, self.coordinates.indices, where)

    def write_mask(self, mask: ir.Value | None) -> ir.Value | None:
        """`mask` as memory wants it: without the elements out of range."""
        mask = self._in_place(mask)
        if self.coordinates is None:
            return mask
        return _both(mask, self.coordinates.inside, shape_of(self.coordinates.indices[0].type))

    def from_memory(self, value: ir.Value) -> ir.Value:
        """What memory holds, in the shape and type of what is read."""
        for step in self.steps:
            value = step.after_read(value)
        return value

    def to_memory(self, value: ir.Value) -> ir.Value:
        """`value`, of the shape of what is read, in the shape and type of what memory holds."""
        for step in reversed(self.steps):
            value = step.before_write(value)
        return value

    def _in_place(self, value: ir.Value | None) -> ir.Value | None:
        """The same for a mask or what takes the place of masked elements, where a scalar stands for all of them."""
        if value is not None:
            for step in reversed(self.steps):
                value = step.mask_before_write(value)
        return value


def _both(a: ir.Value | None, b: ir.Value | None, shape: tuple[int, ...]) -> ir.Value | None:
    """The conjunction of two optional masks, of `shape`."""
    masks = [emit.broadcast(m, shape, ()) if not is_tile(m.type) else m for m in (a, b) if m is not None]
    return arith.andi(*masks) if len(masks) == 2 else masks[0] if masks else None


def resolve(ref: ir.Value, transforms: Sequence[Any], writes: bool, checked: bool = False) -> Access:
    """The place that a reference and its transforms name.

    The leaves of indexers are `indexing.Operand`s or ints.  `writes`: whether it is for writing (as well);
    `checked`: the rule of masked loads and stores.
    Raises UnsupportedError for transforms, or orders of them, that are not supported.
    """
    chain = [t for t in transforms if not _is_no_bitcast(ref, t)]
    last = max((i for i, t in enumerate(chain) if isinstance(t, NDIndexer)), default=-1)
    to_index, to_value = chain[: last + 1], chain[last + 1 :]
    while to_index and isinstance(to_index[0], NDIndexer):
        box = box_of(to_index[0], checked)
        if box is None:
            break
        ref = box.view_of(ref)
        to_index.pop(0)
    access = Access(ref, outside_is_masked=checked)
    if to_index:
        access = _by_coordinates(access, to_index, Rules(wraps=not checked, tests=checked or writes))
    return replace(access, steps=_value_steps(access, to_value))


def _is_no_bitcast(ref: ir.Value, transform: Any) -> bool:
    """Whether a transform is a bitcast to the type that memory has already."""
    return isinstance(transform, BitcastTransform) and element_type(transform.dtype) == element_of(ref.type)


def _by_coordinates(access: Access, transforms: Sequence[Any], rules: Rules) -> Access:
    """Follows the chain from the result's elements back to those of the reference."""
    shapes = [shape_of(access.view.type)]
    for transform in transforms:
        shapes.append(_shape_after(transform, shapes[-1]))
    coordinates = identity_coordinates(shapes[-1])
    for i in reversed(range(len(transforms))):
        coordinates = coordinates_of(transforms[i], shapes[i], coordinates, i == len(transforms) - 1, rules)
    if not shapes[-1]:
        return _scalar_access(access, coordinates)
    return replace(access, coordinates=coordinates)


def _scalar_access(access: Access, coordinates: Coordinates) -> Access:
    """One element: a view of it; where it must not be touched out of range is left to the clamped place."""
    rank = len(coordinates.indices)
    view = emit.subview(access.view, coordinates.indices, [1] * rank, dropped=range(rank))
    return replace(access, view=view)


def _shape_after(transform: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    match transform:
        case NDIndexer():
            return tuple(int(n) for n in transform.get_indexer_shape())
        case ReshapeTransform():
            return tuple(transform.shape)
        case TransposeTransform():
            return tuple(shape[d] for d in transform.permutation)
        case BitcastTransform():
            raise UnsupportedError(
                f"indexing a reference behind a bitcast to {transform.dtype} is not supported",
                hint="read it as it is and use jax.lax.bitcast_convert_type on the value",
            )
        case _:
            raise UnsupportedError(f"a reference transformed by {type(transform).__name__} is not supported")


def _value_steps(access: Access, transforms: Sequence[Any]) -> tuple[Step, ...]:
    held = access.view.type if access.coordinates is None else access.coordinates.indices[0].type
    shape, element = shape_of(held), element_of(access.view.type)
    steps: list[Step] = []
    for transform in transforms:
        match transform:
            case ReshapeTransform():
                step = reshape_step(shape, tuple(transform.shape))
                shape = tuple(transform.shape)
            case TransposeTransform():
                step = transpose_step(tuple(transform.permutation))
                shape = tuple(shape[d] for d in transform.permutation)
            case BitcastTransform():
                step, shape = bitcast_step(shape, element, element_type(transform.dtype))
                element = element_type(transform.dtype)
            case _:
                raise UnsupportedError(f"a reference transformed by {type(transform).__name__} is not supported")
        steps.append(step)
    return tuple(steps)
