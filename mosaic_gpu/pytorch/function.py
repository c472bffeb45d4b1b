"""Functions of tensors: what `mosaic_gpu.as_torch` gives."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from operator import index
from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np
import torch

from mosaic_gpu.api import CompiledKernel
from mosaic_gpu.errors import KernelError, UnsupportedError, ends_at_kernel
from mosaic_gpu.pytorch import operator
from mosaic_gpu.pytorch.code import Code
from mosaic_gpu.pytorch.derivatives import Traced
from mosaic_gpu.pytorch.kernels import KernelCode
from mosaic_gpu.pytorch.plans import Plan, new_key
from mosaic_gpu.pytorch.trees import Form, flatten, flatten_results, statics, unflatten
from mosaic_gpu.pytorch.values import NAMES
from mosaic_gpu.runtime.dtypes import name_of, named

assert operator.LIBRARY, "the operator is defined"

Type = tuple[tuple[int, ...], torch.dtype, torch.device, torch.layout]
"""Shape, dtype, device and layout of a tensor."""


_NUMBERS = itertools.count()
_FUNCTIONS: WeakValueDictionary[int, TorchFunction] = WeakValueDictionary()


class TorchFunction:
    """A function of JAX as one of PyTorch's tensors.  See `mosaic_gpu.as_torch`.

    It keeps a plan for each set of types and static arguments that it was called with.
    """

    def __init__(self, fn: Any) -> None:
        if not callable(fn):
            raise KernelError("as_torch is for functions", got=repr(fn))
        functools.update_wrapper(self, fn, updated=())
        self._fn = fn
        self._number = next(_NUMBERS)
        _FUNCTIONS[self._number] = self
        self._plans: dict[Any, tuple[Plan, Form]] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<as_torch of {self._fn!r}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchFunction:
        return self  # as of any function; modules that hold it are copied

    def __reduce__(self) -> tuple[Any, ...]:
        return TorchFunction, (self._fn,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs it on tensors; see `mosaic_gpu.as_torch`."""
        tensors: list[torch.Tensor] = []
        form = flatten((args, kwargs), tensors)
        types = tuple([(tuple([index(n) for n in x.shape]), x.dtype, x.device, x.layout) for x in tensors])
        if torch.compiler.is_compiling():
            key, result = _plan_in_graph(self._number, form, types)
            return unflatten(result, torch.ops.mosaic_gpu.run.default(key, tensors))
        plan, result = self.plan(form, types)
        return unflatten(result, operator.run(plan, tensors))

    @ends_at_kernel
    def plan(self, form: Form, types: tuple[Type, ...]) -> tuple[Plan, Form]:
        """The plan for arguments of this form with tensors of these types, and the form of the results."""
        with self._lock:
            try:
                found = self._plans.get((form, types))
            except TypeError:
                raise _unhashable(form) from None
            if found is None:
                avals = check_arguments(form, types)
                make = _of_kernel if isinstance(self._fn, CompiledKernel) else _of_function
                found = self._plans[form, types] = make(self._fn, form, avals)
        return found


_IN_GRAPHS: set[Plan] = set()
"""Plans whose keys compiled graphs hold: they live as long as the process."""


@torch.compiler.assume_constant_result
def _plan_in_graph(function: int, form: Form, types: tuple[Type, ...]) -> tuple[str, Form]:
    """The key of the plan, and the form of the results.

    `torch.compile` runs it and keeps what it gives; in its older versions the arguments can be no other objects.
    """
    plan, result = _FUNCTIONS[function].plan(form, types)
    _IN_GRAPHS.add(plan)
    return plan.key, result


