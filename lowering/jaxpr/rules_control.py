"""Rules of control flow and of calls.

References that a branch or a loop uses are bound inside it as they are: they are never carried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir, scf
from mosaic_gpu.dialect.types import RefType, element_of, shape_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.casts import select
from mosaic_gpu.lowering.jaxpr.compat import is_literal, scan_counts
from mosaic_gpu.lowering.jaxpr.context import RuleContext, aval_type, constant
from mosaic_gpu.lowering.jaxpr.folds import fold
from mosaic_gpu.lowering.jaxpr.intervals import interval_of
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.scratch import spill

Values = list[ir.Value]


@lowers("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat2", "custom_vmap_call", "composite")
def lower_jit(ctx: RuleContext, *args: ir.Value, **params: Any) -> Values:
    """A call of a jaxpr: its equations in place."""
    inner = params.get("jaxpr") or params.get("call_jaxpr") or params["call"]
    shortcut = _divide_naturals(ctx, args, str(params.get("name", "")))
    return [shortcut] if shortcut is not None else ctx.lower_jaxpr(inner, args)


def _divide_naturals(ctx: RuleContext, args: Sequence[ir.Value], name: str) -> ir.Value | None:
    """`i // n` and `i % n` of integer scalars, neither of them negative: one instruction, of known interval.

    jax.numpy spells them out for negative numbers.
    """
    if name not in ("floor_divide", "remainder") or len(args) != 2 or args[0].type != args[1].type:
        return None
    if not all(_is_signed(a) for a in ctx.avals_in) or interval_of(args[0]).low < 0 or interval_of(args[1]).low < 1:
        return None
    return arith.divsi(*args) if name == "floor_divide" else arith.remsi(*args)


def _is_signed(aval: Any) -> bool:
    """Whether a value is one signed integer."""
    return aval.shape == () and isinstance(aval.dtype, np.dtype) and aval.dtype.kind == "i"


@lowers("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
def lower_custom_jvp_call(ctx: RuleContext, *args: ir.Value, **params: Any) -> Values:
    """A function with a derivative of its own: the function itself."""
    inner = params.get("call_jaxpr") or params.get("fun_jaxpr") or params["jaxpr"]
    return ctx.lower_jaxpr(inner, args)


@lowers("cond")
def lower_cond(ctx: RuleContext, index: ir.Value, *args: ir.Value, branches: Sequence[Any], **params: Any) -> Values:
    """One of the branches: number `index`, clamped to those there are."""
    known = interval_of(index).constant
    if known is not None:
        return ctx.lower_jaxpr(branches[min(max(known, 0), len(branches) - 1)], args)
    results = [aval_type(a) for a in ctx.avals_out]
    return _branch(ctx, index, 0, branches, args, results)


def _branch(
    ctx: RuleContext, index: ir.Value, first: int, branches: Sequence[Any], args: Sequence[ir.Value], results: list[Any]
) -> Values:
    """Branches `first`.. , as a chain of two-way choices."""
    if first == len(branches) - 1:
        return ctx.lower_jaxpr(branches[first], args)
    op = scf.IfOp(_takes_later(index, first), results, has_else=True)
    with ir.InsertionPoint(op.then_block):
        scf.yield_(_branch(ctx, index, first + 1, branches, args, results))
    with ir.InsertionPoint(op.else_block):
        scf.yield_(ctx.lower_jaxpr(branches[first], args))
    return list(op.results)


def _takes_later(index: ir.Value, first: int) -> ir.Value:
    """Whether a branch after `first` is meant."""
    owner = index.owner
    if first == 0 and not isinstance(owner, ir.Block) and owner.operation.name == "arith.extui":
        source: ir.Value = owner.operation.operands[0]
        index = source if source.type == emit.i1() else index
    if index.type == emit.i1():
        return index
    return arith.cmpi(emit.SGT, index, emit.int_constant(first, index.type))


@lowers("while")
def lower_while(
    ctx: RuleContext,
    *args: ir.Value,
    cond_nconsts: int,
    cond_jaxpr: Any,
    body_nconsts: int,
    body_jaxpr: Any,
    **params: Any,
) -> Values:
    """`while cond(carry): carry = body(carry)`; a loop that counts (`fori_loop`) becomes `scf.for`."""
    cond_consts = args[:cond_nconsts]
    body_consts = args[cond_nconsts : cond_nconsts + body_nconsts]
    carry = list(args[cond_nconsts + body_nconsts :])
    _check_carried(ctx, carry)
    counter = _counted(cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts)
    if counter is not None:
        number, atom = counter
        outside = dict(zip(cond_jaxpr.invars, [*cond_consts, *carry], strict=True))
        bound = constant(atom.val, atom.aval) if is_literal(atom) else outside[atom]
        return _lower_counted(ctx, carry, body_consts, body_jaxpr, number, bound)
    return _lower_open_loop(ctx, carry, cond_consts, cond_jaxpr, body_consts, body_jaxpr)


def _lower_open_loop(
    ctx: RuleContext,
    carry: Values,
    cond_consts: Sequence[ir.Value],
    cond: Any,
    body_consts: Sequence[ir.Value],
    body: Any,
) -> Values:
    """`scf.while`; where the condition is a tile (a mapped loop), it goes on until all elements are done."""
    types = [v.type for v in carry]
    flag = aval_type(cond.outvars[0].aval)
    op = scf.WhileOp([*types, flag], carry)
    before, after = op.before.blocks.append(*types), op.after.blocks.append(*types, flag)
    with ir.InsertionPoint(before):
        (go_on,) = ctx.lower_jaxpr(cond, [*cond_consts, *before.arguments])
        axes = range(len(shape_of(flag)))
        scf.condition(fold("or", go_on, np.dtype(np.bool_), axes), [*before.arguments, go_on])
    with ir.InsertionPoint(after):
        *old, go_on = after.arguments
        new = ctx.lower_jaxpr(body, [*body_consts, *old])
        scf.yield_([_where_going_on(go_on, x, y) for x, y in zip(new, old, strict=True)])
    return list(op.results)[:-1]


def _where_going_on(go_on: ir.Value, new: ir.Value, old: ir.Value) -> ir.Value:
    """`new`, but `old` in the elements of a mapped loop (`vmap` of a `while_loop`) whose condition is false."""
    leading = shape_of(go_on.type)
    if not leading:
        return new
    return select(emit.broadcast(go_on, shape_of(new.type), range(len(leading))), new, old)


def _check_carried(ctx: RuleContext, carry: Sequence[ir.Value]) -> None:
    if any(isinstance(v.type, RefType) for v in carry):
        raise ctx.refuse("a loop that carries a reference is not supported", hint="use the reference from outside")


def _counted(cond: Any, body: Any, cond_nconsts: int, body_nconsts: int) -> tuple[int, Any] | None:
    """Which carried value counts by one up to a bound that stays: its number, and the bound's atom in `cond`.

    The pattern is that of `fori_loop` with bounds that are computed.
    """
    if len(cond.eqns) != 1 or cond.eqns[0].primitive.name != "lt" or cond.outvars != cond.eqns[0].outvars:
        return None
    counter, bound = cond.eqns[0].invars
    carried = list(cond.invars[cond_nconsts:])
    if is_literal(counter) or counter not in carried:
        return None
    number = carried.index(counter)
    inside = body.invars[body_nconsts:]
    if not _adds_one(body, inside[number], body.outvars[number]):
        return None
    if not is_literal(bound) and bound in carried:
        place = carried.index(bound)
        if body.outvars[place] is not inside[place]:
            return None
    return number, bound


def _adds_one(jaxpr: Any, before: Any, after: Any) -> bool:
    """Whether `after` is computed as `before + 1`, both integer scalars."""
    if not _is_signed(before.aval):
        return False
    for equation in jaxpr.eqns:
        if after in equation.outvars:
            a, b = (*equation.invars, None, None)[:2]
            return equation.primitive.name == "add" and a is before and is_literal(b) and b.val == 1
    return False


def _lower_counted(
    ctx: RuleContext, carry: Values, body_consts: Sequence[ir.Value], body: Any, number: int, bound: ir.Value
) -> Values:
    """The loop with the counter as induction variable; values that stay are not carried."""
    inside = body.invars[len(body_consts) :]
    moving = [i for i, v in enumerate(inside) if i != number and body.outvars[i] is not v]

    def step(counter: ir.Value, values: Values) -> Values:
        values[number] = counter
        return ctx.lower_jaxpr(body, [*body_consts, *values])

    last = _loop(carry[number], bound, carry, moving, step)
    last[number] = arith.maxsi(carry[number], bound)
    return last


def _loop(
    low: ir.Value, high: ir.Value, carry: Values, moving: Sequence[int], body: Callable[[ir.Value, Values], Values]
) -> Values:
    """`carry` after `carry = body(counter, carry)` for `low` <= counter < `high`; only `moving` ones change."""

    def replaced(new: Sequence[ir.Value]) -> Values:
        values = list(carry)
        for i, value in zip(moving, new, strict=True):
            values[i] = value
        return values

    loop = scf.ForOp(low, high, emit.int_constant(1, high.type), [carry[i] for i in moving])
    with ir.InsertionPoint(loop.body):
        results = body(loop.induction_variable, replaced(loop.inner_iter_args))
        scf.yield_([results[i] for i in moving])
    return replaced(loop.results)


@lowers("scan")
def lower_scan(ctx: RuleContext, *args: ir.Value, jaxpr: Any, length: int, reverse: bool, **params: Any) -> Values:
    """A loop of `length` steps: `carry, ys[i] = body(carry, xs[i])`, from the end where `reverse`.

    Values xs and ys lie in shared memory meanwhile.  A carried value that only counts steps is not carried.
    """
    num_consts, num_carry = scan_counts(params)
    consts, carry = args[:num_consts], list(args[num_consts : num_consts + num_carry])
    _check_carried(ctx, carry)
    sources = [spill(x) for x in args[num_consts + num_carry :]]
    stacks = [aval_type(a) for a in ctx.avals_out[num_carry:]]
    targets = [emit.alloc(shape_of(t), element_of(t)) for t in stacks if length]
    inside = jaxpr.invars[num_consts : num_consts + num_carry]
    counters = [i for i, v in enumerate(inside) if _adds_one(jaxpr, v, jaxpr.outvars[i])]
    moving = [i for i, v in enumerate(inside) if i not in counters and jaxpr.outvars[i] is not v]

    def step(number: ir.Value, values: Values) -> Values:
        for i in counters:
            values[i] = _plus(carry[i], number)
        place = arith.subi(emit.int_constant(length - 1), number) if reverse else number
        elements = [emit.load(_row(ref, place)) for ref in sources]
        results = ctx.lower_jaxpr(jaxpr, [*consts, *values, *elements])
        for value, ref in zip(results[num_carry:], targets, strict=False):
            emit.store(value, _row(ref, place))
        return results

    last = _loop(emit.int_constant(0), emit.int_constant(length), carry, moving, step)
    for i in counters:
        last[i] = _plus(carry[i], emit.int_constant(length))
    stacked = [emit.load(ref) for ref in targets] or [constant(0, a) for a in ctx.avals_out[num_carry:]]
    return [*last, *stacked]


def _plus(start: ir.Value, step: ir.Value) -> ir.Value:
    """`start + step`, of `start`'s type."""
    step = emit.resize_int(step, start.type)
    return step if interval_of(start).constant == 0 else arith.addi(start, step)


def _row(ref: ir.Value, place: ir.Value) -> ir.Value:
    """The view `ref[place]`."""
    _, *rest = shape_of(ref.type)
    zero = emit.int_constant(0)
    return emit.subview(ref, [place, *[zero] * len(rest)], [1, *rest], dropped=[0])
