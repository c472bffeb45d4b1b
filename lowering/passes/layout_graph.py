"""Which tiles of a kernel have to agree on a layout, and what each of them would like.

A *node* is a tile value.  Nodes that an op ties (elementwise operands and results, what a loop carries)
form a *class*, which gets one layout.  Between classes lie *edges*: ops that move elements.  Loads and
stores are *anchors*: they say what an access costs in a layout.

Some tiles are *free*: constants, iotas and broadcast scalars are made anew in each layout that a user
wants, so they tie nothing together; each of their uses is noted instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.attrs import LAYOUT_NAMES, PREFERRED_LAYOUT, named_layout
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import storage_bits
from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.passes import layout_relations as relations
from mosaic_gpu.lowering.passes.layout_relations import Relation
from mosaic_gpu.lowering.passes.walk import blocks_of
from mosaic_gpu.lowering.views import RefView, view_of

Shape = tuple[int, ...]
LOOP_WEIGHT = 4
MAX_WEIGHT = 64
_LOOPS = frozenset({"scf.for", "scf.while"})


@dataclass
class Node:
    """A tile: its shape, bytes an element, and value (None for an op whose tiles are all free)."""

    shape: Shape
    element_bytes: int
    value: Any
    parent: int


@dataclass(frozen=True)
class Anchor:
    """A load or store of `node` through `view`, `weight` times.

    `operand`: the number of the stored operand, None for a load.  `movable`: the access may have a layout
    of its own, with a conversion between it and its class.
    """

    op: Any
    node: int
    view: RefView
    weight: int
    operand: int | None
    movable: bool


@dataclass(frozen=True)
class Edge:
    """An op that moves elements from node `source` (its operand; None: free) to node `dest` (its result)."""

    op: Any
    operand: int
    result: int
    source: int | None
    dest: int
    relation: Relation
    weight: int


@dataclass(frozen=True)
class FreeUse:
    """Operand number `operand` of `op` is a free tile, wanted in the layout of `node` (None: any)."""

    op: Any
    operand: int
    node: int | None


@dataclass(frozen=True)
class Demand:
    """`op` takes operand number `operand` (None: makes its result) in `layout` and in no other.

    `node`: the operand's or result's; None for a free operand.
    """

    op: Any
    operand: int | None
    node: int | None
    layout: Layout
    weight: int


@dataclass(frozen=True)
class Preference:
    """`op`, elementwise on tiles of `node`, had better be in `layout`: anything else counts as a conversion."""

    op: Any
    node: int
    layout: Layout
    weight: int


@dataclass(frozen=True)
class Pin:
    """A bitcast between a scalar and a tile (operand 0 or the result), all of which each thread holds."""

    op: Any
    is_operand: bool
    factor: int


@dataclass(frozen=True)
class Reduction:
    """A fold or scan of `node` along `axes`."""

    node: int
    axes: Shape
    weight: int


@dataclass
class Graph:
    """The tiles of one kernel and what ties them."""

    nodes: list[Node] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)
    free: dict[Any, Any] = field(default_factory=dict)
    anchors: list[Anchor] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    free_uses: list[FreeUse] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    preferences: list[Preference] = field(default_factory=list)
    work: list[tuple[int, int]] = field(default_factory=list)

    def find(self, node: int) -> int:
        """The class of a node, named by one of its nodes."""
        nodes = self.nodes
        while nodes[node].parent != node:
            nodes[node].parent = nodes[nodes[node].parent].parent
            node = nodes[node].parent
        return node

    def union(self, a: int, b: int) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self.nodes[max(a, b)].parent = min(a, b)

    def add(self, value: Any, type_: ir.RankedTensorType) -> int:
        """The node of a tile value that is not free."""
        number = self.numbers.get(value)
        if number is None:
            number = self._new(value, type_)
            self.numbers[value] = number
        return number

    def _new(self, value: Any, type_: ir.RankedTensorType) -> int:
        self.nodes.append(Node(tuple(type_.shape), storage_bits(type_.element_type) // 8, value, len(self.nodes)))
        return len(self.nodes) - 1

    def tie(self, op: Any, operands: Sequence[tuple[int, Any]], results: Sequence[Any], weight: int) -> int | None:
        """Ties the tiles among an op's (number, operand) pairs and results; the node that stands for them, or None."""
        tied, free, virtual = [], [], None
        for value in results:
            if (type_ := tile_or_none(value)) is not None:
                tied.append(self.add(value, type_))
        for number, value in operands:
            if (type_ := tile_or_none(value)) is None:
                continue
            if value in self.free:
                free.append(number)
                virtual = type_
            else:
                tied.append(self.add(value, type_))
        if not tied and virtual is None:
            return None
        node = tied[0] if tied else self._new(None, virtual)
        for other in tied[1:]:
            self.union(node, other)
        self.free_uses += [FreeUse(op, number, node) for number in free]
        self.work.append((node, weight))
        return node

    def tie_values(self, uses: Sequence[tuple[Any, int, Any]], results: Sequence[Any]) -> None:
        """Ties the tiles among (op, operand number, value) triples of several ops and results or block arguments."""
        self.tie(None, (), results, 0)
        for op, number, value in uses:
            self.tie(op, [(number, value)], results, 0)

    def edge(self, op: Any, operand: int, relation: Relation, weight: int) -> None:
        """Notes that an op moves elements from an operand to its result."""
        value, dest = op.operands[operand], op.results[0]
        source = None if value in self.free else self.add(value, value.type)
        self.edges.append(Edge(op, operand, 0, source, self.add(dest, dest.type), relation, weight))


