"""Triton as a contender: `triton_kernels`, each with the fastest of some configurations.  PyTorch launches them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from . import peers_torch
from .cases import Case
from .contender import Contender, NotApplicableError, Prepared
from .memory import Rotation
from .ops_matmul import is_transposed, result_dtype, tile_table
from .ops_rows import RMS_EPSILON

Launch = Callable[[], Any]
"""Enqueues one call, and returns its result."""
Maker = Callable[[Case, tuple[Any, ...]], Iterator[Launch]]
"""From a case and its inputs as tensors to a function for each configuration."""


def missing() -> str:
    """Why Triton does not run here; "" where it does."""
    if find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    why = peers_torch.missing()
    return f"Triton launches by PyTorch: {why}" if why else ""


def contenders() -> list[Contender]:
    """Triton."""
    ways = {
        name: (f"benchmarks/suite/triton_kernels.py, the fastest of {n} configurations", _builder(make))
        for name, (n, make) in WAYS.items()
    }
    # Whatever a library raises is why it has no number: it must not end the run.
    return [Contender("triton", missing(), ways, (Exception,))]


def _builder(make: Maker) -> Callable[[Case, Rotation], Prepared]:
    def build(case: Case, inputs: Rotation) -> Prepared:
        from mosaic_gpu.runtime.timing import time_calls

        tensors = [peers_torch.tensors(case, copy) for copy in inputs.copies]
        best: tuple[float, int] | None = None
        refusal = "no configuration fits"
        for number, launch in enumerate(make(case, tensors[0])):
            try:
                launch()
                taken = time_calls(lambda _, launch=launch: launch(), warmup=1, repeats=3, min_seconds=0.0).median  # type: ignore[misc]
            except _out_of_resources() as error:
                refusal = str(error).splitlines()[0]
                continue
            if best is None or taken < best[0]:
                best = (taken, number)
        if best is None:
            raise NotApplicableError(refusal)
        calls = [list(make(case, copy))[best[1]] for copy in tensors]
        return Prepared(lambda i: calls[i % len(calls)](), lambda: peers_torch.on_host(calls[0]()))

    return build


def _out_of_resources() -> tuple[type[Exception], ...]:
    """What Triton raises where a configuration takes more of the GPU than there is."""
    from triton.runtime.errors import OutOfResources

    return (OutOfResources,)


def _descriptor(tensor: Any, block: list[int]) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    row_bytes = tensor.shape[-1] * tensor.element_size()
    if row_bytes % 16:
        raise NotApplicableError("rows start at addresses that 16 does not divide: no tensor descriptors")
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block)


def softmax(case: Case, inputs: tuple[Any, ...]) -> Iterator[Launch]:
    """Configurations: warps."""
    import torch

    from . import triton_kernels as kernels

    (x,) = inputs
    out, block = torch.empty_like(x), 1 << (case.n - 1).bit_length()
    for warps in (4, 8, 16):

        def launch(warps: int = warps) -> Any:
            kernels.softmax[(case.m,)](x, out, case.n, BLOCK=block, num_warps=warps)
            return out

        yield launch


def rms_norm(case: Case, inputs: tuple[Any, ...]) -> Iterator[Launch]:
    """Configurations: warps."""
    import torch

    from . import triton_kernels as kernels

    x, scale = inputs
    out, block = torch.empty_like(x), 1 << (case.n - 1).bit_length()
    for warps in (4, 8, 16):

        def launch(warps: int = warps) -> Any:
            kernels.rms_norm[(case.m,)](x, scale, out, case.n, EPSILON=RMS_EPSILON, BLOCK=block, num_warps=warps)
            return out

        yield launch


def cross_entropy(case: Case, inputs: tuple[Any, ...]) -> Iterator[Launch]:
    """Configurations: columns of a step, warps."""
    import torch

    from . import triton_kernels as kernels

    x, labels = inputs
    out = torch.empty((case.m,), dtype=torch.float32, device=x.device)
    for block, warps in ((2048, 4), (4096, 8), (8192, 8), (16384, 16)):

        def launch(block: int = block, warps: int = warps) -> Any:
            kernels.cross_entropy[(case.m,)](x, labels, out, case.n, BLOCK=block, num_warps=warps)
            return out

        yield launch


_TILES = ((128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (128, 128, 64, 4, 4), (64, 256, 64, 4, 4), (64, 128, 128, 4, 4))
"""Rows, columns, depth of a step in 2-byte elements, warps and stages."""


def matmul(case: Case, inputs: tuple[Any, ...]) -> Iterator[Launch]:
    """Configurations: `_TILES`."""
    import torch

    from . import triton_kernels as kernels

    a, b = inputs
    out = torch.empty((case.m, case.n), dtype=getattr(torch, result_dtype(case)), device=a.device)
    for m, n, step, warps, stages in _TILES:
        depth = step * 2 // a.element_size()
        right = [n, depth] if is_transposed(case) else [depth, n]
        arrays = _descriptor(a, [m, depth]), _descriptor(b, right), _descriptor(out, [m, n])
        grid = (-(-case.m // m) * -(-case.n // n),)
        constants = {"M": m, "N": n, "K": depth, "GROUP": 8, "IS_TRANSPOSED": is_transposed(case)}
        options = {**constants, "num_warps": warps, "num_stages": stages}

        def launch(arrays: Any = arrays, grid: Any = grid, options: Any = options) -> Any:
            kernels.matmul[grid](*arrays, case.m, case.n, case.k, **options)
            return out

        yield launch


def attention(case: Case, inputs: tuple[Any, ...]) -> Iterator[Launch]:
    """Configurations: queries, keys, warps, stages."""
    import torch

    from . import triton_kernels as kernels

    q, k, v = (t.reshape(-1, t.shape[2], t.shape[3]) for t in inputs)
    out = torch.empty_like(q)
    for m, n, warps, stages in ((128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 4, 3), (64, 128, 4, 3)):
        arrays = [_descriptor(t, [1, rows, case.d]) for t, rows in ((q, m), (k, n), (v, n), (out, m))]
        grid = (-(-case.queries // m), case.batch * case.heads)
        sizes = (case.heads, case.kv_heads, case.queries, case.keys)
        constants = {"SCALE": math.log2(math.e) / math.sqrt(case.d), "M": m, "N": n, "D": case.d}
        options = {**constants, "CAUSAL": bool(case.causal), "num_warps": warps, "num_stages": stages}

        def launch(arrays: Any = arrays, grid: Any = grid, sizes: Any = sizes, options: Any = options) -> Any:
            kernels.attention[grid](*arrays, *sizes, **options)
            return out.reshape(inputs[0].shape)

        yield launch


def grouped_matmul(case: Case, inputs: tuple[Any, ...]) -> Iterator[Launch]:
    """Configurations: `_TILES`.  The table of tiles is made beforehand, as for ours."""
    import torch

    from . import triton_kernels as kernels

    x, w, sizes = inputs
    out = torch.zeros((case.m, case.n), dtype=x.dtype, device=x.device)
    for m, n, step, warps, stages in _TILES:
        count, *table = tile_table(np.asarray(sizes.cpu().numpy()), case.m, m)
        tables = [torch.from_numpy(t).to(x.device) for t in table]
        arrays = _descriptor(x, [m, step]), _descriptor(w, [1, step, n])
        grid = (-(-case.n // n), int(count))
        options = {"M": m, "N": n, "K": step, "num_warps": warps, "num_stages": stages}

        def launch(arrays: Any = arrays, tables: Any = tables, grid: Any = grid, options: Any = options) -> Any:
            kernels.grouped_matmul[grid](*tables, *arrays, out, case.n, case.k, **options)
            return out

        yield launch


WAYS: dict[str, tuple[int, Maker]] = {
    "matmul": (len(_TILES), matmul),
    "attention": (4, attention),
    "softmax": (3, softmax),
    "rms_norm": (3, rms_norm),
    "cross_entropy": (4, cross_entropy),
    "grouped_matmul": (len(_TILES), grouped_matmul),
}
