"""Every primitive of jax.lax has a rule, or stands here with the reason why not."""

from __future__ import annotations

import jax
import jax.lax
from jax.extend.core import Primitive

from mosaic_gpu.lowering.jaxpr import load_rules
from mosaic_gpu.lowering.jaxpr.registry import RULES

CONVOLUTIONS_AND_RAGGED_DOTS = {"conv_general_dilated", "ragged_dot_general"}
COMPLEX = {"complex", "conj", "fft", "imag", "real"}
BETWEEN_DEVICES = {"all_gather", "all_to_all", "axis_index", "pmax", "pmin", "ppermute", "psum", "ragged_all_to_all"}
BETWEEN_DEVICES |= {"device_put", "sharding_constraint", "reduce_scatter"}
TOKENS = {"after_all", "create_token"}
OTHER_GENERATORS = {"rng_bit_generator", "rng_uniform"}
SOLVERS = {"custom_linear_solve", "linear_solve"}
BACKWARD_POOLING = {"select_and_gather_add", "select_and_scatter", "select_and_scatter_add"}
REFUSED = (
    CONVOLUTIONS_AND_RAGGED_DOTS | COMPLEX | BETWEEN_DEVICES | TOKENS | OTHER_GENERATORS | SOLVERS | BACKWARD_POOLING
)


def primitives() -> set[str]:
    found = (getattr(jax.lax, name) for name in dir(jax.lax) if name.endswith("_p"))
    return {p.name for p in found if isinstance(p, Primitive)}


def test_every_primitive_of_lax_has_a_rule_or_a_reason() -> None:
    load_rules()
    assert len(primitives()) > 100
    assert primitives() - set(RULES) - REFUSED == set()


def test_no_primitive_with_a_rule_is_called_refused() -> None:
    load_rules()
    assert REFUSED & set(RULES) == set()
