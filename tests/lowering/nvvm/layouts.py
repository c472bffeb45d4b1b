"""Random register layouts for a tile: any of them must give right code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mosaic_gpu.dialect.layouts import Layout

LANE_BITS = 5


def random_layout(rng: np.random.Generator, shape: Sequence[int], num_warps: int = 4, swizzle: bool = False) -> Layout:
    """A layout whose base tile is about as large as `shape`, its bits dealt out to registers, lanes and warps.

    `swizzle`: images are XORed with one another, so that bits of several dimensions mix.
    """
    rank = len(shape)
    limit = [int(np.ceil(np.log2(max(n, 1)))) for n in shape]
    bits = [int(rng.integers(0, n + 1)) for n in limit]
    units = [tuple(1 << b if e == d else 0 for e in range(rank)) for d in range(rank) for b in range(bits[d])]
    order = [units[i] for i in rng.permutation(len(units))]
    warp_bits = num_warps.bit_length() - 1
    threads = LANE_BITS + warp_bits
    moving = min(len(order), threads, int(rng.integers(0, threads + 4)))
    slots = sorted(rng.permutation(threads)[:moving].tolist())
    zero = (0,) * rank
    images = [zero] * threads
    for slot, image in zip(slots, order[:moving], strict=True):
        images[slot] = image
    register = order[moving:]
    if swizzle:
        images, register = _mixed(rng, images, register)
    base = tuple(1 << b for b in bits)
    return Layout(base, tuple(register), tuple(images[:LANE_BITS]), tuple(images[LANE_BITS:]))


def _mixed(
    rng: np.random.Generator, images: list[tuple[int, ...]], register: list[tuple[int, ...]]
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """XORs earlier non-zero images into later ones: independence stays."""
    everything = [*register, *images]
    seen: list[int] = []
    for number, image in enumerate(everything):
        if not any(image):
            continue
        for other in seen:
            if rng.random() < 0.3:
                image = tuple(a ^ b for a, b in zip(image, everything[other], strict=True))
        everything[number] = image
        seen.append(number)
    return everything[len(register) :], everything[: len(register)]
