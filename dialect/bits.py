"""Powers of two, and linear algebra over GF(2) with vectors written as ints (bit i = component i)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def is_power(n: int) -> bool:
    """Whether `n` is a power of two (1 is one)."""
    return n > 0 and n & (n - 1) == 0


def ceil_log2(n: int) -> int:
    """The smallest k with 2**k >= n; 0 for n <= 1."""
    return max(0, n - 1).bit_length()


def ceil_power(n: int) -> int:
    """The smallest power of two that is at least `n`; 1 for n <= 1."""
    return 1 << ceil_log2(n)


def rank_of(vectors: Iterable[int]) -> int:
    """The dimension of the space that `vectors` span."""
    pivots: dict[int, int] = {}
    for vector in vectors:
        rest = reduce_by(pivots, vector)
        if rest:
            pivots[rest.bit_length()] = rest
    return len(pivots)


def reduce_by(pivots: dict[int, int], vector: int) -> int:
    """`vector` less what `pivots` (leading bit -> vector) span of it; zero where it lies in their span."""
    while vector:
        pivot = pivots.get(vector.bit_length())
        if pivot is None:
            return vector
        vector ^= pivot
    return 0


def apply(columns: Sequence[int], vector: int) -> int:
    """The matrix with these columns times `vector`: the XOR of the columns at its set bits."""
    result, i = 0, 0
    while vector:
        if vector & 1:
            result ^= columns[i]
        vector >>= 1
        i += 1
    return result


def solve(columns: Sequence[int], targets: Iterable[int]) -> list[int] | None:
    """For each target a vector x with `apply(columns, x) == target`; None where one has none.

    Among several, x uses none of the columns that depend on earlier ones.
    """
    pivots: dict[int, tuple[int, int]] = {}

    def reduce(vector: int, how: int) -> tuple[int, int]:
        while vector and vector.bit_length() in pivots:
            pivot, combination = pivots[vector.bit_length()]
            vector, how = vector ^ pivot, how ^ combination
        return vector, how

    for i, column in enumerate(columns):
        rest, how = reduce(column, 1 << i)
        if rest:
            pivots[rest.bit_length()] = (rest, how)
    solutions = []
    for target in targets:
        rest, how = reduce(target, 0)
        if rest:
            return None
        solutions.append(how)
    return solutions


def kernel(columns: Sequence[int]) -> list[int]:
    """A basis of the vectors x with `apply(columns, x) == 0`."""
    pivots: dict[int, tuple[int, int]] = {}
    basis = []
    for i, column in enumerate(columns):
        vector, how = column, 1 << i
        while vector and vector.bit_length() in pivots:
            pivot, combination = pivots[vector.bit_length()]
            vector, how = vector ^ pivot, how ^ combination
        if vector:
            pivots[vector.bit_length()] = (vector, how)
        else:
            basis.append(how)
    return basis
