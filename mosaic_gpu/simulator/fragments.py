"""How the matrices of mma, wmma and wgmma lie in the registers of a warp.

All these layouts are one pattern (PTX ISA, "Matrix Fragments for mma.m16n8k16" and its siblings, and
"Register Fragments and Shared Memory Matrix Layouts" of wgmma).  A register of 32 bits holds `e` elements
that are neighbours along K (1 for tf32 and f64, 2 for 16 bits, 4 for 8 bits, 8 for 4 bits, 32 for 1 bit).
A tile of 8 rows and 4 e columns is one register of each lane: lane l holds row l // 4, columns
e (l % 4) .. e (l % 4) + e - 1.

    operand          tiles                           register
    A, M x K         M / 8 by K / (4 e)              row tile + (M / 8) * column tile
    B, K x N, as its transpose N x K, the same:      k tile + (K / (4 e)) * n tile
    C and D, M x N   8 x 8, two elements a lane      element 2 * row tile + 2 (M / 8) * column tile + n % 2

The example of m16n8k16 with f16, lane 5 (row 1, columns 2 and 3 of a tile):

    a0 a1: A[1, 2:4]   a2 a3: A[9, 2:4]   a4 a5: A[1, 10:12]   a6 a7: A[9, 10:12]
    b0 b1: B[2:4, 1]   b2 b3: B[10:12, 1]
    c0 c1: C[1, 2:4]   c2 c3: C[9, 2:4]

A table here gives, for each element of the matrix, its position in the array (registers, 32 lanes, e).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
#: Bits of an element.
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
        "f64": 64, "f32": 32, "s32": 32}  # fmt: skip


def per_register(kind: str) -> int:
    """Elements in a register."""
    return max(1, 32 // BITS[kind])


@lru_cache(maxsize=256)
def a_table(rows: int, depth: int, kind: str) -> Array:
    """(rows, depth) positions of A's elements."""
    e = per_register(kind)
    m, k = np.ogrid[:rows, :depth]
    register = m // 8 + rows // 8 * (k // (4 * e))
    return np.asarray((register * 32 + m % 8 * 4 + k // e % 4) * e + k % e)


@lru_cache(maxsize=256)
def b_table(columns: int, depth: int, kind: str) -> Array:
    """(columns, depth) positions of the elements of B's transpose."""
    e = per_register(kind)
    n, k = np.ogrid[:columns, :depth]
    register = k // (4 * e) + depth // (4 * e) * (n // 8)
    return np.asarray((register * 32 + n % 8 * 4 + k // e % 4) * e + k % e)


@lru_cache(maxsize=256)
def c_table(rows: int, columns: int, kind: str) -> Array:
    """(rows, columns) positions of the accumulator's elements; f16 are packed in pairs."""
    e = 2 if kind == "f16" else 1
    m, n = np.ogrid[:rows, :columns]
    element = 2 * (m // 8) + 2 * (rows // 8) * (n // 8) + n % 2
    lane = m % 8 * 4 + n % 8 // 2
    return np.asarray((element // e * 32 + lane) * e + element % e)


def invert(table: Array) -> Array:
    """For each position, the flat index of the element that it holds."""
    flat = table.reshape(-1)
    inverse = np.empty(len(flat), np.int64)
    inverse[flat] = np.arange(len(flat))
    return inverse


def registers_of(rows: int, columns: int, kind: str, *, accumulator: bool = False) -> int:
    """Registers of each lane for a matrix: 64-bit ones for f64, else of 32 bits."""
    e = (2 if kind == "f16" else 1) if accumulator else per_register(kind)
    return max(1, rows * columns // (32 * e))
