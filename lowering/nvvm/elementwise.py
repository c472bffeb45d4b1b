"""Elementwise ops: one op on the whole vector of a tile's registers.

`arith` and `math` ops are re-created as they are with per-thread types.  Calls of libdevice and single PTX
instructions are repeated for each register.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.types import element_of
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.nvvm import emit, fp8
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts
from mosaic_gpu.lowering.nvvm.intrinsics import is_selectable
from mosaic_gpu.lowering.nvvm.registers import is_fp8, is_int4


@converts("arith.*", "math.*")
def convert_elementwise(conversion: Conversion, op: Any) -> list[ir.Value]:
    """The same op on vectors.

    Raises UnsupportedError where LLVM cannot make PTX of the op on this element type.
    """
    operation = op.operation
    operands = conversion.all(operation.operands)
    results = [conversion.type(r.type) for r in operation.results]
    kinds = [v.type for v in operation.operands] + [r.type for r in operation.results]
    narrow = next((e for e in map(element_of, kinds) if is_fp8(e) or is_int4(e)), None)
    if narrow is not None:
        return [_on_bytes(conversion, op, narrow)]
    elements = [str(emit.element(t)) for t in (operands[0].type, results[0])]
    if not is_selectable(operation.name, *elements):
        raise UnsupportedError(f"{operation.name} from {elements[0]} to {elements[1]}")
    attributes = {key: operation.attributes[key] for key in operation.attributes}
    if conversion.options.approx_math and operation.name in _FUSED:
        attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<contract>")
    return list(emit.op(operation.name, results, operands, attributes).results)


_FUSED = frozenset({"arith.mulf", "arith.addf", "arith.subf"})
"""What `approx_math` lets LLVM make multiply-adds of, which round once instead of twice."""

_SIGNED_COMPARISONS = range(2, 6)
"""arith's numbers of slt, sle, sgt and sge."""


def _on_bytes(conversion: Conversion, op: Any, narrow: ir.Type) -> ir.Value:
    """What canonicalisation makes of casts from 4-bit integers and to fp8 with the op in between.

    Bitwise ops, comparisons and conversions to floats on 4-bit integers; integers to fp8, through f32.
    """
    operation, name = op.operation, str(op.operation.name)
    operands = conversion.all(operation.operands)
    result = conversion.type(operation.results[0].type)
    source, target = (element_of(v.type) for v in (operation.operands[0], operation.results[0]))
    if name in ("arith.andi", "arith.ori", "arith.xori"):
        return emit.value(name, result, operands)
    if name == "arith.cmpi":
        predicate = operation.attributes["predicate"]
        extend = "arith.extsi" if ir.IntegerAttr(predicate).value in _SIGNED_COMPARISONS else "arith.extui"
        wide = [_cast_int4(v, extend, 8) for v in operands]
        return emit.value(name, result, wide, {"predicate": predicate})
    if name not in ("arith.sitofp", "arith.uitofp"):
        raise UnsupportedError(f"{name} on {narrow}")
    (value,) = operands
    if is_int4(source):
        value = _cast_int4(value, "arith.extsi" if name == "arith.sitofp" else "arith.extui", 8)
    if not is_fp8(target):
        return emit.value(name, result, [value])
    return fp8.encode(emit.value(name, emit.like(value.type, ir.F32Type.get()), [value]), str(target))


@converts("arith.extf", "arith.truncf", "arith.extsi", "arith.extui", "arith.trunci")
def convert_cast(conversion: Conversion, op: Any) -> list[ir.Value]:
    """Casts; those from and to fp8 and 4-bit integers are spelled out.

    Raises UnsupportedError for a cast from f64 to fp8, which would round twice, and between two kinds of fp8.
    """
    operation = op.operation
    source, target = (element_of(v.type) for v in (operation.operands[0], operation.results[0]))
    if str(target) == "i1":  # not every such truncation can be selected
        return [emit.compare(emit.NE, emit.and_(conversion.get(operation.operands[0]), 1), 0)]
    if not any(is_fp8(e) or is_int4(e) for e in (source, target)):
        return list(convert_elementwise(conversion, op))
    if (str(source) == "f64" and is_fp8(target)) or (is_fp8(source) and is_fp8(target)):
        raise UnsupportedError(f"{operation.name} from {source} to {target}")
    value = conversion.get(operation.operands[0])
    if is_fp8(source):
        decoded = fp8.decode(value, str(source))
        result = conversion.type(operation.results[0].type)
        cast = "arith.extf" if str(target) == "f64" else "arith.truncf"
        return [decoded if result == decoded.type else emit.value(cast, result, [decoded])]
    if is_fp8(target):
        wide = emit.like(value.type, ir.F32Type.get())
        return [fp8.encode(value if value.type == wide else emit.value("arith.extf", wide, [value]), str(target))]
    return [_cast_int4(value, str(operation.name), emit.bits_of(conversion.type(operation.results[0].type)))]


