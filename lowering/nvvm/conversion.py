"""The visitor: walks a kernel's body and emits, op by op, what one thread does.

`convert_<op>` functions are registered by op name with `@converts`; each gets the `Conversion` and the op,
emits, and returns what the op's results became.  A tile became a vector, a scalar is a scalar, a
reference is a `MemRef` of the visitor.  Ops of `arith` and `math` share one rule each (`elementwise`),
those of `scf` another (`control`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import InternalError, MosaicGpuError, UnsupportedError
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.registers import register_type
from mosaic_gpu.lowering.nvvm.shared import SharedMemory
from mosaic_gpu.lowering.nvvm.sources import source_of
from mosaic_gpu.lowering.nvvm.threads import Threads
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.tensor_maps import TensorMapFacts

Rule = Callable[["Conversion", Any], Sequence[Any]]
_RULES: dict[str, Rule] = {}
_DIALECT_RULES: dict[str, Rule] = {}


def converts(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for ops of these names; a name "arith.*" stands for all other ops of a dialect."""

    def register(rule: Rule) -> Rule:
        for name in names:
            dialect, _, tail = name.partition(".")
            table = (_DIALECT_RULES, dialect) if tail == "*" else (_RULES, name)
            table[0][table[1]] = rule
        return rule

    return register


@dataclass
class Conversion:
    """The state of one kernel's conversion.

    Attributes:
      options: the user's choices.
      module_body: where functions and constants of the new module go.
      threads: thread numbers and what is computed from them, in the entry block.
      shared: the shared memory of the block.
      program_ids: the block's coordinates, i32, one a grid dimension.
      grid: the extents of the grid, as of `mgpu.kernel`.
      values: what each value of the kernel became.
      lanes: inside a combiner that is applied to whole vectors, their length; else None.
      first_thread: number of the first of the threads that run what is converted now.
      tensor_maps: the parameters behind the pointers: pointers to what TMA is told of an array.
    """

    options: LoweringOptions
    module_body: ir.Block
    threads: Threads
    shared: SharedMemory
    program_ids: list[ir.Value]
    grid: tuple[int, ...]
    values: dict[ir.Value, Any] = field(default_factory=dict)
    lanes: int | None = None
    first_thread: int = 0
    tensor_maps: dict[TensorMapFacts, ir.Value] = field(default_factory=dict)
    _inner: set[ir.Value] = field(default_factory=set)

    def get(self, value: ir.Value) -> Any:
        """What a value of the kernel became; inside a combiner, scalars from outside are spread over its vectors."""
        converted = self.values[value]
        if self.lanes is not None and value not in self._inner:
            return emit.splat(converted, self.lanes)
        return converted

    def all(self, values: Sequence[ir.Value]) -> list[Any]:
        """`get` of each value."""
        return [self.get(v) for v in values]

    def type(self, type_: ir.Type) -> ir.Type:
        """The per-thread type of a tile or scalar; inside a combiner, a vector for a scalar."""
        carried = register_type(type_)
        return carried if self.lanes is None else emit.vector_type(self.lanes, carried)

    def tensor_map(self, facts: TensorMapFacts) -> ir.Value:
        """The parameter that holds the tensor map of these facts; made when it is first asked for."""
        found = self.tensor_maps.get(facts)
        if found is None:
            block = self.threads.entry.block
            found = self.tensor_maps[facts] = block.add_argument(emit.pointer_type(0), self.threads.location)
        return found

    def bind(self, source: ir.Value, converted: Any) -> None:
        """Notes what `source` became."""
        self.values[source] = converted
        if self.lanes is not None:
            self._inner.add(source)

    def block(self, block: ir.Block) -> None:
        """Converts all ops of a block of the kernel, at the current insertion point."""
        for op in block.operations:
            self.op(op)

    def op(self, op: Any) -> None:
        """Converts one op; what is emitted carries its location."""
        operation = op.operation
        name = str(operation.name)
        rule = _RULES.get(name) or _DIALECT_RULES.get(name.partition(".")[0])
        if rule is None:
            raise UnsupportedError(f"{name} has no conversion to per-thread code", source=source_of(operation.location))
        try:
            with operation.location:
                results = rule(self, op)
        except MosaicGpuError as error:
            error.at(source_of(operation.location))
            raise
        if len(results) != len(operation.results):
            raise InternalError(f"the conversion of {name} gave {len(results)} results")
        for source, converted in zip(operation.results, results, strict=True):
            self.bind(source, converted)

    @contextmanager
    def vectorized(self, lanes: int) -> Iterator[None]:
        """Inside, scalar ops are converted to ops on vectors of `lanes` elements."""
        outer, self.lanes, inner, self._inner = self.lanes, lanes, self._inner, set()
        try:
            yield
        finally:
            self.lanes, self._inner = outer, inner
