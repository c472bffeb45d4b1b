"""A process that compiles kernels from the dialect on; imports neither JAX nor the user's modules.

It takes `Job`s from the connection whose file descriptor it is given, answers each with a `Built` or a `Failure`, and
ends when the other side closes.  What is no error of this package ends the process: the other side tells of that.
"""

from __future__ import annotations

import dataclasses
from multiprocessing.connection import Connection

from mosaic_gpu.cache import compile_cubin, compile_ptx_text
from mosaic_gpu.errors import InternalError, MosaicGpuError, ToolError
from mosaic_gpu.lowering.pipeline import Artifact, Stage
from mosaic_gpu.tuning.jobs import Built, Failure, Job, Outcome


def main(descriptor: int) -> None:
    """Serves until the other side closes the connection."""
    with Connection(descriptor) as connection:
        while True:
            try:
                job = connection.recv()
            except EOFError:
                return
            connection.send(build(job))


def build(job: Job) -> Outcome:
    """Compiles one kernel, with the disk cache as everywhere."""
    seconds: dict[str, float] = {}

    def observer(stage: Stage, artifact: Artifact, took: float) -> None:
        seconds[stage.name] = took

    try:
        ptx = compile_ptx_text(job.text, job.options, observer)
        cubin = compile_cubin(ptx, job.options, observer)
    except MosaicGpuError as error:
        return Failure(not isinstance(error, InternalError | ToolError), str(error))
    return Built(ptx.text, bytes(cubin.data), dataclasses.asdict(cubin.resources), seconds)
