"""The `mgpu` dialect: kernels over tiles and references to memory.

Importing this package imports nothing heavy; `load()` brings the bindings in and loads the dialect
into the current MLIR context.
"""

from __future__ import annotations


def load() -> None:
    """Loads the dialect into the current `ir.Context`; needed once in each context."""
    from mosaic_gpu.dialect import attrs, ops_async, ops_kernel, ops_matmul, ops_memory, ops_tile, types  # noqa: F401 (they register)
    from mosaic_gpu.dialect.mgpu import Mgpu, accept_empty_arrays

    accept_empty_arrays()
    Mgpu.load()
