"""Reductions and scans as the jaxpr lowering builds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_kernel import YieldOp
from mosaic_gpu.dialect.ops_tile import ReduceOp, ScanOp
from mosaic_gpu.dialect.types import element_of, shape_of
from tests.lowering.nvvm.harness import array_attr, constant, int_attr, tile

Fold = Callable[..., Sequence[ir.Value]]


def add(left: ir.Value, right: ir.Value) -> list[ir.Value]:
    is_int = isinstance(left.type, ir.IntegerType)
    return [(arith.AddIOp if is_int else arith.AddFOp)(left, right).result]


def maximum(left: ir.Value, right: ir.Value) -> list[ir.Value]:
    return [arith.MaximumFOp(left, right).result]


def reduce(
    inputs: Sequence[ir.Value], axes: Sequence[int], layout: Layout | None, fold: Fold, identities: Sequence[Any]
) -> list[ir.Value]:
    """`mgpu.reduce`; `layout`: of the results."""
    shape = shape_of(inputs[0].type)
    kept = [n for d, n in enumerate(shape) if d not in axes]
    elements = [element_of(v.type) for v in inputs]
    neutral = [constant(e, i) for e, i in zip(elements, identities, strict=True)]
    op = ReduceOp([tile(kept, e, layout) for e in elements], list(inputs), neutral, array_attr(axes))
    _fill(op, elements, fold)
    return list(op.results)


def scan(
    inputs: Sequence[ir.Value], axis: int, fold: Fold, identities: Sequence[Any], *, reverse: bool = False
) -> list[ir.Value]:
    """`mgpu.scan` in the layout of the inputs."""
    elements = [element_of(v.type) for v in inputs]
    neutral = [constant(e, i) for e, i in zip(elements, identities, strict=True)]
    op = ScanOp([v.type for v in inputs], list(inputs), neutral, int_attr(axis), int_attr(reverse))
    _fill(op, elements, fold)
    return list(op.results)


def _fill(op: Any, elements: Sequence[ir.Type], fold: Fold) -> None:
    block = op.body.blocks.append(*elements, *elements)
    with ir.InsertionPoint(block):
        YieldOp(list(fold(*block.arguments)))
