"""The kernel itself: from `mgpu.kernel` to an `llvm.func`, and the op that asks for the block's place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_kernel import PERSISTENT, KernelOp
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import element_of, shape_of
from mosaic_gpu.lowering.launch import MAX_GRID_X, PROGRAMMATIC
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts
from mosaic_gpu.lowering.nvvm.memref import root
from mosaic_gpu.lowering.nvvm.shared import SharedMemory
from mosaic_gpu.lowering.nvvm.threads import Threads
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.warp_specialize import PRODUCER_WARPS
from mosaic_gpu.lowering.tensor_maps import MAP_BYTES, TensorMapFacts

_MAP_ALIGNMENT = 128
"""That of `CUtensorMap` from CUDA 13 on; 64 before, of which it is a multiple (CUDA driver API, `CUtensorMap`)."""
POINTER_ALIGNMENT = 16
"""What XLA promises for every buffer, in bytes."""


def convert_kernel(kernel: KernelOp, module_body: ir.Block, options: LoweringOptions) -> None:
    """Emits the `llvm.func` of `kernel` at the end of `module_body`."""
    with ir.InsertionPoint(module_body), kernel.operation.location:
        _declare_shared_memory()
        function = _declare_function(kernel)
        entry = function.regions[0].blocks.append(*_parameter_types(kernel))
        with ir.InsertionPoint(entry):
            conversion = _prologue(kernel, entry, module_body, options)
            with _inside_grid(kernel, conversion):
                conversion.block(kernel.body.blocks[0])
            emit.op("llvm.return", [], [])
    size = ir.IntegerAttr.get(emit.i32(), conversion.shared.total_bytes)
    function.attributes["mgpu.smem_bytes"] = size
    if _waits_for_grids(kernel):
        function.attributes[PROGRAMMATIC] = ir.UnitAttr.get()
    if conversion.tensor_maps:
        _append_tensor_maps(function, kernel, list(conversion.tensor_maps))


def _declare_shared_memory() -> None:
    emit.op_with_region(
        "llvm.mlir.global",
        {
            "sym_name": ir.StringAttr.get("smem"),
            "global_type": ir.TypeAttr.get(ir.Type.parse("!llvm.array<0 x i8>")),
            "linkage": ir.Attribute.parse("#llvm.linkage<external>"),
            "addr_space": ir.IntegerAttr.get(emit.i32(), 3),
            "alignment": ir.IntegerAttr.get(emit.i64(), 1024),
        },
    )


def _parameter_types(kernel: KernelOp) -> list[ir.Type]:
    return [emit.pointer_type(1)] * len(kernel.body.blocks[0].arguments)


def _append_tensor_maps(function: Any, kernel: KernelOp, maps: Sequence[TensorMapFacts]) -> None:
    """Gives the function its parameters of 128 bytes, by value, that the copies name (CUDA: `__grid_constant__`)."""
    types = [str(t) for t in _parameter_types(kernel)] + ["!llvm.ptr"] * len(maps)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.Type.parse(f"!llvm.func<void ({', '.join(types)})>"))
    attribute = ir.DictAttr.get(
        {
            "llvm.byval": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{MAP_BYTES} x i8>")),
            "llvm.align": ir.IntegerAttr.get(emit.i64(), _MAP_ALIGNMENT),
            "nvvm.grid_constant": ir.UnitAttr.get(),
        }
    )
    given = list(function.attributes["arg_attrs"])
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(given + [attribute] * len(maps))
    function.attributes["mgpu.tensor_maps"] = ir.ArrayAttr.get([ir.StringAttr.get(m.text()) for m in maps])


def producer_warps(kernel: KernelOp) -> int:
    """Warps that the block has beside the kernel's own, for `mgpu.specialize`."""
    attributes = kernel.operation.attributes
    return int(ir.IntegerAttr(attributes[PRODUCER_WARPS]).value) if PRODUCER_WARPS in attributes else 0


def _declare_function(kernel: KernelOp) -> Any:
    types = ", ".join(str(t) for t in _parameter_types(kernel))
    warps = ir.IntegerAttr(kernel.num_warps).value + producer_warps(kernel)
    return emit.op_with_region(
        "llvm.func",
        {
            "sym_name": kernel.sym_name,
            "function_type": ir.TypeAttr.get(ir.Type.parse(f"!llvm.func<void ({types})>")),
            "CConv": ir.Attribute.parse("#llvm.cconv<ccc>"),
            "linkage": ir.Attribute.parse("#llvm.linkage<external>"),
            "visibility_": ir.IntegerAttr.get(emit.i64(), 0),
            "arg_attrs": _parameter_attributes(kernel),
            "nvvm.kernel": ir.UnitAttr.get(),
            "nvvm.reqntid": ir.DenseI32ArrayAttr.get([32 * warps]),
            "mgpu.grid": kernel.grid,
            "mgpu.num_warps": ir.IntegerAttr.get(emit.i32(), warps),
        },
    )


def _waits_for_grids(kernel: KernelOp) -> bool:
    """Whether grids before this one may still write to its operands when it starts."""
    return any(op.operation.name == "mgpu.wait_for_grids" for op in kernel.body.blocks[0].operations)


def _parameter_attributes(kernel: KernelOp) -> ir.ArrayAttr:
    """Alignment; `noalias` where nothing else names the memory while the kernel runs; `readonly` for such inputs."""
    aliases, read_only = ints(kernel.aliases), _read_only(kernel)
    is_alone = not _waits_for_grids(kernel)
    unit, attributes = ir.UnitAttr.get(), []
    for number, alias in enumerate(aliases):
        entry: dict[str, ir.Attribute] = {"llvm.align": ir.IntegerAttr.get(emit.i64(), POINTER_ALIGNMENT)}
        if is_alone and aliases.count(alias) == 1:
            entry["llvm.noalias"] = unit
        if number in read_only:
            entry["llvm.readonly"] = unit
        attributes.append(ir.DictAttr.get(entry))
    return ir.ArrayAttr.get(attributes)


