"""`mgpu.dot`: each kind has its own file."""

from __future__ import annotations

from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.dots import dot_of
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts
from mosaic_gpu.lowering.nvvm.dot_mma import convert_mma
from mosaic_gpu.lowering.nvvm.dot_wgmma import convert_wait, convert_wgmma


@converts("mgpu.dot")
def convert_dot(conversion: Conversion, op: Any) -> list[ir.Value]:
    """By the matrix unit that was chosen.  Raises InternalError for other kinds, which have been expanded."""
    kind = dot_of(op.operation).kind
    if kind == "mma":
        return [convert_mma(conversion, op)]
    if kind == "wgmma":
        return [convert_wgmma(conversion, op)]
    raise InternalError(f"a dot of kind {kind!r} has no conversion to per-thread code")


@converts("mgpu.dot_wait")
def convert_dot_wait(conversion: Conversion, op: Any) -> list[ir.Value]:
    """`wgmma.wait_group`."""
    return [convert_wait(conversion, op)]


@converts("mgpu.fence_async")
def convert_fence_async(conversion: Conversion, op: Any) -> list[ir.Value]:
    """`fence.proxy.async` for shared memory."""
    emit.inline_asm("fence.proxy.async.shared::cta;", "~{memory}", [], [], effects=True)
    return []
