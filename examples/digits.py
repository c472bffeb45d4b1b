"""Reads handwritten digits with a network whose normalisations and activations are Pallas kernels of ours.

    python examples/digits.py

The network is trained with plain JAX on scikit-learn's digits; then it reads the test images twice, once
with plain JAX and once with the kernels, compiled for Hopper and run on the simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from layer_norm import layer_norm, layer_norm_reference
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits
from softmax import softmax

import mosaic_gpu

TARGET = "sm_90a"
HIDDEN = 100
TRAINING_STEPS = 300
TRAINING_IMAGES = 1437
BATCH = 120
BLOCK_ROWS = 16


class Digits(NamedTuple):
    """Images (count, 64) of pixels 0..16 and their labels (count,), to train with and to test with."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


class Steps(NamedTuple):
    """The steps between the matrix products: plain JAX's or ours."""

    standardise: Callable[..., jax.Array]
    bias_activation: Callable[..., jax.Array]
    layer_norm: Callable[..., jax.Array]
    softmax: Callable[..., jax.Array]


def standardise_kernel(x_ref, mean_ref, deviation_ref, o_ref):
    """Each column to mean 0 and deviation 1; a column without any deviation becomes 0."""
    deviation = deviation_ref[...]
    safe = jnp.where(deviation > 0, deviation, 1.0)
    o_ref[...] = jnp.where(deviation > 0, (x_ref[...] - mean_ref[...]) / safe, 0.0)


def bias_activation_kernel(x_ref, bias_ref, o_ref):
    """gelu(x + bias)."""
    o_ref[...] = jax.nn.gelu(x_ref[...] + bias_ref[...])


def by_rows(kernel: Callable[..., None], x: jax.Array, *columns: jax.Array) -> jax.Array:
    """Runs `kernel` on blocks of the rows of `x` (m, n), each with all of `columns` (n,)."""
    m, n = x.shape
    block = pl.BlockSpec((BLOCK_ROWS, n), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(m, BLOCK_ROWS),),
        in_specs=[block, *(pl.BlockSpec((n,), lambda i: (0,)) for _ in columns)],
        out_specs=block,
        compiler_params=mosaic_gpu.CompilerParams(),
        name=kernel.__name__.removesuffix("_kernel"),
    )(x, *columns)


def standardise(x: jax.Array, mean: jax.Array, deviation: jax.Array) -> jax.Array:
    """The columns of `x` (m, n) with `mean` (n,) taken away, in units of `deviation` (n,)."""
    return by_rows(standardise_kernel, x, mean, deviation)


def bias_activation(x: jax.Array, bias: jax.Array) -> jax.Array:
    """gelu(x + bias) for `x` (m, n) and `bias` (n,)."""
    return by_rows(bias_activation_kernel, x, bias)


OURS = Steps(standardise, bias_activation, layer_norm, softmax)
PLAIN = Steps(
    standardise=lambda x, mean, deviation: jnp.where(deviation > 0, (x - mean) / jnp.maximum(deviation, 1e-6), 0.0),
    bias_activation=lambda x, bias: jax.nn.gelu(x + bias),
    layer_norm=layer_norm_reference,
    softmax=lambda x: jax.nn.softmax(x, axis=-1),
)


def probabilities(weights: dict[str, Any], images: jax.Array, steps: Steps) -> jax.Array:
    """The network: the probabilities (count, 10) of each digit for `images` (count, 64)."""
    x = steps.standardise(images, weights["mean"], weights["deviation"])
    x = steps.bias_activation(x @ weights["w1"], weights["b1"])
    x = steps.layer_norm(x, weights["scale"], weights["shift"])
    return steps.softmax(x @ weights["w2"] + weights["b2"])


def read_digits() -> Digits:
    """The data set in a fixed random order, the last 360 images to test with."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images, labels = data.data[order].astype(np.float32), data.target[order]
    cut = TRAINING_IMAGES
    return Digits(images[:cut], labels[:cut], images[cut:], labels[cut:])


def initial_weights(digits: Digits) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is learned, at its start, and what the training images tell: mean and deviation of each pixel."""
    rng = np.random.default_rng(1)
    learned = {
        "w1": jnp.asarray(rng.normal(size=(64, HIDDEN)) / 8, jnp.float32),
        "b1": jnp.zeros(HIDDEN),
        "scale": jnp.ones(HIDDEN),
        "shift": jnp.zeros(HIDDEN),
        "w2": jnp.asarray(rng.normal(size=(HIDDEN, 10)) / 10, jnp.float32),
        "b2": jnp.zeros(10),
    }
    images = digits.train_images
    return learned, {"mean": jnp.asarray(images.mean(axis=0)), "deviation": jnp.asarray(images.std(axis=0))}


def train(digits: Digits, progress: Progress) -> dict[str, Any]:
    """The network's weights after gradient descent with momentum on all training images, in plain JAX."""
    learned, fixed = initial_weights(digits)
    images, labels = jnp.asarray(digits.train_images), jnp.asarray(digits.train_labels)

    def loss(learned: dict[str, Any]) -> jax.Array:
        p = probabilities(learned | fixed, images, PLAIN)
        return -jnp.log(p[jnp.arange(len(labels)), labels] + 1e-9).mean()

    @jax.jit
    def step(learned: dict[str, Any], speed: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        speed = jax.tree.map(lambda v, g: 0.9 * v - 0.05 * g, speed, jax.grad(loss)(learned))
        return jax.tree.map(jnp.add, learned, speed), speed

    speed = jax.tree.map(jnp.zeros_like, learned)
    for _ in progress.track(range(TRAINING_STEPS), description="training in plain JAX"):
        learned, speed = step(learned, speed)
    return learned | fixed


def kernel_arguments(weights: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The shapes each kernel is compiled for, by the name of its step."""

    def array(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    return {
        "standardise": (array(BATCH, 64), weights["mean"], weights["deviation"]),
        "bias_activation": (array(BATCH, HIDDEN), weights["b1"]),
        "layer_norm": (array(BATCH, HIDDEN), weights["scale"], weights["shift"]),
        "softmax": (array(BATCH, 10),),
    }
