"""Each fault of the corpus is found, named and placed; its repaired twin is clean, and one fault leaves no trace."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import jax
import numpy as np
import pytest

import mosaic_gpu
from mosaic_gpu import InterpretParams, SimulationError
from mosaic_gpu.interpreter.params import ACTIONS
from mosaic_gpu.interpreter.reports import InterpretWarning
from tests.interpreter.corpus import CORPUS, X

CHECKED = [name for name, fault in CORPUS.items() if fault.check]


@pytest.mark.parametrize("name", CORPUS)
def test_a_fault_is_found_at_its_line(name: str) -> None:
    fault = CORPUS[name]
    with pytest.raises(SimulationError, match=fault.message) as caught:
        mosaic_gpu.interpret(fault.make(True), X)
    assert caught.value.source is not None
    assert caught.value.source.file.endswith("corpus.py")
    assert caught.value.source.line == fault.line()


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_repaired_twin_is_clean(name: str, seed: int | None) -> None:
    result = mosaic_gpu.interpret(CORPUS[name].make(False), X, params=InterpretParams(seed=seed))
    assert np.isfinite(result.astype(np.float32)).all()


@pytest.mark.parametrize("name", CORPUS)
def test_after_a_fault_the_next_call_just_works(name: str) -> None:
    fault = CORPUS[name]
    with pytest.raises(SimulationError):
        mosaic_gpu.interpret(fault.make(True), X)
    mosaic_gpu.interpret(fault.make(False), X)


@pytest.mark.parametrize("name", CHECKED)
def test_a_check_may_warn_in_place_of_raising(name: str) -> None:
    fault = CORPUS[name]
    params = replace(_only_ignoring(), **{fault.check: "warn"})  # type: ignore[arg-type]
    with pytest.warns(InterpretWarning, match=fault.message):
        mosaic_gpu.interpret(fault.make(True), X, params=params)


@pytest.mark.parametrize("name", CHECKED)
def test_an_ignored_check_says_nothing(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mosaic_gpu.interpret(CORPUS[name].make(True), X, params=_only_ignoring())


def _only_ignoring() -> InterpretParams:
    fields = [f for f in InterpretParams.__dataclass_fields__.values() if f.type == "Action"]
    assert ACTIONS[-1] == "ignore"
    return InterpretParams(**{f.name: "ignore" for f in fields})


@pytest.mark.parametrize("name", ["a read out of bounds", "a race of two threads", "a barrier that never completes"])
def test_inside_of_jit_jax_reports_the_fault_with_its_line(name: str) -> None:
    fault = CORPUS[name]
    with _interpreting(InterpretParams()), pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.block_until_ready(jax.jit(fault.make(True))(X))
    text = str(caught.value)
    assert re.search(fault.message, text)
    assert f"corpus.py:{fault.line()}" in text
    with _interpreting(InterpretParams()):
        jax.block_until_ready(jax.jit(fault.make(False))(X))


def _interpreting(params: InterpretParams):  # type: ignore[no-untyped-def]
    from jax.experimental.pallas import mosaic_gpu as plgpu

    return plgpu.force_gpu_interpret_mode(params)
