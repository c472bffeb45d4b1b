"""The kernels of `examples/` as functions of tensors, beside PyTorch's own functions and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mosaic_gpu
from tests.support.examples import example

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def normal(*shape: int, dtype: Any = None) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


def agree(fn: Callable[..., Any], reference: Callable[..., Any], *tensors: Any, wanted: int, tolerance: float) -> None:
    """Values, and the gradients of the first `wanted` tensors."""
    results = []
    for function in (mosaic_gpu.as_torch(fn), reference):
        given = [t.detach().clone().requires_grad_(i < wanted) for i, t in enumerate(tensors)]
        value = function(*given)
        (value * torch.linspace(-1, 2, value.numel()).reshape(value.shape).to(value.dtype)).sum().backward()
        results.append([value.detach(), *(t.grad for t in given[:wanted])])
    torch.testing.assert_close(results[0], results[1], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm(dtype: Any) -> None:
    x, scale = normal(10, 300).to(dtype), normal(300).to(dtype)

    def reference(x: Any, scale: Any) -> Any:
        return torch.nn.functional.rms_norm(x.float(), (300,), scale.float(), 1e-6).to(dtype)

    agree(example("rms_norm").rms_norm, reference, x, scale, wanted=2, tolerance=1e-4)


def test_layer_norm() -> None:
    def reference(x: Any, scale: Any, bias: Any) -> Any:
        return torch.nn.functional.layer_norm(x, (300,), scale, bias, 1e-5)

    agree(
        example("layer_norm").layer_norm,
        reference,
        normal(10, 300),
        normal(300),
        normal(300).flip(0),
        wanted=3,
        tolerance=1e-4,
    )


def test_rotary() -> None:
    module = example("rotary")
    cos, sin = (torch.from_numpy(np.array(a)) for a in module.angles(17, 64))

    def reference(x: Any, cos: Any, sin: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos[:, None] - b * sin[:, None], b * cos[:, None] + a * sin[:, None]], -1)

    agree(module.rotary, reference, normal(2, 17, 3, 64), cos, sin, wanted=1, tolerance=1e-5)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_cross_entropy(dtype: Any) -> None:
    labels = torch.tensor([0, 499, 7, 7, 250], dtype=dtype)

    def reference(logits: Any, labels: Any) -> Any:
        return torch.nn.functional.cross_entropy(logits, labels.long(), reduction="none")

    agree(example("cross_entropy").cross_entropy, reference, normal(5, 500), labels, wanted=1, tolerance=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_heads_that_are_transposed_views(causal: bool) -> None:
    q, k, v = (normal(1, 100, heads, 64, dtype=torch.float32).bfloat16().transpose(1, 2) for heads in (4, 2, 2))
    found = mosaic_gpu.as_torch(example("flash_attention").flash_attention)(q, k, v, causal=causal)
    k, v = (t.float().repeat_interleave(2, dim=1) for t in (k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(q.float(), k, v, is_causal=causal)
    torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_grouped_matmul_takes_the_sizes_of_groups_as_a_tensor(dtype: Any) -> None:
    f = mosaic_gpu.as_torch(example("grouped_matmul").grouped_matmul)
    x, w = normal(128, 96).bfloat16(), normal(3, 96, 64).bfloat16()
    for sizes in ([30, 0, 70], [0, 0, 0], [128, 0, 0]):
        pieces = x.float().split([*sizes, 128 - sum(sizes)])
        expected = torch.cat([*(p @ m.float() for p, m in zip(pieces, w, strict=False)), 0 * pieces[3][:, :64]])
        torch.testing.assert_close(f(x, w, torch.tensor(sizes, dtype=dtype)).float(), expected, rtol=2e-2, atol=2e-1)
    assert len(f._plans) == 1


def test_embedding_and_top_k() -> None:
    table, ids = normal(50, 33), torch.tensor([3, 49, 0, 3])
    assert torch.equal(mosaic_gpu.as_torch(example("embedding").embedding)(table, ids), table[ids])
    values, places = mosaic_gpu.as_torch(example("top_k").top_k)(table, 5)
    expected = table.topk(5)
    assert torch.equal(values, expected.values)
    assert torch.equal(places.long(), expected.indices)