def tile_or_none(value: Any) -> ir.RankedTensorType | None:
    """The type of a tile value; None for scalars and references."""
    type_ = value.type
    return type_ if isinstance(type_, ir.RankedTensorType) else None


def build_graph(block: Any) -> Graph:
    """The graph of a kernel's body."""
    graph = Graph()
    _visit_block(graph, block, 1)
    return graph


def _visit_block(graph: Graph, block: Any, weight: int) -> None:
    for view in block.operations:
        op = view.operation
        if len(op.regions):
            inner = min(MAX_WEIGHT, weight * LOOP_WEIGHT) if op.name in _LOOPS else weight
            for nested in blocks_of(op):
                _visit_block(graph, nested, inner)
        # After its insides: what the terminators yield may be free.
        _visit(graph, op, weight)


def _visit(graph: Graph, op: Any, weight: int) -> None:
    name = op.name
    rule = _RULES.get(name)
    if rule is not None:
        rule(graph, op, weight)
    elif name.startswith(("arith.", "math.")):
        _elementwise(graph, op, weight)
    elif any(tile_or_none(v) is not None for v in (*op.operands, *op.results)):
        raise InternalError(f"no layout rule for op {name}", hint="add one to lowering/passes/layout_graph.py")


def _elementwise(graph: Graph, op: Any, weight: int) -> None:
    graph.tie(op, list(enumerate(op.operands)), op.results, weight)


def _fma(graph: Graph, op: Any, weight: int) -> None:
    node = graph.tie(op, list(enumerate(op.operands)), op.results, weight)
    layout = named_layout(op, PREFERRED_LAYOUT)
    if node is not None and layout is not None:
        graph.preferences.append(Preference(op, node, layout, weight))


def _free(graph: Graph, op: Any, weight: int) -> None:
    if tile_or_none(op.results[0]) is not None:
        graph.free[op.results[0]] = op


def _broadcast(graph: Graph, op: Any, weight: int) -> None:
    if tile_or_none(op.operands[0]) is None:
        return _free(graph, op, weight)
    operand, result = _shapes(op)
    return graph.edge(op, 0, relations.Broadcast(operand, result, ints(op.attributes["dimensions"])), weight)


def _transpose(graph: Graph, op: Any, weight: int) -> None:
    graph.edge(op, 0, relations.Transposed(*_shapes(op), ints(op.attributes["permutation"])), weight)