def _read_only(kernel: KernelOp) -> frozenset[int]:
    """The inputs that nothing writes from the kernel's start to its end.

    None in a kernel that waits for the grids before it: a load that the compiler takes for one of constant memory
    (`ld.global.nc`) could come before the wait.
    """
    aliases, inputs = ints(kernel.aliases), ir.IntegerAttr(kernel.num_inputs).value
    if _waits_for_grids(kernel):
        return frozenset()
    return frozenset(i for i in range(inputs) if aliases.count(aliases[i]) == 1)


def _prologue(kernel: KernelOp, entry: ir.Block, module_body: ir.Block, options: LoweringOptions) -> Conversion:
    """What every thread computes first.  The last op is where later parts of the entry block go before."""
    tid = emit.value("nvvm.read.ptx.sreg.tid.x", emit.i32(), [])
    symbol = {"global_name": ir.FlatSymbolRefAttr.get("smem")}
    smem = emit.value("llvm.mlir.addressof", emit.pointer_type(3), [], symbol)
    ids = _program_ids(ints(kernel.grid))
    anchor = emit.const(0).owner
    bits = 4 + ir.IntegerAttr(kernel.num_warps).value.bit_length()
    planned = kernel.operation.attributes.get("mgpu.smem_bytes")
    read_only = _read_only(kernel)
    straight = None if _needs_guard(kernel) else entry
    conversion = Conversion(
        options=options,
        module_body=module_body,
        threads=Threads(ir.InsertionPoint(anchor), kernel.operation.location, tid, bits),
        shared=SharedMemory(smem, 0 if planned is None else ir.IntegerAttr(planned).value, straight),
        program_ids=ids,
        grid=ints(kernel.grid),
    )
    for number, (argument, pointer) in enumerate(zip(kernel.body.blocks[0].arguments, entry.arguments, strict=True)):
        shape, element = shape_of(argument.type), element_of(argument.type)
        conversion.bind(argument, root(pointer, shape, element, invariant=number in read_only))
    return conversion


def _needs_guard(kernel: KernelOp) -> bool:
    return math.prod(ints(kernel.grid)) > MAX_GRID_X


@contextmanager
def _inside_grid(kernel: KernelOp, conversion: Conversion) -> Iterator[None]:
    """Keeps blocks beyond the logical grid, which the second grid dimension rounds up, from doing anything."""
    if not _needs_guard(kernel):
        yield
        return
    total = emit.constant(emit.i64(), math.prod(ints(kernel.grid)))
    inside = emit.compare(emit.ULT, _flat_block_wide(), total)
    guard = emit.op_with_regions("scf.if", [inside], 2)
    with ir.InsertionPoint(guard.regions[0].blocks.append()):
        yield
        emit.op("scf.yield", [], [])


def _flat_block_wide() -> ir.Value:
    x, y, nx = (_special(name) for name in ("ctaid.x", "ctaid.y", "nctaid.x"))
    wide = [emit.convert_int(v, 64, signed=False) for v in (x, y, nx)]
    return emit.add(wide[0], emit.mul(wide[1], wide[2]))


def _special(register: str) -> ir.Value:
    return emit.value(f"nvvm.read.ptx.sreg.{register}", emit.i32(), [])


def _program_ids(extents: Sequence[int]) -> list[ir.Value]:
    """The digits of the flat block number in the mixed radix of the grid, the last dimension fastest.

    In a grid of [-1] that is the number itself.
    """
    if all(e == 1 for e in extents):
        return [emit.const(0) for _ in extents]
    is_wide = math.prod(extents) > MAX_GRID_X
    rest = _flat_block_wide() if is_wide else _special("ctaid.x")
    digits: list[ir.Value] = []
    for number, extent in reversed(list(enumerate(extents))):
        slower = math.prod(extents[:number])
        digit = emit.binary("remui", rest, extent) if slower > 1 and extent else rest
        rest = emit.binary("divui", rest, extent) if slower > 1 and extent else rest
        digits.append(emit.const(0) if extent == 1 else emit.convert_int(digit, 32))
    return digits[::-1]


@converts("mgpu.program_id")
def convert_program_id(conversion: Conversion, op: Any) -> list[ir.Value]:
    """The coordinate was computed in the prologue."""
    return [conversion.program_ids[ir.IntegerAttr(op.axis).value]]


@converts("mgpu.num_programs")
def convert_num_programs(conversion: Conversion, op: Any) -> list[ir.Value]:
    """A constant; in a grid of [-1] what the launch says."""
    extent = conversion.grid[ir.IntegerAttr(op.axis).value]
    return [_special("nctaid.x") if extent == PERSISTENT else emit.const(extent)]


@converts("mgpu.wait_for_grids")
def convert_wait_for_grids(conversion: Conversion, op: Any) -> list[ir.Value]:
    """`griddepcontrol` (PTX ISA): as the next grid waits for the whole of this one, it may start at once."""
    for action in ("wait", "launch_dependents"):
        emit.inline_asm(f"griddepcontrol.{action};", "~{memory}", [], [], effects=True)
    return []


@converts("mgpu.barrier")
def convert_barrier(conversion: Conversion, op: Any) -> list[ir.Value]:
    """`bar.sync 0` for all threads of the block."""
    emit.barrier()
    conversion.shared.note_barrier()
    return []
