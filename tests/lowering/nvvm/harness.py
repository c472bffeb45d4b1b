"""Runs one op of the dialect: a kernel built by a function, converted, compiled and simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mosaic_gpu import dialect
from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.attrs import layout_attr
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_kernel import KernelOp
from mosaic_gpu.dialect.ops_memory import LoadOp, StoreOp
from mosaic_gpu.dialect.types import element_of, ref_type, shape_of, tile_type
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.llvm import translate_to_llvm
from mosaic_gpu.lowering.nvvm import convert_to_nvvm
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.ptx import compile_to_ptx

Array = NDArray[Any]
Body = Callable[..., None]
Output = tuple[Sequence[int], Any]
OPTIONS = LoweringOptions()


def array_attr(numbers: Sequence[int]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.IntegerAttr.get(ir.IntegerType.get_signless(32), n) for n in numbers])


def int_attr(number: int) -> ir.IntegerAttr:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), number)


def constant(element: ir.Type, number: Any) -> ir.Value:
    """A scalar constant."""
    is_int = isinstance(element, ir.IntegerType)
    attr = ir.IntegerAttr.get(element, number) if is_int else ir.FloatAttr.get(element, number)
    return arith.ConstantOp(element, attr).result


def i32(number: int) -> ir.Value:
    return constant(ir.IntegerType.get_signless(32), number)


def tile(shape: Sequence[int], element: ir.Type, layout: Layout | None) -> ir.Type:
    """A tile's type, or a scalar's where there are no dimensions."""
    return tile_type(tuple(shape), element, layout_attr(layout) if layout is not None and shape else None)


def load(ref: ir.Value, layout: Layout | None = None, **operands: ir.Value) -> ir.Value:
    """The tile that `ref` holds, in `layout`."""
    return LoadOp(tile(shape_of(ref.type), element_of(ref.type), layout), ref, **operands).result


def store(value: ir.Value, ref: ir.Value, **operands: ir.Value) -> None:
    StoreOp(value, ref, **operands)


def build(
    body: Body,
    arguments: Sequence[Array],
    num_inputs: int,
    num_warps: int,
    grid: Sequence[int] = (1,),
    smem_bytes: int = 0,
) -> ir.Module:
    """A module with one kernel "k"; `body` gets the references. Needs a context with the dialect."""
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        aliases = array_attr(range(len(arguments)))
        warps, inputs = int_attr(num_warps), int_attr(num_inputs)
        kernel = KernelOp(ir.StringAttr.get("k"), array_attr(grid), warps, inputs, aliases)
        kernel.operation.attributes["mgpu.smem_bytes"] = int_attr(smem_bytes)
        types = [ref_type(a.shape, element_type(a.dtype)) for a in arguments]
        block = kernel.body.blocks.append(*types)
    with ir.InsertionPoint(block):
        body(*block.arguments)
    module.operation.verify()
    return module


def ptx_of(body: Body, arguments: Sequence[Array], num_inputs: int, num_warps: int, **options: Any) -> tuple[str, Any]:
    """PTX and launch of the kernel."""
    with ir.Context(), ir.Location.unknown():
        dialect.load()
        module = build(body, arguments, num_inputs, num_warps, **options)
        converted = convert_to_nvvm(module, OPTIONS)
        ptx = compile_to_ptx(translate_to_llvm(converted, OPTIONS), OPTIONS)
    return ptx.text, ptx.launch


def run(
    body: Body,
    inputs: Sequence[Array],
    outputs: Sequence[tuple[Sequence[int], Any]],
    num_warps: int = 4,
    **options: Any,
) -> list[Array]:
    """Runs a kernel over `inputs`; gives its outputs, which are filled with 0xA5 bytes at first."""
    made = [np.frombuffer(b"\xa5" * (int(np.prod(s)) * np.dtype(d).itemsize), np.uint8).copy() for s, d in outputs]
    shaped = [m.view(d).reshape(tuple(s)) for m, (s, d) in zip(made, outputs, strict=True)]
    arguments = [np.array(a, order="C") for a in inputs] + shaped
    from mosaic_gpu import simulator

    text, launch = ptx_of(body, arguments, len(inputs), num_warps, **options)
    simulator.load(text).launch(launch.entry, launch.grid, launch.block, arguments, shared_bytes=launch.shared_bytes)
    return arguments[len(inputs) :]
