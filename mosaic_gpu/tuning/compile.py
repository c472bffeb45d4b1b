"""From configurations to compiled candidates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from mosaic_gpu.cache import find_cubin, find_ptx, module_text
from mosaic_gpu.errors import InternalError, KernelError, MosaicGpuError, ToolError
from mosaic_gpu.lowering.artifacts import Cubin, read_ptx
from mosaic_gpu.lowering.launch import LaunchFacts
from mosaic_gpu.lowering.pipeline import compilation_context, run_stages
from mosaic_gpu.lowering.resources import Resources
from mosaic_gpu.lowering.targets import Target, parse_target
from mosaic_gpu.tuning.jobs import Built, Failure, Job, Outcome
from mosaic_gpu.tuning.pool import Pool
from mosaic_gpu.tuning.trace import Traced, trace

_REGISTER_UNIT = 256
_SYSTEM_SHARED_BYTES = 1024

# Gives the items one after another, and shows how far that is.
Progress = Callable[[Sequence[Any], str], Iterable[Any]]


@dataclass
class Draft:
    """A candidate on its way.

    Attributes:
      config, function, traced: what `make_kernel` was given and gave, and its equations; None where that failed.
      outcome: the compiled kernels, or why there are none.
    """

    config: Mapping[str, Any]
    function: Callable[..., Any] | None = None
    traced: Traced | None = None
    outcome: list[Built] | Failure = field(default_factory=list)


def compile_all(
    make_kernel: Callable[..., Callable[..., Any]],
    configs: Sequence[Mapping[str, Any]],
    args: Sequence[Any],
    target: str | None,
    pool: Pool,
    progress: Progress,
) -> list[Draft]:
    """Traces every configuration here, and compiles their kernels in the pool, each kernel once."""
    jobs: dict[Job, Built | Future[Outcome]] = {}
    pending: list[tuple[Draft, list[Job]]] = []
    for config in progress(configs, "tracing"):
        draft, needed = _draft(make_kernel, config, args, target)
        for job in needed:
            if job not in jobs:
                jobs[job] = _from_cache(job) or pool.submit(job)
        pending.append((draft, needed))
    for draft, needed in progress(pending, "compiling"):
        if isinstance(draft.outcome, Failure):
            continue
        outcomes = [_outcome(jobs[job]) for job in needed]
        failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
        draft.outcome = failures[0] if failures else [o for o in outcomes if isinstance(o, Built)]
    return [draft for draft, _ in pending]


def _draft(
    make_kernel: Callable[..., Callable[..., Any]], config: Mapping[str, Any], args: Sequence[Any], target: str | None
) -> tuple[Draft, list[Job]]:
    """A configuration traced, and its kernels in the dialect.

    Errors of other kinds than those that say that the configuration is wrong are not caught.
    """
    draft = Draft(config)
    try:
        draft.function = make_kernel(**config)
        draft.traced = trace(draft.function, args, target)
        if not draft.traced.calls:
            raise KernelError("the function calls no kernel")
        return draft, [_job(call) for call in draft.traced.calls]
    except (InternalError, ToolError) as error:
        draft.outcome = Failure(False, str(error))
    except (MosaicGpuError, ValueError, NotImplementedError) as error:  # ours, Pallas' and the author's own checks
        draft.outcome = Failure(True, str(error) or type(error).__name__)
    except Exception as error:
        error.add_note(f"autotune tried the configuration {dict(config)}")
        raise
    return draft, []


def _job(call: Any) -> Job:
    with compilation_context():
        return Job(module_text(run_stages(call, call.options, stop="dialect")), call.options)


def _from_cache(job: Job) -> Built | None:
    ptx = find_ptx(job.text, job.options)
    cubin = None if ptx is None else find_cubin(ptx, job.options)
    return None if ptx is None or cubin is None else Built(ptx.text, cubin.data, vars(cubin.resources), {})


def _outcome(found: Built | Future[Outcome]) -> Outcome:
    return found if isinstance(found, Built) else found.result()


def artifacts_of(built: Built) -> tuple[Any, Cubin]:
    """The artifacts of stages "ptx" and "cubin"."""
    ptx = read_ptx(built.ptx)
    return ptx, Cubin(built.cubin, Resources(**built.resources), ptx.launch, ptx.text)


def misfit(launch: LaunchFacts, used: Resources, target: Target) -> str:
    """Why the GPU cannot hold a block of a kernel; empty where it can."""
    threads = math.prod(launch.block)
    # From sm_90 on the number in the cubin has what the system keeps in it.
    kept = _SYSTEM_SHARED_BYTES if target.capability >= (9, 0) and used.shared_bytes else 0
    shared = used.shared_bytes - kept + launch.shared_bytes
    if shared > target.max_shared_bytes:
        return f"a block takes {shared} bytes of shared memory, and {target.name} has {target.max_shared_bytes}"
    if threads > target.max_threads:
        return f"a block has {threads} threads, and {target.name} takes {target.max_threads}"
    per_warp = math.ceil(used.registers * 32 / _REGISTER_UNIT) * _REGISTER_UNIT
    registers = per_warp * math.ceil(threads / 32)
    if registers > target.resident_registers:
        return f"a block takes {registers} registers, and {target.name} has {target.resident_registers}"
    return ""


def target_of(draft: Draft) -> Target:
    """What the kernels of a traced candidate are compiled for."""
    assert draft.traced is not None
    return parse_target(draft.traced.calls[0].options.target)
