"""Processes that compile: what they answer, and what becomes of jobs whose process ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu.api import trace_calls
from mosaic_gpu.cache import module_text
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.pipeline import compilation_context, run_stages
from mosaic_gpu.tuning.jobs import Built, Failure, Job
from mosaic_gpu.tuning.pool import Pool

X = jax.ShapeDtypeStruct((64,), jnp.float32)


def double(x: jax.Array) -> jax.Array:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = 2 * x_ref[...]

    return pl.pallas_call(kernel, out_shape=X, compiler_params=mosaic_gpu.CompilerParams(), name="double")(x)


@pytest.fixture(autouse=True)
def no_disk_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOSAIC_GPU_CACHE_DIR", "")


@pytest.fixture
def job() -> Job:
    (call,) = trace_calls(double, X, target="sm_90a")
    with compilation_context():
        return Job(module_text(run_stages(call, call.options, stop="dialect")), call.options)


def _wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def _children() -> set[int]:
    """Our workers, by Linux' /proc: the fourth word of `stat` is the parent, and a zombie has no command line."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = folder.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1]
            if parent == str(os.getpid()) and b"mosaic_gpu.tuning.worker" in folder.joinpath("cmdline").read_bytes():
                found.add(int(folder.name))
    return found


def test_a_worker_gives_the_code_that_this_process_would_make(job: Job) -> None:
    with Pool(1, 60) as pool:
        built = pool.submit(job).result()
    here = mosaic_gpu.compile(double, X, target="sm_90a")
    assert isinstance(built, Built)
    assert built.ptx == here.ptx
    assert built.cubin == here.cubin
    assert built.resources == vars(here.resources)
    assert set(built.seconds) == {"layouts", "pipelined", "nvvm", "llvm", "ptx", "cubin"}


def test_a_kernel_that_the_compiler_refuses_is_a_refusal_with_its_words() -> None:
    with Pool(1, 60) as pool:
        answer = pool.submit(Job("no module", LoweringOptions())).result()
    assert isinstance(answer, Failure)
    assert answer.is_refusal
    assert "does not hold a valid module" in answer.why


def test_a_worker_that_crashes_fails_its_job_with_its_last_words_and_another_does_the_next(job: Job) -> None:
    with Pool(1, 60) as pool:
        broken = pool.submit(Job(None, job.options)).result()  # type: ignore[arg-type]
        good = pool.submit(job).result()
    assert isinstance(broken, Failure)
    assert not broken.is_refusal
    assert "ended with status 1" in broken.why
    assert broken.why.endswith("Invoked with types: NoneType")
    assert isinstance(good, Built)


def test_a_worker_that_is_killed_fails_its_job_alone(job: Job) -> None:
    with Pool(1, 60) as pool:
        killed = pool.submit(job)
        _wait_for(lambda: bool(_children()))
        (worker,) = _children()
        os.kill(worker, signal.SIGKILL)
        good = pool.submit(job)
        answer = killed.result()
        assert isinstance(answer, Failure)
        assert answer == Failure(False, "the process that compiled it was killed by signal 9")
        assert isinstance(good.result(), Built)


def test_a_job_that_takes_too_long_is_given_up(job: Job) -> None:
    with Pool(1, 0.001) as pool:
        answer = pool.submit(job).result()
        assert not _children()
    assert answer == Failure(False, "compiling took longer than 0.001 s (time_limit=)")


def test_no_worker_outlives_the_pool(job: Job) -> None:
    with Pool(2, 60) as pool:
        for _ in range(6):
            pool.submit(job)
        _wait_for(lambda: len(_children()) == 2)
        workers = _children()
    assert not _children()
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def test_workers_import_no_jax() -> None:
    code = "import sys, mosaic_gpu.tuning.worker; print('jax' in sys.modules, 'torch_mlir' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
