"""A kernel ready to be interpreted, and one run of it over its grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.errors import InternalError, KernelError, MosaicGpuError, SourceLine, UnsupportedError
from mosaic_gpu.interpreter import rules
from mosaic_gpu.interpreter.blocks import BlockMap
from mosaic_gpu.interpreter.code import Code, code_of
from mosaic_gpu.interpreter.exec_async import concurrent, leave, needs_greenlets
from mosaic_gpu.interpreter.machine import Block, Cluster, Machine, Thread
from mosaic_gpu.interpreter.memory import Memory, allocate, fill, memory_of
from mosaic_gpu.interpreter.params import InterpretParams
from mosaic_gpu.interpreter.scratch import allocate_scratch, release_scratch
from mosaic_gpu.interpreter.values import Array, keys_to_words, numpy_dtype, words_to_keys
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.runtime.floating_point import ieee_arithmetic

__all__ = ["Kernel", "rules"]


@dataclass(frozen=True)
class Axes:
    """The axes of a kernel over a mesh (`plgpu.kernel`): names and sizes of grid, cluster and threads."""

    grid: tuple[tuple[Any, int], ...]
    cluster: tuple[tuple[Any, int], ...]
    threads: tuple[tuple[Any, int], ...]


@dataclass(frozen=True)
class Kernel:
    """What a `pallas_call`, or a `plgpu.kernel`, runs.

    Attributes:
      name: for messages.
      code: the body.
      grid: bounds; None where one is dynamic.
      parallel: the dimensions whose steps may run at the same time; a mesh's all.
      vmapped: dimensions that `jax.vmap` added, which `program_id` does not count.
      blocks: for each input and output how its blocks are found; None for all of it.
      indices, inputs, outputs: abstract values of index operands, inputs, outputs.
      aliases: pairs (operand, result) that are one array; index operands count as operands.
      scratch: abstract references of scratch memory.
      axes: of a mesh.
      source: where the kernel is defined.
    """

    name: str
    code: Code
    grid: tuple[int | None, ...]
    parallel: tuple[int, ...]
    vmapped: tuple[int, ...]
    blocks: tuple[BlockMap | None, ...]
    indices: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    names: tuple[str, ...]
    aliases: tuple[tuple[int, int], ...]
    scratch: tuple[Any, ...]
    axes: Axes | None
    source: SourceLine | None

    def run(self, params: InterpretParams, *operands: Any) -> list[Array]:
        """The results for the operands: dynamic bounds, index operands, then inputs."""
        return Run(self, params, operands).results()


def kernel_of(params: Mapping[str, Any]) -> Kernel:
    """The kernel of a `pallas_call` equation's parameters.

    Raises UnsupportedError or KernelError, before anything runs, for what cannot be interpreted.
    """
    mapping, jaxpr = params["grid_mapping"], params["jaxpr"]
    if jaxpr.constvars:
        raise UnsupportedError("the kernel uses arrays or references from outside of it",
                               hint="pass them to the kernel as operands")
    mesh = params.get("mesh")
    first = mapping.num_index_operands
    blocks = mapping.block_mappings
    origins = [f"index operand {i}" for i in range(first)] + [str(b.origin) for b in blocks]
    axes = None if mesh is None else axes_of(mesh)
    rank = len(mapping.grid)
    return Kernel(
        name=jaxpr.debug_info.func_name or "kernel",
        code=code_of(jaxpr),
        grid=tuple(None if compat.is_dynamic_bound(n) else int(n) for n in mapping.grid),
        parallel=_parallel(params.get("compiler_params"), rank, mapping.vmapped_dims),
        vmapped=tuple(mapping.vmapped_dims),
        blocks=tuple(None if mesh is not None else BlockMap.of(b, first) for b in blocks),
        indices=tuple(v.aval.inner_aval for v in jaxpr.invars[:first]),
        inputs=tuple(b.array_aval for b in blocks[: mapping.num_inputs]),
        outputs=tuple(b.array_aval for b in blocks[mapping.num_inputs :]),
        names=tuple(_names(jaxpr, origins)),
        aliases=tuple(params["input_output_aliases"]),
        scratch=tuple(v.aval for v in jaxpr.invars[first + len(blocks) :]),
        axes=axes,
        source=_definition(jaxpr),
    )


def mesh_kernel_of(params: Mapping[str, Any], operands: int) -> Kernel:
    """The kernel of an `mpmd_map` equation's parameters: a `plgpu.kernel`."""
    (mesh,), (jaxpr,) = params["meshes"], params["jaxprs"]
    opened = compat.open_jaxpr(jaxpr)
    avals = [getattr(v.aval, "inner_aval", v.aval) for v in opened.invars]
    results = len(params["out_avals"])
    axes = axes_of(mesh)
    return Kernel(
        name=params["name"] or "kernel",
        code=code_of(jaxpr),
        grid=tuple(n for _, n in (*axes.grid, *axes.cluster, *axes.threads)),
        parallel=(),
        vmapped=(),
        blocks=(None,) * (operands + results),
        indices=(),
        inputs=tuple(avals[:operands]),
        outputs=tuple(avals[operands : operands + results]),
        names=tuple(_names(opened, [f"argument {i}" for i in range(operands + results)])),
        aliases=tuple(dict(params["input_output_aliases"]).items()),
        scratch=tuple(v.aval for v in opened.invars[operands + results :]),
        axes=axes,
        source=_definition(opened),
    )


