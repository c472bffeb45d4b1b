"""JAX as a contender: XLA with cuBLAS and cuDNN, and JAX's own Mosaic GPU kernels for Hopper.

JAX runs on streams of its own, where events of ours mean nothing: the host's clock times programs of several calls,
many of them in flight.  In a program an optimisation barrier stands between two calls, so that XLA neither fuses nor
reorders them.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np

from .cases import Case
from .contender import Contender, NotApplicableError, Prepared
from .memory import Rotation
from .ops_matmul import is_transposed, result_dtype
from .ops_rows import RMS_EPSILON

Function = Callable[..., Any]
CALLS = 8
"""The most calls of a program."""


def missing() -> str:
    """Why JAX does not run here; "" where it does."""
    if find_spec("jax") is None:
        return "JAX is not installed (pip install 'jax[cuda13]')"
    try:
        import jax

        jax.devices("cuda")
    except (ImportError, OSError) as error:
        return f"JAX cannot be imported: {error}"
    except RuntimeError as error:
        return f"JAX sees no GPU: {str(error).splitlines()[0]}"
    return ""


def contenders() -> list[Contender]:
    """JAX as it comes, and the Mosaic GPU kernels that it ships."""
    why = missing()
    plain = {
        name: (how, functools.partial(_build, lambda case, f=make: [f(case)])) for name, (how, make) in WAYS.items()
    }
    mosaic = {name: (how, functools.partial(_build, make)) for name, (how, make) in MOSAIC.items()}
    # Whatever a library raises is why it has no number: it must not end the run.
    return [Contender("jax", why, plain, (Exception,)), Contender("mosaic", why, mosaic, (Exception,))]


def _build(candidates: Callable[[Case], Iterable[Function]], case: Case, inputs: Rotation) -> Prepared:
    """The fastest of some functions; those that refuse the case are left out."""
    arrays: list[tuple[Any, ...]] = []
    best: tuple[float, Prepared] | None = None
    refusal = "no configuration fits"
    for function in candidates(case):
        if not arrays:
            arrays = [as_arrays(case, copy) for copy in inputs.copies]
        try:
            prepared = prepare(function, arrays, heads_behind=case.operation == "attention")
            seconds = _seconds(prepared)
        except (ValueError, NotImplementedError) as error:
            refusal = str(error).strip().splitlines()[0]
            continue
        if best is None or seconds < best[0]:
            best = (seconds, prepared)
    if best is None:
        raise NotApplicableError(refusal)
    return best[1]


def _seconds(prepared: Prepared) -> float:
    """Of some runs; the first compiles."""
    assert prepared.wait is not None
    prepared.wait(prepared.run(0))
    began = time.perf_counter()
    for number in range(3):
        last = prepared.run(number)
    prepared.wait(last)
    return time.perf_counter() - began


def prepare(function: Function, arrays: list[tuple[Any, ...]], heads_behind: bool = False) -> Prepared:
    """Programs of several calls of a function that rotate through tuples of arrays.

    `heads_behind`: its result is (batch, rows, heads, d), and checked as (batch, heads, rows, d).
    """
    import jax

    width = min(len(arrays), CALLS)

    def calls(*groups: Any) -> list[Any]:
        results: list[Any] = []
        for given in groups:
            if results:
                given, results[-1] = jax.lax.optimization_barrier((given, results[-1]))
            results.append(function(*given))
        return results

    program = jax.jit(calls)

    def run(number: int) -> Any:
        return program(*(arrays[(number * width + i) % len(arrays)] for i in range(width)))

    def results() -> list[tuple[Any, str]]:
        first = run(0)[0]
        if heads_behind:
            first = first.swapaxes(1, 2)
        return [(np.asarray(first.astype("float32")), str(first.dtype))]

    return Prepared(run, results, jax.block_until_ready, width)


def as_arrays(case: Case, copy: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same memory as arrays; bytes become the 8-bit floats that they are, attention's heads go behind the rows."""
    import jax

    made = [jax.dlpack.from_dlpack(array) for array in copy]
    made = [jax.lax.bitcast_convert_type(a, case.dtype) if a.dtype == "uint8" else a for a in made]
    if case.operation == "attention":
        made = [a.swapaxes(1, 2) for a in made]
    return tuple(jax.block_until_ready(made))


def matmul(case: Case) -> Function:
    """A product with sums in float32."""
    import jax

    right = 1 if is_transposed(case) else 0

    def function(a: Any, b: Any) -> Any:
        return jax.lax.dot_general(a, b, (((1,), (right,)), ((), ())), preferred_element_type=result_dtype(case))

    return function


