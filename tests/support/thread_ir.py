"""A per-thread module (stage "nvvm") for the tests of the stages after it."""

from __future__ import annotations

KERNEL_FILE = "/home/user/kernel.py"

# y[i] = x[i] + sin(x[4 * (i // 4)]), four elements a thread, in blocks of 64 threads on a grid of 3 by 5.
SINES = f"""
module {{
  llvm.func @__nv_sinf(f32) -> f32
  llvm.func @sines(%x: !llvm.ptr<1> {{llvm.noalias, llvm.align = 16 : i64}}, %y: !llvm.ptr<1> {{llvm.noalias, llvm.align = 16 : i64}})
      attributes {{nvvm.kernel, nvvm.reqntid = array<i32: 64>, mgpu.grid = [3 : i32, 5 : i32], mgpu.num_warps = 2 : i32,
                  mgpu.smem_bytes = 256 : i32}} {{
    %tid = nvvm.read.ptx.sreg.tid.x : i32 loc("{KERNEL_FILE}":11:3)
    %four = arith.constant 4 : i32
    %start = arith.muli %tid, %four : i32 loc("{KERNEL_FILE}":11:8)
    %from = llvm.getelementptr inbounds %x[%start] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32 loc("{KERNEL_FILE}":12:3)
    %v = llvm.load %from {{alignment = 16 : i64}} : !llvm.ptr<1> -> vector<4xf32> loc("{KERNEL_FILE}":12:3)
    %first = vector.extract %v[0] : f32 from vector<4xf32> loc("{KERNEL_FILE}":13:3)
    %s = llvm.call @__nv_sinf(%first) : (f32) -> f32 loc("{KERNEL_FILE}":13:3)
    %all = vector.broadcast %s : f32 to vector<4xf32> loc("{KERNEL_FILE}":13:3)
    %r = arith.addf %all, %v : vector<4xf32> loc("{KERNEL_FILE}":14:3)
    %to = llvm.getelementptr inbounds %y[%start] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32 loc("{KERNEL_FILE}":15:3)
    llvm.store %r, %to {{alignment = 16 : i64}} : vector<4xf32>, !llvm.ptr<1> loc("{KERNEL_FILE}":15:3)
    llvm.return
  }} loc("{KERNEL_FILE}":10:1)
}}
"""  # noqa: E501 (MLIR text)
