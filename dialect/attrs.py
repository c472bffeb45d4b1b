"""The layout attribute: how a tile's type says which thread holds which element."""

from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.mgpu import Mgpu


class LayoutAttr(Mgpu.Attribute, name="layout"):
    """`#mgpu.layout<"...">`: the encoding of a tile whose register layout is chosen.

    `text` is the canonical form of a `layouts.Layout`, which `Layout.parse` reads back.
    """

    text: ir.StringAttr


def layout_attr(layout: Layout) -> LayoutAttr:
    """The attribute of `layout`."""
    return LayoutAttr.get(ir.StringAttr.get(str(layout)))


def layout_of(type_: ir.Type) -> Layout | None:
    """The layout of a tile type; None where it is not chosen yet, or for a scalar."""
    if not isinstance(type_, ir.RankedTensorType):
        return None
    encoding = ir.RankedTensorType(type_).encoding
    return None if encoding is None else Layout.parse(str(ir.StringAttr(encoding.text).value))


LAYOUT_NAMES = ("mgpu.lhs_layout", "mgpu.rhs_layout", "mgpu.acc_layout")
"""Attributes of a `mgpu.dot`: the layouts in which it takes its operands (none for a reference); the last one is the
result's, too."""
PREFERRED_LAYOUT = "mgpu.preferred_layout"
"""Attribute of an elementwise op until layouts are assigned: what its tiles had better have."""


def named_layout(op: Any, name: str) -> Layout | None:
    """The layout in attribute `name` of an operation; None where it has none."""
    return Layout.parse(str(ir.StringAttr(op.attributes[name].text).value)) if name in op.attributes else None
