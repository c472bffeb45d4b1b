"""Which dimensions of a grid run in parallel, and which one after another.

Steps of a parallel dimension may run at the same time, so no two of them may write one place.  Where
the user does not say (`dimension_semantics`), a dimension is parallel when every output's block tells
which step of that dimension it belongs to, so that different steps have different blocks.  Two ways of
showing it are tried on each index map:

* affine forms: coordinate k of the block is c0 + c1*id1 + c2*id2 + ..; it tells the steps of those
  dimensions apart if, in the order of their sizes, each |c| exceeds what the smaller ones add up to,
  as the digits of a number do;
* enumeration: the map is evaluated at every point of the grid, if that is small.

Everything else is sequential, as it is for Pallas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.errors import KernelError
from mosaic_gpu.lowering.jaxpr.compat import Blocked, Element, Squeezed, is_dynamic_bound
from mosaic_gpu.lowering.jaxpr.index_maps import affine_forms, evaluate
from mosaic_gpu.lowering.kernel_call import KernelCall

_MAX_POINTS = 1 << 16
_MAX_EXTENT = 2**31 - 1
_PERSISTENT = -1


@dataclass(frozen=True)
class GridPlan:
    """The launched (parallel) and the looped (sequential) dimensions of a grid, each slowest first.

    `extents`: of all dimensions; None where they are known at run time only.
    """

    extents: tuple[int | None, ...]
    parallel: tuple[int, ...]
    sequential: tuple[int, ...]

    @property
    def is_persistent(self) -> bool:
        """Whether the number of parallel steps is not known: then blocks walk over them."""
        return None in [self.extents[d] for d in self.parallel] and 0 not in self.extents

    @property
    def launched(self) -> tuple[int, ...]:
        """The grid of the `mgpu.kernel`."""
        if self.is_persistent:
            return (_PERSISTENT,)
        known = [self.extents[d] for d in self.parallel]
        return tuple(1 if extent is None else extent for extent in known)


def plan_grid(call: KernelCall) -> GridPlan:
    """Sorts the dimensions of the call's grid."""
    mapping = call.grid_mapping
    extents = tuple(None if is_dynamic_bound(n) else int(n) for n in mapping.grid)
    if 0 in extents:
        return GridPlan(extents, tuple(range(len(extents))), ())
    said = _said_semantics(call, len(extents), tuple(mapping.vmapped_dims))
    reach = tuple(_MAX_EXTENT if n is None else n for n in extents)
    inferred = _infer_parallel(call, reach) if None in said else ()
    parallel = tuple(d for d, kind in enumerate(said) if kind == "parallel" or (kind is None and d in inferred))
    return GridPlan(extents, parallel, tuple(d for d in range(len(extents)) if d not in parallel))


def _said_semantics(call: KernelCall, rank: int, vmapped: tuple[int, ...]) -> list[str | None]:
    """What the user says of each dimension; None where that is nothing (dimensions that vmap added)."""
    said = call.options.dimension_semantics
    if said is None:
        return [None] * rank
    own = [d for d in range(rank) if d not in vmapped]
    if len(said) not in (len(own), rank):
        raise KernelError(
            "dimension_semantics must have one entry for each dimension of the grid",
            got=tuple(said),
            expected=f"{len(own)} entries",
        )
    result: list[str | None] = [None] * rank
    for d, kind in zip(own if len(said) == len(own) else range(rank), said, strict=True):
        result[d] = _canonical(kind)
    return result


def _canonical(kind: object) -> str:
    """What a string, or a value of an enumeration of Pallas, says: "parallel" or "sequential"."""
    word = str(getattr(kind, "name", kind)).lower()
    if word in ("parallel", "core_parallel", "subcore_parallel"):
        return "parallel"
    if word in ("sequential", "arbitrary"):
        return "sequential"
    raise KernelError("unknown dimension_semantics", got=repr(kind), expected='"parallel" or "sequential"')


def _infer_parallel(call: KernelCall, extents: tuple[int, ...]) -> set[int]:
    mapping = call.grid_mapping
    dims = set(range(len(extents)))
    if mapping.scratch_avals:
        # Scratch memory lives through all steps of the user's grid.
        dims &= set(mapping.vmapped_dims)
    blocks = mapping.block_mappings
    outputs = blocks[mapping.num_inputs :]
    for output in outputs:
        dims &= _separated(output, extents)
    for source, target in call.input_output_aliases:
        if not _same_blocks(blocks[source - mapping.num_index_operands], outputs[target]):
            dims.clear()
    return dims | {d for d, n in enumerate(extents) if n == 1}


def _same_blocks(a: Any, b: Any) -> bool:
    """Whether two operands have the same block at every step."""
    same_shape = a.block_shape == b.block_shape
    return same_shape and str(a.index_map_jaxpr) == str(b.index_map_jaxpr)


def _separated(block: Any, extents: tuple[int, ...]) -> set[int]:
    """The dimensions whose step one can tell from the block of an output."""
    dims = {d for d, n in enumerate(extents) if n == 1}
    forms = affine_forms(block.index_map_jaxpr, len(extents))
    for form, size in zip(forms, block.block_shape, strict=True):
        if form is not None and isinstance(size, (Blocked, Squeezed, Element)):
            dims |= _separated_by_form(form, extents, size.block_size if isinstance(size, Element) else 1)
    enumerable = math.prod(extents) <= _MAX_POINTS and all(
        isinstance(size, (Blocked, Squeezed)) for size in block.block_shape
    )
    if len(dims) < len(extents) and enumerable:
        points = np.indices(extents, dtype=np.int64).reshape(len(extents), -1)
        found = evaluate(block.index_map_jaxpr, list(points))
        dims |= set() if found is None else _separated_by_enumeration(points, found)
    return dims


def _separated_by_enumeration(points: np.ndarray[Any, Any], blocks: Sequence[np.ndarray[Any, Any]]) -> set[int]:
    count = points.shape[1]
    ids = np.stack([np.broadcast_to(b, (count,)) for b in blocks]) if blocks else np.zeros((1, count), np.int64)
    _, group = np.unique(ids, axis=1, return_inverse=True)
    group = group.reshape(-1)
    dims = set()
    for d, coordinate in enumerate(points):
        first = np.zeros(count, np.int64)
        first[group] = coordinate
        if np.array_equal(first[group], coordinate):
            dims.add(d)
    return dims


def _separated_by_form(form: tuple[int, ...], extents: tuple[int, ...], width: int) -> set[int]:
    """`form`: the coefficients of the dimensions; `width`: how many places a block takes up."""
    dims = sorted((d for d, c in enumerate(form) if c and extents[d] > 1), key=lambda d: abs(form[d]))
    reach = width - 1
    for d in dims:
        if abs(form[d]) <= reach:
            return set()
        reach += abs(form[d]) * (extents[d] - 1)
    return set(dims)
