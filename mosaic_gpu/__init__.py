"""A compiler for Pallas kernels on NVIDIA Hopper GPUs.

Importing this package imports neither JAX nor the MLIR bindings: each name below is loaded, with what it
needs, when it is first used.  Using `CompilerParams` or `pallas_call` registers the compiler with JAX.
"""

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

# JAX's own plugin wheels may use `mosaic_gpu` as a namespace package: both import.
__path__ = extend_path(__path__, __name__)

if TYPE_CHECKING:
    from mosaic_gpu.api import CompiledKernel, compile, pallas_call, trace_calls
    from mosaic_gpu.bundle import load_bundle
    from mosaic_gpu.errors import (
        InternalError,
        KernelError,
        MosaicGpuError,
        SimulationError,
        ToolError,
        UnsupportedError,
    )
    from mosaic_gpu.grid_spec import PrefetchScalarGridSpec
    from mosaic_gpu.interpreter.call import interpret
    from mosaic_gpu.interpreter.install import install
    from mosaic_gpu.interpreter.params import InterpretParams
    from mosaic_gpu.launcher import register_launcher
    from mosaic_gpu.options import CompilerParams
    from mosaic_gpu.pytorch import as_torch
    from mosaic_gpu.runtime.device_array import DeviceArray
    from mosaic_gpu.tuning.autotune import autotune

__all__ = [
    "CompiledKernel",
    "CompilerParams",
    "DeviceArray",
    "InternalError",
    "InterpretParams",
    "KernelError",
    "MosaicGpuError",
    "PrefetchScalarGridSpec",
    "SimulationError",
    "ToolError",
    "UnsupportedError",
    "as_torch",
    "autotune",
    "compile",
    "install",
    "interpret",
    "load_bundle",
    "pallas_call",
    "register_launcher",
    "trace_calls",
]

_HOMES = {
    **dict.fromkeys(("CompiledKernel", "compile", "pallas_call", "trace_calls"), "api"),
    "CompilerParams": "options",
    "as_torch": "pytorch",
    "DeviceArray": "runtime.device_array",
    "autotune": "tuning.autotune",
    "load_bundle": "bundle",
    "register_launcher": "launcher",
    "InterpretParams": "interpreter.params",
    "interpret": "interpreter.call",
    "install": "interpreter.install",
    "PrefetchScalarGridSpec": "grid_spec",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
