"""Tuning without a GPU: which configurations are left, in which order, and what is said of the others."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu import KernelError, UnsupportedError
from mosaic_gpu.lowering.launch import LaunchFacts
from mosaic_gpu.lowering.resources import Resources
from mosaic_gpu.lowering.targets import TARGETS
from mosaic_gpu.tuning import compile as tuning_compile
from mosaic_gpu.tuning.compile import misfit

ROWS, COLUMNS = 64, 96
X = jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.float32)
quietly = functools.partial(mosaic_gpu.autotune, progress=False, workers=1)


def doubling(rows: int, num_warps: int | None = None) -> Callable[[Any], Any]:
    """A kernel that doubles blocks of so many rows."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = 2 * x_ref[...]

    if rows > ROWS:
        raise ValueError(f"{rows} rows are too many")
    block = pl.BlockSpec((rows, COLUMNS), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        out_shape=X,
        grid=(pl.cdiv(ROWS, rows),),
        in_specs=[block],
        out_specs=block,
        compiler_params=mosaic_gpu.CompilerParams(num_warps=num_warps),
        name="double",
    )


def test_the_best_configuration_comes_first_and_its_kernel_can_be_called() -> None:
    tuned = quietly(doubling, {"rows": [1, 4, 64]}, X)
    assert [c.status for c in tuned.candidates] == ["estimated"] * 3
    times = [c.microseconds for c in tuned.candidates]
    assert times == sorted(t for t in times if t is not None)
    assert tuned.config == tuned.candidates[0].config
    assert tuned.candidates[-1].config == {"rows": 64}  # one block for a whole GPU
    x = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    np.testing.assert_array_equal(tuned(x), 2 * x)
    np.testing.assert_array_equal(jax.jit(tuned.kernel)(x), 2 * x)


def test_calling_the_best_kernel_compiles_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = quietly(doubling, {"rows": [2, 4]}, X)
    monkeypatch.setattr("mosaic_gpu.kernel._compile", lambda call: pytest.fail("compiled again"))
    compiled = mosaic_gpu.compile(tuned.kernel, X)
    assert compiled.resources == tuned.candidates[0].resources[0]


def test_a_mapping_is_all_combinations_and_a_list_is_itself() -> None:
    configs = {"rows": [8, 16], "num_warps": [1, 2]}
    tuned = quietly(doubling, configs, X)
    assert len(tuned.candidates) == 4
    listed = quietly(doubling, [{"rows": 8}, {"rows": 16, "num_warps": 2}, {"rows": 8}], X)
    assert sorted(c.config["rows"] for c in listed.candidates) == [8, 16]
    assert {launch.block for c in tuned.candidates for launch in c.launches} == {(32, 1, 1), (64, 1, 1)}


def test_configurations_that_are_refused_are_left_out_with_the_reason() -> None:
    def make(rows: int) -> Callable[[Any], Any]:
        return doubling(rows, num_warps=3 if rows == 2 else None)

    tuned = quietly(make, {"rows": [128, 2, 4]}, X)
    statuses = {c.config["rows"]: (c.status, c.why.split("\n")[0]) for c in tuned.candidates}
    assert statuses[4] == ("estimated", "")
    assert statuses[128] == ("refused", "128 rows are too many")
    assert statuses[2][0] == "refused"
    assert "num_warps" in statuses[2][1]
    assert tuned.config == {"rows": 4}


def test_where_nothing_is_left_the_error_says_why_for_each() -> None:
    with pytest.raises(KernelError) as caught:
        quietly(doubling, {"rows": [100, 128]}, X)
    text = str(caught.value)
    assert text.startswith("none of the 2 configurations is left")
    assert "{'rows': 100}: refused: 100 rows are too many" in text
    assert "{'rows': 128}: refused: 128 rows are too many" in text


def test_a_function_without_a_kernel_is_refused() -> None:
    with pytest.raises(KernelError, match="the function calls no kernel"):
        quietly(lambda n: lambda x: x + n, {"n": [1]}, X)


def test_errors_that_are_no_refusal_come_out_with_the_configuration() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'columns'") as caught:
        quietly(doubling, {"columns": [1]}, X)
    assert caught.value.__notes__ == ["autotune tried the configuration {'columns': 1}"]


