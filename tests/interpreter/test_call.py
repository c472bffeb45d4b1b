"""How kernels get to the interpreter: `interpret=`, `mosaic_gpu.interpret`, `install`; grids, scalar operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu
from mosaic_gpu import InterpretParams, KernelError, SimulationError, UnsupportedError
from mosaic_gpu.interpreter import install

X = np.random.default_rng(0).integers(-50, 50, (12, 32)).astype(np.float32)
LIKE_X = jax.ShapeDtypeStruct(X.shape, X.dtype)


def double(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = 2 * x_ref[...]


@pytest.fixture
def installed() -> Iterator[None]:
    mosaic_gpu.install()
    yield
    install.uninstall()


@pytest.mark.parametrize("make", [pl.pallas_call, mosaic_gpu.pallas_call])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_a_kernel_with_our_params_runs_in_the_interpreter(make: Any, wrap: Any) -> None:
    events: list[Any] = []
    params = InterpretParams(on_event=events.append)
    np.testing.assert_array_equal(wrap(make(double, LIKE_X, interpret=params))(X), 2 * X)
    assert {e.kind for e in events} == {"block", "read", "write"}


def test_a_kernel_is_interpreted_whoevers_compiler_params_it_has() -> None:
    call = pl.pallas_call(double, LIKE_X, interpret=InterpretParams(), compiler_params=plgpu.CompilerParams())
    np.testing.assert_array_equal(call(X), 2 * X)


def test_interpret_runs_all_of_a_function_without_xla() -> None:
    def function(x: Any) -> Any:
        y = jnp.sin(mosaic_gpu.pallas_call(double, LIKE_X)(x))
        return {"y": y, "sum": jnp.sum(y, 0)}

    found = mosaic_gpu.interpret(function, X)
    np.testing.assert_allclose(found["y"], np.sin(2 * X), rtol=1e-5)
    np.testing.assert_allclose(found["sum"], np.sin(2 * X).sum(0), rtol=1e-4, atol=1e-5)


def test_under_vmap_and_scan() -> None:
    call = pl.pallas_call(double, jax.ShapeDtypeStruct((32,), X.dtype), interpret=InterpretParams())
    np.testing.assert_array_equal(jax.vmap(call)(X), 2 * X)
    np.testing.assert_array_equal(lax.scan(lambda c, x: (c, call(x)), 0, X)[1], 2 * X)
    np.testing.assert_array_equal(mosaic_gpu.interpret(jax.vmap(call), X), 2 * X)


def mesh_kernel(x_ref: Any, o_ref: Any, smem: Any, barrier: Any) -> None:
    plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
    plgpu.barrier_wait(barrier)
    o_ref[...] = smem[...]


def on_mesh(interpret: Any, body: Callable[..., None] = mesh_kernel) -> Any:
    scratch = [plgpu.SMEM(X.shape, X.dtype), plgpu.Barrier()]
    return plgpu.kernel(body, out_type=LIKE_X, scratch_types=scratch, interpret=interpret)(X)


def test_a_kernel_over_a_mesh_runs_in_the_interpreter() -> None:
    np.testing.assert_array_equal(on_mesh(InterpretParams()), X)


def test_installed_it_takes_jaxs_own_params(installed: None, capsys: pytest.CaptureFixture[str]) -> None:
    from jax._src.pallas.mosaic.interpret.params import LoggingMode

    np.testing.assert_array_equal(on_mesh(plgpu.InterpretGPUParams(logging_mode=LoggingMode(0))), X)
    assert "block (): wait barrier" in capsys.readouterr().out


def test_installed_it_keeps_what_jaxs_params_say(installed: None) -> None:
    def no_wait(x_ref: Any, o_ref: Any, smem: Any, barrier: Any) -> None:
        smem[...] = x_ref[...]
        plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
        o_ref[...] = smem[...]
        plgpu.barrier_wait(barrier)

    np.testing.assert_array_equal(on_mesh(plgpu.InterpretGPUParams(), no_wait), X)
    with pytest.raises(jax.errors.JaxRuntimeError, match="a wait is missing"):
        jax.block_until_ready(on_mesh(plgpu.InterpretGPUParams(detect_races=True), no_wait))


def test_what_is_not_supported_is_refused_before_anything_runs() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = lax.conv(x_ref[...][None, None], x_ref[...][None, None], (1, 1), "SAME")[0, 0]

    with pytest.raises(UnsupportedError, match="does not know the primitive 'conv_general_dilated'") as caught:
        pl.pallas_call(body, LIKE_X, interpret=InterpretParams())(X)
    assert caught.value.source is not None
    assert caught.value.source.line == body.__code__.co_firstlineno + 1


def test_what_is_not_supported_inside_a_function_of_jax_is_refused_at_its_call() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.linalg.cholesky(x_ref[...])

    square = jax.ShapeDtypeStruct((12, 12), np.float32)
    with pytest.raises(UnsupportedError, match="does not know the primitive 'cholesky'") as caught:
        pl.pallas_call(body, square, interpret=InterpretParams())(X[:, :12])
    assert caught.value.source is not None
    assert caught.value.source.line == body.__code__.co_firstlineno + 1


@pytest.mark.parametrize("grid", [(-1,), (2, -3)])
def test_a_negative_static_bound_is_an_error_before_anything_runs(grid: tuple[int, ...]) -> None:
    where = f"dimension {len(grid) - 1} is out of range"
    with pytest.raises(KernelError, match=where) as caught:
        pl.pallas_call(double, LIKE_X, grid=grid, interpret=InterpretParams())(X)
    assert caught.value.source is not None
    assert caught.value.source.line == double.__code__.co_firstlineno


def test_a_write_to_an_input_is_an_error() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        x_ref[0] = x_ref[1]
        o_ref[...] = x_ref[...]

    with pytest.raises(KernelError, match="writes to args\\[0\\], which is an input"):
        pl.pallas_call(body, LIKE_X, interpret=InterpretParams())(X)


def test_threads_interpret_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def body(x_ref: Any, o_ref: Any) -> None:
        thread = lax.axis_index("t")
        o_ref[thread] = 2 * x_ref[thread]

    call = plgpu.kernel(body, out_type=LIKE_X, num_threads=12, thread_name="t", interpret=InterpretParams())
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda i: mosaic_gpu.interpret(call, X + i), range(16)):
            assert result.shape == X.shape
        for i, result in enumerate(pool.map(lambda i: np.asarray(call(X + i)), range(8))):
            np.testing.assert_array_equal(result, 2 * (X + i))


def test_in_shard_map_every_device_interprets_its_part() -> None:
    from jax.sharding import Mesh, PartitionSpec

    devices = Mesh(np.array(jax.devices()[:4]), ("d",))
    out = jax.ShapeDtypeStruct((3, 32), X.dtype)
    call = pl.pallas_call(double, out, interpret=InterpretParams())
    spec = PartitionSpec("d")
    mapped = jax.shard_map(call, mesh=devices, in_specs=spec, out_specs=spec, check_vma=False)
    np.testing.assert_array_equal(jax.jit(mapped)(X), 2 * X)


# The two situations that JAX's GPU interpreter refuses: dynamic grid bounds, scalar operands.


def rows(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + pl.num_programs(0)


@pytest.mark.parametrize("bound", [-1, 0, 1, 3, 5])
def test_a_dynamic_grid_bound(bound: int) -> None:
    spec = pl.BlockSpec((4, 32), lambda i, j: (i, 0))

    def function(n: Any, x: Any) -> Any:
        params = InterpretParams(unwritten_outputs="ignore", uninitialised="zero")
        grid = (n, 2)
        return pl.pallas_call(rows, LIKE_X, grid=grid, in_specs=[spec], out_specs=spec, interpret=params)(x)

    expected = np.zeros_like(X)
    written = 4 * max(min(bound, 3), 0)
    expected[:written] = X[:written] + bound
    np.testing.assert_array_equal(jax.jit(function)(bound, X), expected)
    np.testing.assert_array_equal(mosaic_gpu.interpret(function, bound, X), expected)


def test_several_dynamic_bounds() -> None:
    spec = pl.BlockSpec((4, 16), lambda i, j: (i, j))

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 10 * pl.num_programs(0) + pl.num_programs(1)

    def function(n: Any, m: Any, x: Any) -> Any:
        return pl.pallas_call(
            body, LIKE_X, grid=(n + 1, m), in_specs=[spec], out_specs=spec, interpret=InterpretParams()
        )(x)

    np.testing.assert_array_equal(jax.jit(function)(2, 2, X), X + 32)


def with_scalars(num: int, grid: Any, in_specs: Any, out_specs: Any) -> Any:
    return mosaic_gpu.PrefetchScalarGridSpec(num_scalar_prefetch=num, grid=grid, in_specs=in_specs, out_specs=out_specs)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_scalar_operands_choose_blocks_and_are_read_in_the_body(dtype: Any) -> None:
    order = np.array([2, 0, 1], dtype)

    def body(order_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + order_ref[pl.program_id(0)].astype(jnp.float32)

    spec = with_scalars(
        1, (3,), [pl.BlockSpec((4, 32), lambda i, order: (order[i], 0))], pl.BlockSpec((4, 32), lambda i, order: (i, 0))
    )
    call = pl.pallas_call(body, LIKE_X, grid_spec=spec, interpret=InterpretParams())
    expected = np.concatenate([X[4 * i : 4 * i + 4] + i for i in order])
    np.testing.assert_array_equal(jax.jit(call)(order, X), expected)


def test_scalar_operands_and_a_dynamic_grid_together() -> None:
    def body(count_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * count_ref[...].astype(jnp.float32)

    def function(n: Any, x: Any) -> Any:
        block = pl.BlockSpec((4, 32), lambda i, n: (i, 0))
        spec = with_scalars(1, (n,), [block], block)
        return pl.pallas_call(body, LIKE_X, grid_spec=spec, interpret=InterpretParams())(n, x)

    np.testing.assert_array_equal(jax.jit(function)(np.int32(3), X), 3 * X)


# Cases that users hit, by number (see the numerics tests for the others, which run on the interpreter as well).


def test_case_8_an_empty_grid_runs_nothing() -> None:
    for grid in [(0,), (4, 0)]:
        spec = pl.BlockSpec((4, 32), lambda *i: (i[0], 0))
        call = pl.pallas_call(double, LIKE_X, grid=grid, in_specs=[spec], out_specs=spec, interpret=InterpretParams())
        assert np.isnan(call(X)).all()


def test_case_10_loops_over_indices_in_memory() -> None:
    indices = np.random.default_rng(3).integers(0, 8, (3, 5)).astype(np.int32)

    def body(index_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros(8, jnp.int32)

        def step(j: Any, first: Any) -> Any:
            @pl.when(j % 2 == 0)
            def _() -> None:
                def inner(k: Any) -> Any:
                    o_ref[index_ref[j, k]] += 1
                    return k + 1

                lax.while_loop(lambda k: k < 5, inner, first)

            return first + 1

        lax.fori_loop(0, 3, step, 0)

    call = pl.pallas_call(body, jax.ShapeDtypeStruct((8,), jnp.int32), interpret=InterpretParams())
    expected = np.zeros(8, np.int32)
    for j in (0, 2):
        np.add.at(expected, indices[j, j:], 1)
    np.testing.assert_array_equal(call(indices), expected)


@pytest.mark.parametrize(
    ("shape", "block"), [((24, 16), (8, 16)), ((1, 384), (1, 128)), ((4, 512), (4, 128)), ((7, 100), (3, 32))]
)
def test_case_12_several_blocks_an_axis(shape: tuple[int, int], block: tuple[int, int]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    spec = pl.BlockSpec(block, lambda i, j: (i, j))
    grid = tuple(pl.cdiv(n, b) for n, b in zip(shape, block, strict=True))
    out = jax.ShapeDtypeStruct(shape, x.dtype)
    call = pl.pallas_call(double, out, grid=grid, in_specs=[spec], out_specs=spec, interpret=InterpretParams())
    np.testing.assert_array_equal(call(x), 2 * x)


def test_case_13_an_aliased_input_keeps_what_the_loop_writes() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        def step(i: Any, _: Any) -> None:
            o_ref[i] = x_ref[i] + o_ref[(i + 11) % 12]

        lax.fori_loop(0, 6, step, None)

    call = pl.pallas_call(body, LIKE_X, input_output_aliases={0: 0}, interpret=InterpretParams())
    expected = X.copy()
    for i in range(6):
        expected[i] = expected[i] + expected[(i + 11) % 12]
    np.testing.assert_array_equal(call(X), expected)


# Options.


def test_reads_out_of_bounds_may_be_filled() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[jnp.arange(12) + 2]

    clamped, filled = (
        mosaic_gpu.interpret(
            mosaic_gpu.pallas_call(body, LIKE_X),
            X,
            params=InterpretParams(out_of_bounds="ignore", out_of_bounds_reads=how),
        )
        for how in ("clamp", "fill")
    )
    np.testing.assert_array_equal(clamped, X[np.minimum(np.arange(12) + 2, 11)])
    np.testing.assert_array_equal(filled[:10], X[2:])
    assert np.isnan(filled[10:]).all()


@pytest.mark.parametrize(("how", "expected"), [("nan", np.nan), ("zero", 0.0), (0xFF, np.nan), (0, 0.0)])
def test_what_uninitialised_memory_holds(how: Any, expected: float) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = x_ref[0]

    params = InterpretParams(uninitialised=how, unwritten_outputs="ignore")
    found = mosaic_gpu.interpret(mosaic_gpu.pallas_call(body, LIKE_X), X, params=params)
    np.testing.assert_array_equal(found[0], X[0])
    np.testing.assert_array_equal(found[1:], np.full((11, 32), expected))


@pytest.mark.parametrize("seed", range(4))
def test_the_order_follows_from_the_seed(seed: int) -> None:
    def order() -> list[str]:
        events: list[str] = []
        params = InterpretParams(seed=seed, resident_blocks=3, on_event=lambda e: events.append(e.thread))

        def body(x_ref: Any, o_ref: Any) -> None:
            thread = lax.axis_index("g") * 3 + lax.axis_index("t")
            o_ref[thread] = x_ref[thread]

        options = {"grid": (4,), "grid_names": ("g",), "num_threads": 3, "thread_name": "t"}
        call = plgpu.kernel(body, out_type=LIKE_X, **options)
        np.testing.assert_array_equal(mosaic_gpu.interpret(call, X, params=params), X)
        return events

    first = order()
    assert first == order()
    assert first != sorted(first)


@pytest.mark.parametrize(
    "wrong",
    [
        {"races": "maybe"},
        {"uninitialised": 256},
        {"uninitialised": "junk"},
        {"resident_blocks": 0},
        {"out_of_bounds_reads": "wrap"},
    ],
)
def test_a_wrong_option_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(KernelError, match=f"InterpretParams\\({next(iter(wrong))}"):
        InterpretParams(**wrong)


def test_params_are_hashable_and_frozen() -> None:
    assert hash(InterpretParams(seed=3)) == hash(InterpretParams(seed=3))
    with pytest.raises(AttributeError):
        InterpretParams().seed = 1  # type: ignore[misc]


def test_blocks_interleave_where_several_are_resident() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        i = pl.program_id(0)
        o_ref[...] = x_ref[...] + i.astype(jnp.float32)

    spec = pl.BlockSpec((4, 32), lambda i: (i, 0))
    semantics = mosaic_gpu.CompilerParams(dimension_semantics=("parallel",))
    call = pl.pallas_call(body, LIKE_X, grid=(3,), in_specs=[spec], out_specs=spec, compiler_params=semantics)
    found = mosaic_gpu.interpret(call, X, params=InterpretParams(resident_blocks=3, seed=5))
    np.testing.assert_array_equal(found, X + np.repeat(np.arange(3), 4)[:, None])


def test_an_error_ends_at_the_kernels_line() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[pl.ds(pl.program_id(0) + 5, 12)]

    with pytest.raises(SimulationError) as caught:
        mosaic_gpu.interpret(mosaic_gpu.pallas_call(body, LIKE_X, grid=(1,)), X)
    assert caught.traceback[-1].frame.code.name == body.__code__.co_qualname
