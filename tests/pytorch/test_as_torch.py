"""Functions that call kernels, called with PyTorch's tensors: values, gradients, compilation, what is refused."""

from __future__ import annotations

import copy
import functools
import gc
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu.errors import KernelError, UnsupportedError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def elementwise(body: Callable[..., Any], name: str, block: int = 4) -> Callable[..., jax.Array]:
    """A kernel that applies `body` to arrays of one shape, whose rows are its blocks; the result is like the first."""

    def call(*arrays: jax.Array) -> jax.Array:
        def kernel(*refs: Any) -> None:
            refs[-1][...] = body(*(r[...] for r in refs[:-1])).astype(refs[-1].dtype)

        m, n = arrays[0].shape
        spec = pl.BlockSpec((block, n), lambda i: (i, 0))
        return pl.pallas_call(
            kernel,
            jax.ShapeDtypeStruct((m, n), arrays[0].dtype),
            grid=(pl.cdiv(m, block),),
            in_specs=[spec] * len(arrays),
            out_specs=spec,
            compiler_params=mosaic_gpu.CompilerParams(),
            name=name,
        )(*arrays)

    return call


plain_cube = elementwise(lambda x: x * x * x, "cube")


@jax.custom_vjp
def cube(x: jax.Array) -> jax.Array:
    return plain_cube(x)


cube.defvjp(lambda x: (cube(x), x), lambda x, g: (elementwise(lambda x, g: 3 * x * x * g, "cube_grad")(x, g),))


@jax.custom_vjp
def exponential(x: jax.Array) -> jax.Array:
    """Keeps its result for the gradient."""
    return elementwise(jnp.exp, "exponential")(x)


def _exponential_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    y = exponential(x)
    return y, y


exponential.defvjp(_exponential_forward, lambda y, g: (elementwise(lambda y, g: y * g, "exponential_grad")(y, g),))


@jax.custom_vjp
def tangent(x: jax.Array) -> jax.Array:
    """Keeps for the gradient what is neither an operand nor a result."""
    return elementwise(jnp.tan, "tangent")(x)


tangent.defvjp(
    lambda x: (tangent(x), 1 / jnp.cos(x)),
    lambda secant, g: (elementwise(lambda s, g: s * s * g, "tangent_grad")(secant, g),),
)


def normal(*shape: int, dtype: Any = None, **options: Any) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype, **options)


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


# Operands


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.T.contiguous().T,
        lambda x: x[::2, 1::3],
        lambda x: x[1:, 1:],
        lambda x: x[:1].expand(9, -1),
        lambda x: x[:, :1].expand(-1, 33),
        lambda x: x[0, 0].expand(5, 7),
        lambda x: torch.complex(x, x).conj().imag,
        lambda x: x[:0],
        lambda x: torch.nn.Parameter(x),
    ],
)
def test_views_of_all_kinds_are_read_as_they_are(view: Callable[[Any], Any]) -> None:
    x = view(normal(16, 40))
    before = x.detach().clone()
    close(mosaic_gpu.as_torch(plain_cube)(x.detach()), before**3)
    assert torch.equal(x.detach(), before)


DTYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
DTYPES += ["float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_keeps_its_width_through_a_kernel(dtype: str) -> None:
    wanted = getattr(torch, dtype)
    x = torch.arange(-9 if wanted.is_signed else 0, 33).reshape(6, 7).to(wanted) if wanted.is_signed else None
    if x is None:
        x = torch.arange(42).reshape(6, 7).to(wanted)
    found = mosaic_gpu.as_torch(elementwise(lambda x: x + x, "double"))(x)
    assert found.dtype is wanted
    close(found.to(torch.float64), 2 * x.to(torch.float64))


def test_integers_of_64_bits_are_not_cut() -> None:
    x = torch.tensor([[2**40 + 1, -(2**62), 2**63 - 1]])
    found = mosaic_gpu.as_torch(lambda x: elementwise(lambda x: x - 1, "less", 1)(x) + 1)(x)
    assert torch.equal(found, x)


@pytest.mark.parametrize("dtype", ["bool", "float8_e4m3fn", "float8_e5m2"])
def test_booleans_and_small_floats_pass_through_a_kernel(dtype: str) -> None:
    x = normal(6, 8).to(getattr(torch, dtype))
    body = jnp.logical_not if dtype == "bool" else (lambda x: x.astype(jnp.float32) * 2)
    found = mosaic_gpu.as_torch(elementwise(body, "small"))(x)
    assert found.dtype is x.dtype
    expected = ~x if dtype == "bool" else (x.to(torch.float32) * 2).to(x.dtype)
    assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


def test_an_aliased_operand_is_not_changed() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, :] = x_ref[0, :] + 1

    call = pl.pallas_call(
        kernel,
        jax.ShapeDtypeStruct((3, 8), jnp.float32),
        input_output_aliases={0: 0},
        compiler_params=mosaic_gpu.CompilerParams(),
    )
    x = normal(3, 8)
    before = x.clone()
    found = mosaic_gpu.as_torch(call)(x)
    assert torch.equal(x, before)
    assert torch.equal(found, torch.cat([before[:1] + 1, before[1:]]))


def test_results_have_memory_of_their_own() -> None:
    table = jnp.arange(4.0)
    f = mosaic_gpu.as_torch(lambda x: (x, x.T, x, x[0], table, jnp.zeros(3)))
    x = normal(2, 4)
    for _ in range(2):
        results = f(x)
        close(results[4], torch.arange(4.0))
        close(results[5], torch.zeros(3))
        assert len({r.data_ptr() for r in (x, *results)}) == 7
        assert all(r.is_contiguous() for r in results)
        for r in results:
            r.add_(1)
    close(x, normal(2, 4))


class Pair(NamedTuple):
    left: Any
    right: Any


def test_trees_of_tensors_and_static_values_pass_as_in_jax() -> None:
    def fn(tree: Any, scale: float, *, mode: str, nothing: Any = None, flag: bool = False) -> Any:
        assert nothing is None
        a, b = tree["pair"]
        total = plain_cube(a) * scale + tree["list"][0]
        return {"sum": total if mode == "sum" else -total, "pair": Pair(a, [b + flag]), "none": None}

    a, b, c = normal(4, 8), torch.tensor([1, 2]), normal(4, 8)
    f = mosaic_gpu.as_torch(fn)
    for scale, mode, flag in ((2, "sum", True), (2.0, "sum", False), (0.5, "other", False)):
        found = f({"pair": Pair(a, b), "list": [c]}, scale, mode=mode, flag=flag)
        close(found["sum"], (a**3 * scale + c) * (1 if mode == "sum" else -1))
        assert isinstance(found["pair"], Pair)
        assert torch.equal(found["pair"].right[0], b + flag)
        assert found["none"] is None


def test_a_bound_of_the_grid_may_be_a_tensor() -> None:
    def rows(x: jax.Array, n: jax.Array) -> jax.Array:
        def kernel(x_ref: Any, zeros_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] + 1

        spec = pl.BlockSpec((1, 8), lambda i: (i, 0))
        return pl.pallas_call(
            kernel,
            jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(n,),
            in_specs=[spec, spec],
            out_specs=spec,
            input_output_aliases={1: 0},
            compiler_params=mosaic_gpu.CompilerParams(),
        )(x, jnp.zeros_like(x))

    x = normal(6, 8)
    f = mosaic_gpu.as_torch(rows)
    for dtype in (torch.int32, torch.uint8, torch.int64):
        for n in (0, 2, 6):
            found = f(x, torch.tensor(n, dtype=dtype))
            close(found, torch.cat([x[:n] + 1, torch.zeros(6 - n, 8)]))
    assert len(f._plans) == 3


def test_vmap_and_jit_and_scan_inside_of_the_function_work() -> None:
    x = normal(3, 4, 8)
    close(mosaic_gpu.as_torch(jax.vmap(plain_cube))(x), x**3)
    close(mosaic_gpu.as_torch(jax.jit(lambda x: plain_cube(x) + 1))(x[0]), x[0] ** 3 + 1)
    scanned = mosaic_gpu.as_torch(lambda x: jax.lax.scan(lambda c, r: (c + plain_cube(r), r), x[0], x)[0])
    close(scanned(x), x[0] + (x**3).sum(0))


