"""Every file with rules, imported for their registration."""

from mosaic_gpu.pytorch import (
    kernels,
    rules_casts,
    rules_control,
    rules_elementwise,
    rules_gather,
    rules_math,
    rules_reduce,
    rules_shape,
    rules_sort,
)

__all__ = [
    "kernels",
    "rules_casts",
    "rules_control",
    "rules_elementwise",
    "rules_gather",
    "rules_math",
    "rules_reduce",
    "rules_shape",
    "rules_sort",
]
