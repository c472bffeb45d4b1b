"""The backend of the numerics tests is a fixture: one body for each kernel, whatever runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.backends import BACKENDS, Run
from tests.support.kernels import one_block


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """`run(call, *arrays)`: the results of a `pallas_call` as NumPy arrays; one array, or a tuple of several."""
    return BACKENDS[request.config.getoption("--backend")]


@pytest.fixture
def simulator_only(request: pytest.FixtureRequest) -> None:
    """For a test of something that JAX's interpreter does otherwise, or cannot do."""
    if request.config.getoption("--backend") != "simulator":
        pytest.skip("JAX's interpreter does otherwise")


@pytest.fixture
def elementwise(run: Run) -> Callable[..., Any]:
    """`elementwise(fn, *arrays, **compiler_params)`: `fn` of whole arrays, computed by one block of a kernel."""

    def apply(fn: Callable[..., Any], *arrays: Any, **params: Any) -> Any:
        return run(one_block(fn, *arrays, **params), *arrays)

    return apply
