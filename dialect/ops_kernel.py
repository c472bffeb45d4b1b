"""The kernel, its place in the grid, and ops that concern the block as a whole."""

from collections.abc import Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import ext, ir
from mosaic_gpu.dialect.diagnostics import require
from mosaic_gpu.dialect.mgpu import Mgpu
from mosaic_gpu.dialect.types import GMEM, RefType, ref_space

SEPARATED = "mgpu.separated"
"""The attribute of the loop of a sequential grid dimension whose steps only scratch memory keeps in order."""
WHY = "mgpu.why"
"""The attribute that says why a barrier or fence is there."""
PERSISTENT = -1
"""The one extent of a grid that has as many blocks as run on the GPU at once."""


class KernelOp(Mgpu.Operation, name="kernel", traits=[ir.NoTerminatorTrait, ir.IsIsolatedFromAboveTrait]):
    """A kernel: what one block of threads does, for each point of a grid.

    The region has one block, whose arguments are references to whole arrays in global memory: the
    inputs, then the outputs.  `grid` holds the extents of the launched (parallel) dimensions, slowest
    first; sequential grid dimensions are loops in the body.  A grid of [-1] has as many blocks as run on
    the GPU at once: the kernel is right for any number of them (it walks tiles from `mgpu.program_id` in
    steps of `mgpu.num_programs`).  `num_warps` is 0 until it is chosen.
    `num_inputs` says how many of the arguments are inputs.  `aliases` has one number an argument: the
    index of the first argument that names the same memory (its own, where it is alone).
    """

    sym_name: ir.StringAttr
    grid: ir.ArrayAttr
    num_warps: ir.IntegerAttr
    num_inputs: ir.IntegerAttr
    aliases: ir.ArrayAttr
    body: ext.Region

    def verify_invariants(self) -> bool:
        extents = [ir.IntegerAttr(e).value for e in self.grid]
        fits = extents == [PERSISTENT] or all(e >= 0 for e in extents)
        return require(self, fits, f"grid extents must be >= 0, or the grid [-1], got {extents}")

    def verify_region_invariants(self) -> bool:
        if not require(self, len(self.body.blocks) == 1, "needs exactly one block"):
            return False
        args = list(self.body.blocks[0].arguments)
        in_gmem = all(isinstance(a.type, RefType) and ref_space(a.type) == GMEM for a in args)
        return require(self, in_gmem, "arguments must be references to global memory") and require(
            self, len(self.aliases) == len(args), "aliases must have one entry an argument"
        )


class ProgramIdOp(Mgpu.Operation, name="program_id", traits=[ext.Pure]):
    """The block's coordinate (i32) along launched grid dimension `axis`."""

    axis: ir.IntegerAttr
    result: ext.Result[ir.IntegerType[32]] = ext.infer_result()

    def verify_invariants(self) -> bool:
        return require(self, ir.IntegerAttr(self.axis).value >= 0, "axis must be >= 0")


class NumProgramsOp(Mgpu.Operation, name="num_programs", traits=[ext.Pure]):
    """The extent (i32, at least 1) of launched grid dimension `axis`: how many blocks there are along it."""

    axis: ir.IntegerAttr
    result: ext.Result[ir.IntegerType[32]] = ext.infer_result()

    def verify_invariants(self) -> bool:
        return require(self, ir.IntegerAttr(self.axis).value >= 0, "axis must be >= 0")


class BarrierOp(Mgpu.Operation, name="barrier"):
    """All threads of the block arrive before any goes on; orders their memory accesses."""


class WaitForGridsOp(Mgpu.Operation, name="wait_for_grids"):
    """Every thread waits until the grids before this one on its stream have ended and what they wrote is seen here.

    Then the next grid may start, and wait in its turn.  In a kernel with this op every access to global memory comes
    behind it, so that the kernel may be launched before its predecessor has ended (PTX ISA, `griddepcontrol`).
    """


class DebugPrintOp(Mgpu.Operation, name="debug_print"):
    """Prints once a block: `format` with each `{}` replaced by the next of `values`.

    Either any number of scalars, all passed as i64, or one tile.  `kinds` says, one string a value, how to
    read it: "int", "uint", "bool" (integers, extended to 64 bits) or "float" (the bits of an f64; a tile of floats).
    """

    values: Sequence[ext.Operand[Any]]
    format: ir.StringAttr
    kinds: ir.ArrayAttr

    def verify_invariants(self) -> bool:
        values, kinds = list(self.values), [ir.StringAttr(k).value for k in self.kinds]
        known = set(kinds) <= {"int", "uint", "bool", "float"}
        fitting = len(values) <= 1 or all(v.type == ir.IntegerType.get_signless(64) for v in values)
        return (
            require(self, len(kinds) == len(values), "kinds must have one entry a value")
            and require(self, known, f"unknown kinds {kinds}")
            and require(self, fitting, "several values must be i64 scalars")
        )


class YieldOp(Mgpu.Operation, name="yield", traits=[ir.IsTerminatorTrait]):
    """Ends the body of `mgpu.reduce` and `mgpu.scan`, giving the combined scalars."""

    values: Sequence[ext.Operand[Any]]
