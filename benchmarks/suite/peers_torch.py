"""PyTorch as a contender: cuBLAS, cuDNN, flash attention and its own kernels.  Imported only where it is installed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from .cases import Case
from .contender import Contender, NotApplicableError, Prepared
from .memory import Rotation
from .ops_matmul import is_transposed
from .ops_rows import RMS_EPSILON

Call = Callable[[], Any]
Way = Callable[[Case, tuple[Any, ...]], Call]
"""From a case and its inputs as tensors (on any device) to a function that computes it."""


def missing() -> str:
    """Why PyTorch does not run here; "" where it does."""
    if find_spec("torch") is None:
        return "PyTorch is not installed (pip install torch)"
    try:
        import torch
    except (ImportError, OSError) as error:
        return f"PyTorch cannot be imported: {error}"
    return "" if torch.cuda.is_available() else "this PyTorch sees no GPU, or is built without CUDA"


def contenders() -> list[Contender]:
    """PyTorch as it comes, and its flash attention beside cuDNN's."""
    why = missing()
    plain = {name: (how, _builder(way)) for name, (how, way) in WAYS.items()}
    flash = {"attention": ("flash attention (scaled_dot_product_attention)", _builder(flash_attention))}
    # Whatever a library raises is why it has no number: it must not end the run.
    return [Contender("torch", why, plain, (Exception,)), Contender("torch-flash", why, flash, (Exception,))]


def _builder(way: Way) -> Callable[[Case, Rotation], Prepared]:
    def build(case: Case, inputs: Rotation) -> Prepared:
        import torch

        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        calls = [way(case, tensors(case, copy)) for copy in inputs.copies]
        # Results that live on make PyTorch's allocator rotate their memory too.
        kept: deque[Any] = deque(maxlen=len(calls))
        return Prepared(lambda i: kept.append(calls[i % len(calls)]()), lambda: on_host(calls[0]()))

    return build


def tensors(case: Case, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same memory as tensors; bytes become the 8-bit floats that they are."""
    import torch

    made = [torch.from_dlpack(array) for array in arrays]
    return tuple(t.view(getattr(torch, case.dtype)) if t.dtype == torch.uint8 else t for t in made)


def on_host(result: Any) -> list[tuple[Any, str]]:
    """A result as `Prepared.results` gives it."""
    return [(np.asarray(result.float().cpu().numpy()), str(result.dtype).removeprefix("torch."))]


def matmul(case: Case, inputs: tuple[Any, ...]) -> Call:
    """torch.mm; of 8-bit floats torch._scaled_mm with scales of 1, as ours without sums outside of the tensor cores."""
    import torch

    a, b = inputs
    if not is_transposed(case):
        return lambda: torch.mm(a, b)
    one = torch.ones((), dtype=torch.float32, device=a.device)
    return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _attention(case: Case, inputs: tuple[Any, ...], backend: str) -> Call:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = inputs
    options: dict[str, Any] = {"enable_gqa": case.heads != case.kv_heads}
    if case.causal and case.queries != case.keys:
        options["attn_mask"] = causal_lower_right(case.queries, case.keys)
        if backend == "CUDNN_ATTENTION":
            raise NotApplicableError("its causal mask begins at the first key, not so that it ends at the last")
    else:
        options["is_causal"] = bool(case.causal)
    chosen = getattr(SDPBackend, backend)

    def call() -> Any:
        with sdpa_kernel(chosen):
            return scaled_dot_product_attention(q, k, v, **options)

    return call


def cudnn_attention(case: Case, inputs: tuple[Any, ...]) -> Call:
    """cuDNN's."""
    return _attention(case, inputs, "CUDNN_ATTENTION")


def flash_attention(case: Case, inputs: tuple[Any, ...]) -> Call:
    """The flash attention that PyTorch is built with."""
    return _attention(case, inputs, "FLASH_ATTENTION")


def softmax(case: Case, inputs: tuple[Any, ...]) -> Call:
    """torch.softmax."""
    import torch

    return lambda: torch.softmax(inputs[0], -1)


def rms_norm(case: Case, inputs: tuple[Any, ...]) -> Call:
    """torch.nn.functional.rms_norm."""
    from torch.nn.functional import rms_norm as norm

    x, scale = inputs
    return lambda: norm(x, (case.n,), scale, RMS_EPSILON)


def cross_entropy(case: Case, inputs: tuple[Any, ...]) -> Call:
    """torch.nn.functional.cross_entropy, which wants labels of int64."""
    from torch.nn.functional import cross_entropy as losses

    logits, labels = inputs[0], inputs[1].long()
    return lambda: losses(logits, labels, reduction="none")


def grouped_matmul(case: Case, inputs: tuple[Any, ...]) -> Call:
    """torch.nn.functional.grouped_mm, or what it was called before."""
    import torch

    x, w, sizes = inputs
    product = getattr(torch.nn.functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
    if product is None:
        raise NotApplicableError(f"PyTorch {torch.__version__} has no grouped_mm")
    ends = torch.cumsum(sizes, 0, dtype=torch.int32)
    return lambda: product(x, w, offs=ends)


WAYS: dict[str, tuple[str, Way]] = {
    "matmul": ("cuBLAS (torch.mm, torch._scaled_mm)", matmul),
    "attention": ("cuDNN (scaled_dot_product_attention)", cudnn_attention),
    "softmax": ("torch.softmax", softmax),
    "rms_norm": ("torch.nn.functional.rms_norm", rms_norm),
    "cross_entropy": ("torch.nn.functional.cross_entropy", cross_entropy),
    "grouped_matmul": ("torch.nn.functional.grouped_mm", grouped_matmul),
}
