"""The layout of a tile under another shape, where bits alone say it.

Row-major reshapes fall apart into groups of dimensions with equal products, (6, 4, 5) -> (24, 5) into
(6, 4) -> (24) and (5) -> (5).  Inside a group the flat index is a concatenation of bits if all sizes but
the slowest one are powers of two, on both sides: 6x4 -> 24 puts the two bits of the 4 below the bits of
the 6.  The images of the layout are then cut and glued alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from mosaic_gpu.dialect.bits import is_power
from mosaic_gpu.dialect.layouts import Coordinate, Layout

Group = tuple[list[int], list[int]]


@lru_cache(1024)
def reshape(layout: Layout, old: Coordinate, new: Coordinate) -> Layout | None:
    """`Layout.reshape`, which see."""
    if math.prod(old) == 0 or math.prod(new) != math.prod(old):
        return None
    groups = _groups(old, new)
    if any(layout.base[d] > 1 for g in groups if not g[1] for d in g[0]):
        return None
    wider = _widened(layout, old, new, groups)
    if wider is None:
        return None
    base = [1] * len(new)
    for olds, news in groups:
        left = math.prod(wider.base[d] for d in olds)
        for d in reversed(news):
            base[d] = min(left, new[d]) if d != news[0] else left
            left //= base[d]

    def move(image: Coordinate) -> Coordinate:
        out = [0] * len(new)
        for olds, news in groups:
            flat = 0
            for d in olds:
                flat = flat * wider.base[d] + image[d]
            for d in reversed(news):
                flat, out[d] = divmod(flat, base[d])
        return tuple(out)

    parts = (tuple(map(move, part)) for part in (wider.register, wider.lane, wider.warp))
    return Layout(tuple(base), *parts)


def _widened(layout: Layout, old: Coordinate, new: Coordinate, groups: Sequence[Group]) -> Layout | None:
    """`layout` with a base that fills all but the slowest dimension of each group; None where it cannot."""
    base = list(layout.base)
    for olds, news in groups:
        if [old[d] for d in olds] == [new[d] for d in news]:
            continue
        inner = [*(old[d] for d in olds[1:]), *(new[d] for d in news[1:])]
        if not all(is_power(n) for n in inner) or any(base[d] > old[d] for d in olds[1:]):
            return None
        for d in olds[1:]:
            base[d] = old[d]
        if olds:
            inside_new = math.prod(new[d] for d in news[1:])
            inside_old = math.prod(old[d] for d in olds[1:])
            base[olds[0]] = max(base[olds[0]], inside_new // inside_old)
    return layout.extend(base)


def _groups(old: Coordinate, new: Coordinate) -> list[Group]:
    """The smallest runs of dimensions with equal products; dimensions of size 1 are groups by themselves."""
    olds = [d for d, n in enumerate(old) if n != 1]
    news = [d for d, n in enumerate(new) if n != 1]
    groups: list[Group] = [([d], []) for d, n in enumerate(old) if n == 1]
    i = j = 0
    while i < len(olds):
        start_i, start_j = i, j
        left, right = old[olds[i]], new[news[j]]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * old[olds[i]], i + 1
            else:
                right, j = right * new[news[j]], j + 1
        groups.append((olds[start_i:i], news[start_j:j]))
    return groups
