"""A launch from a thread whose floating-point mode is not IEEE's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.simulator.harness import launch

BODY = """.reg .b64 %a; .reg .f32 %f; ld.param.u64 %a, [p0]; ld.global.f32 %f, [%a]; mul.rn.f32 %f, %f, 0f3F000000;
st.global.f32 [%a], %f;"""


def test_subnormal_numbers_survive_in_a_callback_of_xla() -> None:
    bits = 71362

    def callback(x: Any) -> Any:
        buffer = np.array([bits], np.uint32).view(np.float32)
        launch(BODY, [buffer], block=1)
        return buffer.view(np.uint32)

    shape = jax.ShapeDtypeStruct((1,), jnp.uint32)
    got = jax.jit(lambda x: jax.pure_callback(callback, shape, x))(jnp.zeros(1))
    assert np.asarray(got)[0] == bits // 2
