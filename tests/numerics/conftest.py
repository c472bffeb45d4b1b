"""The backend of the numerics tests is a fixture: one body for each kernel, whatever runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.backends import BACKENDS, Run
from tests.support.kernels import one_block


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs every test of a kernel on each of the backends asked for: the simulator and the interpreter, if none is."""
    if "backend" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--backend")
        metafunc.parametrize("backend", ["simulator", "interpreter"] if asked == "both" else [asked], scope="session")


@pytest.fixture(scope="session")
def run(backend: str) -> Run:
    """`run(call, *arrays)`: the results of a `pallas_call` as NumPy arrays; one array, or a tuple of several."""
    return BACKENDS[backend]


@pytest.fixture
def simulator_only(backend: str) -> None:
    """For a test of what the compiler makes of a kernel, which nothing else does."""
    if backend != "simulator":
        pytest.skip("a test of compiled code")


@pytest.fixture
def not_in_jax(backend: str) -> None:
    """For a test of something that JAX's interpreter does otherwise, or cannot do."""
    if backend == "jax":
        pytest.skip("JAX's interpreter does otherwise")


@pytest.fixture
def elementwise(run: Run) -> Callable[..., Any]:
    """`elementwise(fn, *arrays, **compiler_params)`: `fn` of whole arrays, computed by one block of a kernel."""

    def apply(fn: Callable[..., Any], *arrays: Any, **params: Any) -> Any:
        return run(one_block(fn, *arrays, **params), *arrays)

    return apply
