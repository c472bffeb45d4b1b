"""The command `mosaic-gpu bundle`."""

from __future__ import annotations

import argparse

from mosaic_gpu.bundle import write_bundle
from mosaic_gpu.cli_compile import traced_calls
from mosaic_gpu.errors import KernelError
from mosaic_gpu.runtime.gpu_kernel import GpuKernel


def run(options: argparse.Namespace) -> int:
    """Compiles what `options` (see `cli`) name for each target, and writes the bundle; returns the exit status."""
    from mosaic_gpu.kernel import compilation_of, gpu_kernel

    kernels: list[tuple[GpuKernel, str]] = []
    for target in options.targets:
        calls = traced_calls(options.source, options.shape, target, options.kernel)
        for call in calls:
            compilation = compilation_of(call)
            kernels.append((gpu_kernel(call, compilation), compilation.ptx.text))
    if not kernels:
        raise KernelError("no target is named", expected="--targets sm_90a ...")
    manifest = write_bundle(options.output, kernels)
    names = sorted({kernel.name for kernel, _ in kernels})
    print(f"{manifest.parent}: {', '.join(names)} for {', '.join(dict.fromkeys(k.target for k, _ in kernels))}")
    return 0
