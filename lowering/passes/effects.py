"""Which memory the ops of a kernel read and write, as far as moving them past each other needs it.

One memory is one allocation of shared memory, or all kernel arguments of one `aliases` number.  What a kernel
prints counts as a memory of its own: prints keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import RefType
from mosaic_gpu.lowering.passes.walk import blocks_of, body_of

Memory = Any
"""What names a memory: the value of an `mgpu.alloc`, or a tuple."""

PRINT: Memory = ("print",)
_REFERENCE = {"mgpu.load": (0, False), "mgpu.gather": (0, False), "mgpu.store": (1, True), "mgpu.scatter": (1, True)}
_PURE = frozenset(
    {
        "mgpu.alloc", "mgpu.subview", "mgpu.program_id", "mgpu.iota", "mgpu.broadcast", "mgpu.reshape",
        "mgpu.transpose", "mgpu.slice", "mgpu.concatenate", "mgpu.reduce", "mgpu.scan", "mgpu.bitcast",
        "mgpu.convert_layout", "mgpu.libdevice", "mgpu.ptx", "mgpu.yield", "mgpu.num_programs",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Effects:
    """The memories that a piece of a kernel reads and writes."""

    reads: frozenset[Memory] = frozenset()
    writes: frozenset[Memory] = frozenset()

    def __or__(self, other: Effects) -> Effects:
        return Effects(self.reads | other.reads, self.writes | other.writes)

    def conflicts(self, other: Effects) -> bool:
        """Whether the two may not change places."""
        return bool(self.writes & other.writes or self.writes & other.reads or self.reads & other.writes)


@dataclass
class Memories:
    """The memories of one kernel."""

    arguments: dict[Any, Memory]
    _roots: dict[Any, Any] = field(default_factory=dict)

    @staticmethod
    def of(kernel: Any) -> Memories:
        """The memories of an `mgpu.kernel`."""
        numbers = ints(kernel.attributes["aliases"])
        return Memories({a: ("gmem", n) for a, n in zip(body_of(kernel).arguments, numbers, strict=True)})

    def memory(self, ref: Any) -> Memory:
        """The memory that a reference lies in."""
        root = root_of(ref)
        return self.arguments.get(root, root)

    def effects(self, op: Any) -> Effects:
        """What an op, its regions included, does."""
        name = op.name
        if name in _REFERENCE:
            number, writes = _REFERENCE[name]
            found = frozenset([self.memory(op.operands[number])])
            return Effects(writes=found) if writes else Effects(reads=found)
        if name in _PURE:
            return Effects()
        if name == "mgpu.debug_print":
            return Effects(writes=frozenset([PRINT]))
        total = Effects()
        if name.startswith("mgpu."):
            touched = frozenset(self.memory(v) for v in op.operands if isinstance(v.type, RefType))
            total = Effects(touched, touched)
        for block in blocks_of(op) if len(op.regions) else ():
            for inner in block.operations:
                total |= self.effects(inner.operation)
        return total


def is_pure(op: Any) -> bool:
    """Whether an op only computes its results (from its regions as well, where it has some)."""
    return op.name in _PURE or op.name.startswith(("arith.", "math."))


def root_of(ref: Any) -> Any:
    """The kernel's argument, or the result of the `mgpu.alloc`, under a chain of subviews."""
    while not isinstance(owner := ref.owner, ir.Block) and owner.operation.name == "mgpu.subview":
        ref = owner.operation.operands[0]
    return ref


def is_inside(op: Any, outer: Any) -> bool:
    """Whether `op` lies in a region of `outer`, at any depth."""
    parent = op.parent
    while parent is not None:
        if parent.operation == outer:
            return True
        parent = parent.operation.parent
    return False


def is_defined_outside(value: Any, outer: Any) -> bool:
    """Whether `value` is computed outside of the regions of `outer`."""
    owner = value.owner
    holder = owner.owner if isinstance(owner, ir.Block) else owner.operation
    if isinstance(owner, ir.Block) and holder.operation == outer:
        return False
    return not is_inside(holder.operation, outer)