def test_a_compiled_kernel_runs_on_the_tensors_it_was_compiled_for() -> None:
    x = normal(6, 8)
    kernel = mosaic_gpu.compile(plain_cube, jax.ShapeDtypeStruct((6, 8), jnp.float32))
    f = mosaic_gpu.as_torch(kernel)
    close(f(x), x**3)
    close(torch.compile(f, fullgraph=True, backend="aot_eager")(x), x**3)
    with pytest.raises(KernelError, match=r"do not fit kernel 'cube'\n  got: \['float32\[5, 8\]'\]"):
        f(x[1:])
    with pytest.raises(UnsupportedError, match="the compiled kernel 'cube' has no derivative"):
        f(x.requires_grad_()).sum().backward()


# Gradients


def gradients(fn: Callable[..., Any], *tensors: Any, weights: Any = None) -> list[Any]:
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors]
    result = fn(*leaves)
    (result * (1.0 if weights is None else weights)).sum().backward()
    return [t.grad for t in leaves if t.requires_grad]


@pytest.mark.parametrize(
    ("fn", "reference"),
    [(cube, lambda x: x**3), (exponential, torch.exp), (tangent, torch.tan)],
    ids=["operand", "result", "else"],
)
def test_gradients_are_those_of_pytorch_whatever_the_kernel_keeps(fn: Any, reference: Any) -> None:
    x, w = normal(5, 8), normal(8, 5).T
    close(gradients(mosaic_gpu.as_torch(fn), x, weights=w), gradients(reference, x, weights=w), 1e-4)