def check_arguments(form: Form, types: Sequence[Type]) -> tuple[Any, ...]:
    """JAX's types of the tensors, for arguments that a function can be called with.

    Raises:
      KernelError: there is no tensor, tensors on several devices, or an argument that is neither a tensor nor static.
      UnsupportedError: a dtype, layout or device.
    """
    for static in statics(form):
        _check_static(static[2])
    if not types:
        raise KernelError("a function of as_torch was called without a tensor", hint="it runs where its tensors are")
    devices = list(dict.fromkeys(device for _, _, device, _ in types))
    if len(devices) > 1:
        raise KernelError(
            "the tensors are on different devices",
            got=", ".join(map(str, devices)),
            hint="move them to one: x.to(device); a number of the host may be passed as a Python number",
        )
    if devices[0].type not in ("cpu", "cuda"):
        raise UnsupportedError(f"kernels do not run on device {str(devices[0])!r}", expected="cpu or cuda")
    return tuple(_aval(i, *type_) for i, type_ in enumerate(types))


def _aval(number: int, shape: tuple[int, ...], dtype: torch.dtype, _: torch.device, layout: torch.layout) -> Any:
    if layout is not torch.strided:
        hint = "x.to_dense() gives an ordinary tensor"
        raise UnsupportedError(f"tensor {number} has layout {layout}", expected="torch.strided", hint=hint)
    if dtype not in NAMES:
        raise UnsupportedError(f"tensor {number} has dtype {dtype}", expected=", ".join(NAMES.values()))
    return jax.ShapeDtypeStruct(shape, named(NAMES[dtype]))


def _check_static(value: Any) -> None:
    if isinstance(value, np.ndarray | jax.Array):
        hint = "torch.from_numpy(x), torch.from_dlpack(x)"
        raise KernelError(f"an argument is a {_type_name(value)}", expected="a tensor", hint=hint)
    if not jax.tree_util.all_leaves([value]):
        expected = "tuples, lists and dicts of tensors, and static values"
        raise KernelError(f"an argument is a {_type_name(value)}", expected=expected)


def _unhashable(form: Form) -> KernelError:
    for _, type_, value in statics(form):
        try:
            hash(value)
        except TypeError:
            _check_static(value)
            expected = "a tensor, or a static value, which has to be hashable"
            return KernelError(f"an argument is a {type_.__module__}.{type_.__qualname__}", expected=expected)
    raise AssertionError("every static value is hashable")


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _of_function(fn: Callable[..., Any], form: Form, avals: tuple[Any, ...]) -> tuple[Plan, Form]:
    result: Form = ()

    def flat(*arrays: Any) -> list[Any]:
        nonlocal result
        args, kwargs = unflatten(form, arrays)
        leaves: list[Any] = []
        result = flatten_results(fn(*args, **kwargs), leaves)
        return leaves

    name = getattr(fn, "__name__", type(fn).__name__)
    traced = Traced(flat, avals, any(a.dtype.itemsize == 8 for a in avals), name)
    jaxpr = traced.jaxpr()
    return Plan(new_key(name, str(jaxpr)), Code(jaxpr), traced), result


def _of_kernel(kernel: CompiledKernel, form: Form, avals: tuple[Any, ...]) -> tuple[Plan, Form]:
    """Of a compiled kernel: its types are fixed."""
    if kernel._compilation.program.symbols:
        raise UnsupportedError(
            f"kernel {kernel.name!r} is compiled for arrays whose sizes are not known",
            hint="give as_torch the function",
        )
    code = KernelCode(kernel._call, kernel._compilation)
    expected = code.avals(code.arguments)
    if [(a.shape, a.dtype) for a in avals] != [(a.shape, a.dtype) for a in expected] or statics(form):
        raise KernelError(
            f"the tensors do not fit kernel {kernel.name!r}",
            got=[f"{name_of(a.dtype)}{list(a.shape)}" for a in avals],
            expected=[f"{name_of(a.dtype)}{list(a.shape)}" for a in expected],
            hint="compile it for tensors of these shapes and dtypes",
        )
    refusal = UnsupportedError(
        f"the compiled kernel {kernel.name!r} has no derivative",
        hint="give as_torch the function with its jax.custom_vjp",
    )
    count = len(code.results)
    places: list[Form] = [("tensor", i) for i in range(count)]
    result = places[0] if count == 1 else ("tuple", tuple(places))
    return Plan(new_key(kernel.name, kernel.ptx), code, None, refusal), result
