"""The caches on disk, with two processes that compile and run the same kernels and are killed at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from mosaic_gpu.cache import VARIABLE, DiskCache
from tests.support.stand_in import ROOT

ROUNDS = 100

# Forks a child for each round, which compiles kernels into the cache and runs them, and may be killed.  It compiles and
# runs one itself before, without a cache: what is slow the first time is done once.
_WORKER = """
import os, signal, sys
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
import mosaic_gpu
from mosaic_gpu import api

def add(n):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + n
    out = jax.ShapeDtypeStruct((32,), jnp.float32)
    return pl.pallas_call(kernel, out, compiler_params=mosaic_gpu.CompilerParams(), name=f"add{n}")

def work(numbers):
    for n in numbers:
        x = np.arange(32, dtype=np.float32)
        compiled = mosaic_gpu.compile(add(n), x)
        assert compiled.cubin[:4] == b"\\x7fELF"
        np.testing.assert_array_equal(compiled(x), x + n)

work([100])
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.environ["MOSAIC_GPU_CACHE_DIR"] = line.strip()
        try:
            work(range(3))
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Worker:
    """A process that forks a child for each round."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, VARIABLE: "", "JAX_PLATFORMS": "cpu"},
        )  # fmt: skip

    def start(self, cache: Path) -> int:
        """Starts a round on a cache; the number of the process that works."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{cache}\n")
        self._process.stdin.flush()
        return int(self._line())

    def finish(self) -> int:
        """The exit status of the round, negative where a signal ended it."""
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def stop(self) -> str:
        """Ends the worker; what its children printed to standard error."""
        _, errors = self._process.communicate()
        return errors


def test_two_processes_killed_at_random_moments_leave_the_cache_valid(tmp_path: Path) -> None:
    draw = random.Random(0)
    workers = [Worker(), Worker()]
    killed = done = 0
    for i in range(ROUNDS):
        cache = tmp_path / f"cache{i // 10}"  # ten rounds share what they leave
        children = [worker.start(cache) for worker in workers]
        for child in draw.sample(children, draw.randint(0, 2)):
            time.sleep(draw.uniform(0, 0.15))
            with contextlib.suppress(ProcessLookupError):  # it was quicker
                os.kill(child, signal.SIGKILL)
        statuses = [worker.finish() for worker in workers]
        assert set(statuses) <= {0, -signal.SIGKILL}
        killed += statuses.count(-signal.SIGKILL)
        done += statuses.count(0)
        _check_entries(cache)
    for worker in workers:
        assert worker.stop() == ""
    assert killed >= ROUNDS // 4
    assert done >= ROUNDS // 4


def _check_entries(cache: Path) -> None:
    """Every entry can be read: a file that is torn would be a miss."""
    for path in cache.glob("??/*"):
        if not path.name.endswith(".tmp"):
            assert DiskCache(cache).load(path.parent.name + path.name) is not None
