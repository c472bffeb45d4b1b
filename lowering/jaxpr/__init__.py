"""From a Pallas call to a kernel in the `mgpu` dialect.

`lower_kernel` is the stage.  The rules of the primitives are in `rules_<family>.py`; they register when
`load_rules` imports them, which the stage does: importing this package imports no MLIR bindings.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mosaic_gpu.dialect._mlir import ir
    from mosaic_gpu.lowering.kernel_call import KernelCall


def load_rules() -> None:
    """Imports every module of rules, so that all of them are registered."""
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("rules_"):
            importlib.import_module(f"{__name__}.{module.name}")


def lower_kernel(call: KernelCall) -> ir.Module:
    """The module that holds `call` as one verified `mgpu.kernel`; the dialect is loaded in the current context.

    Raises KernelError where the kernel is wrong and UnsupportedError where it holds what this version
    cannot do, with the kernel's line.
    """
    from mosaic_gpu.lowering.jaxpr.kernel import lower_call

    load_rules()
    return lower_call(call)
