"""Tuning with a GPU: what is measured, on which arrays, and what is kept of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu import KernelError, ToolError, UnsupportedError
from mosaic_gpu.cache import default_cache
from mosaic_gpu.runtime.devices import device
from mosaic_gpu.tuning import measure as tuning_measure
from tests.support.stand_in import Driver

ROWS, COLUMNS = 16, 32
X = jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.float32)
SPACE = {"rows": [4, 8]}
tune = functools.partial(mosaic_gpu.autotune, progress=False, workers=1, repeats=3)


def adding(rows: int, wrong: int = 0) -> Callable[..., Any]:
    """x + n[0] in blocks of so many rows; with `wrong` rows in a block it is not."""

    def kernel(x_ref: Any, n_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + n_ref[0].astype(jnp.float32) + (1.0 if rows == wrong else 0.0)

    block = pl.BlockSpec((rows, COLUMNS), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        out_shape=X,
        grid=(ROWS // rows,),
        in_specs=[block, pl.BlockSpec((1,), lambda i: (0,))],
        out_specs=block,
        compiler_params=mosaic_gpu.CompilerParams(),
        name="add",
    )


N = jax.ShapeDtypeStruct((1,), jnp.int32)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOSAIC_GPU_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def known(driver: Driver) -> Callable[..., None]:
    """Tells the stand-in the kernels that tuning will make."""

    def tell(make: Callable[..., Any] = adding, values: tuple[int, ...] = (4, 8), *types: Any) -> None:
        for rows in values:
            for compiled in _compiled(make(rows), *(types or (X, N))):
                driver.add_kernel(compiled)

    return tell


def _compiled(function: Callable[..., Any], *types: Any) -> list[Any]:
    from mosaic_gpu.api import CompiledKernel, trace_calls
    from mosaic_gpu.kernel import compilation_of

    return [CompiledKernel(call, compilation_of(call)) for call in trace_calls(function, *types)]


def test_candidates_are_measured_and_ranked_by_the_median(driver: Driver, known: Callable[..., None]) -> None:
    known()
    tuned = tune(adding, SPACE, X, N)
    assert [c.status for c in tuned.candidates] == ["measured", "measured"]
    medians = [c.timing.median for c in tuned.candidates if c.timing is not None]
    assert medians == sorted(medians)
    assert [c.microseconds for c in tuned.candidates] == medians
    assert "measured on Stand-in GPU" in tuned.how
    assert all(c.estimate is not None for c in tuned.candidates)
    grids = {launch[1][0] for launch in driver.launches}
    assert grids == {ROWS // 4, ROWS // 8}


def test_the_second_time_the_measured_times_come_from_the_cache(driver: Driver, known: Callable[..., None]) -> None:
    known()
    first = tune(adding, SPACE, X, N)
    driver.launches.clear()
    again = tune(adding, SPACE, X, N)
    assert driver.launches == []
    assert [c.timing for c in again.candidates] == [c.timing for c in first.candidates]
    assert [c.is_from_cache for c in first.candidates + again.candidates] == [False, False, True, True]
    assert "2 of them earlier" in again.how
    assert str(again).count("measured (earlier)") == 2


def test_without_the_cache_all_is_measured_again_and_nothing_kept(
    driver: Driver, known: Callable[..., None], cache_folder: Path
) -> None:
    known()
    tune(adding, SPACE, X, N, cache=False)
    driver.launches.clear()
    again = tune(adding, SPACE, X, N)
    assert driver.launches
    assert not any(c.is_from_cache for c in again.candidates)
    driver.launches.clear()
    tune(adding, SPACE, X, N, cache=False)
    assert driver.launches


@pytest.mark.parametrize(
    "entry", [b"", b"no json", b"[]", b"{}", b'{"median": "x"}', b'{"median": 1}',
              b'{"median":-1,"low":1,"high":1,"count":1,"batch":1,"is_cold":false}']
)  # fmt: skip
def test_a_broken_entry_is_measured_again(
    driver: Driver, known: Callable[..., None], entry: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    known()
    keys = []
    original = tuning_measure.key_of
    monkeypatch.setattr(tuning_measure, "key_of", lambda *parts: keys.append(original(*parts)) or keys[-1])
    tune(adding, {"rows": [4]}, X, N)
    store = default_cache()
    assert store is not None
    store.store(keys[0], entry)
    again = tune(adding, {"rows": [4]}, X, N)
    assert not again.candidates[0].is_from_cache
    assert tune(adding, {"rows": [4]}, X, N).candidates[0].is_from_cache


@pytest.mark.parametrize(
    "change",
    [{"repeats": 4}, {"cold_l2": True}, {"args": (np.ones((ROWS, COLUMNS), np.float32), np.array([7], np.int32))}],
)
def test_another_way_of_measuring_and_other_integers_are_measured_by_themselves(
    driver: Driver, known: Callable[..., None], change: dict[str, Any]
) -> None:
    known()
    tune(adding, {"rows": [4]}, X, N)
    options = dict(change)
    other = tune(adding, {"rows": [4]}, *options.pop("args", (X, N)), **options)
    assert not other.candidates[0].is_from_cache


def test_arrays_are_measured_with_their_values(driver: Driver, known: Callable[..., None]) -> None:
    known()
    x = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    results = []
    tune(adding, SPACE, x, np.array([3], np.int32), check=lambda result: results.append(np.asarray(result)))
    assert len(results) == 2
    for result in results:
        np.testing.assert_array_equal(result, x + 3)


def test_types_are_measured_with_normal_floats_and_zero_integers(driver: Driver, known: Callable[..., None]) -> None:
    known()
    results = []
    tune(adding, {"rows": [4]}, X, N, check=lambda result: results.append(np.asarray(result)))
    assert abs(results[0].mean()) < 0.2
    assert results[0].std() == pytest.approx(1, abs=0.2)


def test_what_the_check_does_not_like_is_wrong(driver: Driver, known: Callable[..., None]) -> None:
    make = functools.partial(adding, wrong=4)
    known(make)
    x, n = np.ones((ROWS, COLUMNS), np.float32), np.array([1], np.int32)
    check = functools.partial(np.testing.assert_allclose, desired=x + 1)
    tuned = tune(make, SPACE, x, n, check=check)
    assert tuned.config == {"rows": 8}
    assert tuned.candidates[1].status == "wrong"
    assert "Not equal to tolerance" in tuned.candidates[1].why
    with pytest.raises(KernelError, match=r"none of the 1 configurations is left(.|\n)*\{'rows': 4\}: wrong: "):
        tune(make, {"rows": [4]}, x, n, check=check)


def test_other_errors_of_the_check_come_out(driver: Driver, known: Callable[..., None]) -> None:
    known()
    with pytest.raises(ZeroDivisionError):
        tune(adding, SPACE, X, N, check=lambda result: 1 / 0)


def test_kernels_get_the_operands_that_the_function_gives_them(driver: Driver, known: Callable[..., None]) -> None:
    def make(rows: int) -> Callable[..., Any]:
        @jax.jit
        def inner(x: Any, n: Any) -> Any:
            return adding(rows)(2 * x, n + 1)

        return lambda x, n: {"twice": adding(rows)(inner(x, n), n).T}

    known(make, (4, 8))
    x = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    results = []
    tuned = tune(make, SPACE, x, np.array([3], np.int32), check=results.append)
    np.testing.assert_allclose(results[0]["twice"], (2 * x + 4 + 3).T, rtol=1e-6)
    assert len(tuned.candidates[0].launches) == 2


def test_a_kernel_inside_of_a_loop_is_refused_where_it_is_to_be_measured(
    driver: Driver, known: Callable[..., None]
) -> None:
    def make(rows: int) -> Callable[..., Any]:
        return lambda x, n: jax.lax.fori_loop(0, 3, lambda i, y: adding(rows)(y, n), x)

    with pytest.raises(UnsupportedError, match="a kernel inside of 'scan' cannot be measured by itself"):
        tune(make, {"rows": [4]}, X, N)


def test_a_candidate_that_the_driver_refuses_is_left_out(driver: Driver, known: Callable[..., None]) -> None:
    known()
    driver.fail("cuMemAlloc", 2)
    tuned = tune(adding, SPACE, X, N)
    assert sorted(c.status for c in tuned.candidates) == ["failed", "measured"]
    assert "cuMemAlloc failed" in tuned.candidates[1].why
    assert "OUT_OF_MEMORY" in tuned.candidates[1].why


def test_a_fault_of_a_kernel_ends_it_with_the_configuration(
    driver: Driver, known: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    known()
    driver.fail("cuLaunchKernel", 2)
    monkeypatch.setattr("mosaic_gpu.tuning.autotune.is_lost", lambda place: True)
    with pytest.raises(ToolError, match=r"the configuration \{'rows': 4\} faulted: cuLaunchKernel failed"):
        tune(adding, SPACE, X, N)


def test_a_gpu_is_lost_where_nothing_works_any_more(driver: Driver) -> None:
    assert not tuning_measure.is_lost(device(0))
    driver.fail("cuCtxSynchronize", 700)
    assert tuning_measure.is_lost(device(0))
    assert tuning_measure.is_lost(device(0))
    driver.heal()
    assert not tuning_measure.is_lost(device(0))


def test_code_of_another_target_is_estimated(driver: Driver) -> None:
    tuned = tune(adding, {"rows": [4]}, X, N, target="sm_80")
    assert tuned.candidates[0].status == "estimated"
    assert driver.launches == []


def test_the_best_kernel_is_compiled_for_the_launch(driver: Driver, known: Callable[..., None]) -> None:
    known()
    tuned = tune(adding, SPACE, X, N)
    x = np.ones((ROWS, COLUMNS), np.float32)
    np.testing.assert_array_equal(mosaic_gpu.compile(tuned.kernel, X, N)(x, np.array([2], np.int32)), x + 2)
    assert driver.count("modules") >= 1