def _reshape(graph: Graph, op: Any, weight: int) -> None:
    """Between a scalar and a tile of one element any layout will do; best is one in which all threads hold it."""
    source, target = tile_or_none(op.operands[0]), tile_or_none(op.results[0])
    if source is None:
        return None if target is None else _free(graph, op, weight)
    if target is None:
        if op.operands[0] not in graph.free:
            node = graph.add(op.operands[0], source)
            graph.reductions.append(Reduction(node, tuple(range(len(source.shape))), weight))
        return None
    graph.edge(op, 0, relations.Reshaped(*_shapes(op)), weight)


def _convert(graph: Graph, op: Any, weight: int) -> None:
    operand, result = _shapes(op)
    graph.edge(op, 0, relations.Transposed(operand, result, tuple(range(len(operand)))), weight)


def _slice(graph: Graph, op: Any, weight: int) -> None:
    starts, strides = ints(op.attributes["starts"]), ints(op.attributes["strides"])
    graph.edge(op, 0, relations.Boxed(*_shapes(op), starts, strides), weight)


def _concatenate(graph: Graph, op: Any, weight: int) -> None:
    dim, start = ir.IntegerAttr(op.attributes["dimension"]).value, 0
    result = tuple(op.results[0].type.shape)
    for number, value in enumerate(op.operands):
        shape = tuple(value.type.shape)
        starts = tuple(start if d == dim else 0 for d in range(len(shape)))
        graph.edge(op, number, relations.Boxed(shape, result, starts, (1,) * len(shape)), weight)
        start += shape[dim]


def _bitcast(graph: Graph, op: Any, weight: int) -> None:
    operand, result = op.operands[0], op.results[0]
    types = tile_or_none(operand), tile_or_none(result)
    old, new = (() if type_ is None else tuple(type_.shape) for type_ in types)
    if len(old) == len(new):
        _elementwise(graph, op, weight)
    elif old and new:
        relation = relations.Widened if len(new) > len(old) else relations.Narrowed
        graph.edge(op, 0, relation(old, new, max(old, new, key=len)[-1]), weight)
    else:
        tile, type_ = (operand, types[0]) if types[0] is not None else (result, types[1])
        if type_ is not None and tile not in graph.free:
            graph.add(tile, type_)
        graph.pins.append(Pin(op, bool(old), (old or new)[0]))


def _shapes(op: Any) -> tuple[Shape, Shape]:
    return tuple(op.operands[0].type.shape), tuple(op.results[0].type.shape)


def _reduce(graph: Graph, op: Any, weight: int) -> None:
    count = len(op.results)
    node = graph.tie(op, [(i, op.operands[i]) for i in range(count)], (), weight)
    axes = ints(op.attributes["axes"])
    if node is None:
        return
    graph.reductions.append(Reduction(node, axes, weight))
    shape = graph.nodes[node].shape
    kept = tuple(n for d, n in enumerate(shape) if d not in axes)
    for i, result in enumerate(op.results if kept else ()):
        relation = relations.Reduced(shape, kept, axes)
        graph.edges.append(Edge(op, i, i, node, graph.add(result, result.type), relation, weight))


def _scan(graph: Graph, op: Any, weight: int) -> None:
    count = len(op.results)
    node = graph.tie(op, [(i, op.operands[i]) for i in range(count)], op.results, weight)
    if node is not None:
        graph.reductions.append(Reduction(node, (ir.IntegerAttr(op.attributes["axis"]).value,), weight))


def _load(graph: Graph, op: Any, weight: int) -> None:
    operands = list(enumerate(op.operands))
    node = graph.tie(op, operands[1:], op.results, 0)
    if node is not None:
        movable = all(tile_or_none(v) is None for _, v in operands[1:])
        graph.anchors.append(Anchor(op, node, view_of(operands[0][1]), weight, None, movable))


def _store(graph: Graph, op: Any, weight: int) -> None:
    operands = list(enumerate(op.operands))
    node = graph.tie(op, [operands[0], *operands[2:]], (), 0)
    if node is not None:
        movable = all(tile_or_none(v) is None for _, v in operands[2:]) and operands[0][1] not in graph.free
        graph.anchors.append(Anchor(op, node, view_of(operands[1][1]), weight, 0, movable))


