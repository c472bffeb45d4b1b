"""Gives every tile its register layout, and converts where two uses disagree.

Requires: `num_warps` chosen. Does: chooses a layout for each class of tiles that elementwise ops and
control flow tie together (`layout_graph`, `layout_choice`), writes it into the types, and inserts
`mgpu.convert_layout`. Leaves: a module in which `check_layouts` finds nothing, that is

  * every tile has a layout of the kernel's number of warps;
  * arith, math, mgpu.libdevice, mgpu.ptx, mgpu.scan, gather and scatter (with indices, mask, other), load and
    store (with mask and other), and mgpu.bitcast of one width: all tiles of the op have one layout;
  * scf: what is carried or yielded has the layout of the block argument or result it becomes;
  * mgpu.reduce: operands of one op agree (any layout), a result has operand.slice(axes);
  * mgpu.broadcast: a tile operand has result.broadcast_source(dimensions, its shape, the result's shape);
  * mgpu.transpose: the result has operand.transpose(permutation);
  * mgpu.bitcast to narrower elements: the result has operand.append(factor); to wider ones: the operand has
    result.append(factor); between a scalar and a tile: the tile has `scalar_tile_layout`, all of it in each thread;
  * mgpu.dot: tile operands and the result have the layouts in the op's attributes, which choose-dots wrote;
  * mgpu.reshape, mgpu.slice, mgpu.concatenate: any layouts (but all operands of a concatenation have one).  Where
    the layouts let every thread keep its elements, `register_map` of the element numbers says so, else the tile
    passes through shared memory;
  * mgpu.convert_layout, mgpu.debug_print, mgpu.iota, constants, mgpu.broadcast of a scalar: any layouts.

Constants, iotas and broadcast scalars are made again in each layout in which they are used.

    %x = "mgpu.load"(%a) : (..) -> tensor<4x1000xf32>
    %m = "mgpu.reduce"(%x, %z) (..) {axes = [1]} : (..) -> tensor<4xf32>

    %x = "mgpu.load"(%a) : (..) -> tensor<4x1000xf32, #mgpu.layout<"4x128 r:0,1;0,2 l:0,4;0,8; .. 0,64 w:1,0;2,0">>
    %m = "mgpu.reduce"(%x, %z) (..) {axes = [1]} : (..) -> tensor<4xf32, #mgpu.layout<"4 r: l:0;0;0;0;0 w:1;2">>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.attrs import PREFERRED_LAYOUT, layout_attr
from mosaic_gpu.dialect.bits import ceil_log2
from mosaic_gpu.dialect.layouts import LANE_BITS, Layout
from mosaic_gpu.dialect.ops_tile import ConvertLayoutOp
from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.layout_choice import Choice, choose_layouts, default_layout
from mosaic_gpu.lowering.passes.layout_graph import Edge, Graph, build_graph
from mosaic_gpu.lowering.passes.layout_relations import Broadcast, Narrowed
from mosaic_gpu.lowering.passes.walk import body_of, kernels


def scalar_tile_layout(elements: int, num_warps: int) -> Layout:
    """The layout of a one-dimensional tile all of which each thread holds (`elements` is a power of two)."""
    registers = tuple((1 << i,) for i in range(ceil_log2(elements)))
    return Layout((elements,), registers, ((0,),) * LANE_BITS, ((0,),) * ceil_log2(num_warps))


@dataclass(frozen=True)
class AssignLayouts:
    """The pass; it has no options."""

    name: str = "assign-layouts"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        for kernel in kernels(module):
            num_warps = ir.IntegerAttr(kernel.attributes["num_warps"]).value
            if num_warps < 1:
                raise InternalError("assign-layouts runs after choose-num-warps", got=num_warps)
            graph = build_graph(body_of(kernel))
            _Rewriter(graph, choose_layouts(graph, num_warps), num_warps).run()


class _Rewriter:
    """Writes a choice into the kernel that a graph was built of."""

    def __init__(self, graph: Graph, choice: Choice, num_warps: int) -> None:
        self.graph, self.choice, self.num_warps = graph, choice, num_warps
        self.types: dict[tuple[Any, Layout], Any] = {}
        self.encodings: dict[Layout, Any] = {}
        self.copies: dict[tuple[Any, Layout], Any] = {}
        self.placed: set[Any] = set()

    def run(self) -> None:
        for node in self.graph.nodes:
            if node.value is not None:
                node.value.set_type(self.typed(node.value.type, self.layout(self.graph.numbers[node.value])))
        for use in self.graph.free_uses:
            shape = tuple(use.op.operands[use.operand].type.shape)
            layout = default_layout(shape, self.num_warps) if use.node is None else self.layout(use.node)
            self.demand(use.op, use.operand, layout)
        for preference in self.graph.preferences:
            del preference.op.attributes[PREFERRED_LAYOUT]
        self.pin_scalars()
        self.meet_demands()
        self.move_anchors()
        for edge in self.graph.edges:
            self.rewrite_edge(edge)
        for value, op in self.graph.free.items():
            if op not in self.placed:
                self.place(op, value, default_layout(tuple(value.type.shape), self.num_warps))
        for op in dict.fromkeys(edge.op for edge in self.graph.edges if edge.op.name == "mgpu.concatenate"):
            self.join(op)

    def join(self, op: Any) -> None:
        """Converts the operands of a concatenation to the layout of the first: they must be of one type."""
        first = op.operands[0].type
        with ir.InsertionPoint(op), op.location:
            for number, value in enumerate(op.operands):
                if value.type != first:
                    op.operands[number] = ConvertLayoutOp(first, value).result

    def layout(self, node: int) -> Layout:
        return self.choice.layouts[self.graph.find(node)]

    def typed(self, type_: Any, layout: Layout) -> Any:
        """A tile type with its layout set."""
        found = self.types.get((type_, layout))
        if found is None:
            encoding = self.encodings.get(layout)
            if encoding is None:
                encoding = self.encodings[layout] = layout_attr(layout)
            tile = ir.RankedTensorType(type_)
            found = ir.RankedTensorType.get(tile.shape, tile.element_type, encoding)
            self.types[type_, layout] = found
        return found

    def demand(self, op: Any, operand: int, layout: Layout) -> None:
        """Makes an operand be in `layout`."""
        value = op.operands[operand]
        if value in self.graph.free:
            op.operands[operand] = self.remade(value, layout)
        elif value in self.graph.numbers and self.layout(self.graph.numbers[value]) != layout:
            op.operands[operand] = self.converted(value, layout)

    def remade(self, value: Any, layout: Layout) -> Any:
        """A free tile in `layout`."""
        op = self.graph.free[value]
        if op not in self.placed:
            self.place(op, value, layout)
        copy = self.copies.get((value, layout))
        if copy is None:
            clone = op.clone(ir.InsertionPoint.after(op))
            copy = clone.operation.results[0]
            self.place(clone.operation, copy, layout)
            self.copies[value, layout] = copy
        return copy

    def place(self, op: Any, value: Any, layout: Layout) -> None:
        """Sets the layout of a free op's result for the first time."""
        type_ = self.typed(value.type, layout)
        if op.name == "arith.constant":
            splat = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
            op.attributes["value"] = ir.DenseElementsAttr.get_splat(type_, splat)
        value.set_type(type_)
        self.placed.add(op)
        self.copies.setdefault((value, layout), value)

    def converted(self, value: Any, layout: Layout) -> Any:
        """A tile converted to `layout`, right after it is made, once for all its users."""
        copy = self.copies.get((value, layout))
        if copy is None:
            owner = value.owner
            in_block = isinstance(owner, ir.Block)
            point = ir.InsertionPoint.at_block_begin(owner) if in_block else ir.InsertionPoint.after(owner.operation)
            location = ir.Location.unknown() if in_block else owner.operation.location
            with point, location:
                copy = ConvertLayoutOp(self.typed(value.type, layout), value).result
            self.copies[value, layout] = copy
        return copy

    def change_result(self, op: Any, result: int, natural: Layout) -> None:
        """The op makes `natural`; its users go on with the layout of the result's class."""
        value = op.results[result]
        layout = self.layout(self.graph.numbers[value])
        if natural == layout:
            return
        wanted = value.type
        value.set_type(self.typed(value.type, natural))
        with ir.InsertionPoint.after(op), op.location:
            converted = ConvertLayoutOp(wanted, value)
        value.replace_all_uses_except(converted.result, converted.operation)
        self.rename(value, converted.result)
        self.copies[converted.result, natural] = value

    def rename(self, value: Any, new: Any) -> None:
        """From here on the class's tile is `new`."""
        number = self.graph.numbers.pop(value)
        self.graph.numbers[new] = number
        self.graph.nodes[number].value = new

    def pin_scalars(self) -> None:
        for pin in self.graph.pins:
            layout = scalar_tile_layout(pin.factor, self.num_warps)
            if pin.is_operand:
                self.demand(pin.op, 0, layout)
            else:
                self.change_result(pin.op, 0, layout)

    def meet_demands(self) -> None:
        for demand in self.graph.demands:
            if demand.operand is None:
                self.change_result(demand.op, 0, demand.layout)
            else:
                self.demand(demand.op, demand.operand, demand.layout)

    def move_anchors(self) -> None:
        for place, layout in self.choice.anchors.items():
            anchor = self.graph.anchors[place]
            if anchor.operand is None:
                self.change_result(anchor.op, 0, layout)
            else:
                self.demand(anchor.op, anchor.operand, layout)

    def rewrite_edge(self, edge: Edge) -> None:
        relation, op = edge.relation, edge.op
        result = self.layout(edge.dest)
        if isinstance(relation, Broadcast | Narrowed):
            self.demand(op, edge.operand, relation.backward(result))
            return
        if edge.source is None:
            operand = relation.backward(result) or default_layout(relation.operand_shape, self.num_warps)
            self.demand(op, edge.operand, operand)
        else:
            operand = self.layout(edge.source)
        natural = relation.forward(operand)
        if natural is not None and natural != result and op.name != "mgpu.concatenate":
            self.change_result(op, edge.result, natural)
