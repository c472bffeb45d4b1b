"""Memory of a process that compiles kernel after kernel: it must not grow with their number.

    python benchmarks/compile_memory.py [--kernels N]

Each kernel is new to the process: another name and constant, and mostly another shape, so other types and layouts.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu.lowering.pipeline import compile_call

# Growth from the middle to the end of the run that counts as none: what the allocator keeps in pieces.
_ALLOWED_BYTES_PER_KERNEL = 4096


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def kernel(number: int) -> tuple[Callable[..., Any], jax.ShapeDtypeStruct]:
    """A softmax and a scale over a block of its own shape, and the argument to call it with."""
    shape = (1 + number % 4, 65 + number % 61)

    def body(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...]
        e = jnp.exp(x - x.max(axis=-1, keepdims=True))
        o_ref[...] = e / e.sum(axis=-1, keepdims=True) * number

    argument = jax.ShapeDtypeStruct(shape, jnp.float32)
    call = pl.pallas_call(body, out_shape=argument, compiler_params=mosaic_gpu.CompilerParams(), name=f"k{number}")
    return call, argument


def main() -> int:
    """Prints the memory along the way; returns 1 if it grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=500)
    count = parser.parse_args().kernels
    sizes = []
    for number in range(count):
        function, argument = kernel(number)
        (call,) = mosaic_gpu.trace_calls(function, argument)
        compile_call(call)
        if number % 10 == 0:
            jax.clear_caches()  # what JAX keeps of each traced function is not ours
            gc.collect()
        sizes.append(resident_bytes())
        if number % max(count // 10, 1) == 0:
            print(f"{number:5} kernels {sizes[-1] / 2**20:8.1f} MiB")
    half = count // 2
    growth = (min(sizes[-50:]) - min(sizes[half : half + 50])) / max(count - half - 50, 1)
    print(f"growth over the last {count - half}: {growth:.0f} bytes a kernel")
    return int(growth > _ALLOWED_BYTES_PER_KERNEL)


if __name__ == "__main__":
    sys.exit(main())
