"""Chooses the layout of each class of tiles: the candidate that moves the fewest bytes.

Classes are taken largest first, but those that nothing is known about (no load or store, no neighbour
with a layout) wait until something is.  Candidates are what each load and store of the class would like
best, with the warps turned away from the axes of reductions as an alternative, and what costs nothing
towards a neighbour that has its layout already, or what another tile of the shape has.  Where neighbours
still disagree at the end, their classes choose once more.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from dataclasses import dataclass, field

from mosaic_gpu.dialect.bits import ceil_log2
from mosaic_gpu.dialect.layouts import WARP_SIZE, Layout
from mosaic_gpu.lowering.passes.layout_costs import access_cost, conversion_cost, reduction_cost
from mosaic_gpu.lowering.passes.layout_graph import Anchor, Demand, Edge, Graph, Preference, Reduction
from mosaic_gpu.lowering.views import RefView, vector_elements

Shape = tuple[int, ...]
DEFAULT_VECTOR = 4
WORK_BYTES = 1
"""What one elementwise instruction of one thread costs, in bytes moved: replicated work is not free."""


@dataclass
class _Class:
    """All that bears on one class."""

    shape: Shape = ()
    element_bytes: int = 1
    anchors: list[Anchor] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    preferences: list[Preference] = field(default_factory=list)
    work: int = 0


@dataclass(frozen=True)
class Choice:
    """The layouts of a kernel's tiles.

    Attributes:
      layouts: of each class, by the number of the node that names it.
      anchors: of each load or store that has a layout of its own, by its place in `Graph.anchors`.
    """

    layouts: dict[int, Layout]
    anchors: dict[int, Layout]


def choose_layouts(graph: Graph, num_warps: int) -> Choice:
    """A layout for every class of the graph."""
    return _Chooser(graph, num_warps).run()


def preferred(view: RefView, num_warps: int, shape: Shape, warp_order: Shape | None = None) -> Layout:
    """The layout in which a load or store of a tile of `shape` through `view` is widest and coalesced."""
    order = tuple(sorted(range(len(shape)), key=lambda d: (shape[d] <= 1, abs(view.strides[d]) or math.inf, -d)))
    vector = view.vector_limit if view.vector_dim == order[0] else 1
    return Layout.blocked(shape, num_warps, fitting_vector(shape, num_warps, vector), order, warp_order)


def fitting_vector(shape: Shape, num_warps: int, vector: int) -> int:
    """`vector`, or less where there would be threads without an element."""
    while vector > 1 and math.prod(shape) < vector * num_warps * WARP_SIZE:
        vector //= 2
    return vector


def default_layout(shape: Shape, num_warps: int) -> Layout:
    """The layout of a tile that nothing speaks for."""
    last = 1 << ceil_log2(shape[-1] + 1) - 1 if shape[-1] else 1
    return Layout.blocked(shape, num_warps, fitting_vector(shape, num_warps, min(DEFAULT_VECTOR, last)))


class _Chooser:
    def __init__(self, graph: Graph, num_warps: int) -> None:
        self.graph, self.num_warps = graph, num_warps
        self.layouts: dict[int, Layout] = {}
        self.used: dict[Shape, dict[Layout, None]] = defaultdict(dict)
        self.classes: dict[int, _Class] = defaultdict(_Class)
        find = graph.find
        for number, node in enumerate(graph.nodes):
            cls = self.classes[find(number)]
            cls.shape, cls.element_bytes = node.shape, max(cls.element_bytes, node.element_bytes)
        for anchor in graph.anchors:
            self.classes[find(anchor.node)].anchors.append(anchor)
        for edge in graph.edges:
            ends = {find(end) for end in (edge.source, edge.dest) if end is not None}
            for end in sorted(ends):
                self.classes[end].edges.append(edge)
        for reduction in graph.reductions:
            self.classes[find(reduction.node)].reductions.append(reduction)
        for demand in graph.demands:
            if demand.node is not None:
                self.classes[find(demand.node)].demands.append(demand)
        for preference in graph.preferences:
            self.classes[find(preference.node)].preferences.append(preference)
        for node_number, weight in graph.work:
            self.classes[find(node_number)].work += weight

    def run(self) -> Choice:
        heap = [self._priority(number, bool(cls.anchors or cls.demands)) for number, cls in self.classes.items()]
        heapq.heapify(heap)
        while heap:
            *_, number = heapq.heappop(heap)
            if number in self.layouts:
                continue
            self._set(number, self._choose(self.classes[number]))
            for edge in self.classes[number].edges:
                for end in (edge.source, edge.dest):
                    if end is not None and (other := self.graph.find(end)) not in self.layouts:
                        heapq.heappush(heap, self._priority(other, True))
        self._refine()
        moved = {}
        for place, anchor in enumerate(self.graph.anchors):
            layout = self.layouts[self.graph.find(anchor.node)]
            own, _ = self._anchor(anchor, layout)
            if own != layout:
                moved[place] = own
        return Choice(self.layouts, moved)

    def _set(self, number: int, layout: Layout) -> None:
        self.layouts[number] = layout
        self.used[self.classes[number].shape][layout] = None

    def _refine(self) -> None:
        """Chooses once more for the classes with a neighbour that did not fit, now that all have a layout."""
        unfit = {}
        for edge in self.graph.edges:
            if edge.source is not None:
                ends = self.graph.find(edge.source), self.graph.find(edge.dest)
                if edge.relation.cost(self.layouts[ends[0]], self.layouts[ends[1]], 1):
                    unfit.update(dict.fromkeys(ends))
        for number in unfit:
            cls = self.classes[number]
            best = self._choose(cls)
            if best != self.layouts[number] and self._cost(cls, best) < self._cost(cls, self.layouts[number]):
                self._set(number, best)

    def _priority(self, number: int, is_ready: bool) -> tuple[bool, int, int]:
        return (not is_ready, -math.prod(self.classes[number].shape), number)

    def _choose(self, cls: _Class) -> Layout:
        candidates = self._candidates(cls)
        return candidates[0] if len(candidates) == 1 else min(candidates, key=lambda layout: self._cost(cls, layout))

    def _candidates(self, cls: _Class) -> list[Layout]:
        # First, so that they win where the cost is equal: what tiles of this shape have already.
        found: dict[Layout, None] = dict.fromkeys(self.used[cls.shape])
        found |= dict.fromkeys([*(d.layout for d in cls.demands), *(p.layout for p in cls.preferences)])
        for anchor in cls.anchors:
            found[preferred(anchor.view, self.num_warps, cls.shape)] = None
            for order in self._kept_first(cls):
                found[preferred(anchor.view, self.num_warps, cls.shape, order)] = None
        for order in self._kept_first(cls):
            # All threads along what a reduction keeps: its axes stay inside of a thread, if there are enough.
            found[Layout.blocked(cls.shape, self.num_warps, 1, order)] = None
        for edge in cls.edges:
            natural = self._natural(edge, cls)
            if natural is not None:
                found[natural] = None
        if not found or math.prod(cls.shape) == 1:
            found[default_layout(cls.shape, self.num_warps)] = None
        return list(found)

    def _kept_first(self, cls: _Class) -> list[Shape]:
        """Orders of the dimensions that put what a reduction keeps before its axes."""
        fastest_first = tuple(reversed(range(len(cls.shape))))
        return sorted({tuple(sorted(fastest_first, key=lambda d: d in r.axes)) for r in cls.reductions})

    def _natural(self, edge: Edge, cls: _Class) -> Layout | None:
        """The layout of `cls` that makes `edge` free, where its other end has a layout."""
        source, dest = self._end(edge.source), self._end(edge.dest)
        if source is not None and self.classes[self.graph.find(edge.dest)] is cls:
            return edge.relation.forward(source)
        if dest is not None and edge.source is not None:
            return edge.relation.backward(dest)
        return None

    def _end(self, node: int | None) -> Layout | None:
        return None if node is None else self.layouts.get(self.graph.find(node))

    def _cost(self, cls: _Class, layout: Layout) -> int:
        total = cls.work * layout.num_threads * layout.num_registers(cls.shape) * WORK_BYTES
        for anchor in cls.anchors:
            total += anchor.weight * self._anchor(anchor, layout)[1]
        for demand in cls.demands:
            ways = (demand.layout, layout) if demand.operand is None else (layout, demand.layout)
            total += demand.weight * conversion_cost(*ways, cls.shape, cls.element_bytes)
        for preference in cls.preferences:
            total += preference.weight * conversion_cost(layout, preference.layout, cls.shape, cls.element_bytes)
        for reduction in cls.reductions:
            total += reduction.weight * reduction_cost(layout, cls.shape, reduction.axes, cls.element_bytes)
        for edge in cls.edges:
            total += edge.weight * self._edge_cost(edge, cls, layout)
        return total

    def _edge_cost(self, edge: Edge, cls: _Class, layout: Layout) -> int:
        if edge.source is None:
            return 0
        ends = []
        for end in (edge.source, edge.dest):
            number = self.graph.find(end)
            ends.append(layout if self.classes[number] is cls else self.layouts.get(number))
        operand, result = ends
        if operand is None or result is None:
            return 0
        return edge.relation.cost(operand, result, cls.element_bytes)

    def _anchor(self, anchor: Anchor, layout: Layout) -> tuple[Layout, int]:
        """The layout in which an access is done where its class has `layout`, and what it costs with its conversion."""
        view = anchor.view
        best = layout, self._access(anchor, layout)
        if anchor.movable:
            own = preferred(view, self.num_warps, view.shape)
            ways = (own, layout) if anchor.operand is None else (layout, own)
            if own != layout:
                moved = self._access(anchor, own)
                if moved < best[1]:
                    moved += conversion_cost(*ways, view.shape, view.element_bytes)
                if moved < best[1]:
                    best = own, moved
        return best

    def _access(self, anchor: Anchor, layout: Layout) -> int:
        view = anchor.view
        vector = vector_elements(view, layout)
        return access_cost(
            layout, view.shape, view.strides, view.element_bytes, vector, view.space, anchor.operand is not None
        )
