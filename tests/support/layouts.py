"""Hypothesis strategies for layouts, and what a layout means, worked out element by element."""

from __future__ import annotations

import itertools
import math

from hypothesis import strategies as st

from mosaic_gpu.dialect.layouts import Coordinate, Layout


@st.composite
def shapes(draw: st.DrawFn, max_rank: int = 3, max_size: int = 20) -> Coordinate:
    return tuple(draw(st.lists(st.integers(1, max_size), min_size=1, max_size=max_rank)))


@st.composite
def layouts(draw: st.DrawFn, shape: Coordinate, max_warp_bits: int = 2, mixed: bool = False) -> Layout:
    """A layout for a tile of `shape`: its base may be smaller or larger; `mixed`: images are sums of several bits."""
    sizes = [draw(st.integers(0, min(6, math.ceil(math.log2(n)) + 1))) for n in shape]
    units = [tuple(1 << i if e == d else 0 for e in range(len(shape))) for d, b in enumerate(sizes) for i in range(b)]
    images = draw(st.permutations(units))
    if mixed and len(images) > 1:
        for _ in range(draw(st.integers(0, 4))):
            i, j = draw(st.lists(st.integers(0, len(images) - 1), min_size=2, max_size=2, unique=True))
            images[i] = tuple(a ^ b for a, b in zip(images[i], images[j], strict=True))
    threads = 5 + draw(st.integers(0, max_warp_bits))
    moving = draw(st.integers(0, min(threads, len(images))))
    bits: list[Coordinate] = [(0,) * len(shape)] * threads
    for place, image in zip(draw(st.permutations(range(threads))), images[:moving], strict=False):
        bits[place] = image
    return Layout(tuple(1 << b for b in sizes), tuple(images[moving:]), tuple(bits[:5]), tuple(bits[5:]))


@st.composite
def shaped_layouts(draw: st.DrawFn, mixed: bool = False, max_rank: int = 3) -> tuple[Coordinate, Layout]:
    shape = draw(shapes(max_rank))
    return shape, draw(layouts(shape, mixed=mixed))


def element_at(layout: Layout, shape: Coordinate, thread: int, register: int) -> Coordinate:
    """The coordinate that a register of a thread holds, straight from the definition; padding lies outside."""
    reps = [max(1, math.ceil(s / n)) for s, n in zip(shape, layout.base, strict=True)]
    repetition, inner = divmod(register, 2 ** len(layout.register))
    outer = list(itertools.product(*map(range, reps)))[repetition]
    images = [image for i, image in enumerate(layout.register) if inner >> i & 1]
    images += [image for i, image in enumerate(layout.lane) if thread % 32 >> i & 1]
    images += [image for i, image in enumerate(layout.warp) if thread // 32 >> i & 1]
    coordinate = [0] * len(shape)
    for image in images:
        coordinate = [c ^ i for c, i in zip(coordinate, image, strict=True)]
    return tuple(o * n + c for o, n, c in zip(outer, layout.base, coordinate, strict=True))


def holders(layout: Layout, shape: Coordinate) -> dict[Coordinate, set[tuple[int, int]]]:
    """For each element of the tile the (thread, register) pairs that hold it."""
    found: dict[Coordinate, set[tuple[int, int]]] = {c: set() for c in itertools.product(*map(range, shape))}
    for thread in range(layout.num_threads):
        for register in range(layout.num_registers(shape)):
            coordinate = element_at(layout, shape, thread, register)
            if coordinate in found:
                found[coordinate].add((thread, register))
    return found
