"""Scatters: a loop where windows may meet, all at once where they are said not to."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.dialect_ir import lowered, named
from tests.support.kernels import one_block

X, K = np.zeros((8, 4), np.float32), np.array([1, 3, 1], np.int32)


def ops_of(function: Any) -> tuple[int, int]:
    """How many loops and how many scatters of tiles there are."""
    with lowered(one_block(function, X, K), X, K) as ops:
        return len(named(ops, "scf.for")), len(named(ops, "mgpu.scatter"))


def test_updates_that_may_meet_are_applied_in_turn() -> None:
    assert ops_of(lambda v, k: v.at[k].add(1.0)) == (1, 0)
    assert ops_of(lambda v, k: v.at[k].set(1.0)) == (1, 0)


def test_updates_that_cannot_meet_are_applied_together() -> None:
    assert ops_of(lambda v, k: v.at[k].add(1.0, unique_indices=True)) == (0, 1)


def test_nothing_to_update_changes_nothing() -> None:
    assert ops_of(lambda v, k: v.at[k[:0]].add(1.0)) == (0, 0)


def test_a_single_window_needs_no_loop() -> None:
    assert ops_of(lambda v, k: v.at[k[0]].add(1.0)) == (0, 0)
    assert ops_of(lambda v, k: v.at[2:5].set(1.0)) == (0, 0)
