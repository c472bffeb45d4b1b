"""Row-major copies of arrays that lie otherwise in a GPU's memory: transposed, sliced, reversed, broadcast.

A kernel of a thread an element, in PTX, which the driver assembles for the GPU at hand (CUDA driver API,
`cuModuleLoadData`).
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Sequence
from typing import Any

from mosaic_gpu.runtime import driver
from mosaic_gpu.runtime.devices import Device

MAX_RANK = 8
"""Of an array, after dimensions that lie together were merged."""

_THREADS = 256

# Plan: bytes 0 count of elements, 8 bytes from the lowest address to the first element, 16 bytes an element (1, 2, 4 or
# 8; u32), 20 rank (u32), 24 sizes, 88 strides in bytes; the last dimension first.
_PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry gather(.param .u64 source, .param .u64 dest, .param .align 8 .b8 plan[152])
{
  .reg .pred %p<8>; .reg .b16 %h<2>; .reg .b32 %r<8>; .reg .b64 %d<16>;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mul.wide.u32 %d1, %r1, %r2; cvt.u64.u32 %d2, %r3; add.u64 %d1, %d1, %d2;
  ld.param.u64 %d3, [plan];
  setp.ge.u64 %p1, %d1, %d3;
  @%p1 bra DONE;
  ld.param.u64 %d4, [source]; ld.param.u64 %d5, [plan+8]; add.u64 %d4, %d4, %d5;
  ld.param.u32 %r4, [plan+16]; ld.param.u32 %r5, [plan+20];
  ld.param.u64 %d6, [dest]; cvt.u64.u32 %d7, %r4; mad.lo.u64 %d6, %d1, %d7, %d6;
  mov.u64 %d8, plan;
DIMENSION:
  setp.eq.u32 %p2, %r5, 0;
  @%p2 bra COPY;
  ld.param.u64 %d9, [%d8+24]; ld.param.u64 %d10, [%d8+88];
  rem.u64 %d11, %d1, %d9; div.u64 %d1, %d1, %d9;
  mad.lo.u64 %d4, %d11, %d10, %d4;
  add.u64 %d8, %d8, 8; sub.u32 %r5, %r5, 1;
  bra DIMENSION;
COPY:
  setp.eq.u32 %p3, %r4, 1; setp.eq.u32 %p4, %r4, 2; setp.eq.u32 %p5, %r4, 4; setp.eq.u32 %p6, %r4, 8;
  @%p3 ld.global.u8 %h1, [%d4]; @%p3 st.global.u8 [%d6], %h1;
  @%p4 ld.global.u16 %h1, [%d4]; @%p4 st.global.u16 [%d6], %h1;
  @%p5 ld.global.u32 %r6, [%d4]; @%p5 st.global.u32 [%d6], %r6;
  @%p6 ld.global.u64 %d12, [%d4]; @%p6 st.global.u64 [%d6], %d12;
DONE:
  ret;
}
"""


class _Plan(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_uint64),
        ("start", ctypes.c_int64),
        ("element_bytes", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("sizes", ctypes.c_uint64 * MAX_RANK),
        ("strides", ctypes.c_int64 * MAX_RANK),
    ]


def merged(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Size and stride of each dimension, the last one first; those that lie together are one, those of 1 are none."""
    dims: list[tuple[int, int]] = []
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if dims and stride == dims[-1][0] * dims[-1][1]:
            dims[-1] = (dims[-1][0] * size, dims[-1][1])
        else:
            dims.append((size, stride))
    return dims


def gather(
    source: int, dest: int, shape: Sequence[int], strides: Sequence[int], element_bytes: int, place: Device, stream: int
) -> None:
    """Enqueues the copy of an array at `source` to row-major memory at `dest`; the context of `place` is current.

    Arguments:
      shape: of the array; no size is 0, and at most `MAX_RANK` dimensions are left of it by `merged`.
      strides: in bytes; 0 and negative ones too.
      element_bytes: 1, 2, 4 or 8, which divides the addresses and the strides.
    """
    dims = merged(shape, strides)
    before = sum(stride * (size - 1) for size, stride in dims if stride < 0)
    plan = _Plan(math.prod(shape), -before, element_bytes, len(dims))
    for i, (size, stride) in enumerate(dims):
        plan.sizes[i], plan.strides[i] = size, stride
    pointers = (ctypes.c_uint64(source + before), ctypes.c_uint64(dest), plan)
    addresses = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(p) for p in pointers))
    blocks = -(-plan.count // _THREADS)
    grid, block = (blocks, 1, 1), (_THREADS, 1, 1)
    driver.call("cuLaunchKernel", _function(place), *grid, *block, 0, stream, ctypes.addressof(addresses), 0)


_functions: dict[int, Any] = {}
_lock = threading.Lock()


def _function(place: Device) -> Any:
    """The kernel on a GPU; it stays loaded."""
    with _lock:
        if place.ordinal not in _functions:
            _functions[place.ordinal] = _load()
        return _functions[place.ordinal]


def _load() -> Any:
    about = "copies of arrays"
    with driver.relaxed_capture():
        module = driver.call("cuModuleLoadData", _PTX.encode() + b"\0", about=about)
        return driver.call("cuModuleGetFunction", module, b"gather", about=about)