def attention(case: Case, implementation: str = "cudnn") -> Function:
    """jax.nn.dot_product_attention; arrays and result are (batch, rows, heads, d)."""
    import jax

    _check_mask(case)

    def function(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=bool(case.causal), implementation=implementation)

    return function


def _check_mask(case: Case) -> None:
    if case.causal and case.queries != case.keys:
        raise NotApplicableError("its causal mask begins at the first key, not so that it ends at the last")


def softmax(case: Case) -> Function:
    """In float32 inside, as ours."""
    import jax

    return lambda x: jax.nn.softmax(x.astype("float32"), axis=-1).astype(x.dtype)


def rms_norm(case: Case) -> Function:
    """In float32 inside, as ours."""
    import jax
    import jax.numpy as jnp

    def function(x: Any, scale: Any) -> Any:
        wide = x.astype("float32")
        inverse = jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + RMS_EPSILON)
        return (wide * inverse * scale.astype("float32")).astype(x.dtype)

    return function


def cross_entropy(case: Case) -> Function:
    """In float32 inside, as ours; the losses alone."""
    import jax
    import jax.numpy as jnp

    def function(x: Any, labels: Any) -> Any:
        picked = jnp.take_along_axis(x, labels[:, None], axis=1)[:, 0]
        return jax.nn.logsumexp(x.astype("float32"), axis=-1) - picked.astype("float32")

    return function


def grouped_matmul(case: Case) -> Function:
    """jax.lax.ragged_dot."""
    import jax

    return lambda x, w, sizes: jax.lax.ragged_dot(x, w, sizes, preferred_element_type=case.dtype)


WAYS: dict[str, tuple[str, Callable[[Case], Function]]] = {
    "matmul": ("XLA: cuBLAS or its own (lax.dot_general)", matmul),
    "attention": ("cuDNN (jax.nn.dot_product_attention)", attention),
    "softmax": ("XLA (jax.nn.softmax)", softmax),
    "rms_norm": ("XLA", rms_norm),
    "cross_entropy": ("XLA", cross_entropy),
    "grouped_matmul": ("XLA (jax.lax.ragged_dot)", grouped_matmul),
}


def _mosaic_matmul(case: Case) -> Iterable[Function]:
    from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu as hopper

    if is_transposed(case):
        raise NotApplicableError("it takes a right side of 8-bit floats in no other way than (k, n)")
    base = hopper.TuningConfig(tile_m=128, tile_n=128, tile_k=64, max_concurrent_steps=4, grid_tile_width=8)
    dimension = hopper.MatmulDimension
    for change in (
        {},
        {"grid_minor_dim": dimension.M},
        {"wg_dimension": dimension.M},
        {"tile_n": 64},
        {"tile_m": 64, "tile_n": 64},
        {"cluster_dimension": dimension.M},
    ):
        yield functools.partial(hopper.matmul, c=None, config=dataclasses.replace(base, **change))


def _mosaic_attention(case: Case) -> Iterable[Function]:
    from jax.experimental.pallas.ops.gpu import attention_mgpu as hopper

    _check_mask(case)
    for block_kv in (256, 128, 64):
        config = hopper.TuningConfig(block_q=64, block_kv=block_kv, max_concurrent_steps=2, causal=bool(case.causal))
        yield functools.partial(hopper.attention, config=config)


def _mosaic_grouped_matmul(case: Case) -> Iterable[Function]:
    from jax.experimental.pallas.ops.gpu import ragged_dot_mgpu as hopper

    for block_m, block_n, width in ((128, 128, 8), (64, 128, 8), (128, 128, 1), (128, 192, 1), (64, 128, 1)):
        if case.n % (block_n * width):
            continue
        options = {
            "block_m": block_m,
            "block_n": block_n,
            "block_k": 64,
            "grid_block_n": width,
            "max_concurrent_steps": 4,
        }
        yield lambda x, w, sizes, o=options: hopper.ragged_dot(x, w, group_sizes=sizes, **o)


MOSAIC: dict[str, tuple[str, Callable[[Case], Iterable[Function]]]] = {
    "matmul": ("Mosaic GPU (JAX's hopper_matmul_mgpu, the fastest of 6 configurations)", _mosaic_matmul),
    "attention": ("Mosaic GPU (JAX's attention_mgpu, the fastest of 3 configurations)", _mosaic_attention),
    "grouped_matmul": ("Mosaic GPU (JAX's ragged_dot_mgpu, the fastest of 5 configurations)", _mosaic_grouped_matmul),
}