@pytest.mark.parametrize("fn", [cube, exponential, tangent], ids=["operand", "result", "else"])
def test_gradcheck_passes_in_float64(fn: Any) -> None:
    x = normal(2, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(mosaic_gpu.as_torch(fn), (x,))


def test_second_derivatives_go_through_kernels_that_have_them() -> None:
    cube_grad = jax.custom_vjp(lambda x, g: elementwise(lambda x, g: 3 * x * x * g, "once")(x, g))
    cube_grad.defvjp(
        lambda x, g: (cube_grad(x, g), (x, g)),
        lambda kept, h: (6 * kept[0] * kept[1] * h, 3 * kept[0] ** 2 * h),
    )
    twice = jax.custom_vjp(plain_cube)
    twice.defvjp(lambda x: (plain_cube(x), x), lambda x, g: (cube_grad(x, g),))
    x = normal(2, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradgradcheck(mosaic_gpu.as_torch(twice), (x,))


def second(fn: Any) -> None:
    x = normal(2, 3).requires_grad_()
    (first,) = torch.autograd.grad(mosaic_gpu.as_torch(fn)(x).sum(), x, create_graph=True)
    first.sum().backward()


def test_second_derivatives_that_are_not_there_are_named() -> None:
    with pytest.raises(UnsupportedError, match="kernel 'cube_grad' has no derivative") as caught:
        second(cube)
    assert caught.value.source is not None
    assert caught.value.source.file == __file__
    with pytest.raises(UnsupportedError, match="no second derivative of 'tangent'"):
        second(tangent)
    x = normal(2, 3)
    with pytest.raises(UnsupportedError, match="no second derivative of 'tangent'"):
        torch.func.grad(lambda x: torch.func.grad(lambda x: mosaic_gpu.as_torch(tangent)(x).sum())(x).sum())(x)


def test_only_the_wanted_gradients_are_computed() -> None:
    product = jax.custom_vjp(lambda x, y: elementwise(lambda x, y: x * y, "product")(x, y))

    def backward(kept: Any, g: Any) -> Any:
        return elementwise(lambda y, g: y * g, "for_x")(kept[1], g), elementwise(lambda x, g: x * g, "for_y")(
            kept[0], g
        )

    product.defvjp(lambda x, y: (product(x, y), (x, y)), backward)
    f = mosaic_gpu.as_torch(product)
    x, y = normal(4, 8), normal(4, 8).flip(0).requires_grad_()
    f(x, y).sum().backward()
    close(y.grad, x)
    assert x.grad is None
    ((plan, _),) = f._plans.values()
    steps = plan.gradient((False, True)).backward.code.steps
    assert [s.equation.params["name"] for s in steps if s.equation.name == "pallas_call"] == ["for_y"]


def test_integer_operands_and_results_have_no_gradient() -> None:
    def fn(x: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        y = cube(x)
        return y[i], jnp.argmax(y, axis=1), y.sum()

    x, i = normal(4, 8).requires_grad_(), torch.tensor([2, 0], dtype=torch.int32)
    rows, places, total = mosaic_gpu.as_torch(fn)(x, i)
    assert rows.requires_grad
    assert total.requires_grad
    assert not places.requires_grad
    (rows.sum() + 2 * total).backward()
    weights = torch.tensor([3.0, 2.0, 3.0, 2.0])[:, None]
    close(x.grad, 3 * x.detach() ** 2 * weights)


def test_a_result_that_is_not_used_counts_as_zero() -> None:
    x = normal(4, 8).requires_grad_()
    _, second = mosaic_gpu.as_torch(lambda x: (exponential(x), cube(x)))(x)
    second.sum().backward()
    close(x.grad, 3 * x.detach() ** 2)


def test_no_gradient_is_kept_where_none_is_asked_for() -> None:
    f, x = mosaic_gpu.as_torch(plain_cube), normal(4, 8).requires_grad_()
    with torch.no_grad():
        assert not f(x).requires_grad
    with torch.inference_mode():
        assert f(x).is_inference()


def test_a_kernel_without_derivative_gives_values_and_refuses_to_go_back() -> None:
    x = normal(4, 8).requires_grad_()
    y = mosaic_gpu.as_torch(lambda x: plain_cube(x) * 2)(x)
    close(y.detach(), 2 * x.detach() ** 3)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="kernel 'cube' has no derivative") as caught:
            y.sum().backward(retain_graph=True)
    assert "jax.custom_vjp" in str(caught.value)
    assert caught.value.source is not None
    assert caught.value.source.function == "elementwise.<locals>.call"
    assert x.grad is None


def test_a_loop_that_jax_cannot_go_back_through_is_named() -> None:
    x = normal(4, 8).requires_grad_()
    y = mosaic_gpu.as_torch(lambda x: jax.lax.while_loop(lambda v: v.max() < 9, lambda v: v * 2, cube(x)))(x)
    with pytest.raises(UnsupportedError, match="JAX cannot differentiate '<lambda>': Reverse-mode"):
        y.sum().backward()


def test_a_gradient_that_is_stopped_is_zero_and_no_error() -> None:
    x = normal(4, 8).requires_grad_()
    y = mosaic_gpu.as_torch(lambda x: plain_cube(jax.lax.stop_gradient(x)) * x)(x)
    y.sum().backward()
    close(x.grad, x.detach() ** 3)


def test_changing_a_kept_tensor_in_place_is_pytorchs_error() -> None:
    x = normal(4, 8).requires_grad_()
    scaled = x * 1
    y = mosaic_gpu.as_torch(cube)(scaled)
    scaled.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_gradients_flow_where_the_function_is_gone() -> None:
    x = normal(4, 8).requires_grad_()
    y = mosaic_gpu.as_torch(cube)(x)
    gc.collect()
    y.sum().backward()
    close(x.grad, 3 * x.detach() ** 2)


# torch.compile and other transforms


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_graphs_hold_the_kernels_and_their_gradients(backend: str) -> None:
    torch._dynamo.reset()
    f = mosaic_gpu.as_torch(lambda tree, scale: {"y": tangent(tree["x"]) * scale, "z": (cube(tree["x"]),)})

    def model(x: Any, scale: float) -> Any:
        found = f({"x": x * 2}, scale)
        return found["y"].sin() + found["z"][0]

    def reference(x: Any, scale: float) -> Any:
        return (torch.tan(x * 2) * scale).sin() + (x * 2) ** 3

    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for rows, scale in ((4, 1.5), (4, 0.5), (7, 0.5), (9, 2.0)):
        x = 0.3 * normal(rows, 8)
        close(compiled(x, scale), reference(x, scale), 1e-4)
        found = gradients(functools.partial(compiled, scale=scale), x)
        close(found, gradients(functools.partial(reference, scale=scale), x), 1e-4)


def test_a_missing_derivative_does_not_stop_a_compiled_forward_pass() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(mosaic_gpu.as_torch(plain_cube), fullgraph=True, backend="aot_eager")
    x = normal(4, 8).requires_grad_()
    y = compiled(x)
    close(y.detach(), x.detach() ** 3)
    with pytest.raises(UnsupportedError, match="kernel 'cube' has no derivative"):
        y.sum().backward()


def test_errors_keep_their_words_inside_of_compiled_functions() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(mosaic_gpu.as_torch(plain_cube), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"tensor 0 has dtype torch\.complex64"):
        compiled(torch.zeros(2, 2, dtype=torch.complex64))


@pytest.mark.parametrize("fn", [plain_cube, exponential, tangent])
def test_the_operator_passes_pytorchs_own_checks(fn: Any) -> None:
    f = mosaic_gpu.as_torch(fn)
    x = 0.5 * normal(4, 8)
    f(x)
    ((plan, _),) = f._plans.values()
    torch.library.opcheck(torch.ops.mosaic_gpu.run.default, (plan.key, [x]))
    if fn is not plain_cube:
        torch.library.opcheck(torch.ops.mosaic_gpu.run.default, (plan.key, [x.requires_grad_()]))


def test_transforms_of_torch_func_go_through_kernels() -> None:
    f, x = mosaic_gpu.as_torch(tangent), 0.5 * normal(3, 4, 8)
    close(torch.func.vmap(f)(x), torch.tan(x))
    close(torch.func.vmap(f, in_dims=1, out_dims=1)(x), torch.tan(x))
    expected = 1 / torch.cos(x) ** 2
    close(torch.func.grad(lambda x: f(x).sum())(x[0]), expected[0], 1e-4)
    close(torch.func.vmap(torch.func.grad(lambda x: f(x).sum()))(x), expected, 1e-4)
    close(torch.func.grad(lambda x: torch.func.vmap(f)(x).sum())(x), expected, 1e-4)
    with pytest.raises(UnsupportedError, match="no forward-mode derivative of 'tangent'"):
        torch.func.jvp(f, (x[0],), (x[0],))


def test_activation_checkpointing_runs_the_kernel_again() -> None:
    x = normal(4, 8)
    f = mosaic_gpu.as_torch(cube)
    found = gradients(lambda x: torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False), x)
    close(found, [3 * x**2])


# Caches and threads


def test_a_function_is_traced_once_for_each_set_of_types() -> None:
    traced = []

    def fn(x: jax.Array, n: Any) -> jax.Array:
        traced.append(x.shape)
        return plain_cube(x) * n

    f = mosaic_gpu.as_torch(fn)
    for _ in range(3):
        f(normal(4, 8), 2)
        f(normal(5, 8), math.nan)
        f(normal(5, 8).T.contiguous().T, 2)
    assert traced == [(4, 8), (5, 8), (5, 8)]
    assert len(f._plans) == 3
    assert f(normal(4, 8), 1).dtype is f(normal(4, 8), True).dtype
    assert len(f._plans) == 5


def test_plans_go_with_their_function() -> None:
    f = mosaic_gpu.as_torch(cube)
    f(normal(4, 8).requires_grad_()).sum().backward()
    ((plan, _),) = f._plans.values()
    watched = [weakref.ref(plan), weakref.ref(plan.gradient((True,)).backward)]
    del f, plan
    gc.collect()
    assert [w() for w in watched] == [None, None]


def test_threads_may_call_one_function() -> None:
    f, results = mosaic_gpu.as_torch(lambda x: cube(x) + 1), {}

    def work(number: int) -> None:
        x = normal(4 + number % 2, 8).requires_grad_()
        y = f(x)
        y.sum().backward()
        results[number] = (y.detach(), x.detach(), x.grad)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    for y, x, grad in results.values():
        close(y, x**3 + 1)
        close(grad, 3 * x**2)
    assert len(f._plans) == 2


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cube = as_torch_cube

    def forward(self, x: Any) -> Any:
        return self.cube(x)


as_torch_cube = mosaic_gpu.as_torch(plain_cube)


def test_modules_with_a_kernel_are_copied_and_exported() -> None:
    x, module = normal(4, 8), Module()
    module(x)
    close(copy.deepcopy(module)(x), x**3)
    close(torch.export.export(module, (x,)).module()(x), x**3)
    close(torch.jit.trace(module, (x,))(x + 1), (x + 1) ** 3)


def test_a_key_of_another_process_is_refused_by_name() -> None:
    with pytest.raises(KernelError, match=r"function 'gone.00000000.7' of as_torch is not known"):
        torch.ops.mosaic_gpu.run.default("gone.00000000.7/1", [normal(2, 2)])


# What is refused


REFUSED: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda f: f(torch.zeros(2, 2, dtype=torch.complex64)), UnsupportedError, "tensor 0 has dtype torch.complex64"),
    (lambda f: f(torch.zeros(2, 2).to_sparse()), UnsupportedError, "tensor 0 has layout torch.sparse_coo"),
    (lambda f: f(torch.zeros(2, 2, device="meta")), UnsupportedError, "do not run on device 'meta'"),
    (
        lambda f: f(torch.quantize_per_tensor(torch.zeros(2, 2), 0.1, 0, torch.qint8)),
        UnsupportedError,
        "tensor 0 has dtype torch.qint8",
    ),
    (lambda f: f(torch.zeros(2, 2), torch.zeros(2, 2, device="meta")), KernelError, "on different devices"),
    (lambda f: f(np.zeros((2, 2), np.float32)), KernelError, "an argument is a numpy.ndarray"),
    (lambda f: f(jnp.zeros((2, 2))), KernelError, "an argument is a jax"),
    (lambda f: f(3.0), KernelError, "called without a tensor"),
    (lambda f: f(torch.zeros(2, 2), {1, 2}), KernelError, "an argument is a builtins.set"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED, ids=[words for *_, words in REFUSED])
