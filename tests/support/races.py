"""Runs the memory accesses of a kernel in the `mgpu` dialect thread by thread, and looks for races.

Only what random kernels of the barrier tests hold: constants, i32 sums and products, constant-step loops,
branches whose condition a function draws, subviews in range, loads and stores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.attrs import layout_of
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import element_of, ref_space, shape_of, storage_bits
from mosaic_gpu.lowering.passes.walk import body_of
from tests.support.layouts import element_at

Place = tuple[str, int]


@dataclass
class View:
    """A reference at run time: bytes from the start of its memory, and byte strides."""

    memory: str
    start: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass
class RaceFinder:
    """One run of a kernel.

    Attributes:
      choose: says which way a branch goes.
      races: what was found, one sentence each.
    """

    kernel: Any
    choose: Callable[[], bool]
    races: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        block = body_of(self.kernel)
        self.values: dict[Any, Any] = {}
        self.threads = 32 * ir.IntegerAttr(self.kernel.attributes["num_warps"]).value
        for argument, alias in zip(block.arguments, ints(self.kernel.attributes["aliases"]), strict=True):
            self.values[argument] = self._root(argument, f"gmem{alias}", 0)
        self._meet()
        self._block(block)

    def _root(self, value: Any, memory: str, start: int) -> View:
        shape, size = shape_of(value.type), storage_bits(element_of(value.type)) // 8
        strides = [size] * len(shape)
        for d in reversed(range(len(shape) - 1)):
            strides[d] = strides[d + 1] * shape[d + 1]
        assert ref_space(value.type) in memory
        return View(memory, start, tuple(strides), shape)

    def _meet(self) -> None:
        """A barrier: what came before is over."""
        self.readers: dict[Place, set[int]] = defaultdict(set)
        self.writers: dict[Place, set[int]] = defaultdict(set)

    def _block(self, block: Any) -> None:
        for view in block.operations:
            self._operation(view.operation)

    def _operation(self, op: Any) -> None:
        name, operands = op.name, list(op.operands)
        if name == "arith.constant":
            attr = op.attributes["value"]
            self.values[op.results[0]] = attr.value if isinstance(attr, ir.IntegerAttr) else None
        elif name == "arith.addi":
            self.values[op.results[0]] = sum(self.values[v] for v in operands)
        elif name == "mgpu.alloc":
            offset = ir.IntegerAttr(op.attributes["mgpu.offset"]).value
            self.values[op.results[0]] = self._root(op.results[0], "smem", offset)
        elif name == "mgpu.subview":
            self.values[op.results[0]] = self._subview(op, operands)
        elif name == "mgpu.barrier":
            self._meet()
        elif name == "mgpu.load":
            self._access(op, op.results[0], self.values[operands[0]], False)
        elif name == "mgpu.store":
            self._access(op, operands[0], self.values[operands[1]], True)
        elif name == "scf.for":
            inner = op.regions[0].blocks[0]
            for i in range(*(self.values[v] for v in operands[:3])):
                self.values[inner.arguments[0]] = i
                self._block(inner)
        elif name == "scf.if":
            region = op.regions[0 if self.choose() else 1]
            for inner in region.blocks:
                self._block(inner)
        elif name == "scf.while":
            before, after = (region.blocks[0] for region in op.regions)
            self._block(before)
            while self.choose():
                self._block(after)
                self._block(before)

    def _subview(self, op: Any, operands: list[Any]) -> View:
        source: View = self.values[operands[0]]
        sizes, strides, dropped = (ints(op.attributes[key]) for key in ("sizes", "strides", "dropped"))
        offsets = [self.values[v] for v in operands[1:]]
        start = source.start + sum(o * s for o, s in zip(offsets, source.strides, strict=True))
        kept = [d for d in range(len(sizes)) if d not in dropped]
        steps = tuple(source.strides[d] * strides[d] for d in kept)
        return View(source.memory, start, steps, tuple(sizes[d] for d in kept))

    def _access(self, op: Any, value: Any, view: View, writes: bool) -> None:
        for thread, place in self._touched(value, view, writes):
            others = self.writers[place] | (self.readers[place] if writes else set())
            if others - {thread}:
                self.races.append(f"{op.name} by thread {thread} races at {place}: {op}")
            (self.writers if writes else self.readers)[place].add(thread)

    def _touched(self, value: Any, view: View, writes: bool) -> Iterator[tuple[int, Place]]:
        """Pairs of thread and place; of the threads that hold an element one stores it, all load it."""
        layout, size = layout_of(value.type), storage_bits(element_of(value.type)) // 8
        for thread in range(self.threads):
            if writes and thread & (self.threads - 1 if layout is None else layout.free_threads):
                continue
            for register in range(1 if layout is None else layout.num_registers(view.shape)):
                element = () if layout is None else element_at(layout, view.shape, thread, register)
                if all(c < n for c, n in zip(element, view.shape, strict=True)):
                    first = view.start + sum(c * s for c, s in zip(element, view.strides, strict=True))
                    yield from ((thread, (view.memory, byte)) for byte in range(first, first + size, 4))
