"""Up to which bounds the steps of a grid are independent, where the bounds are known at run time only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MAX_EXTENT = 2**31 - 1

Extents = tuple[int, ...]


def largest_extents(extents: Sequence[int | None], are_independent: Callable[[Extents], bool]) -> Extents | None:
    """The largest extents, in place of those that are None, with which a grid's steps are known to be independent.

    For instance (None,) for a kernel that writes 128 elements of 1024 a step: (8,).  Each dimension is tried by itself;
    where they do not go together, all get the same extent.  None where it is 1: then nothing is gained.
    """
    computed = [d for d, extent in enumerate(extents) if extent is None]

    def filled(sizes: dict[int, int]) -> Extents:
        return tuple(sizes.get(d, 1) if extent is None else extent for d, extent in enumerate(extents))

    def largest(dims: Sequence[int]) -> int:
        """The largest extent of `dims` together, the other computed ones being 1."""
        low, high = 1, MAX_EXTENT + 1
        while high - low > 1:
            middle = (low + high) // 2
            if are_independent(filled(dict.fromkeys(dims, middle))):
                low = middle
            else:
                high = middle
        return low

    if not are_independent(filled(dict.fromkeys(computed, 2))):
        return None
    found = filled({d: largest([d]) for d in computed})
    return found if are_independent(found) else filled(dict.fromkeys(computed, largest(computed)))
