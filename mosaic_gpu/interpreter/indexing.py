"""From a reference and its chain of transforms to a selection of memory.

Indices outside of a dimension of size n follow the compiled path's rule (docs/kernels.md): a negative index counts from
the end, once; reading clamps what is still outside; writing clamps starts of slices and scalar indices, and drops the
elements of index arrays that are outside; a strided slice that does not fit counts as an index array.  In masked
accesses, and in copies by the TMA engine, nothing wraps or clamps, and what is outside is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from mosaic_gpu.errors import KernelError, UnsupportedError
from mosaic_gpu.interpreter.memory import Box, Memory, Places, Recast
from mosaic_gpu.interpreter.values import Array
from mosaic_gpu.lowering.jaxpr.compat import NDIndexer, Slice


@dataclass(frozen=True)
class Rules:
    """What becomes of indices out of range.

    Attributes:
      writes: whether the access writes.
      exact: whether nothing wraps or clamps, and what is outside is left out.
      outside: called with a message for what is outside after wrapping.
      peer: gives the memory that stands for this one in another block of the cluster.
    """

    writes: bool = False
    exact: bool = False
    fills: bool = False
    outside: Callable[[str], None] | None = None
    peer: Callable[[Memory, Any], Memory] | None = None


FILLED = -2
"""The number of an element out of bounds, where it is to read as uninitialised memory; -1 is padding of a block."""


class _Leaf:
    """Stands for a computed leaf of an equation's transforms: its number among the leaves."""

    def __init__(self, number: int) -> None:
        self.number = number


@dataclass(frozen=True)
class _Dimension:
    """One index of an indexer: a slice (`size` elements, `step` apart) or, where `size` is None, a scalar or array.

    `leaf`: the number of the leaf that computes where it starts; None where `start` says it.
    """

    start: int
    leaf: int | None
    size: int | None
    step: int


