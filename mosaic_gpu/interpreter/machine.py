"""The machine of one run: clusters of blocks of threads, their memory, and where they are in the grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mosaic_gpu.errors import SourceLine
from mosaic_gpu.interpreter.clocks import AccessLog, Actor, Clock, Times
from mosaic_gpu.interpreter.memory import Memory, allocate, fill
from mosaic_gpu.interpreter.params import InterpretParams
from mosaic_gpu.interpreter.reports import Reporter
from mosaic_gpu.interpreter.scheduler import Scheduler


class Machine:
    """What one run of a kernel shares.

    Attributes:
      tracked: whether accesses have to be ordered, since several threads or copies share memory.
      names: of the axes: name -> size, for `axis_index` and `axis_size`.
    """

    def __init__(self, params: InterpretParams, kernel: str, tracked: bool) -> None:
        self.params = params
        self.reporter = Reporter(params, kernel)
        self.scheduler = Scheduler(params.seed)
        self.times = Times()
        self.tracked = tracked
        self.cluster_names: dict[int, str] = {}
        self.grid: tuple[int, ...] = ()
        self.printed: list[str] = []
        self.floor = self.times.start()

    def begin_cluster(self) -> None:
        """What threads that start from now on have seen: everything until now, and nothing of one another."""
        self.floor = self.times.start()

    def watch(self, memory: Memory) -> None:
        """Starts looking for races on a memory."""
        checks = ("races", "missing_waits", "missing_commits")
        if self.tracked and any(self.reporter.wants(c) for c in checks):
            memory.writes = AccessLog(memory.granules, self.times)


@dataclass(eq=False)
class Cluster:
    """Blocks that run together.

    Attributes:
      number: from 1, over the whole grid.
      blocks: in row-major order over `shape`.
    """

    number: int
    shape: tuple[int, ...] = ()
    axes: tuple[Any, ...] = ()
    blocks: list[Block] = field(default_factory=list)


@dataclass(eq=False)
class Block:
    """One block: its name for messages, its place in its cluster, and memory that its threads share.

    Attributes:
      shared: allocations of collective `run_scoped`s: key -> (allocations, threads still inside).
      allocations: memories and barriers by key, for other blocks of the cluster.
    """

    cluster: Cluster
    coordinates: tuple[int, ...]
    name: str
    threads: int = 1
    shared: dict[Any, list[Any]] = field(default_factory=dict)
    allocations: dict[Any, Any] = field(default_factory=dict)


class Thread:
    """One thread of a block (a warpgroup, to the hardware), or the one of a plain kernel.

    Attributes:
      axes: the thread's index along each named axis.
      sizes: the size of each named axis.
      program_ids: its step of the grid, as the user wrote it.
      equation: what it does.
      scopes, own_scopes: how many scopes it has entered, with the other threads of its block, or by itself.
    """

    def __init__(self, machine: Machine, block: Block, name: str, number: int = 0) -> None:
        self.machine, self.block, self.name, self.number = machine, block, name, number
        self.axes: dict[Any, int] = {}
        self.sizes: dict[Any, int] = {}
        self.program_ids: Sequence[int] = ()
        self.equation: Any = None
        self.watched = machine.reporter.watched
        self.scopes = self.own_scopes = 0
        self.greenlet: Any = None
        self.condition: Callable[[], bool] = bool
        self.waits_for: Callable[[], str] = str
        self.stores: list[Any] = []
        self.groups: list[list[Any]] = []
        self.loads: list[Any] = []
        self.products: list[Any] = []
        self._slots: dict[str, int] = {}
        self.clock = Clock(np.zeros(0, np.int64), np.zeros(0, np.int64))
        if machine.tracked:
            self._begin(machine.floor.copy())

    def _begin(self, clock: Clock) -> None:
        self.clock = clock
        slot = self.slot("thread")
        self.clock.grow(self.machine.times.size)
        self.clock.seen[slot] = self.machine.times.tick()

    def fork(self, name: str, number: int) -> Thread:
        """A thread for one of its warps, which has seen what it has seen."""
        child = Thread(self.machine, self.block, name, number)
        child.axes, child.sizes = dict(self.axes), dict(self.sizes)
        child.program_ids, child.equation = self.program_ids, self.equation
        if self.machine.tracked:
            child.clock.join(self.release())
        return child

    @property
    def source(self) -> SourceLine | None:
        """The line that it is at."""
        return None if self.equation is None else self.equation.source

    def slot(self, kind: str) -> int:
        """Its slot for accesses of a kind: "thread", "store reads", "store writes", "wgmma"."""
        if kind not in self._slots:
            self._slots[kind] = self.machine.times.slot(generic=kind == "thread")
        return self._slots[kind]

    def actor(self) -> Actor:
        """The thread itself, as who accesses memory."""
        slot = self.slot("thread")
        return Actor(slot, int(self.clock.seen[slot]), self.clock, False, self.name, self.source)

    def asynchronous(self, kind: str, what: str) -> Actor:
        """An asynchronous operation that it starts now, in its slot of a kind."""
        return self.starts(self.slot(kind), what)

    def starts(self, slot: int, what: str) -> Actor:
        """An asynchronous operation that it starts now, in a slot."""
        clock = self.release()
        clock.grow(self.machine.times.size)
        time = self.machine.times.tick()
        clock.seen[slot] = time
        return Actor(slot, time, clock, True, f"{what} of {self.name}", self.source)

    def release(self) -> Clock:
        """Publishes what it did: the clock until now; what it does from now on comes after."""
        if not self.machine.tracked:
            return self.clock
        published = self.clock.copy()
        self.clock.seen[self.slot("thread")] = self.machine.times.tick()
        return published

    def acquire(self, clock: Clock) -> None:
        """Takes over what others published."""
        if self.machine.tracked:
            slot = self.slot("thread")
            mine = self.clock.seen[slot]
            self.clock.join(clock)
            self.clock.seen[slot] = mine

    def fence(self) -> None:
        """Makes what it has seen visible to the asynchronous proxy."""
        if self.machine.tracked:
            np.maximum(self.clock.fenced, self.clock.seen, out=self.clock.fenced)
            self.release()

    def end(self) -> None:
        """Gives its slots back."""
        self.machine.times.free.extend(self._slots.values())
        self._slots = {}

    def event(self, kind: str, detail: str) -> None:
        """Tells of a step."""
        self.machine.reporter.event(kind, self.name, detail, self.source)

    def pause(self) -> None:
        """Lets others go on, where the order is drawn."""
        self.machine.scheduler.pause(self)

    def allocate(self, name: str, space: str, shape: tuple[int, ...], dtype: Any, granule: int | None = None) -> Memory:
        """Uninitialised memory of its block."""
        memory = allocate(name, space, shape, dtype, granule)
        fill(memory, self.machine.params.uninitialised, self.machine.scheduler.random)
        memory.source = self.source
        memory.block = self.block
        if space != "regs":
            self.machine.watch(memory)
        return memory
