"""jax.nn and whole little programs: activations, norms, losses, gradients and maps of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, nn

from tests.support.values import assert_same, random_values

Apply = Callable[..., Any]

ACTIVATIONS = (
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softplus",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "standardize",
    "swish",
    "tanh",
)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_gradients(elementwise: Apply, name: str) -> None:
    function, x = getattr(nn, name), random_values("float32", (7, 34), scale=2.5)

    def body(v: Any) -> tuple[Any, Any]:
        return function(v), jax.grad(lambda w: (function(w) ** 2).sum())(v)

    with jax.enable_x64(True):
        exact = jax.jit(body)(x.astype(np.float64))
    value, gradient = elementwise(body, x)
    np.testing.assert_allclose(value, exact[0], rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(gradient, exact[1], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_activations_of_narrow_floats(elementwise: Apply, dtype: str) -> None:
    x = random_values(dtype, (5, 40))
    names = ("relu", "gelu", "silu", "softmax", "softplus", "sigmoid")
    results = elementwise(lambda v: tuple(getattr(nn, n)(v) for n in names), x)
    for name, result in zip(names, results, strict=True):
        exact = np.asarray(jax.jit(getattr(nn, name))(x.astype(np.float32)))
        assert np.asarray(result).dtype == x.dtype
        np.testing.assert_allclose(np.asarray(result).astype(np.float32), exact, rtol=3e-2, atol=2e-2, err_msg=name)


def test_one_hot_and_exact_gelu(elementwise: Apply) -> None:
    k = np.array([0, 3, -1, 6, 7, 2], np.int32)
    assert_same(elementwise(lambda i: nn.one_hot(i, 7), k), jax.jit(lambda i: nn.one_hot(i, 7))(k))
    x = random_values("float32", (50,))
    exact = jax.jit(lambda v: nn.gelu(v, approximate=False))(x)
    np.testing.assert_allclose(elementwise(lambda v: nn.gelu(v, approximate=False), x), exact, rtol=1e-5, atol=1e-6)


def test_layer_norm_and_its_gradient(elementwise: Apply) -> None:
    x, scale, bias = (
        random_values("float32", (6, 50)),
        random_values("float32", (50,), 1),
        random_values("float32", (50,), 2),
    )

    def norm(v: Any, s: Any, b: Any) -> Any:
        centred = v - v.mean(axis=-1, keepdims=True)
        return centred * lax.rsqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * s + b

    def body(*arrays: Any) -> tuple[Any, ...]:
        return norm(*arrays), *jax.grad(lambda *a: (norm(*a) ** 3).sum(), argnums=(0, 1, 2))(*arrays)

    with jax.enable_x64(True):
        exact = jax.jit(body)(*(a.astype(np.float64) for a in (x, scale, bias)))
    for result, right in zip(elementwise(body, x, scale, bias), exact, strict=True):
        np.testing.assert_allclose(result, right, rtol=2e-4, atol=1e-4)


def test_cross_entropy_with_integer_labels(elementwise: Apply) -> None:
    logits, labels = random_values("float32", (9, 31)), np.arange(9, dtype=np.int32) * 3

    def loss(v: Any, k: Any) -> Any:
        return -jnp.take_along_axis(nn.log_softmax(v), k[:, None], axis=1).mean()

    value, gradient = elementwise(lambda v, k: jax.value_and_grad(loss)(v, k), logits, labels)
    right = jax.jit(jax.value_and_grad(loss))(logits, labels)
    np.testing.assert_allclose(value, right[0], rtol=1e-5)
    np.testing.assert_allclose(gradient, right[1], rtol=1e-4, atol=1e-6)


GRADIENTS: dict[str, Callable[[Any], Any]] = {
    "cumsum": lambda x: (jnp.cumsum(x, 1) ** 2).sum(),
    "cumprod": lambda x: jnp.cumprod(x, 1).sum(),
    "cummax": lambda x: (lax.cummax(x, 1) * x).sum(),
    "cumlogsumexp": lambda x: (lax.cumlogsumexp(x, 1) ** 2).sum(),
    "prod": lambda x: x.prod(axis=1).sum(),
    "max": lambda x: (x.max(axis=1) ** 2).sum(),
    "norm": lambda x: jnp.linalg.norm(x),
    "roll and pad": lambda x: (jnp.pad(jnp.roll(x, 2, 1), 1) ** 2).sum() * x[0, 0],
    "dynamic slice": lambda x: (lax.dynamic_slice(x, (1, jnp.argmax(x[0])), (2, 3)) ** 2).sum(),
    "fori": lambda x: lax.fori_loop(0, 4, lambda i, a: jnp.sin(a) * x, x).sum(),
    "scan": lambda x: lax.scan(lambda c, y: (c * y + 1, c), x[0], x)[0].sum(),
    "checkpoint": lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x).sum(),
    "special": lambda x: (lax.erf(x) + lax.lgamma(x * x + 1) + lax.digamma(x * x + 1) + lax.erf_inv(x / 9)).sum(),
    "hyperbolic": lambda x: (jnp.tanh(x) * jnp.cosh(x / 3) + jnp.arctan2(x, x + 9) + jnp.arcsinh(x)).sum(),
    "where": lambda x: jnp.where(x > 0, jnp.log1p(jnp.abs(x)), jnp.expm1(x)).sum(),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_taken_inside_a_kernel(elementwise: Apply, name: str) -> None:
    x = random_values("float32", (4, 9))
    body = jax.grad(GRADIENTS[name])
    with jax.enable_x64(True):
        exact = jax.jit(body)(x.astype(np.float64))
    np.testing.assert_allclose(elementwise(body, x), exact, rtol=2e-4, atol=2e-5)


def test_second_derivatives_jvps_and_vjps(elementwise: Apply) -> None:
    x = random_values("float32", (12,))

    def body(v: Any) -> tuple[Any, ...]:
        f: Callable[[Any], Any] = lambda w: jnp.sin(w) ** 3  # noqa: E731
        value, tangent = jax.jvp(f, (v,), (v + 1,))
        return jax.hessian(lambda w: f(w).sum())(v), value, tangent, jax.vjp(f, v)[1](v)[0]

    for result, right in zip(elementwise(body, x), jax.jit(body)(x), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-5)


def test_maps_of_functions(elementwise: Apply) -> None:
    x, y = random_values("float32", (5, 8)), random_values("float32", (5, 8), 1)

    def count_up(row: Any) -> Any:
        return lax.while_loop(lambda c: c[0].sum() < 10, lambda c: (c[0] + 1, c[1] + 1), (row, 0))[1]

    def body(a: Any, b: Any) -> tuple[Any, ...]:
        pairs = jax.vmap(jax.vmap(lambda p, q: jnp.where(p > q, p, q)))(a, b)
        outer = jax.vmap(lambda p: jax.vmap(lambda q: (p - q).max())(b))(a)
        loop = jax.vmap(lambda p: lax.while_loop(lambda c: c[0].sum() < 10, lambda c: (c[0] + 1, c[1] + 1), (p, 0))[1])(
            a
        )
        return pairs, outer, loop, jax.vmap(jnp.sort, in_axes=1, out_axes=1)(a)

    for result, right in zip(elementwise(body, x, y), jax.jit(body)(x, y), strict=True):
        assert_same(result, right)


def test_platform_dependent_takes_cuda_or_the_default(elementwise: Apply) -> None:
    x = random_values("float32", (10,))

    def body(v: Any) -> tuple[Any, Any]:
        cuda = lax.platform_dependent(v, cpu=jnp.sin, cuda=lambda w: w + 1, default=jnp.cos)
        return cuda, lax.platform_dependent(v, tpu=jnp.sin, default=lambda w: w + 2)

    first, second = elementwise(body, x)
    assert_same(first, x + np.float32(1))
    assert_same(second, x + np.float32(2))


def test_custom_derivatives_and_barriers(elementwise: Apply) -> None:
    @jax.custom_vjp
    def clipped(v: Any) -> Any:
        return v * 2

    clipped.defvjp(lambda v: (v * 2, v), lambda v, g: (jnp.clip(g * v, -1, 1),))
    x = random_values("float32", (20,))

    def body(v: Any) -> tuple[Any, Any]:
        held = lax.optimization_barrier((v, v + 1))[1] - lax.stop_gradient(v)
        return jax.grad(lambda w: (clipped(w) * 3).sum())(v), held

    for result, right in zip(elementwise(body, x), jax.jit(body)(x), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-6)
