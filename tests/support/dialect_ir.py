"""Kernels as far as stage "dialect": the ops that the jaxpr lowering emits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mosaic_gpu import dialect
from mosaic_gpu.api import trace_calls
from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.jaxpr import lower_kernel
from mosaic_gpu.lowering.kernel_call import KernelCall


def kernel_call_of(call: Callable[..., Any], *arrays: Any) -> KernelCall:
    """The one kernel that `call` calls."""
    (found,) = trace_calls(call, *arrays)
    return found


@contextmanager
def lowered(call: Callable[..., Any], *arrays: Any) -> Iterator[list[Any]]:
    """The operations of the kernel's module, outer ones first; valid inside of the `with` alone."""
    with ir.Context():
        dialect.load()
        yield list(operations(lower_kernel(kernel_call_of(call, *arrays)).operation))


def operations(op: Any) -> Iterator[Any]:
    """`op` and all operations inside, in their order."""
    yield op
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from operations(inner.operation)


def named(ops: list[Any], name: str) -> list[Any]:
    """The operations of a name."""
    return [op for op in ops if op.name == name]


def ints(op: Any, attribute: str) -> list[int]:
    """An array attribute of integers."""
    return [ir.IntegerAttr(a).value for a in op.attributes[attribute]]