def _indexed(graph: Graph, op: Any, weight: int) -> None:
    """Gather and scatter: value, indices, mask and other agree; the reference has no layout."""
    graph.tie(op, list(enumerate(op.operands)), op.results, weight)


def _dot(graph: Graph, op: Any, weight: int) -> None:
    """The matrix units want their operands as `choose-dots` says, and give their result so."""
    for number, name in enumerate(LAYOUT_NAMES):
        value = op.operands[number]
        layout = named_layout(op, name)
        if layout is not None and (type_ := tile_or_none(value)) is not None:
            node = None if value in graph.free else graph.add(value, type_)
            graph.demands.append(Demand(op, number, node, layout, weight))
    layout, result = named_layout(op, LAYOUT_NAMES[-1]), op.results[0]
    if layout is None:
        raise InternalError("assign-layouts runs after choose-dots", got=str(op))
    graph.demands.append(Demand(op, None, graph.add(result, result.type), layout, weight))


def _print(graph: Graph, op: Any, weight: int) -> None:
    for number, value in enumerate(op.operands):
        if (type_ := tile_or_none(value)) is not None:
            if value in graph.free:
                graph.free_uses.append(FreeUse(op, number, None))
            else:
                graph.add(value, type_)


def _terminator(region: Any) -> Any:
    operations = region.blocks[0].operations
    return operations[len(operations) - 1].operation


def _for(graph: Graph, op: Any, weight: int) -> None:
    inner = _terminator(op.regions[0])
    arguments = op.regions[0].blocks[0].arguments
    for i, result in enumerate(op.results):
        uses = [(op, 3 + i, op.operands[3 + i]), (inner, i, inner.operands[i])]
        graph.tie_values(uses, [result, arguments[1 + i]])


def _while(graph: Graph, op: Any, weight: int) -> None:
    before, after = op.regions
    condition, again = _terminator(before), _terminator(after)
    for i, argument in enumerate(before.blocks[0].arguments):
        graph.tie_values([(op, i, op.operands[i]), (again, i, again.operands[i])], [argument])
    for i, (argument, result) in enumerate(zip(after.blocks[0].arguments, op.results, strict=True)):
        graph.tie_values([(condition, 1 + i, condition.operands[1 + i])], [argument, result])


def _branches(graph: Graph, op: Any, weight: int) -> None:
    ends = [_terminator(region) for region in op.regions if len(region.blocks)]
    for i, result in enumerate(op.results):
        graph.tie_values([(end, i, end.operands[i]) for end in ends], [result])


def _nothing(graph: Graph, op: Any, weight: int) -> None:
    return None


Rule = Callable[[Graph, Any, int], None]
_RULES: dict[str, Rule] = {
    "arith.constant": _free,
    "mgpu.iota": _free,
    "ub.poison": _free,
    "mgpu.broadcast": _broadcast,
    "mgpu.transpose": _transpose,
    "mgpu.reshape": _reshape,
    "mgpu.slice": _slice,
    "mgpu.concatenate": _concatenate,
    "mgpu.convert_layout": _convert,
    "mgpu.bitcast": _bitcast,
    "mgpu.libdevice": _elementwise,
    "mgpu.ptx": _elementwise,
    "mgpu.reduce": _reduce,
    "mgpu.scan": _scan,
    "mgpu.load": _load,
    "mgpu.store": _store,
    "mgpu.gather": _indexed,
    "mgpu.scatter": _indexed,
    "math.fma": _fma,
    "mgpu.dot": _dot,
    "mgpu.debug_print": _print,
    "scf.for": _for,
    "scf.while": _while,
    "scf.if": _branches,
    "scf.index_switch": _branches,
    "mgpu.subview": _nothing,
    "mgpu.alloc": _nothing,
    "mgpu.program_id": _nothing,
    "mgpu.barrier": _nothing,
    "mgpu.fence_async": _nothing,
    "scf.yield": _nothing,
    "scf.condition": _nothing,
}
