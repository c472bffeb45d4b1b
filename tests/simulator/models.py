"""Plain models of the matrix instructions, element by element from the tables of the PTX ISA.

Nothing here comes from the simulator.  Numbers are Python floats and ints; sums of integers are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32, "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8, "s32": np.int32,
}  # fmt: skip


def random_matrix(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    """Random elements that a kind holds exactly, small enough for exact sums; not all the same."""
    if kind in ("s8", "u8"):
        limits = np.iinfo(DTYPES[kind])
        return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(DTYPES[kind])
    if kind == "s4":
        return rng.integers(-8, 8, shape).astype(np.int8)
    if kind in ("u4", "b1"):
        return rng.integers(0, 16 if kind == "u4" else 2, shape).astype(np.uint8)
    return (rng.integers(-8, 9, shape) / 4).astype(DTYPES[kind])


def a_element(m: int, k: int, kind: str, lane: int, i: int) -> tuple[int, int]:
    """(row, column) of a_i in A (PTX ISA, "Matrix Fragments for mma.m8n8k4" to "mma.m16n8k256")."""
    group, thread = lane >> 2, lane % 4
    if kind == "f64":
        return (group if m == 8 or i % 2 == 0 else group + 8), thread + (0 if m == 8 else i // 2 * 4)
    if kind == "tf32":
        return (group if i in (0, 2) else group + 8), (thread if i < 2 else thread + 4)
    if kind in ("f16", "bf16"):
        row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
        return row, thread * 2 + (i & 1) + (8 if i >= 4 else 0)
    bits = {"e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}[kind]
    each = 32 // bits
    if m == 8:
        return group, thread * each + i % each
    row = group if 0 <= i < each or 2 * each <= i < 3 * each else group + 8
    return row, thread * each + i % each + (4 * each if i >= 2 * each else 0)


def b_element(k: int, kind: str, lane: int, i: int) -> tuple[int, int]:
    """(row, column) of b_i in B."""
    group, thread = lane >> 2, lane % 4
    if kind in ("f64", "tf32"):
        return thread + 4 * i, group
    each = {"f16": 2, "bf16": 2, "s4": 8, "u4": 8, "b1": 32}.get(kind, 4)
    return thread * each + i % each + (4 * each if i >= each else 0), group


def c_element(m: int, lane: int, i: int) -> tuple[int, int]:
    """(row, column) of c_i in C or D of an m x 8 tile."""
    group, thread = lane >> 2, lane % 4
    return (group if m == 8 or i < 2 else group + 8), thread * 2 + (i & 1)


def wgmma_d_element(thread: int, i: int) -> tuple[int, int]:
    """(row, column) of d_i in the 64 x N accumulator of a warpgroup (PTX ISA, "Register Fragments", wgmma)."""
    warp, lane = thread // 32 % 4, thread % 32
    row = 16 * warp + lane // 4 + 8 * (i // 2 % 2)
    return row, 8 * (i // 4) + 2 * (lane % 4) + i % 2


def pack(elements: Array, kind: str) -> Array:
    """Elements of one lane in order -> its registers (u64 for f64, else u32), the first element lowest."""
    if kind in ("s4", "u4", "b1"):
        width = 1 if kind == "b1" else 4
        each, words = 32 // width, []
        for start in range(0, len(elements), each):
            word = 0
            for i in range(each):
                word |= (int(elements[start + i]) & ((1 << width) - 1)) << (width * i)
            words.append(word)
        return np.array(words, np.uint32)
    raw = np.ascontiguousarray(elements.astype(DTYPES[kind]))
    return raw.view(np.uint64 if kind == "f64" else np.uint32)


def fragments(matrix: Array, kind: str, which: str, shape: tuple[int, int, int]) -> Array:
    """(32, registers): the registers of a warp that hold A, B or C (`which`)."""
    m, _, k = shape
    count = matrix.size // 32
    lanes = []
    for lane in range(32):
        places: Iterator[tuple[int, int]] = (
            a_element(m, k, kind, lane, i) if which == "a" else b_element(k, kind, lane, i) if which == "b"
            else c_element(m, lane, i) for i in range(count)
        )  # fmt: skip
        lanes.append(pack(np.array([matrix[place] for place in places]), kind))
    return np.array(lanes)


def gather_accumulator(registers: Array, kind: str, m: int) -> Array:
    """(32, registers) of D -> the m x 8 matrix."""
    result = np.zeros((m, 8), DTYPES[kind])
    for lane in range(32):
        elements = np.ascontiguousarray(registers[lane]).view(DTYPES[kind])
        for i, value in enumerate(elements):
            result[c_element(m, lane, i)] = value
    return result


def product(a: Array, b: Array, c: Array) -> Array:
    """a @ b + c of small numbers, exact in float64 or int64."""
    wide = np.int64 if a.dtype.kind in "iu" and a.dtype.name in ("int8", "uint8") else np.float64
    return np.asarray(a.astype(wide) @ b.astype(wide) + c.astype(wide))


#: The PTX ISA's figures of the swizzles: line of 128 bytes -> where each chunk of 16 bytes of it is found.
SWIZZLE_LINES = {
    0: [[0, 1, 2, 3, 4, 5, 6, 7]],
    32: [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6]],
    64: [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6], [2, 3, 0, 1, 6, 7, 4, 5], [3, 2, 1, 0, 7, 6, 5, 4]],
    128: [
        [0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6], [2, 3, 0, 1, 6, 7, 4, 5], [3, 2, 1, 0, 7, 6, 5, 4],
        [4, 5, 6, 7, 0, 1, 2, 3], [5, 4, 7, 6, 1, 0, 3, 2], [6, 7, 4, 5, 2, 3, 0, 1], [7, 6, 5, 4, 3, 2, 1, 0],
    ],
}  # fmt: skip


def swizzle(offset: int, width: int) -> int:
    """Where the byte at `offset` from the pattern's start is found, with a swizzle of `width` bytes."""
    lines = SWIZZLE_LINES[width]
    line, chunk, byte = offset // 128, offset % 128 // 16, offset % 16
    return 128 * line + 16 * lines[line % len(lines)][chunk] + byte


