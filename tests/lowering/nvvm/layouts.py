"""Random tiles and register layouts: any layout must give right code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from mosaic_gpu.dialect.layouts import Layout

LANE_BITS = 5
MOST_REGISTERS = 128
DTYPES: tuple[Any, ...] = (
    np.float32, np.int32, np.int8, np.int16, np.int64, np.float16, ml_dtypes.bfloat16, np.float64, np.bool_, np.uint8,
)  # fmt: skip

Images = list[tuple[int, ...]]


def random_dtype(rng: np.random.Generator, dtypes: Sequence[Any] = DTYPES) -> Any:
    return dtypes[int(rng.integers(len(dtypes)))]


def random_shape(rng: np.random.Generator, rank: int, limit: int = 20) -> tuple[int, ...]:
    """Sizes below `limit`, now and then a power of two that may be larger."""
    sizes = [rng.integers(1, limit) if rng.random() < 0.7 else 2 ** rng.integers(0, 6) for _ in range(rank)]
    return tuple(int(n) for n in sizes)


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
    """Small whole numbers, exact in every dtype and every order of summation that the tests use."""
    if dtype == np.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    return np.asarray(rng.integers(-8, 8, shape)).astype(dtype)


def random_layout(rng: np.random.Generator, shape: Sequence[int], num_warps: int = 4) -> Layout:
    """A layout of at most `MOST_REGISTERS` registers, in three of ten cases one that mixes dimensions."""
    for _ in range(30):
        layout = _dealt_out(rng, shape, num_warps, swizzle=rng.random() < 0.3)
        if layout.num_registers(shape) <= MOST_REGISTERS:
            return layout
    return Layout.blocked(shape, num_warps)


def _dealt_out(rng: np.random.Generator, shape: Sequence[int], num_warps: int, *, swizzle: bool) -> Layout:
    """A base tile about as large as `shape`, its bits dealt out to registers, lanes and warps."""
    rank = len(shape)
    bits = [int(rng.integers(0, int(np.ceil(np.log2(max(n, 1)))) + 1)) for n in shape]
    units = [tuple(1 << b if e == d else 0 for e in range(rank)) for d in range(rank) for b in range(bits[d])]
    order = [units[i] for i in rng.permutation(len(units))]
    threads = LANE_BITS + num_warps.bit_length() - 1
    moving = min(len(order), int(rng.integers(0, threads + 4)), threads)
    images: Images = [(0,) * rank] * threads
    for slot, image in zip(sorted(rng.permutation(threads)[:moving].tolist()), order[:moving], strict=True):
        images[slot] = image
    register = order[moving:]
    if swizzle:
        mixed = _mixed(rng, [*register, *images])
        register, images = mixed[: len(register)], mixed[len(register) :]
    base = tuple(1 << b for b in bits)
    return Layout(base, tuple(register), tuple(images[:LANE_BITS]), tuple(images[LANE_BITS:]))


def _mixed(rng: np.random.Generator, images: Images) -> Images:
    """XORs earlier non-zero images into later ones: independence stays."""
    mixed: Images = []
    for image in images:
        for other in mixed:
            if any(image) and rng.random() < 0.3:
                image = tuple(a ^ b for a, b in zip(image, other, strict=True))
        mixed.append(image)
    return mixed
