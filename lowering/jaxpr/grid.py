"""Which dimensions of a grid run in parallel, and which one after another.

Steps of a parallel dimension may run at the same time, so no two of them may write one place.  Where
the user does not say (`dimension_semantics`), a dimension is parallel when every output's block tells
which step of that dimension it belongs to, so that different steps have different blocks.  Two ways of
showing it are tried on each index map:

* affine forms: coordinate k of the block is c0 + c1*id1 + c2*id2 + ..; it tells the steps of those
  dimensions apart if, in the order of their sizes, each |c| exceeds what the smaller ones add up to,
  as the digits of a number do;
* enumeration: the map is evaluated at every point of the grid, if that is small.

Where blocks do not tell, the body may: a kernel that writes `o_ref[pl.ds(pl.program_id(0) * 128, 128)]` of a whole
output touches other places in each step, and the same argument holds for them (see `footprints`).

Everything else is sequential, as it is for Pallas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.errors import KernelError
from mosaic_gpu.lowering.jaxpr.compat import Blocked, Element, Squeezed, is_dynamic_bound, is_literal
from mosaic_gpu.lowering.jaxpr.footprints import Footprint, footprints
from mosaic_gpu.lowering.jaxpr.grid_limits import MAX_EXTENT, largest_extents
from mosaic_gpu.lowering.jaxpr.index_maps import affine_forms, evaluate
from mosaic_gpu.lowering.kernel_call import KernelCall

_MAX_POINTS = 1 << 16
_PERSISTENT = -1


@dataclass(frozen=True)
class GridPlan:
    """The launched (parallel) and the looped (sequential) dimensions of a grid, each slowest first.

    `extents`: of all dimensions; None where they are known at run time only.  `separated`: the sequential dimensions
    whose steps have different blocks, so that only scratch memory is between them and running in parallel.
    `limits`: where not empty, an extent for each dimension; with computed bounds beyond them steps are not known to be
    independent, and one block has to do all of them in order.
    """

    extents: tuple[int | None, ...]
    parallel: tuple[int, ...]
    sequential: tuple[int, ...]
    separated: tuple[int, ...] = ()
    limits: tuple[int, ...] = ()

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
    reach = tuple(MAX_EXTENT if n is None else n for n in extents)
    inferred = _infer_parallel(call, reach) if None in said else ()
    parallel = tuple(d for d, kind in enumerate(said) if kind == "parallel" or (kind is None and d in inferred))
    sequential = tuple(d for d in range(len(extents)) if d not in parallel)
    has_scratch = bool(mapping.scratch_avals) and None in said
    told = _separated_steps(call, reach) if has_scratch else set()
    if sequential and None in extents and not has_scratch and set(said) == {None}:
        limits = largest_extents(extents, lambda tried: len(_infer_parallel(call, tried)) == len(extents))
        if limits is not None:
            return GridPlan(extents, tuple(range(len(extents))), (), limits=limits)
    return GridPlan(extents, parallel, sequential, tuple(d for d in sequential if said[d] is None and d in told))


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
    dims = set(range(len(extents)))
    if call.grid_mapping.scratch_avals:
        # Scratch memory lives through all steps of the user's grid.
        dims &= set(call.grid_mapping.vmapped_dims)
    return _separated_steps(call, extents, dims) | {d for d, n in enumerate(extents) if n == 1}


def _separated_steps(call: KernelCall, extents: tuple[int, ...], among: set[int] | None = None) -> set[int]:
    """The dimensions, of those in `among`, whose steps write different places."""
    mapping = call.grid_mapping
    dims = set(range(len(extents))) if among is None else set(among)
    blocks = mapping.block_mappings
    outputs = blocks[mapping.num_inputs :]
    by_blocks = [_separated(output, extents) for output in outputs]
    if not all(dims <= told for told in by_blocks):
        by_places = _separated_by_places(call, extents)
        by_blocks = [a | b for a, b in zip(by_blocks, by_places, strict=True)]
    for told in by_blocks:
        dims &= told
    for source, target in call.input_output_aliases:
        if not _same_blocks(blocks[source - mapping.num_index_operands], outputs[target]):
            dims.clear()
    return dims


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
    # Where all forms are known, a dimension that none of them has is not to be told, however many points are looked at.
    hopeless = {d for d in range(len(extents)) if all(form is not None and not form[d] for form in forms)}
    undecided = len(dims | hopeless) < len(extents)
    if undecided and enumerable and not all(is_literal(v) for v in block.index_map_jaxpr.outvars):
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
    """`form`: the coefficients of the dimensions; `width`: how many places a block takes up.

    Two steps that differ in one of the result's dimensions have no place in common, whatever their other ids.
    """
    dims = sorted((d for d, c in enumerate(form) if c and extents[d] > 1), key=lambda d: abs(form[d]))
    told: set[int] = set()
    reach = width - 1
    for d in dims:
        if abs(form[d]) > reach:
            told.add(d)
        else:
            told.clear()
        reach += abs(form[d]) * (extents[d] - 1)
    return told


def _separated_by_places(call: KernelCall, extents: tuple[int, ...]) -> list[set[int]]:
    """For each output the dimensions whose step one can tell from the places that the body touches in the output."""
    mapping = call.grid_mapping
    first = len(call.jaxpr.invars) - len(mapping.scratch_avals) - mapping.num_outputs
    names = [[first + k, *(i for i, o in call.input_output_aliases if o == k)] for k in range(mapping.num_outputs)]
    axes = [d for d in range(len(extents)) if d not in mapping.vmapped_dims]
    found = footprints(call.jaxpr, [n for group in names for n in group], axes, extents)
    outputs = mapping.block_mappings[mapping.num_inputs :]
    return [
        _separated_by_footprints(block, [place for name in group for place in found[name]], extents)
        for block, group in zip(outputs, names, strict=True)
    ]


def _separated_by_footprints(block: Any, places: Sequence[Footprint], extents: tuple[int, ...]) -> set[int]:
    if not places:
        return set(range(len(extents)))
    kept = [size for size in block.block_shape if not isinstance(size, Squeezed)]
    if any(len(place) != len(kept) for place in places):
        return set()
    maps = affine_forms(block.index_map_jaxpr, len(extents))
    maps = [form for form, size in zip(maps, block.block_shape, strict=True) if not isinstance(size, Squeezed)]
    told: set[int] = set()
    for form, size, *along in zip(maps, kept, *places, strict=True):
        inside = [a for a in along if a is not None]
        if form is None or len(inside) != len(along) or len({a.coefficients for a in inside}) != 1:
            continue
        scale = size.block_size if isinstance(size, Blocked) else 1
        total = tuple(c * scale + a for c, a in zip(form, inside[0].coefficients, strict=True))
        told |= _separated_by_form(total, extents, max(a.high for a in inside) - min(a.low for a in inside) + 1)
    return told
