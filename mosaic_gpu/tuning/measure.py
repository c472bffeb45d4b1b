"""Timing compiled candidates on a GPU, and the timings on disk.

A timing is kept beside the compiled code (`cache.DiskCache`), under a key of all that it depends on: the code, the
types of the arguments, the values of those that are integers or bools (page tables, group sizes), the way of measuring,
the GPU and its driver.  An entry that does not read as a timing is measured again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from mosaic_gpu.api import CompiledKernel
from mosaic_gpu.cache import default_cache, key_of
from mosaic_gpu.errors import ToolError
from mosaic_gpu.runtime import driver
from mosaic_gpu.runtime.device_array import DeviceArray
from mosaic_gpu.runtime.devices import Device
from mosaic_gpu.runtime.interface import Program
from mosaic_gpu.runtime.timing import Timing, time_calls
from mosaic_gpu.tuning.trace import Traced

_FORMAT = "1"
_STREAM = 0


class Code(NamedTuple):
    """A compiled kernel, and what a runtime knows of it."""

    kernel: CompiledKernel
    program: Program


@dataclass(frozen=True)
class Manner:
    """How to measure: the arguments of `time_calls`, whether the cache is used, and the check of the results."""

    repeats: int
    cold_l2: bool
    use_cache: bool
    check: Callable[[Any], object] | None


@dataclass(frozen=True)
class Measured:
    """A timing, and whether it was measured earlier; `is_wrong` says why the check did not like the results."""

    timing: Timing | None
    is_from_cache: bool = False
    is_wrong: str = ""


def measure(traced: Traced, kernels: Sequence[Code], args: Sequence[Any], place: Device, manner: Manner) -> Measured:
    """Times the kernels of one candidate, one after another, on arrays like `args`.

    What the function does around its kernels is done once, before, and is not timed.

    Raises ToolError where the driver refuses, or a kernel faults.
    """
    key = _key(kernels, args, place, manner)
    store = default_cache() if manner.use_cache else None
    known = None if store is None else _timing(store.load(key))
    if known is not None and manner.check is None:
        return Measured(known, True)
    with place.active():
        run = _Run(kernels)
        results = traced.evaluate(args, run.first)
        if manner.check is not None:
            try:
                manner.check(results)
            except AssertionError as error:
                return Measured(None, is_wrong=str(error).strip() or "the check fails")
        if known is not None:
            return Measured(known, True)
        timing = time_calls(run.again, stream=_STREAM, repeats=manner.repeats, cold_l2=manner.cold_l2)
    if store is not None:
        store.store(key, json.dumps(dataclasses.asdict(timing)).encode())
    return Measured(timing)


class _Run:
    """The kernels with the operands that they had in the function's evaluation, and memory for their results."""

    def __init__(self, kernels: Sequence[Code]) -> None:
        self._kernels = kernels
        self._launches: list[Callable[[], Any]] = []

    def first(self, number: int, values: Sequence[Any]) -> list[Any]:
        """Runs kernel `number` on copies of `values`, which it keeps; its results on the host."""
        kernel, program = self._kernels[number]
        pairs = zip(values, program.operands, strict=True)
        operands = [DeviceArray.of(np.asarray(value).astype(type_.memory_dtype)) for value, type_ in pairs]
        made = kernel.launch(*operands, stream=_STREAM)
        results = list(made) if isinstance(made, tuple) else [made]
        self._launches.append(lambda: kernel.launch(*operands, out=results, stream=_STREAM))
        return [
            result.numpy().astype(type_.dtype, copy=False)
            for result, type_ in zip(results, program.results, strict=True)
        ]

    def again(self, i: int) -> None:
        """Enqueues all kernels once more, on the same arrays."""
        for launch in self._launches:
            launch()


def is_lost(place: Device) -> bool:
    """Whether a kernel's fault has made the GPU useless for this process."""
    try:
        with place.active():
            driver.call("cuCtxSynchronize")
    except ToolError:
        return True
    return False


def _key(kernels: Sequence[Code], args: Sequence[Any], place: Device, manner: Manner) -> str:
    code = [hashlib.sha256(k.ptx.encode() + b"\0" + k.cubin).hexdigest() for k, _ in kernels]
    about = [place.name, place.capability, place.multiprocessors, driver.call("cuDriverGetVersion")]
    parts = [_FORMAT, code, [_about(leaf) for leaf in jax.tree.leaves(tuple(args))], manner.repeats, manner.cold_l2]
    return key_of("timing", repr(parts), repr(about))


def _about(leaf: Any) -> str:
    array = np.asarray(leaf)
    values = hashlib.sha256(array.tobytes()).hexdigest() if array.dtype.kind in "iub" else ""
    return f"{array.dtype}{list(array.shape)} {values}"


def _timing(data: bytes | None) -> Timing | None:
    """The timing of a cache's entry; None where it does not hold one."""
    if data is None:
        return None
    try:
        timing = Timing(**json.loads(data))
        return timing if timing.median > 0 and timing.count > 0 else None
    except (ValueError, TypeError):
        return None


def arrays_like(args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments; each `jax.ShapeDtypeStruct` as an array: normally distributed floats, integers and bools zero."""
    rng = np.random.default_rng(0)

    def made(leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        dtype = np.dtype(leaf.dtype)
        is_float = jax.numpy.issubdtype(dtype, jax.numpy.floating)
        return rng.standard_normal(leaf.shape, np.float32).astype(dtype) if is_float else np.zeros(leaf.shape, dtype)

    return tuple(jax.tree.map(made, tuple(args)))
