"""Every file with rules, imported for their registration."""

from mosaic_gpu.interpreter import (
    eval_casts,
    eval_elementwise,
    eval_gather,
    eval_math,
    eval_reduce,
    eval_shape,
    eval_sort,
    exec_atomic,
    exec_barriers,
    exec_control,
    exec_copies,
    exec_pallas,
    exec_state,
    exec_threads,
    exec_wgmma,
)

__all__ = [
    "eval_casts",
    "eval_elementwise",
    "eval_gather",
    "eval_math",
    "eval_reduce",
    "eval_shape",
    "eval_sort",
    "exec_atomic",
    "exec_barriers",
    "exec_control",
    "exec_copies",
    "exec_pallas",
    "exec_state",
    "exec_threads",
    "exec_wgmma",
]