def axes_of(mesh: Any) -> Axes:
    """The axes of JAX's `plgpu.Mesh`."""
    if not hasattr(mesh, "cluster_names"):
        raise UnsupportedError(f"a kernel over a {type(mesh).__name__} is not supported", expected="plgpu.Mesh")
    threads = ((mesh.thread_name, int(mesh.num_threads)),) if mesh.num_threads else ()
    return Axes(
        tuple(zip(mesh.grid_names, map(int, mesh.grid), strict=True)),
        tuple(zip(mesh.cluster_names, map(int, mesh.cluster), strict=True)),
        threads,
    )


def _names(jaxpr: Any, origins: Sequence[str]) -> list[str]:
    """The kernel's own names for its arguments, where JAX kept them."""
    names = jaxpr.debug_info.arg_names
    known = names is not None and len(names) >= len(origins)
    return [names[i] if known and names[i] else origin for i, origin in enumerate(origins)]


def _definition(jaxpr: Any) -> SourceLine | None:
    found = compat.function_source(jaxpr)
    return found and SourceLine(*found, jaxpr.debug_info.func_name or "")


def _parallel(compiler_params: Any, rank: int, vmapped: Sequence[int]) -> tuple[int, ...]:
    """Dimensions that the user calls parallel; and vmap's, where there are any others."""
    said = getattr(compiler_params, "dimension_semantics", None)
    if said is None:
        return ()
    own = [d for d in range(rank) if d not in vmapped]
    if len(said) not in (len(own), rank):
        raise KernelError("dimension_semantics does not fit the grid", got=tuple(said), expected=f"{len(own)} words")
    dims = own if len(said) == len(own) else range(rank)
    words = [str(getattr(word, "name", word)).lower() for word in said]
    named = {d for d, word in zip(dims, words, strict=True) if word.endswith("parallel")}
    return tuple(sorted({*named, *vmapped}))


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
                raise error.at(thread.source or self._kernel.source)
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
                shared[0] = [allocate_scratch(thread, a, (), f"scratch {i}")
                             for i, a in enumerate(self._kernel.scratch)]
            refs = [m.whole() for m in self._memories]
            self._kernel.code.run(thread, [*refs, *shared[0]])
            leave(thread)
            thread.end()

        return body

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
            scratch = [allocate_scratch(thread, a, (), f"scratch {i}") for i, a in enumerate(kernel.scratch)]
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
    return words_to_keys(np.asarray(value)) if compat.is_key(aval) else np.asarray(value).astype(
        numpy_dtype(aval), copy=False)


def _as_array(value: Array, aval: Any) -> Array:
    return keys_to_words(value) if compat.is_key(aval) else value.copy()


