"""What a `mgpu.dot` says, as Python values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.dot_layouts import WGMMA_ROWS
from mosaic_gpu.dialect.ops_matmul import oriented
from mosaic_gpu.dialect.types import element_of, shape_of, storage_bits
from mosaic_gpu.lowering.targets import Target

FP8 = ("f8E4M3FN", "f8E5M2")


@dataclass(frozen=True)
class DotFacts:
    """The fields of a `mgpu.dot`; see the op.  `lhs_element` and so on: MLIR's names of the element types."""

    m: int
    n: int
    k: int
    lhs_element: str
    rhs_element: str
    acc_element: str
    lhs_transposed: bool
    rhs_transposed: bool
    lhs_unsigned: bool
    rhs_unsigned: bool
    precision: str
    kind: str

    @property
    def bits(self) -> int:
        """Bits of an operand's element."""
        return {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "i8": 8}.get(self.lhs_element) or _named_bits(
            self.lhs_element
        )

    @property
    def is_fp8(self) -> bool:
        """Whether the operands are 8-bit floats."""
        return self.lhs_element in FP8

    @property
    def on_matrix_units(self) -> bool:
        """Whether some matrix unit takes such operands, for a dot of this precision."""
        if self.lhs_element == "f32":
            return self.precision == "tf32"
        return self.lhs_element in ("f16", "bf16", "f64", *FP8) or (
            self.lhs_element == "i8" and self.acc_element == "i32"
        )

    @property
    def ptx_types(self) -> tuple[str, str]:
        """PTX's names of the operands' types, for mma and wgmma."""
        lhs, rhs = self.lhs_element, self.rhs_element
        return _ptx_type(lhs, self.lhs_unsigned), _ptx_type(rhs, self.rhs_unsigned)


def dot_of(op: Any) -> DotFacts:
    """The facts of the operation `op`, a `mgpu.dot`."""
    lhs, rhs, acc = (v.type for v in op.operands)
    flags = {name: bool(ir.IntegerAttr(op.attributes[name]).value) for name in _FLAGS}
    m, k = oriented(shape_of(lhs), int(flags["lhs_transposed"]))
    _, n = oriented(shape_of(rhs), int(flags["rhs_transposed"]))
    left, right, total = (str(element_of(t)) for t in (lhs, rhs, acc))
    precision, kind = (str(ir.StringAttr(op.attributes[name]).value) for name in ("precision", "kind"))
    return DotFacts(m, n, k, left, right, total, **flags, precision=precision, kind=kind)


def is_zero(value: Any) -> bool:
    """Whether a tile is a constant of zeros (not of -0.0, to which nothing may be added)."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return False
    attr = owner.operation.attributes["value"]
    if not (isinstance(attr, ir.DenseElementsAttr) and attr.is_splat):
        return False
    number = attr.get_splat_value().value
    return number == 0 and not str(number).startswith("-")


def fits_warpgroup(facts: DotFacts, target: Target) -> bool:
    """Whether `wgmma` computes such a dot on this target, given whole warpgroups."""
    is_known = facts.on_matrix_units and facts.bits < 64
    return is_known and "wgmma" in target.features and facts.m >= WGMMA_ROWS


def instruction_columns(facts: DotFacts, columns: int) -> int:
    """The least number of columns, at least `columns` (at most 256), that a `wgmma` of these types may have.

    PTX ISA, "wgmma.mma_async": multiples of 8; for integers beyond 32 multiples of 16, and 24.
    """
    wide = facts.acc_element == "i32" and columns > 32
    step = 16 if wide else 8
    return -(-columns // step) * step


_FLAGS = ("lhs_transposed", "rhs_transposed", "lhs_unsigned", "rhs_unsigned")


def _named_bits(element: str) -> int:
    return storage_bits(ir.Type.parse(element))


def _ptx_type(element: str, is_unsigned: bool) -> str:
    if element == "i8":
        return "u8" if is_unsigned else "s8"
    return {"f32": "tf32", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}.get(element, element)
