"""Arguments and results as a flat list of tensors and a hashable form: containers, places of tensors, static values.

Forms are tuples, so that `torch.compile` can hold them as constants:

    ("tensor", i)                        the tensor at place i of the list
    ("static", type, value)              any other value
    ("none", ())
    ("tuple" | "list", items)
    ("dict", keys, items)                sorted by key, as in JAX
    ("named", class, items)              a named tuple
"""

from __future__ import annotations

from operator import index
from typing import Any

import jax
import numpy as np
import torch

from mosaic_gpu.errors import KernelError

Form = tuple[Any, ...]


def flatten(value: Any, tensors: list[torch.Tensor]) -> Form:
    """The form of a value; its tensors are added to the list."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return ("tensor", len(tensors) - 1)
    kind = _container(value)
    if kind is None:
        return ("static", type(value), _plain(value))
    return (*kind, tuple([flatten(v, tensors) for v in _items(value)]))


def flatten_results(value: Any, arrays: list[Any]) -> Form:
    """The form of what a function of JAX gives; its arrays and numbers are added to the list.

    Raises KernelError for anything else.
    """
    if isinstance(value, jax.Array | np.ndarray | np.generic | int | float):
        arrays.append(value)
        return ("tensor", len(arrays) - 1)
    kind = _container(value)
    if kind is None:
        expected = "arrays, and tuples, lists and dicts of them"
        raise KernelError(f"a function for as_torch gives a {type(value).__name__}", expected=expected)
    return (*kind, tuple([flatten_results(v, arrays) for v in _items(value)]))


def _container(value: Any) -> Form | None:
    """What the form of a container starts with; None for anything else."""
    if value is None:
        return ("none",)
    if isinstance(value, tuple):
        return ("named", type(value)) if hasattr(value, "_fields") else ("tuple",)
    if type(value) is list:
        return ("list",)
    if type(value) is dict:
        return ("dict", tuple(sorted(value)))
    return None


def _items(value: Any) -> Any:
    if value is None:
        return ()
    return [value[k] for k in sorted(value)] if type(value) is dict else value


def _plain(value: Any) -> Any:
    """A static value as a part of a key: floats as text, as NaN equals nothing; integers of the compiler as numbers."""
    if type(value) is float:
        return f"{value}"
    if type(value) is int:
        return index(value)
    return value


def static_value(form: Form) -> Any:
    """The value of a form that is "static"."""
    return float(form[2]) if form[1] is float else form[2]


def unflatten(form: Form, tensors: Any) -> Any:
    """The value of a form, with these tensors (or anything else) in their places."""
    kind = form[0]
    if kind == "tensor":
        return tensors[form[1]]
    if kind == "none":
        return None
    if kind == "static":
        return static_value(form)
    items = [unflatten(item, tensors) for item in form[-1]]
    if kind == "tuple":
        return tuple(items)
    if kind == "named":
        return form[1](*items)
    if kind == "dict":
        return dict(zip(form[1], items, strict=True))
    return items


def statics(form: Form) -> list[Form]:
    """The forms of the static values in a form."""
    if form[0] == "static":
        return [form]
    if form[0] == "tensor":
        return []
    return [found for item in form[-1] for found in statics(item)]
