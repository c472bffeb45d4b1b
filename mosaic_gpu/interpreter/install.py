"""Makes JAX's own `plgpu.InterpretGPUParams` use this interpreter."""

from __future__ import annotations

from typing import Any

from mosaic_gpu.interpreter.params import InterpretParams

_INSTALLED: list[InterpretParams | None] = []


def install(params: InterpretParams | None = None) -> None:
    """From now on kernels with `interpret=plgpu.InterpretGPUParams(...)` run in this interpreter.

    Arguments:
      params: for all of them; None follows what each says: `detect_races`, `out_of_bounds_reads` and
        `uninitialized_memory` have their meaning, and every other check is as of `InterpretParams()`.

    Kernels that were lowered before keep JAX's interpreter; `jax.clear_caches()` makes JAX forget them.
    """
    from mosaic_gpu import options

    assert options.CompilerParams is not None  # imported for its registration with JAX
    _INSTALLED[:] = [params]


def uninstall() -> None:
    """Gives `plgpu.InterpretGPUParams` back to JAX."""
    _INSTALLED.clear()


def ours(interpret: Any) -> InterpretParams | None:
    """The parameters that an `interpret=` stands for here; None where it is not for us."""
    if isinstance(interpret, InterpretParams):
        return interpret
    if _INSTALLED and type(interpret).__name__ == "InterpretGPUParams":
        return _INSTALLED[0] or _translated(interpret)
    return None


def _translated(theirs: Any) -> InterpretParams:
    """JAX's parameters in our words."""
    return InterpretParams(
        races="raise" if theirs.detect_races else "ignore",
        missing_waits="raise" if theirs.detect_races else "ignore",
        missing_commits="raise" if theirs.detect_races else "ignore",
        out_of_bounds="raise" if theirs.out_of_bounds_reads == "raise" else "ignore",
        out_of_bounds_reads="clamp" if theirs.out_of_bounds_reads == "raise" else "fill",
        uninitialised="zero" if theirs.uninitialized_memory == "zero" else "nan",
        uninitialised_reads="ignore",
        unwritten_outputs="ignore",
        log=theirs.logging_mode is not None,
    )