def _cast_int4(value: ir.Value, name: str, bits: int) -> ir.Value:
    """To a 4-bit integer, whose byte may hold anything in its high half, or from one."""
    if name == "arith.trunci":
        return emit.convert_int(value, 8)
    if name == "arith.extui":
        return emit.convert_int(emit.and_(value, 0xF), bits, signed=False)
    return emit.convert_int(emit.binary("shrsi", emit.shl(value, 4), 4), bits)


@converts("arith.select")
def convert_select(conversion: Conversion, op: Any) -> list[ir.Value]:
    """`arith.select`; a scalar condition chooses between whole vectors."""
    condition, yes, no = conversion.all(op.operation.operands)
    return [emit.select(condition, yes, no)]


@converts("arith.constant")
def convert_constant(conversion: Conversion, op: Any) -> list[ir.Value]:
    """A scalar, or a dense splat that becomes a splat vector."""
    type_ = conversion.type(op.operation.results[0].type)
    attr = op.operation.attributes["value"]
    if isinstance(attr, ir.DenseElementsAttr):
        if not attr.is_splat:
            raise UnsupportedError("a constant tile of several values")
        attr = attr.get_splat_value()
    return [emit.value("arith.constant", type_, [], {"value": _register_constant(attr, type_)})]


@converts("ub.poison")
def convert_poison(conversion: Conversion, op: Any) -> list[ir.Value]:
    """What canonicalisation leaves where a value is never used: any value will do, and 0 is one."""
    return [emit.constant(conversion.type(op.operation.results[0].type), 0)]


def _register_constant(attr: ir.Attribute, type_: ir.Type) -> ir.Attribute:
    carried = emit.element(type_)
    if attr.type != carried:
        attr = ir.IntegerAttr.get(carried, _bits(attr))
    return ir.DenseElementsAttr.get_splat(type_, attr) if emit.is_vector(type_) else attr


def _bits(attr: ir.Attribute) -> int:
    """The bits of a 4-bit or fp8 constant, as a signed byte."""
    if isinstance(attr, ir.IntegerAttr):
        return int(ir.IntegerAttr(attr).value)
    byte = fp8.constant_byte(ir.FloatAttr(attr).value, str(attr.type))
    return byte - 256 if byte > 127 else byte


def per_element(
    operands: Sequence[ir.Value], result: ir.Type, emit_one: Callable[[list[ir.Value]], ir.Value]
) -> ir.Value:
    """Applies `emit_one` to scalars, or to each element of vectors of one length, and gathers the results."""
    if not emit.is_vector(result):
        return emit_one(list(operands))
    count = int(ir.VectorType(result).shape[0])
    return emit.from_elements([emit_one([emit.extract(v, i) for v in operands]) for i in range(count)])


@converts("mgpu.libdevice")
def convert_libdevice(conversion: Conversion, op: Any) -> list[ir.Value]:
    """A call of the function for each register; the code generator links its definition."""
    operands = conversion.all(op.operation.operands)
    result = conversion.type(op.operation.results[0].type)
    name = str(ir.StringAttr(op.function).value)
    scalar = emit.element(result)
    emit.declare(conversion.module_body, name, [emit.element(v.type) for v in operands], scalar)
    return [per_element(operands, result, lambda one: emit.call(name, one, scalar))]


@converts("mgpu.ptx")
def convert_ptx(conversion: Conversion, op: Any) -> list[ir.Value]:
    """The instruction for each register, as pure inline PTX."""
    operands = conversion.all(op.operation.operands)
    result = conversion.type(op.operation.results[0].type)
    text, constraints = str(ir.StringAttr(op.asm).value), str(ir.StringAttr(op.constraints).value)
    scalar = emit.element(result)

    def one(scalars: list[ir.Value]) -> ir.Value:
        return emit.inline_asm(text, constraints, scalars, [scalar], effects=False)[0]

    return [per_element(operands, result, one)]
