"""Every file with rules, imported for their registration."""

from mosaic_gpu.interpreter import (
    eval_elementwise,
    eval_gather,
    eval_math,
    eval_reduce,
    eval_shape,
    eval_sort,
    exec_async,
    exec_atomic,
    exec_control,
    exec_pallas,
    exec_state,
)

__all__ = [
    "eval_elementwise",
    "eval_gather",
    "eval_math",
    "eval_reduce",
    "eval_shape",
    "eval_sort",
    "exec_async",
    "exec_atomic",
    "exec_control",
    "exec_pallas",
    "exec_state",
]