@pytest.mark.parametrize(
    ("space", "options", "message"),
    [
        ({"rows": []}, {}, "there is no configuration to try"),
        ([], {}, "there is no configuration to try"),
        ({"rows": 3}, {}, "the values of 'rows' are none\n  got: 3"),
        ({"rows": "12"}, {}, "the values of 'rows' are none\n  got: '12'"),
        ([3], {}, "a configuration is no mapping\n  got: 3"),
        ({"rows": [1]}, {"workers": 0}, "there must be a process that compiles\n  got: workers=0"),
        ({"rows": [1]}, {"time_limit": 0}, "time_limit is out of range\n  got: 0"),
        ({"rows": [1]}, {"repeats": 0}, "repeats is out of range\n  got: 0"),
        ({"rows": [1]}, {"target": "pentium"}, "'pentium' names no GPU architecture"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_made(space: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        mosaic_gpu.autotune(lambda **config: pytest.fail("made"), space, X, progress=False, **options)


def test_a_target_that_is_not_supported_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="sm_75"):
        quietly(doubling, {"rows": [1]}, X, target="7.5")


def test_another_target_is_compiled_for_and_estimated() -> None:
    tuned = quietly(doubling, {"rows": [4]}, X, target="8.0")
    assert "A100" in tuned.how


def test_a_function_of_several_kernels_is_the_sum_of_them() -> None:
    once = quietly(doubling, {"rows": [4]}, X).candidates[0]
    twice = quietly(lambda rows: lambda x: doubling(rows)(doubling(rows)(x) + 1), {"rows": [4]}, X).candidates[0]
    assert len(twice.resources) == len(twice.launches) == 2
    assert twice.microseconds == pytest.approx(2 * (once.microseconds or 0))


def test_kernels_that_several_configurations_share_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = []

    class Counting(tuning_compile.Pool):
        def submit(self, job: Any) -> Any:
            submitted.append(job)
            return super().submit(job)

    monkeypatch.setattr("mosaic_gpu.tuning.autotune.Pool", Counting)
    shared = doubling(4)
    tuned = quietly(lambda after: lambda x: shared(x) + after, {"after": [1, 2, 3]}, X)
    assert len(tuned.candidates) == 3
    assert len(submitted) == 1


def _resources(registers: int, shared: int = 0, spilled: int = 0) -> Resources:
    return Resources(registers, shared, 0, spilled, spilled, 0, 0)


@pytest.mark.parametrize(
    ("registers", "threads", "shared", "message"),
    [
        (64, 1024, 0, ""),
        (65, 1024, 0, "a block takes 73728 registers, and sm_90a has 65536"),  # 65 * 32 is 9 units of 256 a warp
        (32, 2048, 0, "a block has 2048 threads, and sm_90a takes 1024"),
        (32, 128, 232_448, ""),
        (32, 128, 232_449, "a block takes 232449 bytes of shared memory, and sm_90a has 232448"),
    ],
)
def test_blocks_that_the_gpu_cannot_hold_do_not_fit(registers: int, threads: int, shared: int, message: str) -> None:
    launch = LaunchFacts("k", (1, 1, 1), (threads, 1, 1), shared)
    assert misfit(launch, _resources(registers, 1024), TARGETS["sm_90a"]) == message


def _with_spills(monkeypatch: pytest.MonkeyPatch, blocks: set[int]) -> None:
    """Makes kernels of so many blocks spill, for all that tuning knows."""
    original = tuning_compile.artifacts_of

    def artifacts_of(built: Any) -> Any:
        ptx, cubin = original(built)
        spilled = 24 if ptx.launch.grid[0] in blocks else 0
        resources = dataclasses.replace(cubin.resources, spill_store_bytes=spilled, spill_load_bytes=2 * spilled)
        return ptx, dataclasses.replace(cubin, resources=resources)

    monkeypatch.setattr("mosaic_gpu.tuning.autotune.artifacts_of", artifacts_of)


def test_a_kernel_that_spills_is_left_out_while_there_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_spills(monkeypatch, {ROWS // 1, ROWS // 4})
    tuned = quietly(doubling, {"rows": [1, 4, 64]}, X)
    statuses = {c.config["rows"]: (c.status, c.why) for c in tuned.candidates}
    assert statuses[64] == ("estimated", "")
    assert statuses[1] == statuses[4] == ("spills", "72 bytes of registers go through memory")
    assert tuned.config == {"rows": 64}


def test_kernels_that_spill_are_ranked_where_there_are_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_spills(monkeypatch, {ROWS // 1, ROWS // 64})
    tuned = quietly(doubling, {"rows": [1, 64, 128]}, X)
    found = [(c.config["rows"], c.status) for c in tuned.candidates]
    assert found == [(1, "estimated"), (64, "estimated"), (128, "refused")]
    assert "72 bytes" in tuned.candidates[0].why


def test_a_table_names_every_candidate_and_where_the_numbers_are_from() -> None:
    tuned = quietly(doubling, {"rows": [4, 128]}, X)
    lines = str(tuned).splitlines()
    assert "best of 1 configurations of 2, estimated for NVIDIA H100 SXM, not measured" in lines[0]
    assert lines[1].split() == [
        "rows",
        "us",
        "model",
        "us",
        "bound",
        "warps",
        "registers",
        "shared",
        "KiB",
        "blocks/SM",
        "status",
    ]
    assert lines[2].split()[0] == "4"
    assert lines[2].endswith("estimated")
    assert lines[3].split() == ["128", "refused:", "128", "rows", "are", "too", "many"]
    assert repr(tuned) == str(tuned)


def test_estimates_that_rest_on_assumptions_are_marked() -> None:
    def make(step: int) -> Callable[[Any, Any], Any]:
        def kernel(n_ref: Any, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = jax.lax.fori_loop(0, n_ref[0], lambda i, x: x + step, x_ref[...])

        return pl.pallas_call(kernel, out_shape=X, compiler_params=mosaic_gpu.CompilerParams())

    tuned = quietly(make, {"step": [1]}, jax.ShapeDtypeStruct((1,), jnp.int32), X)
    estimate = tuned.candidates[0].estimate
    assert estimate is not None
    assert estimate.is_assumed
    assert f"{estimate.microseconds:.1f}?" in str(tuned)


def test_the_second_time_the_code_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOSAIC_GPU_CACHE_DIR", str(tmp_path))
    first = quietly(doubling, {"rows": [2, 4]}, X)
    monkeypatch.setattr("mosaic_gpu.tuning.pool.Pool.submit", lambda self, job: pytest.fail("compiled again"))
    again = quietly(doubling, {"rows": [2, 4]}, X)
    assert all(c.compile_seconds > 0 for c in first.candidates)
    assert all(c.compile_seconds == 0 for c in again.candidates)
    assert [c.resources for c in again.candidates] == [c.resources for c in first.candidates]


# A process that a shell started in the background ignores the signal, and so do its children if they say nothing.
_SCRIPT = """
import signal, sys, jax, jax.numpy as jnp, mosaic_gpu
from jax.experimental import pallas as pl
signal.signal(signal.SIGINT, signal.default_int_handler)
print("main", flush=True)
def make(n):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + n
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((64,), jnp.float32),
                          compiler_params=mosaic_gpu.CompilerParams())
tuned = mosaic_gpu.autotune(make, {"n": range(int(sys.argv[1]))}, jnp.zeros(64), workers=2)
print(tuned.config)
"""


def _start(tmp_path: Path, count: int) -> subprocess.Popen[str]:
    script = tmp_path / "tune.py"
    script.write_text(textwrap.dedent(_SCRIPT))
    root = Path(mosaic_gpu.__file__).parents[1]
    return subprocess.Popen(
        [sys.executable, str(script), str(count)],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


def test_a_script_needs_no_guard_and_shows_bars_on_standard_error(tmp_path: Path) -> None:
    process = _start(tmp_path, 2)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    lines = out.splitlines()
    assert lines.count("main") == 1
    assert lines[-1] in ("{'n': 0}", "{'n': 1}")
    assert "autotune: compiling" in err


def test_two_processes_at_once_share_a_cache(tmp_path: Path) -> None:
    environment = {"MOSAIC_GPU_CACHE_DIR": str(tmp_path / "cache")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOSAIC_GPU_CACHE_DIR", environment["MOSAIC_GPU_CACHE_DIR"])
        both = [_start(tmp_path, 3) for _ in range(2)]
    answers = [process.communicate(timeout=240)[0].splitlines()[-1] for process in both]
    assert answers[0] == answers[1]


def test_ctrl_c_ends_it_and_its_workers(tmp_path: Path) -> None:
    process = _start(tmp_path, 200)
    assert process.stdout is not None
    assert process.stdout.readline() == "main\n"
    end = time.monotonic() + 120
    while not (workers := _workers_of(process.pid)):
        assert time.monotonic() < end
        time.sleep(0.05)
    while process.poll() is None and time.monotonic() < end:  # Python ignores it inside of a destructor
        process.send_signal(signal.SIGINT)
        time.sleep(1)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def _workers_of(parent: int) -> set[int]:
    """Children, by Linux' /proc: the fourth word of `stat` is the parent."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if stat.read_text().rsplit(")", 1)[1].split()[1] == str(parent):
                found.add(int(stat.parent.name))
        except OSError:
            continue
    return found