def test_what_no_kernel_can_take_is_refused_by_name(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(mosaic_gpu.as_torch(lambda x, *_: plain_cube(x)))


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(KernelError, match="as_torch is for functions"):
        mosaic_gpu.as_torch(3)  # type: ignore[arg-type]


def test_a_primitive_without_rule_is_refused_with_the_line_before_anything_runs() -> None:
    def fn(x: jax.Array) -> jax.Array:
        y = plain_cube(x)
        return jnp.linalg.cholesky(y)

    with pytest.raises(UnsupportedError, match="no rule for JAX's primitive 'cholesky'") as caught:
        mosaic_gpu.as_torch(fn)(normal(4, 4))
    assert caught.value.source is not None
    assert (caught.value.source.file, caught.value.source.function) == (
        __file__,
        "test_a_primitive_without_rule_is_refused_with_the_line_before_anything_runs.<locals>.fn",
    )


def test_dtypes_that_pytorch_does_not_have_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no tensors of dtype complex64"):
        mosaic_gpu.as_torch(lambda x: jnp.abs(x + 1j))(normal(4, 4))


def test_results_that_are_no_arrays_are_refused() -> None:
    with pytest.raises(KernelError, match="gives a str"):
        mosaic_gpu.as_torch(lambda x: (x, "name"))(normal(4, 4))


def test_a_wrong_kernel_is_refused_with_its_line() -> None:
    call = elementwise(lambda x: jnp.fft.fft(x).real, "wrong")
    with pytest.raises(UnsupportedError, match="complex64") as caught:
        mosaic_gpu.as_torch(call)(normal(4, 8))
    assert caught.value.source is not None


def test_a_tensor_of_numpys_memory_is_not_written_to() -> None:
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    close(mosaic_gpu.as_torch(plain_cube)(torch.from_numpy(x)), torch.from_numpy(x.copy()) ** 3)
    assert np.array_equal(x, np.arange(32).reshape(4, 8))
