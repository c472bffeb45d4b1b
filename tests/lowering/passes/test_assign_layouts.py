"""What assign-layouts refuses, and that jnp programs of many shapes get layouts that pass the check."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import InternalError
from mosaic_gpu.kernel import kernel_call
from mosaic_gpu.lowering.diagnostics import parse_module
from mosaic_gpu.lowering.jaxpr import lower_kernel
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.assign_layouts import AssignLayouts
from mosaic_gpu.lowering.passes.check_layouts import check_layouts
from mosaic_gpu.lowering.pipeline import compilation_context, layout_passes
from tests.support.kernels import one_block

STEPS: dict[str, Any] = {
    "scale": lambda x: x * 2 + 1,
    "turn": lambda x: x.T,
    "add_turned": lambda x: x.sum(0)[:, None] + x.sum(0)[None, :],
    "fold": lambda x: x - x.max(-1, keepdims=True),
    "fold_columns": lambda x: x / x.sum(0),
    "flatten": lambda x: x.reshape(1, -1),
    "halves": lambda x: jnp.concatenate([x[:, x.shape[1] // 2 :], x[:, : x.shape[1] // 2]], 1),
    "scan": lambda x: jnp.cumsum(x, 1),
    "mask": lambda x: jnp.where(lax.broadcasted_iota(jnp.int32, x.shape, 0) < 3, x, 0.0),
    "loop": lambda x: lax.fori_loop(0, 3, lambda i, c: c + x * i, jnp.zeros(x.shape)),
    "branch": lambda x: lax.cond(x.sum() > 0, lambda v: v + 1, lambda v: v[::-1], x),
    "while": lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1],
}


@given(
    st.tuples(st.integers(1, 70), st.integers(1, 70)),
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5),
    st.sampled_from([None, 1, 2, 8]),
)
def test_every_tile_gets_a_layout_that_the_rules_allow(shape: tuple[int, int], names: list[str], warps: Any) -> None:
    def program(x: Any) -> Any:
        for name in names:
            x = STEPS[name](x)
        return x

    x = np.zeros(shape, np.float32)
    params = {} if warps is None else {"num_warps": warps}
    jaxpr = jax.make_jaxpr(one_block(program, x, **params))(x)
    [equation] = [e for e in jaxpr.eqns if e.primitive.name == "pallas_call"]
    call = kernel_call(equation.params)
    with compilation_context():
        module = lower_kernel(call)
        for step in layout_passes():
            step.apply(module, call.options)
        assert module.operation.verify()
        assert check_layouts(module) == []


KERNEL = """"mgpu.kernel"() ({{
^bb0(%a: !mgpu.ref<tensor<8xf32>, "gmem">):
  {body}
}}) {{grid = [1], num_warps = {warps} : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0]}} : () -> ()"""


@pytest.mark.parametrize(
    ("body", "warps", "fault"),
    [
        ("", 0, "choose-num-warps"),
        ("%t = tensor.empty() : tensor<8xf32>", 1, "no layout rule for op tensor.empty"),
    ],
)
def test_what_has_no_rule_is_an_internal_error(body: str, warps: int, fault: str) -> None:
    with compilation_context():
        module: ir.Module = parse_module(KERNEL.format(body=body, warps=warps), "test")
        with pytest.raises(InternalError, match=fault):
            AssignLayouts().apply(module, LoweringOptions())
