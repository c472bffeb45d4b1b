"""`autotune`: the fastest of a kernel's configurations."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tqdm import tqdm

from mosaic_gpu.api import CompiledKernel
from mosaic_gpu.errors import KernelError, ToolError
from mosaic_gpu.kernel import adopt
from mosaic_gpu.lowering.targets import parse_target
from mosaic_gpu.lowering.throughput import Throughput, throughput_of
from mosaic_gpu.runtime.devices import Device, current_device, device_count
from mosaic_gpu.runtime.loaded import runs_on
from mosaic_gpu.runtime.peaks import throughput_of_device
from mosaic_gpu.tuning.compile import Draft, artifacts_of, compile_all, misfit, target_of
from mosaic_gpu.tuning.jobs import Failure
from mosaic_gpu.tuning.measure import Code, Manner, arrays_like, is_lost, measure
from mosaic_gpu.tuning.model import estimate, estimate_all
from mosaic_gpu.tuning.pool import Pool
from mosaic_gpu.tuning.result import Candidate, Tuned

Space = Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]


def autotune(
    make_kernel: Callable[..., Callable[..., Any]],
    space: Space,
    *args: Any,
    target: str | None = None,
    workers: int | None = None,
    cache: bool = True,
    repeats: int = 20,
    cold_l2: bool = False,
    time_limit: float = 120.0,
    check: Callable[[Any], object] | None = None,
    progress: bool = True,
) -> Tuned:
    """The fastest of a kernel's configurations for arguments like `args`.

    Every configuration is compiled, side by side in processes of their own.  On a GPU that runs `target` they are
    measured; elsewhere they are ranked by a model (`tuning.model`).

    Arguments:
      make_kernel: `make_kernel(**config)` gives the function to call on `args`: what `pl.pallas_call` returns, or any
        function that calls kernels.
      space: a mapping from each parameter's name to its values, for all combinations; or the configurations themselves.
      args: arrays, or `jax.ShapeDtypeStruct`s.  Measured are the arrays' values; for the others normally distributed
        floats, and integers and bools of zero: what decides how much a kernel does has to be given.
      target: the architecture; None takes the one in the kernel's parameters, else this machine's GPU's, else "sm_90a".
      workers: processes that compile; None takes one a core.
      cache: whether times that were measured earlier are taken, and new ones kept, beside the compiled code.
      repeats: the fewest samples of each measured time.
      cold_l2: whether the L2 cache is emptied before each call; else calls follow upon each other, as in a loop.
      time_limit: seconds after which the compilation of one kernel is given up.
      check: is given the function's results of each candidate, on a GPU, and raises AssertionError where they are
        wrong: `functools.partial(numpy.testing.assert_allclose, desired=expected, rtol=1e-2)`.
      progress: whether bars on standard error show how far it is.

    Raises:
      KernelError: an argument is wrong, or no configuration is left; the message says for each why.
      UnsupportedError: the target is not supported; or a kernel is called inside a loop, and is to be measured.
      ToolError: a kernel faulted on the GPU.
    """
    if target is not None:
        target = parse_target(target).name
    configs = _configurations(space)
    count = _workers(workers, len(configs))
    if not time_limit > 0:
        raise KernelError("time_limit is out of range", got=time_limit, expected="more than 0 seconds")
    if repeats < 1:
        raise KernelError("repeats is out of range", got=repeats, expected="at least 1")

    def bar(items: Sequence[Any], what: str) -> Iterable[Any]:
        shown: Iterable[Any] = tqdm(items, desc=f"autotune: {what}", disable=not progress, leave=False)
        return shown

    with Pool(count, time_limit) as pool:
        drafts = compile_all(make_kernel, configs, args, target, pool, bar)
    tried = _spilling_where_nothing_else_is_left([_Trial(draft, _judged(draft)) for draft in drafts])
    gpu = _gpu(tried)
    manner = Manner(repeats, cold_l2, cache, check)
    peaks = None if gpu is None else throughput_of_device(gpu)
    tried = [_estimated(trial, peaks) for trial in tried]
    if gpu is not None:
        values = arrays_like(args)
        chosen = [trial for trial in tried if trial.candidate.status == "estimated"]
        measured = {id(trial): _measured(trial, values, gpu, manner) for trial in bar(chosen, "measuring")}
        tried = [measured.get(id(trial), trial) for trial in tried]
    return _best(tried, gpu)


@dataclass(frozen=True)
class _Trial:
    draft: Draft
    candidate: Candidate


def _configurations(space: Space) -> list[Mapping[str, Any]]:
    """All configurations, each once."""
    if isinstance(space, Mapping):
        for name, values in space.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise KernelError(f"the values of {name!r} are none", got=repr(values), expected="a list of values")
        combinations = itertools.product(*space.values())
        configs: list[Mapping[str, Any]] = [dict(zip(space, values, strict=True)) for values in combinations]
    else:
        configs = list(space)
        wrong = next((c for c in configs if not isinstance(c, Mapping)), None)
        if wrong is not None:
            raise KernelError("a configuration is no mapping", got=repr(wrong), expected="names and values")
    if not configs:
        raise KernelError("there is no configuration to try", got=repr(space))
    return [config for i, config in enumerate(configs) if config not in configs[:i]]


def _workers(workers: int | None, configs: int) -> int:
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    elif workers < 1:
        raise KernelError("there must be a process that compiles", got=f"workers={workers}", expected="at least 1")
    return min(workers, configs)


def _judged(draft: Draft) -> Candidate:
    """The candidate as it is after compiling: "estimated" where nothing speaks against it."""
    if isinstance(draft.outcome, Failure):
        return Candidate(draft.config, "refused" if draft.outcome.is_refusal else "failed", draft.outcome.why)
    made = [artifacts_of(built) for built in draft.outcome]
    resources, launches = tuple(cubin.resources for _, cubin in made), tuple(ptx.launch for ptx, _ in made)
    candidate = Candidate(
        draft.config,
        "estimated",
        resources=resources,
        launches=launches,
        compile_seconds=sum(sum(built.seconds.values()) for built in draft.outcome),
    )
    misfits = [why for pair in zip(launches, resources, strict=True) if (why := misfit(*pair, target_of(draft)))]
    if misfits:
        return replace(candidate, status="does not fit", why=misfits[0])
    spilled = sum(used.spill_bytes for used in resources)
    if spilled:
        return replace(candidate, status="spills", why=f"{spilled} bytes of registers go through memory")
    return candidate


def _spilling_where_nothing_else_is_left(tried: list[_Trial]) -> list[_Trial]:
    """The trials; where all that would run spills, that is no reason to leave it out."""
    if any(t.candidate.status == "estimated" for t in tried):
        return tried
    return [
        replace(t, candidate=replace(t.candidate, status="estimated")) if t.candidate.status == "spills" else t
        for t in tried
    ]


def _gpu(tried: Sequence[_Trial]) -> Device | None:
    """The GPU to measure on: the current one, where it runs what was compiled."""
    targets = {target_of(t.draft) for t in tried if t.candidate.launches}
    if not targets or device_count() == 0:
        return None
    place = current_device()
    return place if all(runs_on(target.name, place.capability) for target in targets) else None


def _estimated(trial: _Trial, peaks: Throughput | None) -> _Trial:
    """With the model's estimate, where there is code that fits; `peaks`: None for the target's common GPU."""
    draft, candidate = trial.draft, trial.candidate
    if not candidate.launches or candidate.status == "does not fit" or isinstance(draft.outcome, Failure):
        return trial
    assert draft.traced is not None
    known = peaks or throughput_of(target_of(draft))
    parts = [
        estimate(call, built.ptx, launch, used, known)
        for call, built, launch, used in zip(
            draft.traced.calls, draft.outcome, candidate.launches, candidate.resources, strict=True
        )
    ]
    return replace(trial, candidate=replace(candidate, estimate=estimate_all(parts)))


def _measured(trial: _Trial, values: Sequence[Any], gpu: Device, manner: Manner) -> _Trial:
    assert trial.draft.traced is not None
    try:
        found = measure(trial.draft.traced, _codes(trial.draft), values, gpu, manner)
    except ToolError as error:
        if is_lost(gpu):
            raise ToolError(f"the configuration {dict(trial.candidate.config)} faulted: {error}") from error
        return replace(trial, candidate=replace(trial.candidate, status="failed", why=str(error)))
    if found.timing is None:
        return replace(trial, candidate=replace(trial.candidate, status="wrong", why=found.is_wrong))
    candidate = replace(trial.candidate, status="measured", timing=found.timing, is_from_cache=found.is_from_cache)
    return replace(trial, candidate=candidate)


def _codes(draft: Draft) -> list[Code]:
    """The kernels of a candidate, which calling its function finds from now on."""
    assert draft.traced is not None
    assert not isinstance(draft.outcome, Failure)
    codes = []
    for call, built in zip(draft.traced.calls, draft.outcome, strict=True):
        compilation = adopt(call, *artifacts_of(built), built.seconds)
        codes.append(Code(CompiledKernel(call, compilation), compilation.program))
    return codes


def _best(tried: Sequence[_Trial], gpu: Device | None) -> Tuned:
    ranked = [t for t in tried if t.candidate.microseconds is not None]
    if not ranked:
        raise _none_left([t.candidate for t in tried])
    ranked.sort(key=lambda t: t.candidate.microseconds or 0.0)
    best = ranked[0]
    assert best.draft.function is not None
    _codes(best.draft)
    others = [t for t in tried if t.candidate.microseconds is None]
    how = _how(best, gpu, len(ranked), len(tried), sum(t.candidate.is_from_cache for t in tried))
    return Tuned(best.draft.config, best.draft.function, tuple(t.candidate for t in [*ranked, *others]), how)


def _how(best: _Trial, gpu: Device | None, ranked: int, tried: int, earlier: int) -> str:
    if gpu is not None:
        where = f"measured on {gpu.name}" + (f", {earlier} of them earlier" if earlier else "")
    else:
        where = f"estimated for {throughput_of(target_of(best.draft)).gpu}, not measured: no GPU here runs the code"
    return f"best of {ranked} configurations of {tried}, {where}: {dict(best.draft.config)}"


def _none_left(candidates: Sequence[Candidate]) -> KernelError:
    whys = "\n".join(f"    {dict(c.config)}: {c.status}: {c.why}" for c in candidates)
    return KernelError(f"none of the {len(candidates)} configurations is left", got=f"\n{whys}")