class Plan:
    """The transforms of a reference in an equation, taken apart once.

    Attributes:
      fixed: how many of them come first that nothing computes: their result is kept with the memory.
      indexers: for each transform its dimensions, where it is an indexer whose sizes are known.
    """

    def __init__(self, tree: Any, count: int) -> None:
        self.tree, self.count = tree, count
        transforms = () if tree is None else jax.tree_util.tree_unflatten(tree, [_Leaf(i) for i in range(count)])
        self.transforms: tuple[Any, ...] = tuple(transforms)
        computed = [bool(_leaves(t)) for t in self.transforms]
        self.fixed = computed.index(True) if True in computed else len(computed)
        self.indexers = [_dimensions(t) for t in self.transforms]

    def bound(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """The transforms with their values."""
        return () if self.tree is None else tuple(jax.tree_util.tree_unflatten(self.tree, leaves))

    def first_indices(self, leaves: Sequence[Any]) -> list[int]:
        """The starts of all indices, one after another, as what names a barrier gives them."""
        dims = [d for dims in self.indexers for d in dims or ()]
        return [d.start if d.leaf is None else int(leaves[d.leaf]) for d in dims]

    def select(self, selection: Any, leaves: Sequence[Any], rules: Rules) -> Any:
        """The selection that the transforms name."""
        if self.fixed:
            selection = self._after_fixed(selection, rules)
        for place in range(self.fixed, len(self.transforms)):
            dims = self.indexers[place]
            found = _fast_box(selection, dims, leaves) if dims is not None and type(selection) is Box else None
            if found is None:
                return resolve(selection, self.bound(leaves)[place:], rules)
            selection = found
        return selection

    def _after_fixed(self, selection: Any, rules: Rules) -> Any:
        views = selection.memory.views
        kept = views.get((self, id(selection)))
        if kept is not None and kept[0] is selection:
            return kept[1]
        found = resolve(selection, self.transforms[: self.fixed], rules)
        views[self, id(selection)] = (selection, found)
        return found


def _leaves(transform: Any) -> list[Any]:
    return [leaf for leaf in jax.tree_util.tree_leaves(transform) if isinstance(leaf, _Leaf)]


def _dimensions(transform: Any) -> tuple[_Dimension, ...] | None:
    if not isinstance(transform, NDIndexer):
        return None
    dims = []
    for index in _indices(transform):
        is_slice = isinstance(index, Slice)
        start: Any = index.start if is_slice else index
        size = index.size if is_slice else None
        if isinstance(size, _Leaf) or not isinstance(start, int | np.integer | _Leaf):
            return None
        leaf = start.number if isinstance(start, _Leaf) else None
        fixed = 0 if isinstance(start, _Leaf) else int(start)
        dims.append(_Dimension(fixed, leaf, size, index.stride if is_slice else 1))
    return tuple(dims)


def _fast_box(selection: Box, dims: tuple[_Dimension, ...], leaves: Sequence[Any]) -> Box | None:
    """Where every index is a number or a slice that fits; None where there is more to say."""
    offset, shape, strides = selection.offset, [], []
    for dim, extent, stride in zip(dims, selection.shape, selection.strides, strict=True):
        start, size = dim.start, dim.size
        if dim.leaf is not None:
            leaf = leaves[dim.leaf]
            if type(leaf) is np.ndarray and leaf.ndim:
                return None
            start = int(leaf)
        if size is None:
            if not 0 <= start < extent:
                return None
        else:
            if not 0 <= start <= extent or (size and start + (size - 1) * dim.step >= extent):
                return None
            shape.append(size)
            strides.append(stride * dim.step)
        offset += start * stride
    return Box(selection.memory, selection.dtype, tuple(shape), offset, tuple(strides))


def _indices(indexer: Any) -> tuple[Any, ...]:
    """Numbers, arrays and slices, one a dimension."""
    return tuple(indexer.indices)


def plan_of(cache: dict[Any, Any], name: str, tree: Any) -> Plan:
    """The plan of the transforms with this tree, kept in an equation's cache."""
    plan: Plan | None = cache.get(name)
    if plan is None:
        plan = cache[name] = Plan(tree, 0 if tree is None else tree.num_leaves)
    return plan


def resolve(selection: Any, transforms: Sequence[Any], rules: Rules) -> Any:
    """The selection that `transforms` of a selection name; the leaves of the transforms are numbers and arrays."""
    for transform in transforms:
        rule = _TRANSFORMS.get(type(transform).__name__)
        if rule is None:
            raise UnsupportedError(f"a reference transformed by {type(transform).__name__} is not supported")
        if isinstance(selection, Recast):
            selection = _of_recast(selection, transform)
        else:
            selection = rule(selection, transform, rules)
    return selection


def _of_recast(selection: Recast, transform: Any) -> Any:
    raise UnsupportedError(
        f"{type(transform).__name__} behind a bitcast to {selection.dtype} is not supported",
        hint="index first, and bitcast what is read",
    )


def _untile(selection: Any, transform: Any, rules: Rules) -> Any:
    """(.., M/X, N/Y, X, Y) to (.., M, N)."""
    rank = len(transform.tiling)
    lead = len(selection.shape) - 2 * rank
    order = [*range(lead)]
    for d in range(rank):
        order += [lead + d, lead + rank + d]
    shape = [selection.shape[lead + d] * selection.shape[lead + rank + d] for d in range(rank)]
    return selection.transpose(tuple(order)).reshape((*selection.shape[:lead], *shape))


def _bitcast(selection: Any, transform: Any, rules: Rules) -> Any:
    dtype = np.dtype(transform.dtype)
    if dtype == selection.dtype:
        return selection
    if dtype.itemsize == selection.dtype.itemsize:
        return replace(selection, dtype=dtype)
    if len(selection.shape) < 2:
        raise UnsupportedError("a bitcast to another width needs a reference of two dimensions or more")
    *rest, rows, columns = selection.shape
    return Recast(selection, dtype, (*rest, rows * selection.dtype.itemsize // dtype.itemsize, columns))


def _extract(selection: Any, transform: Any, rules: Rules) -> Any:
    """A member of a union of references: a part of its bytes."""
    dtype = np.dtype(transform.dtype)
    strides = [dtype.itemsize] * len(transform.shape)
    for d in reversed(range(len(strides) - 1)):
        strides[d] = strides[d + 1] * transform.shape[d + 1]
    return Box(selection.memory, dtype, tuple(transform.shape), transform.offset, tuple(strides))


def _cluster(selection: Any, transform: Any, rules: Rules) -> Any:
    """The same memory of another block of the cluster."""
    if rules.peer is None:
        raise UnsupportedError("a reference to another block's memory is not supported here")
    return replace(selection, memory=rules.peer(selection.memory, transform))


def _index(selection: Any, indexer: NDIndexer, rules: Rules) -> Any:
    if isinstance(selection, Box):
        found = _box(selection, indexer, rules)
        if found is not None:
            return found
    return _listed(selection.places(), indexer, rules)


def _box(selection: Box, indexer: NDIndexer, rules: Rules) -> Box | None:
    """Where every index is a number or a slice, and fits after wrapping and clamping."""
    offset, shape, strides = selection.offset, [], []
    for dim, (index, extent) in enumerate(zip(_indices(indexer), selection.shape, strict=True)):
        stride = selection.strides[dim]
        is_slice = isinstance(index, Slice)
        if is_slice:
            start, size, step = int(index.start), int(index.size), int(index.stride)
        else:
            if np.ndim(index):
                return None
            start, size, step = int(index), 1, 1
        span = (size - 1) * step + 1 if size else 0
        limit = extent - span
        if not 0 <= start <= limit:
            wrapped = start + extent if start < 0 and not rules.exact else start
            if not 0 <= wrapped <= limit:
                if rules.exact or rules.fills or limit < 0 or step > 1 or (size and not extent):
                    return None
                _report(rules, start, span if is_slice else 0, dim, extent)
                wrapped = min(max(wrapped, 0), limit)
            start = wrapped
        offset += start * stride
        if is_slice:
            shape.append(size)
            strides.append(stride * step)
    return Box(selection.memory, selection.dtype, tuple(shape), offset, tuple(strides))


def _report(rules: Rules, start: Any, span: int, dim: int, extent: int) -> None:
    if rules.outside is not None:
        what = f"the slice from {start} to {start + span}" if span else f"index {start}"
        rules.outside(f"{what} in dimension {dim} of size {extent}")


def _listed(selection: Places, indexer: NDIndexer, rules: Rules) -> Places:
    """NumPy's indexing on the list of elements; what is left out has a negative number."""
    numbers, indices = selection.numbers, []
    scalar = all(not isinstance(i, Slice) and not np.ndim(i) for i in indexer.indices)
    for dim, (index, extent) in enumerate(zip(_indices(indexer), selection.shape, strict=True)):
        whole = _along(index)
        if not extent and whole.size and not rules.exact:
            raise KernelError("an index into an empty dimension")
        wrapped = whole if rules.exact else np.where(whole < 0, whole + extent, whole)
        ok = (wrapped >= 0) & (wrapped < extent)
        if not ok.all():
            if not rules.exact:
                _report(rules, whole[~ok].ravel()[0] if whole.ndim else whole[()], 0, dim, extent)
            if rules.exact or rules.fills or (rules.writes and not scalar):
                # One more place along the dimension, which stands for all that is outside.
                numbers = np.insert(numbers, extent, FILLED if rules.fills else -1, axis=dim)
                wrapped = np.where(ok, wrapped, extent)
            else:
                wrapped = np.clip(wrapped, 0, max(extent - 1, 0))
        indices.append(_Sliced(wrapped) if isinstance(index, Slice) else wrapped)
    return replace(selection, numbers=_numpy_index(numbers, indices))


@dataclass(frozen=True)
class _Sliced:
    """The places of a slice: an index along one dimension that keeps it."""

    places: Array


def _along(index: Any) -> Array:
    if isinstance(index, Slice):
        return int(index.start) + np.arange(int(index.size)) * int(index.stride)
    array = np.asarray(index)
    if array.dtype == np.bool_:
        raise UnsupportedError(
            "a boolean mask as an index is not supported",
            hint="use jnp.where on the value, or plgpu.load and plgpu.store with a mask",
        )
    return np.minimum(array, 2**62).astype(np.int64) if array.dtype == np.uint64 else array.astype(np.int64)


def _numpy_index(array: Array, indices: Sequence[Any]) -> Array:
    """`array[indices]` where a `_Sliced` selects along its dimension and keeps it there."""
    for dim, index in enumerate(indices):
        if isinstance(index, _Sliced):
            array = np.take(array, index.places, dim)
    rest = tuple(slice(None) if isinstance(i, _Sliced) else i for i in indices)
    return np.asarray(array[rest], np.int64)


def _transpose(selection: Any, transform: Any, rules: Rules) -> Any:
    return selection.transpose(tuple(transform.permutation))


def _reshape(selection: Any, transform: Any, rules: Rules) -> Any:
    return selection.reshape(tuple(transform.shape))


def _same(selection: Any, transform: Any, rules: Rules) -> Any:
    """How the elements lie in memory changes nothing here."""
    return selection


_TRANSFORMS: dict[str, Callable[[Any, Any, Rules], Any]] = {
    "NDIndexer": _index,
    "ReshapeTransform": _reshape,
    "TransposeTransform": _transpose,
    "BitcastTransform": _bitcast,
    "UntilingTransform": _untile,
    "UnswizzleRef": _same,
    "IdentityTransform": _same,
    "ExtractAliasedRef": _extract,
    "ClusterRefTransform": _cluster,
}
