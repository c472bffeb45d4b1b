"""Linear algebra over GF(2), against trying all vectors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mosaic_gpu.dialect.bits import apply, ceil_log2, ceil_power, is_power, kernel, rank_of, solve

matrices = st.lists(st.integers(0, 31), max_size=6)


def image(columns: list[int]) -> set[int]:
    return {apply(columns, vector) for vector in range(2 ** len(columns))}


def test_powers_of_two() -> None:
    assert [n for n in range(-1, 10) if is_power(n)] == [1, 2, 4, 8]
    assert [ceil_power(n) for n in range(10)] == [1, 1, 2, 4, 4, 8, 8, 8, 8, 16]
    assert [ceil_log2(n) for n in range(10)] == [0, 0, 1, 2, 2, 3, 3, 3, 3, 4]


@given(matrices)
def test_the_rank_is_the_logarithm_of_the_images_size(columns: list[int]) -> None:
    assert 2 ** rank_of(columns) == len(image(columns))


@given(matrices, st.lists(st.integers(0, 31), max_size=3))
def test_solve_finds_a_solution_where_there_is_one(columns: list[int], targets: list[int]) -> None:
    solutions = solve(columns, targets)
    if set(targets) <= image(columns):
        assert solutions is not None
        assert [apply(columns, solution) for solution in solutions] == targets
    else:
        assert solutions is None


@given(matrices)
def test_the_kernel_is_all_that_maps_to_zero(columns: list[int]) -> None:
    zeros = {vector for vector in range(2 ** len(columns)) if apply(columns, vector) == 0}
    assert image(kernel(columns)) == zeros
