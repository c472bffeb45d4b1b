"""The layout attribute: how a tile's type says which thread holds which element."""

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


def with_layout(type_: ir.Type, layout: Layout | None) -> ir.Type:
    """The tile type `type_` with its layout set to `layout` (or removed)."""
    tile = ir.RankedTensorType(type_)
    encoding = None if layout is None else layout_attr(layout)
    return ir.RankedTensorType.get(tile.shape, tile.element_type, encoding)
