"""Symbolic sizes: read, evaluated and solved without JAX, as JAX means them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import export
from jax.experimental import pallas as pl

from mosaic_gpu import KernelError, UnsupportedError
from mosaic_gpu.runtime.interface import ArrayType, Program
from mosaic_gpu.runtime.known_sizes import given_types, known_sizes
from mosaic_gpu.runtime.sizes import Size, solve

A, B = export.symbolic_shape("a, b")
EXPRESSIONS = [
    A, 2 * B, A + B, 3 * A - 2 * B + 1, A * B, A * A * 3 - B, A // 4, -(-A // 8), A % 3, pl.cdiv(A, 128), 1 - A,
    (A + B) * (A - 2), B // 2 + A % 5 * 7,
]  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
@given(a=st.integers(1, 10_000), b=st.integers(1, 10_000))
def test_an_expression_of_jax_is_the_number_that_jax_gives_it(expression: Any, a: int, b: int) -> None:
    assert Size(str(expression)).at({"a": a, "b": b}) == int(expression._evaluate({"a": a, "b": b}))


def test_maximum_and_minimum_are_known() -> None:
    assert Size("max(a, 2*b)").at({"a": 3, "b": 2}) == 4
    assert Size("min(a, 2*b)").at({"a": 3, "b": 2}) == 3


@pytest.mark.parametrize("text", ["a / 2", "sqrt(a)", "a.b", "a < b", "f'{a}'"])
def test_anything_else_is_refused_and_not_run(text: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot be computed"):
        Size(text).at({"a": 4, "b": 1})


def test_a_variable_without_a_value_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="b"):
        Size("a + b").at({"a": 1})


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("n", 7)], {"n": 7}),
        ([("2*n", 8)], {"n": 4}),
        ([("2*n + 1", 9)], {"n": 4}),
        ([("10 - n", 3)], {"n": 7}),
        ([("a + b", 9), ("a", 4)], {"a": 4, "b": 5}),
        ([("3*a - 2*b", 1), ("b + 1", 5)], {"a": 3, "b": 4}),
        ([("n", 0)], {"n": 0}),
        ([("2*n", 7)], {}),
        ([("n + 5", 3)], {}),
        ([("a + b", 9)], {}),
        ([("floordiv(n + 7, 8)", 1)], {}),
        ([("n^2", 1)], {}),
        ([("n", 3), ("n", 4)], {"n": 3}),
    ],
)
def test_the_variables_that_sizes_tell(pairs: list[tuple[str, int]], expected: dict[str, int]) -> None:
    assert solve([(Size(text), number) for text, number in pairs]) == expected


def _types(*shapes: tuple[Any, ...]) -> tuple[ArrayType, ...]:
    sizes = (tuple(Size(n) if isinstance(n, str) else n for n in shape) for shape in shapes)
    return tuple(ArrayType(shape, np.dtype(np.float32)) for shape in sizes)


def _program(
    operands: tuple[ArrayType, ...], bounds: tuple[str | None, ...] = (), symbols: tuple[str, ...] = ()
) -> Any:
    sizes = tuple(None if b is None else Size(b) for b in bounds)
    results = _types(("n", 2))
    return Program("k", "", "k", (1, 1, 1), (32, 1, 1), 0, operands, results, (), sizes, tuple(map(Size, symbols)))


def test_bounds_symbols_and_results_follow_from_the_arrays() -> None:
    program = _program(_types((), (), ("n", 8), ("2*n",)), ("floordiv(n + 3, 4)", None), ("n", "2*n"))
    assert [t.shape for t in given_types(program)] == [(), (Size("n"), 8), (Size("2*n"),)]
    known = known_sizes(program, [(), (5, 8), (10,)])
    assert [t.shape for t in known.operands] == [(), (), (5, 8), (10,)]
    assert [t.shape for t in known.results] == [(5, 2)]
    assert known.bounds == (2, None)
    assert known.symbols == (5, 10)
    assert known.with_bounds(["bound", "x", "y"]) == [2, "bound", "x", "y"]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            [(5, 8), (11,)],
            r"sizes of the arrays of kernel 'k' disagree\n  got: operand 1 .*\[11\]\n  .*\[2\*n\] where n = 5",
        ),
        (
            [(5,), (11,)],
            r"do not tell dimension variable 'n' of kernel 'k'\n  got: \[5\], \[11\]\n  .*\[n, 8\], \[2\*n\]",
        ),
        ([(2**31, 8), (2**32,)], r"an array of kernel 'k' is too large\n  got: 2147483648"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(shapes: list[tuple[int, ...]], message: str) -> None:
    program = _program(_types(("n", 8), ("2*n",)), (), ("n",))
    with pytest.raises(KernelError, match=message):
        known_sizes(program, shapes)


def test_jax_is_not_imported() -> None:
    code = "import sys, mosaic_gpu.runtime.known_sizes, mosaic_gpu.runtime.run; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
