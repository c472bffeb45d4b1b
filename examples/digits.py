"""Reads handwritten digits with a network whose normalisations and activations are Pallas kernels of ours.

    python examples/digits.py

The network is trained with plain JAX on scikit-learn's digits; then it reads the test images twice, once
with plain JAX and once with the kernels, compiled for Hopper: on the GPU, or on the simulator where there is none.
"""

from __future__ import annotations

import functools
import os
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
from mosaic_gpu.runtime.devices import current_device, device_count

TARGET = "sm_90a"
HIDDEN = 100
TRAINING_STEPS = 300
TRAINING_IMAGES = 1437
BATCH = 120
BLOCK_ROWS = 16
TOLERANCE = 1e-5


class Digits(NamedTuple):
    """Images (count, 64) of pixels 0..16 and their labels (count,), to train with and to test with."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


class Steps(NamedTuple):
    """One thing for each step between the matrix products: plain JAX's functions, ours, or compiled kernels."""

    standardise: Any
    bias_activation: Any
    layer_norm: Any
    softmax: Any


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


def kernel_arguments(weights: dict[str, Any]) -> Steps:
    """The arguments that each step's kernel is compiled for: a batch of images, and the weights."""

    def batch(columns: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((BATCH, columns), jnp.float32)

    return Steps(
        standardise=(batch(64), weights["mean"], weights["deviation"]),
        bias_activation=(batch(HIDDEN), weights["b1"]),
        layer_norm=(batch(HIDDEN), weights["scale"], weights["shift"]),
        softmax=(batch(10),),
    )


def compile_kernels(weights: dict[str, Any], progress: Progress) -> Steps:
    """Each step's kernel, down to its cubin."""
    mosaic_gpu.compile(softmax, jnp.ones((1, 1))).resources  # noqa: B018 (loads the compiler, so that it is timed apart)
    jobs = list(zip(OURS, kernel_arguments(weights), strict=True))
    kernels = []
    for step, arguments in progress.track(jobs, description=f"compiling to {TARGET} cubins"):
        kernels.append(mosaic_gpu.compile(step, *arguments, target=TARGET))
        kernels[-1].resources  # noqa: B018 (makes the cubin)
    return Steps(*kernels)


def count_instructions(kernels: Steps, weights: dict[str, Any], images: np.ndarray) -> list[int]:
    """The instructions that each kernel runs for one batch of `images`, counted once a warp."""
    counts: list[int] = []

    def counted(kernel: mosaic_gpu.CompiledKernel) -> Callable[..., jax.Array]:
        def step(*arrays: jax.Array) -> jax.Array:
            (result,), stats = kernel.simulate(*arrays)
            counts.append(stats.instructions)
            return jnp.asarray(result)

        return step

    probabilities(weights, images, Steps(*map(counted, kernels)))
    return counts


def read_images(
    weights: dict[str, Any], images: np.ndarray, kernels: Steps, progress: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of `images` (a multiple of BATCH, 64): by plain JAX, and by the kernels.

    Those run on the GPU, or inside jax.jit on the simulator where there is none.
    """
    plain, ours = (jax.jit(functools.partial(probabilities, weights, steps=steps)) for steps in (PLAIN, OURS))
    if device_count() > 0:
        ours = functools.partial(probabilities, weights, steps=kernels)
    results = []
    for batch in progress.track(images.reshape(-1, BATCH, 64), description="reading test images"):
        results.append((np.asarray(plain(batch)), np.asarray(ours(batch))))
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))


def kernel_table(kernels: Steps, instructions: list[int]) -> Table:
    """What each kernel cost to compile, takes of the GPU and ran."""
    place = current_device().name if device_count() > 0 else "the simulator"
    table = Table(title=f"kernels: compiled for {TARGET}, run on {place} for a batch of {BATCH} images")
    table.add_column("kernel", no_wrap=True)
    for column in ("compile", "registers", "shared", "spilled", "instructions"):
        table.add_column(column, justify="right")
    for kernel, count in zip(kernels, instructions, strict=True):
        seconds, used = sum(kernel.timings.values()), kernel.resources
        table.add_row(
            kernel.name,
            f"{seconds * 1000:.0f} ms",
            str(used.registers),
            f"{used.shared_bytes + kernel.launch_facts.shared_bytes} B",
            f"{used.spill_bytes} B",
            f"{count:,}",
        )
    return table


def main() -> None:
    """Trains, compiles, reads the test images and reports; fails where the kernels disagree with plain JAX."""
    os.environ["MOSAIC_GPU_CACHE_DIR"] = ""  # nothing from an earlier run: the times below are of real compilations
    jax.config.update("jax_platforms", "cpu")  # plain JAX, and kernels inside it, on the simulator
    console, digits = Console(), read_digits()
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        weights = train(digits, progress)
        kernels = compile_kernels(weights, progress)
        plain, ours = read_images(weights, digits.test_images, kernels, progress)
    console.print(kernel_table(kernels, count_instructions(kernels, weights, digits.test_images[:BATCH])))
    report(console, digits.test_labels, plain, ours)


def report(console: Console, labels: np.ndarray, plain: np.ndarray, ours: np.ndarray) -> None:
    """Prints accuracy and agreement of the two ways; raises SystemExit where they disagree."""
    for name, p in (("plain JAX", plain), ("our kernels", ours)):
        right = int((p.argmax(axis=1) == labels).sum())
        console.print(
            f"accuracy with {name + ':':<13} {right / len(labels):.2%} ({right} of {len(labels)} test images)"
        )
    same, difference = int((plain.argmax(axis=1) == ours.argmax(axis=1)).sum()), float(np.abs(plain - ours).max())
    console.print(
        f"same digit from both: {same} of {len(labels)}; largest difference of a probability: {difference:.1e}"
    )
    if same != len(labels) or not difference < TOLERANCE:
        raise SystemExit(f"the kernels disagree with plain JAX by more than {TOLERANCE}")


if __name__ == "__main__":
    main()
