"""Random numbers made inside a kernel: the same bits as outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from mosaic_gpu.errors import UnsupportedError
from tests.support.values import assert_same

Apply = Callable[..., Any]
WORDS = np.array([123, 456], np.uint32)


def of_key(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`function` of a typed key, as a function of the key's words."""
    return lambda words: function(random.wrap_key_data(words))


EXACT: dict[str, Callable[[Any], Any]] = {
    "bits": lambda k: random.bits(k, (5, 33)),
    "8 bits": lambda k: random.bits(k, (70,), jnp.uint8),
    "16 bits": lambda k: random.bits(k, (70,), jnp.uint16),
    "a scalar": lambda k: random.bits(k),
    "uniform": lambda k: random.uniform(k, (100,)),
    "uniform bf16": lambda k: random.uniform(k, (100,), jnp.bfloat16),
    "uniform f16": lambda k: random.uniform(k, (100,), jnp.float16),
    "randint": lambda k: random.randint(k, (50,), -7, 1000),
    "randint uint8": lambda k: random.randint(k, (50,), 0, 200, jnp.uint8),
    "bernoulli": lambda k: random.bernoulli(k, 0.3, (64,)),
    "rademacher": lambda k: random.rademacher(k, (64,)),
    "permutation": lambda k: random.permutation(k, 37),
    "shuffled rows": lambda k: random.permutation(k, jnp.arange(24.0).reshape(8, 3)),
    "choice": lambda k: random.choice(k, 20, (5,), replace=False),
    "split": lambda k: random.key_data(random.split(k, (2, 3))),
    "unpacked split": lambda k: tuple(random.uniform(q, (4,)) for q in random.split(k, 3)),
    "indexed split": lambda k: random.uniform(random.split(k, 5)[3], (4,)),
    "fold in": lambda k: random.bits(random.fold_in(k, 77), (9,)),
    "mapped": lambda k: jax.vmap(lambda q: random.uniform(q, (6,)))(random.split(k, 4)),
    "clone": lambda k: random.bits(random.clone(k), (3,)),
}


@pytest.mark.parametrize("name", EXACT)
def test_the_bits_are_those_of_jax(elementwise: Apply, name: str) -> None:
    function = of_key(EXACT[name])
    expected, result = jax.jit(function)(WORDS), elementwise(function, WORDS)
    for one, right in zip(*((v if isinstance(v, tuple) else (v,)) for v in (result, expected)), strict=True):
        assert_same(one, right)


def test_64_bit_numbers_and_seeds(elementwise: Apply) -> None:
    with jax.enable_x64(True):
        for function in (lambda k: random.bits(k, (20,), jnp.uint64), lambda k: random.uniform(k, (20,), jnp.float64)):
            assert_same(elementwise(of_key(function), WORDS), jax.jit(of_key(function))(WORDS))
        seed = np.int64(2**40 + 12345)
        assert_same(elementwise(lambda s: random.key_data(random.key(s)), seed), random.key_data(random.key(seed)))


@pytest.mark.parametrize("make", [random.key, random.PRNGKey])
def test_keys_are_made_from_a_seed_inside(elementwise: Apply, make: Callable[..., Any]) -> None:
    def body(seed: Any) -> Any:
        return random.uniform(make(seed), (12,))

    assert_same(elementwise(body, np.int32(42)), body(np.int32(42)))


def test_old_style_keys(elementwise: Apply) -> None:
    def body(words: Any) -> tuple[Any, ...]:
        first, second = random.split(words)
        return first, random.uniform(second, (9,)), random.fold_in(words, 3)

    for result, right in zip(elementwise(body, WORDS), body(jnp.asarray(WORDS)), strict=True):
        assert_same(result, right)


def test_a_loop_carries_a_key(elementwise: Apply) -> None:
    def body(words: Any) -> Any:
        def step(_: Any, carried: Any) -> Any:
            key, total = carried
            key, use = random.split(key)
            return key, total + random.uniform(use, (16,))

        return jax.lax.fori_loop(0, 5, step, (random.wrap_key_data(words), jnp.zeros((16,))))[1]

    assert_same(elementwise(body, WORDS), jax.jit(body)(WORDS))


NEAR: dict[str, Callable[[Any], Any]] = {
    "uniform in a range": lambda k: random.uniform(k, (3, 7), minval=-2.0, maxval=5.0),
    "normal": lambda k: random.normal(k, (200,)),
    "normal bf16": lambda k: random.normal(k, (50,), jnp.bfloat16).astype(jnp.float32),
    "exponential": lambda k: random.exponential(k, (64,)),
    "gumbel": lambda k: random.gumbel(k, (64,)),
    "laplace": lambda k: random.laplace(k, (64,)),
    "logistic": lambda k: random.logistic(k, (64,)),
    "cauchy": lambda k: random.cauchy(k, (64,)),
    "truncated normal": lambda k: random.truncated_normal(k, -1.0, 2.0, (64,)),
    "gamma": lambda k: random.gamma(k, 2.5, (12,)),
    "beta": lambda k: random.beta(k, 2.0, 3.0, (12,)),
    "dirichlet": lambda k: random.dirichlet(k, jnp.ones((5,))),
}


@pytest.mark.parametrize("name", NEAR)
def test_distributions_agree_within_rounding(elementwise: Apply, name: str) -> None:
    function = of_key(NEAR[name])
    rtol = 1e-2 if "bf16" in name else 2e-4
    np.testing.assert_allclose(elementwise(function, WORDS), jax.jit(function)(WORDS), rtol=rtol, atol=1e-5)


def test_categorical_draws_the_same_classes(elementwise: Apply) -> None:
    function = of_key(lambda k: random.categorical(k, jnp.broadcast_to(jnp.log(jnp.arange(1.0, 17.0)), (40, 16))))
    assert_same(elementwise(function, WORDS), jax.jit(function)(WORDS))


def test_other_generators_are_refused_by_name(elementwise: Apply) -> None:
    with pytest.raises(UnsupportedError, match="rng_bit_generator"):
        elementwise(lambda w: random.bits(random.wrap_key_data(w, impl="rbg"), (4,)), np.arange(4, dtype=np.uint32))
