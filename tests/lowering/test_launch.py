"""Launch facts, read off the per-thread module."""

from __future__ import annotations

import pytest

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_kernel import PERSISTENT
from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.artifacts import read_ptx
from mosaic_gpu.lowering.launch import MAX_GRID_X, LaunchFacts, grid_of, launch_facts
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.pipeline import compilation_context, run_stages


@pytest.mark.parametrize(
    ("extents", "blocks"),
    [
        ((), (1, 1, 1)),
        ((5, 0), (0, 1, 1)),
        ((3, 4), (12, 1, 1)),
        ((MAX_GRID_X,), (MAX_GRID_X, 1, 1)),
        ((MAX_GRID_X + 1,), (MAX_GRID_X, 2, 1)),
        ((70_000, 70_000), (MAX_GRID_X, 3, 1)),
        ((PERSISTENT,), (-1, 1, 1)),
    ],
    ids=str,
)
def test_grids_are_flattened_over_x_then_y(extents: tuple[int, ...], blocks: tuple[int, int, int]) -> None:
    assert grid_of(extents) == blocks


def test_the_facts_are_those_of_the_functions_attributes() -> None:
    text = """
    llvm.func @helper()
    llvm.func @scale() attributes {nvvm.kernel, mgpu.grid = [2 : i32, 3 : i32], mgpu.num_warps = 8 : i32,
                                   mgpu.smem_bytes = 4096 : i32} { llvm.return }
    """
    with ir.Context():
        facts = launch_facts(ir.Module.parse(text))
    assert facts == LaunchFacts("scale", (6, 1, 1), (256, 1, 1), 4096)


def test_clusters_and_the_wait_for_other_grids_are_read_off_the_function() -> None:
    text = """
    llvm.func @scale() attributes {nvvm.kernel, mgpu.grid = [4 : i32], mgpu.num_warps = 1 : i32, mgpu.programmatic,
                                   mgpu.smem_bytes = 0 : i32, nvvm.cluster_dim = array<i32: 2, 1, 1>} { llvm.return }
    """
    with ir.Context():
        facts = launch_facts(ir.Module.parse(text))
    assert facts == LaunchFacts("scale", (4, 1, 1), (32, 1, 1), 0, cluster=(2, 1, 1), programmatic=True)


def test_clusters_reach_the_ptx_and_its_first_line() -> None:
    text = """
    llvm.func @scale() attributes {nvvm.kernel, mgpu.grid = [4 : i32], mgpu.num_warps = 1 : i32,
                                   mgpu.smem_bytes = 0 : i32, nvvm.cluster_dim = array<i32: 2, 1, 1>} { llvm.return }
    """
    with compilation_context():
        ptx = run_stages(ir.Module.parse(text), LoweringOptions(), start="nvvm", stop="ptx")
    assert ".reqnctapercluster 2, 1, 1" in ptx.text
    assert read_ptx(ptx.text).launch == LaunchFacts("scale", (4, 1, 1), (32, 1, 1), 0, cluster=(2, 1, 1))


def test_a_module_without_a_kernel_is_an_internal_error() -> None:
    with ir.Context(), pytest.raises(InternalError, match=r"no llvm\.func with the attribute nvvm\.kernel"):
        launch_facts(ir.Module.parse("llvm.func @helper()"))
