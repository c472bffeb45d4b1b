"""Reads and writes of memory with every check that is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.interpreter.clocks import Actor, Conflict
from mosaic_gpu.interpreter.memory import Memory, initial_value
from mosaic_gpu.interpreter.values import Array


def read(thread: Any, selection: Any, actor: Actor | None = None, mask: Any = None, other: Any = None) -> Any:
    """What `thread` (or `actor`, which works for it) reads; `other` where `mask` is false or nothing is there."""
    memory = selection.memory
    if memory.written is not None or memory.owner is not None or memory.writes is not None:
        _check_read(thread, selection, actor, mask)
    if thread.watched:
        thread.event("read", _place(selection))
    value = selection.read()
    inside = selection.inside
    if inside is None and mask is None:
        return value
    where = np.broadcast_to(True if inside is None else inside, selection.shape)
    if mask is not None:
        where = where & mask
    missing = np.zeros((), selection.dtype) if other is None else other
    return np.where(where, value, np.asarray(missing).astype(selection.dtype, copy=False))


def write(thread: Any, selection: Any, value: Any, actor: Actor | None = None, mask: Any = None) -> None:
    """Writes for `thread`, where `mask` holds."""
    memory = selection.memory
    if memory.written is not None or memory.owner is not None or memory.writes is not None:
        _note_write(thread, selection, actor, mask)
    if thread.watched:
        thread.event("write", _place(selection))
    selection.write(value, mask)


def filler(memory: Memory) -> Any:
    """What reads out of bounds give where they do not clamp."""
    return initial_value(memory.dtype)


def _place(selection: Any) -> str:
    return f"{selection.dtype.name}{list(selection.shape)} of {selection.memory.name}"


def _check_read(thread: Any, selection: Any, actor: Actor | None, mask: Any) -> None:
    memory, reporter = selection.memory, thread.machine.reporter
    if memory.written is not None and reporter.wants("uninitialised_reads"):
        check_written(thread, selection, actor, mask)
    if memory.owner is not None:
        _check_owner(thread, selection, "reads", actor, mask)
    if memory.writes is not None:
        conflict = memory.writes.read(selection, actor or thread.actor())
        if conflict is not None:
            report_conflict(thread, selection, "reads", conflict, actor)


def check_written(thread: Any, selection: Any, actor: Actor | None = None, mask: Any = None) -> None:
    written = selection.pick(selection.memory.written)
    if written.all():
        return
    missing = ~written
    if missing.ndim > len(selection.shape):
        missing = missing.any(-1)
    for where in (mask, selection.inside):
        if where is not None and missing.shape == selection.shape:
            missing = missing & where
    if not missing.any():
        return
    flying = [
        f
        for f in selection.memory.pending
        if hasattr(f, "target") and not f.landed and f.target.memory is selection.memory
    ]
    if flying:
        thread.machine.reporter.fault(
            "missing_waits",
            f"{selection.memory.name} is read while {flying[0].actor_name} to it is on its way",
            actor.source if actor else thread.source,
            thread.name,
            got=f"the copy at {flying[0].source}",
            hint="wait for the copy: plgpu.barrier_wait(barrier)",
        )
    else:
        element = [int(i) for i in np.argwhere(missing)[0]]
        thread.machine.reporter.fault(
            "uninitialised_reads",
            f"{selection.memory.name} is read before it is written",
            actor.source if actor else thread.source,
            thread.name,
            got=f"{int(missing.sum())} of {missing.size} elements, the first at {element} of what is read",
            hint="write it first; InterpretParams(uninitialised_reads=...) says what such a read does",
        )


def claim(thread: Any, selection: Any, verb: str, actor: Actor) -> None:
    """Checks what an asynchronous operation will read or write, when it starts."""
    memory = selection.memory
    if memory.owner is not None:
        _check_owner(thread, selection, verb, actor, None)
    if memory.writes is not None:
        note = memory.writes.read if verb == "reads" else memory.writes.write
        conflict = note(selection, actor)
        if conflict is not None:
            report_conflict(thread, selection, verb, conflict, actor)


def _note_write(thread: Any, selection: Any, actor: Actor | None, mask: Any) -> None:
    memory = selection.memory
    if memory.written is not None:
        selection.put(memory.written, True, mask)
    if memory.owner is not None:
        _check_owner(thread, selection, "writes", actor, mask)
    if memory.writes is not None:
        conflict = memory.writes.write(selection, actor or thread.actor(), mask)
        if conflict is not None:
            report_conflict(thread, selection, "writes", conflict, actor)


def _check_owner(thread: Any, selection: Any, verb: str, actor: Actor | None, mask: Any) -> None:
    memory, me = selection.memory, thread.block.cluster.number
    owners = selection.pick(memory.owner)
    foreign = (owners != 0) & (owners != me)
    readers = None
    if verb == "writes" and memory.reader is not None:
        readers = selection.pick(memory.reader)
        foreign_readers = (readers != 0) & (readers != me)
    if _any(foreign, mask, selection):
        what = "writes an element that another block wrote" if verb == "writes" else "reads what another block wrote"
        _report_owner(thread, selection, what, foreign, owners, actor)
    elif readers is not None and _any(foreign_readers, mask, selection):
        _report_owner(thread, selection, "writes an element that another block read", foreign_readers, readers, actor)
    if verb == "writes":
        selection.put(memory.owner, me, mask)
    else:
        if memory.reader is None:
            memory.reader = np.zeros(memory.granules, np.int32)
        before = selection.pick(memory.reader)
        selection.put(memory.reader, np.where((before == 0) | (before == me), me, -1))


def _any(flags: Array, mask: Any, selection: Any) -> bool:
    for where in (mask, selection.inside):
        if where is not None and flags.shape == selection.shape:
            flags = flags & where
    return bool(flags.any())


def _report_owner(thread: Any, selection: Any, what: str, foreign: Array, owners: Array, actor: Actor | None) -> None:
    place = tuple(np.argwhere(foreign)[0])
    number = int(owners[place])
    other = thread.machine.cluster_names.get(number, "several blocks") if number > 0 else "several blocks"
    thread.machine.reporter.fault(
        "block_conflicts",
        f"{thread.block.name} {what} of {selection.memory.name}",
        actor.source if actor else thread.source,
        thread.name,
        got=f"{int(foreign.sum())} elements in common with {other}",
        expected="blocks that run in parallel touch different elements",
        hint="give each block its own part of the result, or make the dimension sequential",
    )


def report_conflict(thread: Any, selection: Any, verb: str, conflict: Conflict, actor: Actor | None) -> None:
    """Reports a race, a missing wait or a missing commit."""
    name = actor.name if actor else thread.name
    source = actor.source if actor else thread.source
    where = f" at {conflict.source}" if conflict.source else ""
    memory = selection.memory.name
    if conflict.unfenced:
        thread.machine.reporter.fault(
            "missing_commits",
            f"{name} {verb} {memory}, but {conflict.other}{where} was not committed",
            source,
            thread.name,
            hint="call plgpu.commit_smem() after writing shared memory that a copy or a wgmma reads",
        )
        return
    check = "missing_waits" if conflict.asynchronous and not (actor and actor.proxy) else "races"
    missing = "a wait is missing" if check == "missing_waits" else "nothing orders the two"
    thread.machine.reporter.fault(
        check,
        f"race on {memory}: {name} {verb} it, and {conflict.other}{where} may come before or after ({missing})",
        source,
        thread.name,
        hint="order the two with a barrier, or wait for the copy or wgmma",
    )
