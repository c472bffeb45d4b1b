"""Walks over kernels that the passes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mosaic_gpu.dialect._mlir import ir

COMBINERS = frozenset({"mgpu.reduce", "mgpu.scan"})
"""Ops whose region is scalar code that combines two elements; walks do not enter it."""


def kernels(module: ir.Module) -> list[Any]:
    """The `mgpu.kernel` operations of a module."""
    return [op.operation for op in module.body.operations if op.operation.name == "mgpu.kernel"]


def body_of(kernel: Any) -> Any:
    """The block of a kernel."""
    return kernel.regions[0].blocks[0]


def blocks_of(op: Any) -> list[Any]:
    """The blocks inside an op that a walk enters."""
    if op.name in COMBINERS:
        return []
    return [block for region in op.regions for block in region.blocks]


def walk(block: Any) -> Iterator[Any]:
    """All operations of a block and of the blocks in them, in program order, an op before its insides.

    The list of a block's operations is taken on entry: ops inserted during the walk are not visited.
    """
    for view in list(block.operations):
        op = view.operation
        yield op
        if len(op.regions):
            for inner in blocks_of(op):
                yield from walk(inner)


def reached(values: Iterable[Any], sources: Callable[[Any], list[Any]]) -> set[Any]:
    """`values`, and all that they are made of: `sources` gives what one value is made of directly."""
    found: set[Any] = set()
    ahead = list(values)
    while ahead:
        value = ahead.pop()
        if value not in found:
            found.add(value)
            ahead += sources(value)
    return found
