"""`jax.export` for platform "cuda" on a machine without a GPU: our custom call, with the cubin in it."""

from __future__ import annotations

import json
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu.launcher import CALL_VERSION, CUSTOM_CALL_TARGET

X = np.arange(8, dtype=np.float32)


def _plus_one(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + 1


def plus_one(x: Any, **options: Any) -> Any:
    """x + 1, by one block."""
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(_plus_one, out, compiler_params=mosaic_gpu.CompilerParams(), **options)(x)


def _op_names(function: Any, *arrays: Any) -> list[str]:
    """The `op_name` of each of our calls in the HLO of `function` for CUDA."""
    lowered = jax.jit(function).trace(*arrays).lower(lowering_platforms=("cuda",))
    lines = lowered.as_text(dialect="hlo", debug_info=True).splitlines()
    return [re.findall(r'op_name="([^"]*)"', line)[0] for line in lines if f'target="{CUSTOM_CALL_TARGET}"' in line]


def test_the_kernels_name_and_scope_are_in_the_metadata_that_profiles_show() -> None:
    def step(x: Any) -> Any:
        with jax.named_scope("layer7"):
            return plus_one(plus_one(x, name="shift"))

    assert _op_names(step, X) == ["jit(step)/layer7/shift/pallas_call", "jit(step)/layer7/_plus_one/pallas_call"]


def test_on_the_cpu_too_the_name_and_scope_are_in_the_compiled_program() -> None:
    def step(x: Any) -> Any:
        with jax.named_scope("layer7"):
            return plus_one(x)

    compiled = jax.jit(step).lower(X).compile().as_text()
    assert 'op_name="jit(step)/layer7/_plus_one/pallas_call"' in compiled


def _cost(function: Any, *arrays: Any) -> Any:
    """What our call in `function` says of its cost; None where it says nothing."""
    text = _custom_call(export.export(jax.jit(function), platforms=["cuda"])(*arrays).mlir_module())
    return json.loads(_bytes_attribute(text, "cost_estimate_json")) if "cost_estimate_json" in text else None


def test_the_users_cost_estimate_is_in_the_call() -> None:
    given = pl.CostEstimate(flops=8, transcendentals=3, bytes_accessed=64)
    found = _cost(lambda x: plus_one(x, cost_estimate=given), X)
    assert {key: found[key] for key in ("flops", "transcendentals", "bytes_accessed")} == {
        "flops": 8, "transcendentals": 3, "bytes_accessed": 64,
    }  # fmt: skip


def test_without_an_estimate_the_call_says_how_large_its_arrays_are() -> None:
    assert _cost(plus_one, X) == {"bytes_accessed": 2 * 8 * 4}
    assert _cost(plus_one, X.astype(np.float16)) == {"bytes_accessed": 2 * 8 * 2}


def test_a_kernel_for_arrays_of_any_size_says_nothing_of_its_cost() -> None:
    block = pl.BlockSpec((4,), lambda i: (i,))
    (n,) = export.symbolic_shape("n")
    rows = jax.ShapeDtypeStruct((n,), np.float32)
    assert _cost(lambda x: plus_one(x, grid=((n + 3) // 4,), in_specs=[block], out_specs=block), rows) is None


def test_under_vmap_the_estimate_is_that_of_all() -> None:
    given = pl.CostEstimate(flops=8, transcendentals=0, bytes_accessed=64)
    found = _cost(jax.vmap(lambda x: plus_one(x, cost_estimate=given)), np.zeros((3, 8), np.float32))
    assert (found["flops"], found["bytes_accessed"]) == (24, 192)


def _custom_call(module: str) -> str:
    (line,) = (line for line in module.splitlines() if f"custom_call @{CUSTOM_CALL_TARGET}" in line)
    return line


def _bytes_attribute(line: str, name: str) -> bytes:
    match = re.search(rf'{name} = "((?:[^"\\]|\\.)*)"', line)
    assert match is not None
    text = match[1].encode()
    return re.sub(rb"\\([0-9A-F]{2}|\\)", lambda m: b"\\" if m[1] == b"\\" else bytes.fromhex(m[1].decode()), text)


def test_the_module_holds_the_cubin_of_the_target_and_the_launch() -> None:
    line = _custom_call(export.export(jax.jit(plus_one), platforms=["cuda"])(X).mlir_module())
    compiled = mosaic_gpu.compile(plus_one, X)
    assert _bytes_attribute(line, "cubin")[:4] == b"\x7fELF"
    assert f'entry = "{compiled.launch_facts.entry}"' in line
    threads = compiled.launch_facts.block[0]
    assert re.search(rf"block = (dense<\[|array<i64: ){threads}, 1, 1", line)
    assert f"version = {CALL_VERSION} : i64" in line
    assert re.search(r"arguments = (dense<\[|array<i64: )11, 1, 8, 11, 1, 8", line)  # float32[8], twice


def test_it_is_serialised_and_read_back() -> None:
    exported = export.export(jax.jit(plus_one), platforms=["cuda"])(X)
    again = export.deserialize(exported.serialize())
    assert again.platforms == ("cuda",)
    assert _custom_call(again.mlir_module()) == _custom_call(exported.mlir_module())


def test_arrays_are_row_major_and_an_alias_is_told_to_xla() -> None:
    def call(x: Any) -> Any:
        return plus_one(x, input_output_aliases={0: 0})

    x = np.zeros((2, 3), np.float32)
    line = _custom_call(jax.jit(call).trace(x).lower(lowering_platforms=("cuda",)).as_text())
    assert "operand_layouts = [dense<[1, 0]>" in line
    assert "result_layouts = [dense<[1, 0]>" in line
    assert re.search(r"output_operand_alias<[^>]*operand_index = 0", line)


def test_several_kernels_in_one_program_are_several_calls() -> None:
    module = jax.jit(lambda x: plus_one(plus_one(x)).sum() + plus_one(jnp.float32(1)))
    text = module.trace(X).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count(f"custom_call @{CUSTOM_CALL_TARGET}") >= 2


@pytest.mark.parametrize(("dtype", "value"), [("float32", "NaN|0x7FC00000"), ("int32", "-2147483648"), ("int4", "-8")])
def test_an_empty_grid_launches_nothing_and_gives_what_the_simulator_gives(dtype: str, value: str) -> None:
    x = jnp.ones(8, dtype)
    text = jax.jit(lambda x: plus_one(x, grid=(3, 0))).trace(x).lower(lowering_platforms=("cuda",)).as_text()
    assert CUSTOM_CALL_TARGET not in text
    assert re.search(rf"stablehlo.constant dense<({value})>", text)


def test_an_empty_grid_leaves_an_aliased_operand_as_it_is() -> None:
    def call(x: Any) -> Any:
        return plus_one(x, grid=(0,), input_output_aliases={0: 0})

    text = jax.jit(call).trace(X).lower(lowering_platforms=("cuda",)).as_text()
    assert CUSTOM_CALL_TARGET not in text
    np.testing.assert_array_equal(jax.jit(call)(X), X)


def test_for_the_cpu_there_is_no_export() -> None:
    with pytest.raises(NotImplementedError):
        export.export(jax.jit(plus_one), platforms=["cpu"])(X)


def test_a_fault_is_found_while_exporting() -> None:
    with pytest.raises(mosaic_gpu.KernelError, match="grid bound of dimension 0"):
        export.export(jax.jit(lambda x: plus_one(x, grid=(-1,))), platforms=["cuda"])(X)


def test_a_computed_bound_is_an_operand_and_the_grid_fills_the_gpu() -> None:
    def blocks(n: Any, x: Any) -> Any:
        spec = pl.BlockSpec((8,), lambda i: (i,))
        return plus_one(x, grid=(n,), in_specs=[spec], out_specs=spec, input_output_aliases={0: 0})

    x = np.zeros(64, np.float32)
    line = _custom_call(jax.jit(blocks).trace(np.int16(3), x).lower(lowering_platforms=("cuda",)).as_text())
    assert "(tensor<i32>, tensor<64xf32>) -> tensor<64xf32>" in line
    assert re.search(r"output_operand_alias<[^>]*operand_index = 1", line)
    used = mosaic_gpu.compile(blocks, np.int16(3), x).resources
    assert used.registers <= 64
    assert re.search(rf"grid = (dense<\[|array<i64: ){132 * 32}, 1, 1", line)


def test_a_bound_of_zero_that_is_known_with_one_that_is_not_launches_nothing() -> None:
    def blocks(n: Any, x: Any) -> Any:
        spec = pl.BlockSpec((8,), lambda i, j: (i,))
        return plus_one(x, grid=(n, 0), in_specs=[spec], out_specs=spec)

    x = np.zeros(64, np.float32)
    assert CUSTOM_CALL_TARGET not in jax.jit(blocks).trace(3, x).lower(lowering_platforms=("cuda",)).as_text()
    assert np.isnan(jax.jit(blocks)(3, x)).all()
