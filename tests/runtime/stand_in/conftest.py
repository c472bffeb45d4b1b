"""The stand-in driver as a fixture, in the processes that tests/runtime/test_on_stand_in.py starts."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from mosaic_gpu.runtime import scalars
from mosaic_gpu.runtime.devices import device
from tests.support.stand_in import VARIABLE, Driver, install

collect_ignore_glob = [] if os.environ.get(VARIABLE) else ["test_*.py"]

_KINDS = ("streams", "events", "graphs", "allocations", "pushed")


@pytest.fixture(autouse=True, scope="session")
def quick_collection() -> None:
    """What was imported is here to stay: collections need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def driver() -> Iterator[Driver]:
    """The stand-in; a test that leaves a stream, an event, a graph, memory or a context behind fails."""
    stand_in = install()
    scalars.address_of(0, device(0))  # a memory that stays
    gc.collect()
    before = {kind: stand_in.count(kind) for kind in _KINDS}
    stand_in.launches.clear()
    stand_in.errors.clear()
    yield stand_in
    print("faults that the simulator found:", *stand_in.errors, sep="\n")
    stand_in.heal()
    stand_in.configure()
    gc.collect()
    assert {kind: stand_in.count(kind) for kind in _KINDS} == before
