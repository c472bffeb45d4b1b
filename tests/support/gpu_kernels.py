"""Small kernels in PTX, for tests of what the compiler's own kernels seldom use: clusters, much shared memory, TMA."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu import DeviceArray
from mosaic_gpu.lowering.assemblers import assemble
from mosaic_gpu.lowering.targets import parse_target
from mosaic_gpu.lowering.tensor_maps import TensorMapFacts
from mosaic_gpu.runtime.gpu_kernel import GpuKernel
from mosaic_gpu.runtime.interface import ArrayType

_HEAD = ".version 8.0\n.target {target}\n.address_size 64\n"

ADD_ONE = """
.visible .entry add_one(.param .u64 x, .param .u64 y) {
  .reg .b64 %rd<6>; .reg .b32 %r<5>; .reg .f32 %f<3>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd3, %r4, 4;
  add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4]; add.f32 %f2, %f1, 0f3F800000; st.global.f32 [%rd5], %f2;
  ret;
}
"""

# Writes the number of the block in its cluster, and the number of blocks of a cluster.
CLUSTER = """
.visible .entry cluster(.param .u64 y) {
  .reg .b64 %rd<4>; .reg .b32 %r<5>;
  ld.param.u64 %rd1, [y];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %cluster_ctaid.x; mov.u32 %r3, %cluster_nctaid.x;
  mul.wide.u32 %rd2, %r1, 8; add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r2; st.global.u32 [%rd3+4], %r3;
  ret;
}
"""

# Sends its operand through the end of its shared memory; %shared bytes are dynamic.
SHARED = """
.extern .shared .align 16 .b8 smem[];
.visible .entry shared(.param .u64 x, .param .u64 y) {
  .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .f32 %f<3>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %dynamic_smem_size; mov.u32 %r3, smem;
  mul.wide.u32 %rd3, %r1, 4; shl.b32 %r4, %r1, 2;
  add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4];
  sub.u32 %r5, %r2, 128; add.u32 %r5, %r5, %r3; add.u32 %r5, %r5, %r4;
  st.shared.f32 [%r5], %f1; ld.shared.f32 %f2, [%r5]; st.global.f32 [%rd5], %f2;
  ret;
}
"""

# Copies one box of its operand to its result by TMA.
TMA = """
.visible .entry tma(.param .u64 x, .param .u64 y, .param .align 128 .b8 map[128]) {
  .reg .b64 %rd<6>; .reg .b32 %r<8>; .reg .f32 %f<2>; .reg .pred %p<3>;
  .shared .align 128 .b8 tile[256]; .shared .align 8 .b8 bar[8];
  ld.param.u64 %rd1, [y];
  mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r3, bar; mov.u64 %rd2, map; cvta.param.u64 %rd2, %rd2;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra WAIT;
  mbarrier.init.shared.b64 [%r3], 1;
  fence.mbarrier_init.release.cluster;
  fence.proxy.async.shared::cta;
  mbarrier.arrive.expect_tx.shared.b64 %rd3, [%r3], 256;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd2, {8, 4}], [%r3];
WAIT:
  bar.sync 0;
LOOP:
  mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;
  @!%p2 bra LOOP;
  shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4;
  ld.shared.f32 %f1, [%r5];
  cvt.u64.u32 %rd4, %r4; add.u64 %rd5, %rd1, %rd4;
  st.global.f32 [%rd5], %f1;
  ret;
}
"""


class Lying:
    """An array in a GPU's memory as it lies there."""

    def __init__(self, memory: DeviceArray, base: Any, view: Any) -> None:
        offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        self.memory = memory
        self.__cuda_array_interface__ = {
            **memory.__cuda_array_interface__, "data": (memory.pointer + offset, False), "shape": view.shape,
            "strides": view.strides, "typestr": view.dtype.str,
        }  # fmt: skip


def floats(*shape: int) -> ArrayType:
    """float32 of a shape."""
    return ArrayType(shape, np.dtype(np.float32))


def kernel(driver: Any, code: str, target: str = "sm_90a", **fields: Any) -> GpuKernel:
    """A kernel of PTX code whose one entry is named in the code; the stand-in (None: a real driver) learns to run it.

    `fields`: of `GpuKernel`, those left out as for one block of 32 threads without arrays.
    """
    entry = code.split(".entry ", 1)[1].split("(", 1)[0]
    ptx = _HEAD.format(target=target) + code
    cubin, _ = assemble(ptx, parse_target(target))
    if driver is not None:
        driver.add(cubin, ptx)
    defaults = {"grid": (1, 1, 1), "block": (32, 1, 1), "shared_bytes": 0, "operands": (), "results": ()}
    return GpuKernel(**{"name": entry, "entry": entry, "target": target, "cubin": cubin, **defaults, **fields})


def add_one(driver: Any, blocks: int = 2, **fields: Any) -> GpuKernel:
    """float32[32 * blocks] plus one; one that is launched as programmatic waits for its predecessor."""
    array = floats(32 * blocks)
    code = ADD_ONE.replace("ld.global", "griddepcontrol.wait; ld.global") if fields.get("programmatic") else ADD_ONE
    return kernel(driver, code, **{"grid": (blocks, 1, 1), "operands": (array,), "results": (array,), **fields})


def tma(driver: Any) -> GpuKernel:
    """The box of 8 x 8 at row 4, column 8 of a float32[16, 32]."""
    facts = TensorMapFacts(argument=0, element_bytes=4, dims=(32, 16), strides_bytes=(128,), box=(8, 8), swizzle=0)
    types = {"operands": (floats(16, 32),), "results": (floats(8, 8),)}
    return kernel(driver, TMA, block=(64, 1, 1), tensor_maps=(facts,), **types)


def matmul(a: Any, b: Any, **choices: Any) -> Any:
    """A product of bfloat16 matrices that the compiler moves by TMA, in steps of 64 x 64 x 64."""

    def kernel(a_ref: Any, b_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32)

    (m, k), n = a.shape, b.shape[1]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.float32),
        grid=(m // 64, n // 64, k // 64),
        in_specs=[pl.BlockSpec((64, 64), lambda i, j, k: (i, k)), pl.BlockSpec((64, 64), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((64, 64), lambda i, j, k: (i, j)),
        compiler_params=mosaic_gpu.CompilerParams(**choices),
        name="matmul",
    )(a, b)


def matrices() -> tuple[Any, Any, Any]:
    """Operands for `matmul`, and their product in float64."""
    draw = np.random.default_rng(7)
    a, b = (draw.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((128, 256), (256, 128)))
    return a, b, a.astype(np.float64) @ b.astype(np.float64)