def descriptor(start: int, leading: int, stride: int, width: int, base_offset: int = 0) -> int:
    """The 64 bits of a matrix descriptor (PTX ISA, "Matrix Descriptor Format")."""
    mode = {0: 0, 128: 1, 64: 2, 32: 3}[width]
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base_offset << 49 | mode << 62


def operand_image(matrix: Array, kind: str, k_major: bool, width: int, leading: int, stride: int) -> dict[int, bytes]:
    """Byte offset from the pattern's start -> bytes, for each element of an operand given as (M or N, K).

    Core matrices are 8 rows of 16 bytes (PTX ISA, "Shared Memory Matrix Layout", "Strides"): without a swizzle
    they are contiguous, 128 bytes each; with one, the rows of width / 16 neighbouring ones make up lines.
    """
    size = np.dtype(DTYPES[kind]).itemsize
    image = {}
    for mn in range(matrix.shape[0]):
        for k in range(matrix.shape[1]):
            along, across = (k, mn) if k_major else (mn, k)
            core_along, within = divmod(along * size, 16)
            core_across, row = divmod(across, 8)
            if width == 0 and k_major:
                offset = core_along * leading + core_across * stride + 16 * row + within
            elif width == 0:
                offset = core_along * stride + core_across * leading + 16 * row + within
            else:
                repeat, core = divmod(core_along, width // 16)
                offset = repeat * leading + core_across * stride + width * row + 16 * core + within
            image[swizzle(offset, width)] = np.asarray(matrix[mn, k], DTYPES[kind]).tobytes()
    return image


def gather_warpgroup(registers: Array, kind: str, columns: int) -> Array:
    """(128, registers) of D -> the 64 x N matrix."""
    result = np.zeros((64, columns), DTYPES[kind])
    for thread in range(128):
        for i, value in enumerate(np.ascontiguousarray(registers[thread]).view(DTYPES[kind])):
            result[wgmma_d_element(thread, i)] = value
    return result


def scatter_warpgroup(matrix: Array, kind: str) -> Array:
    """The 64 x N matrix -> (128, registers) of D."""
    elements = matrix.shape[1] // 2
    result = np.zeros((128, elements), DTYPES[kind])
    for thread in range(128):
        for i in range(elements):
            result[thread, i] = matrix[wgmma_d_element(thread, i)]
    return result.view(np.uint32)
