"""Processes that compile kernels side by side.

A worker is a fresh Python that imports this package alone: no fork of a process with JAX's threads, and no import of
the user's main module, so that scripts need no guard and notebooks work.  It is the leader of a process group of its
own (`setsid`): Ctrl-C reaches the parent alone, and a worker is killed together with its assembler.  One thread of
the parent waits on each worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Pipe
from pathlib import Path
from types import TracebackType

from mosaic_gpu.errors import ToolError
from mosaic_gpu.tuning.jobs import Failure, Job, Outcome

_PROGRAM = "import sys; from mosaic_gpu.tuning.worker import main; main(int(sys.argv[1]))"
_LAST_WORDS = 500
_SECONDS_TO_END = 5.0


class Pool:
    """So many workers, started when there is work for them; a context manager that ends them on every way out."""

    def __init__(self, workers: int, time_limit: float) -> None:
        """`time_limit`: seconds after which a job is given up, its worker killed."""
        if not sys.executable:
            raise ToolError("this Python does not know its own program (sys.executable), so no worker can be started")
        self._time_limit = time_limit
        self._folder = tempfile.TemporaryDirectory(prefix="mosaic_gpu_tuning_", ignore_cleanup_errors=True)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="mosaic_gpu_tuning")
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []
        self._is_closed = False

    def submit(self, job: Job) -> Future[Outcome]:
        """Compiles `job` when a worker is free."""
        return self._threads.submit(self._build, job)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            self._is_closed = True
            for worker in self._workers:
                worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()
        self._folder.cleanup()

    def _build(self, job: Job) -> Outcome:
        worker = getattr(self._mine, "worker", None)
        if worker is None or not worker.is_alive:
            worker = self._mine.worker = self._start()
        return worker.build(job, self._time_limit)

    def _start(self) -> _Worker:
        with self._lock:
            if self._is_closed:
                raise ToolError("the workers were stopped")
            worker = _Worker(Path(self._folder.name), len(self._workers))
            self._workers.append(worker)
            return worker


class _Worker:
    """One process, used by one thread."""

    def __init__(self, folder: Path, number: int) -> None:
        self._words = folder / f"worker_{number}"
        self._connection, far = Pipe()
        descriptor = far.fileno()
        # The interpreter's own path: the worker finds the very same packages.  -P leaves the current folder out.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(descriptor)],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                pass_fds=[descriptor],
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder)},
            )
        far.close()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def build(self, job: Job, time_limit: float) -> Outcome:
        """Compiles `job`; a worker that ends, or takes too long, is a failure of the job."""
        try:
            self._connection.send(job)
            if not self._connection.poll(time_limit):
                self.kill()
                self._process.wait()
                return Failure(False, f"compiling took longer than {time_limit:g} s (time_limit=)")
            answer: Outcome = self._connection.recv()
            return answer
        except (EOFError, OSError):
            return Failure(False, self._how_it_ended())

    def kill(self) -> None:
        """Ends the process and what it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self._process.wait()
        self._connection.close()

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_SECONDS_TO_END)
        self.kill()
        code = self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        words = self._words.read_text(errors="replace").strip()[-_LAST_WORDS:]
        return f"the process that compiled it {how}" + (f": {words}" if words else "")
