"""Without a GPU: how long the cases' kernels take to compile, and what their machine code is made of.

Needs JAX and the compiler; `benchmarks/` is where modules are looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from .cases import Case

NEEDS_A_GPU = (
    "What needs a GPU: running the kernels; so checking their results, the times, the shares of the roofline, and the "
    "peers (PyTorch, JAX, Triton, Mosaic GPU)."
)


def tables(cases: Sequence[Case], repeat: int) -> dict[str, Any]:
    """Prints both tables, for the cases and for the kernels that Triton compiles too; returns their numbers."""
    import code_quality
    import compile_time
    from kernels import Benchmark, attention, benchmarks, matmul

    from .kernels import call_of

    chosen = [Benchmark(case.name, *call_of(case), case.how.in_flight_bytes(case)) for case in cases]
    print("\nTime from jaxpr to cubin (sm_90a)")
    times = compile_time.table(chosen, repeat, with_triton=False)
    print("\nMachine code (sm_90a; benchmarks/code_quality.py says what is counted)")
    quality = code_quality.table(chosen, with_triton=False)
    triton = "beside Triton's" if find_spec("triton") else "Triton is not installed"
    print(f"\nTime from jaxpr to cubin of the kernels of benchmarks/kernels.py ({triton})")
    beside_times = compile_time.table(benchmarks(), repeat)
    print(f"\nTheir machine code ({triton})")
    beside_quality = code_quality.table((matmul(), attention()))
    return {
        "compile_seconds": times,
        "code": quality,
        "beside_triton": {"compile_seconds": beside_times, "code": beside_quality},
    }
