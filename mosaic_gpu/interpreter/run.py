"""One run of a kernel over its grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mosaic_gpu.errors import InternalError, MosaicGpuError
from mosaic_gpu.interpreter.exec_threads import concurrent, leave, needs_greenlets
from mosaic_gpu.interpreter.kernel import Axes, Kernel
from mosaic_gpu.interpreter.machine import Block, Cluster, Machine, Thread
from mosaic_gpu.interpreter.memory import Memory, allocate, fill, memory_of
from mosaic_gpu.interpreter.params import InterpretParams
from mosaic_gpu.interpreter.scratch import allocate_scratch, release_scratch
from mosaic_gpu.interpreter.values import Array, keys_to_words, numpy_dtype, words_to_keys
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.runtime.floating_point import ieee_arithmetic


class Run:
    """One run: its state is its own, so that an error leaves nothing behind."""

    def __init__(self, kernel: Kernel, params: InterpretParams, operands: Sequence[Any]) -> None:
        self._kernel, self._params = kernel, params
        bounds = iter(operands)
        self._grid = tuple(max(int(next(bounds)), 0) if n is None else n for n in kernel.grid)
        rest = list(bounds)
        threads = math.prod(n for _, n in kernel.axes.threads) if kernel.axes else 1
        cluster = math.prod(n for _, n in kernel.axes.cluster) if kernel.axes else 1
        self._tracked = concurrent(kernel.code.primitives, threads * cluster)
        self._greenlets = needs_greenlets(kernel.code.primitives, threads * cluster)
        self._machine = Machine(params, kernel.name, self._tracked)
        self._machine.grid = tuple(n for d, n in enumerate(self._grid) if d not in kernel.vmapped)
        self._memories = self._allocate(rest)

    def _allocate(self, operands: Sequence[Any]) -> list[Memory]:
        """Memory for index operands, inputs and outputs."""
        kernel, machine = self._kernel, self._machine
        avals = (*kernel.indices, *kernel.inputs)
        memories = [
            memory_of(name, "gmem", _as_values(value, aval))
            for name, value, aval in zip(kernel.names, operands, avals, strict=False)
        ]
        aliased = {result: operand for operand, result in kernel.aliases}
        count = len(memories)
        for i, aval in enumerate(kernel.outputs):
            if i in aliased:
                memory = memories[aliased[i]]
            else:
                memory = allocate(kernel.names[count + i], "gmem", tuple(aval.shape), numpy_dtype(aval))
                fill(memory, self._params.uninitialised, machine.scheduler.random)
            if self._blocks_of_grid() > 1 and machine.reporter.wants("block_conflicts"):
                memory.owner = np.zeros(memory.granules, np.int32)
            machine.watch(memory)
            memories.append(memory)
        return memories

    def _blocks_of_grid(self) -> int:
        axes = self._kernel.axes
        if axes is not None:
            return math.prod(n for _, n in axes.grid)
        return math.prod(self._grid[d] for d in self._kernel.parallel)

    def results(self) -> list[Array]:
        """Runs the grid."""
        kernel = self._kernel
        if all(self._grid):
            groups = self._clusters() if kernel.axes is not None else self._plain_blocks()
            alone = not self._greenlets and self._params.resident_blocks == 1
            # XLA's threads flush subnormal numbers, and NumPy warns of what IEEE 754 defines.
            with ieee_arithmetic(), np.errstate(all="ignore"):
                self._machine.scheduler.run(groups, self._params.resident_blocks, alone)
            self._check_outputs()
        outputs = self._memories[len(kernel.indices) + len(kernel.inputs) :]
        return [_as_array(m.whole().array(), a) for m, a in zip(outputs, kernel.outputs, strict=True)]

    def _check_outputs(self) -> None:
        kernel, reporter = self._kernel, self._machine.reporter
        for memory in self._memories[len(kernel.indices) + len(kernel.inputs) :]:
            if memory.written is None or memory.written.all() or not reporter.wants("unwritten_outputs"):
                continue
            missing = np.argwhere(~memory.written.reshape(memory.shape))
            reporter.fault(
                "unwritten_outputs",
                f"the kernel leaves elements of its result {memory.name} unwritten",
                kernel.source,
                got=f"{len(missing)} of {memory.granules} elements, the first at {missing[0].tolist()}",
                expected="every element is written",
                hint="look at the grid and the index map of the result",
            )

    def _body(self, thread: Thread, body: Callable[[], None]) -> Callable[[], None]:
        """`body` whose errors name the kernel's line."""

        def run() -> None:
            try:
                body()
            except MosaicGpuError as error:
                raise error.at(thread.source or self._kernel.source) from error.__cause__
            except (ValueError, TypeError, IndexError, ArithmeticError, AttributeError, KeyError) as error:
                name = thread.equation.name if thread.equation else "?"
                raise InternalError(
                    f"the interpreter failed near {name}: {error}", source=thread.source or self._kernel.source
                ) from error

        return run

    # Kernels over a mesh.

    def _clusters(self) -> Iterator[list[tuple[Thread, Callable[[], None]]]]:
        axes = self._kernel.axes
        assert axes is not None
        grid = [n for _, n in axes.grid]
        for number, step in enumerate(np.ndindex(*grid), 1):
            cluster = Cluster(number, tuple(n for _, n in axes.cluster), tuple(a for a, _ in axes.cluster))
            self._machine.cluster_names[number] = f"block {_tuple(step)}"
            self._machine.begin_cluster()
            yield [pair for place in np.ndindex(*cluster.shape) for pair in self._threads(axes, cluster, step, place)]

    def _threads(
        self, axes: Axes, cluster: Cluster, step: tuple[int, ...], place: tuple[int, ...]
    ) -> Iterator[tuple[Thread, Callable[[], None]]]:
        count = math.prod(n for _, n in axes.threads)
        block = Block(cluster, place, f"block {_tuple(step)}" + (f" cluster {_tuple(place)}" if place else ""), count)
        cluster.blocks.append(block)
        for number in range(count):
            name = f"{block.name} thread {number}" if axes.threads else block.name
            thread = Thread(self._machine, block, name, number)
            steps = (*step, *place, number)
            named = (*axes.grid, *axes.cluster, *axes.threads)
            thread.axes = {a: i for (a, _), i in zip(named, steps, strict=False)}
            thread.sizes = dict(named)
            thread.program_ids = steps
            yield thread, self._body(thread, self._mesh_body(thread))

    def _mesh_body(self, thread: Thread) -> Callable[[], None]:
        def body() -> None:
            shared = thread.block.shared.setdefault("scratch", [None, 0])
            if shared[0] is None:
                shared[0] = self._scratch(thread)
            refs = [m.whole() for m in self._memories]
            self._kernel.code.run(thread, [*refs, *shared[0]])
            leave(thread)
            thread.end()

        return body

    def _scratch(self, thread: Thread) -> list[Any]:
        kernel = self._kernel
        names = kernel.names[len(kernel.names) - len(kernel.scratch) :]
        return [allocate_scratch(thread, a, (), name) for a, name in zip(kernel.scratch, names, strict=True)]

    # Kernels of a grid and blocks.

    def _plain_blocks(self) -> Iterator[list[tuple[Thread, Callable[[], None]]]]:
        kernel = self._kernel
        sequential = [d for d in range(len(self._grid)) if d not in kernel.parallel]
        for number, place in enumerate(np.ndindex(*(self._grid[d] for d in kernel.parallel)), 1):
            name = f"block {_tuple(place)}" if kernel.parallel else "the block"
            self._machine.cluster_names[number] = name
            self._machine.begin_cluster()
            thread = Thread(self._machine, Block(Cluster(number), (), name), name)
            yield [(thread, self._body(thread, self._block_body(thread, place, sequential)))]

    def _block_body(self, thread: Thread, place: tuple[int, ...], sequential: list[int]) -> Callable[[], None]:
        kernel = self._kernel
        indices = [m.whole() for m in self._memories[: len(kernel.indices)]]
        arrays = self._memories[len(kernel.indices) :]

        def body() -> None:
            scratch = self._scratch(thread)
            step = [0] * len(self._grid)
            for d, i in zip(kernel.parallel, place, strict=True):
                step[d] = i
            for inner in np.ndindex(*(self._grid[d] for d in sequential)):
                for d, i in zip(sequential, inner, strict=True):
                    step[d] = i
                thread.program_ids = [i for d, i in enumerate(step) if d not in kernel.vmapped]
                if thread.watched:
                    thread.event("block", f"step {_tuple(step)}")
                refs = [
                    b.view(thread, m, step, indices) if b is not None else m.whole()
                    for b, m in zip(kernel.blocks, arrays, strict=True)
                ]
                kernel.code.run(thread, [*indices, *refs, *scratch])
            leave(thread)
            release_scratch(thread, [s for s in scratch if hasattr(s, "memory")], thread.equation)
            thread.end()

        return body


def _tuple(step: Sequence[Any]) -> str:
    return "(" + ", ".join(str(int(i)) for i in step) + ")"


def _as_values(value: Any, aval: Any) -> Array:
    return (
        words_to_keys(np.asarray(value))
        if compat.is_key(aval)
        else np.asarray(value).astype(numpy_dtype(aval), copy=False)
    )


def _as_array(value: Array, aval: Any) -> Array:
    return keys_to_words(value) if compat.is_key(aval) else value.copy()
