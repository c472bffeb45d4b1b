"""How values look in registers: the per-thread type of each tile and scalar.

A tile of shape S and layout L is `vector<R x e>` with R = L.num_registers(S); a scalar is itself.
LLVM has neither fp8 nor 4-bit numbers: both travel as i8, an fp8 number by its bits, a 4-bit number in the
low half of the byte (what the high half holds is not said).
"""

from __future__ import annotations

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.attrs import layout_of
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.types import element_of, is_tile, shape_of
from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.nvvm import emit


def is_fp8(element: ir.Type) -> bool:
    """Whether an element type is one of the 8-bit floats."""
    return str(element).startswith("f8")


def is_int4(element: ir.Type) -> bool:
    """Whether an element type is the 4-bit integer."""
    return isinstance(element, ir.IntegerType) and element.width == 4


def register_element(element: ir.Type) -> ir.Type:
    """What an element of this type is in a register."""
    return emit.int_type(8) if is_fp8(element) or is_int4(element) else element


def memory_element(element: ir.Type) -> ir.Type:
    """What an element of this type is in memory: as in a register, but a bool takes a byte."""
    carried = register_element(element)
    return emit.int_type(8) if carried == emit.i1() else carried


def chosen_layout(type_: ir.Type) -> Layout:
    """The layout of a tile type.  Raises InternalError where the tile has none."""
    layout = layout_of(type_)
    if layout is None:
        raise InternalError(f"the tile {type_} has no layout; assign_layouts has not run")
    return layout


def register_type(type_: ir.Type) -> ir.Type:
    """The per-thread type of a tile or scalar type of the dialect."""
    carried = register_element(element_of(type_))
    if not is_tile(type_):
        return carried
    return emit.vector_type(chosen_layout(type_).num_registers(shape_of(type_)), carried)
