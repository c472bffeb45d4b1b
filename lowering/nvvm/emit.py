"""Short names for the few upstream ops that this stage emits.

Each function emits at the current insertion point and location, and gives back the result value.
Integers are i32 where nothing else is said; vectors are one-dimensional.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import ir

LONGEST_CHAIN = 16
EQ, NE, SLT, SLE, SGT, SGE, ULT, ULE, UGT, UGE = range(10)


def op(
    name: str, results: Sequence[ir.Type], operands: Sequence[ir.Value], attributes: dict[str, Any] | None = None
) -> Any:
    """Emits operation `name`; attribute values are MLIR attributes."""
    return ir.Operation.create(name, results=list(results), operands=list(operands), attributes=attributes or {})


def value(
    name: str, result: ir.Type, operands: Sequence[ir.Value], attributes: dict[str, Any] | None = None
) -> ir.Value:
    """Emits an operation of one result and gives that."""
    return op(name, [result], operands, attributes).results[0]


def int_type(bits: int) -> ir.Type:
    """The signless integer type of `bits` bits."""
    return ir.IntegerType.get_signless(bits)


def i32() -> ir.Type:
    """The type i32."""
    return int_type(32)


def i64() -> ir.Type:
    """The type i64."""
    return int_type(64)


def i1() -> ir.Type:
    """The type i1."""
    return int_type(1)


def pointer_type(space: int) -> ir.Type:
    """An opaque pointer into NVPTX address space `space` (1 global, 3 shared)."""
    return ir.Type.parse(f"!llvm.ptr<{space}>" if space else "!llvm.ptr")


def vector_type(length: int, element: ir.Type) -> ir.Type:
    """`vector<length x element>`."""
    return ir.VectorType.get([length], element)


def is_vector(type_: ir.Type) -> bool:
    """Whether `type_` is a vector."""
    return isinstance(type_, ir.VectorType)


def element(type_: ir.Type) -> ir.Type:
    """The element type of a vector; another type is its own."""
    return ir.VectorType(type_).element_type if is_vector(type_) else type_


def like(type_: ir.Type, new_element: ir.Type) -> ir.Type:
    """A scalar or vector type with another element type."""
    return vector_type(int(ir.VectorType(type_).shape[0]), new_element) if is_vector(type_) else new_element


def length(vector: ir.Value) -> int:
    """The number of elements of a vector value."""
    return int(ir.VectorType(vector.type).shape[0])


def bits_of(type_: ir.Type) -> int:
    """Bits of one element of `type_`."""
    return int(element(type_).width)


def constant(type_: ir.Type, number: float) -> ir.Value:
    """A constant of an integer or float type, or its splat for a vector type."""
    scalar = element(type_)
    is_int = isinstance(scalar, (ir.IntegerType, ir.IndexType))
    attr: Any = _int_attr(scalar, int(number)) if is_int else ir.FloatAttr.get(scalar, float(number))
    if is_vector(type_):
        attr = ir.DenseElementsAttr.get_splat(type_, attr)
    return value("arith.constant", type_, [], {"value": attr})


def _int_attr(type_: ir.Type, number: int) -> ir.Attribute:
    """An integer attribute; `number` is taken modulo the type's width."""
    if isinstance(type_, ir.IntegerType):
        wrapped = number & ((1 << type_.width) - 1)
        number = wrapped - (1 << type_.width) if type_.width > 1 and wrapped >> (type_.width - 1) else wrapped
        if type_.width == 1:
            return ir.BoolAttr.get(bool(wrapped))
    return ir.IntegerAttr.get(type_, number)


def dense(element_type: ir.Type, numbers: Sequence[int]) -> ir.Value:
    """A vector constant of integers."""
    attrs = [_int_attr(element_type, n) for n in numbers]
    type_ = vector_type(len(numbers), element_type)
    return value("arith.constant", type_, [], {"value": ir.DenseElementsAttr.get(attrs, type_)})


def const(number: int) -> ir.Value:
    """An i32 constant."""
    return constant(i32(), number)


def binary(name: str, left: ir.Value, right: ir.Value | int) -> ir.Value:
    """`arith.<name>` of two values of one type; an int becomes a constant (or splat) of that type."""
    other = constant(left.type, right) if isinstance(right, int) else right
    return value(f"arith.{name}", left.type, [left, other])


def add(left: ir.Value, right: ir.Value | int) -> ir.Value:
    """Integer sum; adding the int 0 emits nothing."""
    return left if isinstance(right, int) and right == 0 else binary("addi", left, right)


def mul(left: ir.Value, right: ir.Value | int) -> ir.Value:
    """Integer product; multiplying by the int 1 emits nothing."""
    return left if isinstance(right, int) and right == 1 else binary("muli", left, right)


def and_(left: ir.Value, right: ir.Value | int) -> ir.Value:
    """Bitwise and."""
    return binary("andi", left, right)


def or_(left: ir.Value, right: ir.Value | int) -> ir.Value:
    """Bitwise or."""
    return binary("ori", left, right)


def xor(left: ir.Value, right: ir.Value | int) -> ir.Value:
    """Bitwise exclusive or; with the int 0 it emits nothing."""
    return left if isinstance(right, int) and right == 0 else binary("xori", left, right)


def shl(left: ir.Value, right: int) -> ir.Value:
    """Shift left by a constant."""
    return left if right == 0 else binary("shli", left, right)


def shr(left: ir.Value, right: int) -> ir.Value:
    """Logical shift right by a constant."""
    return left if right == 0 else binary("shrui", left, right)


def compare(predicate: int, left: ir.Value, right: ir.Value | int) -> ir.Value:
    """`arith.cmpi` with one of LONGEST_CHAIN = 16
    EQ, NE, SLT, ... of this module."""
    other = constant(left.type, right) if isinstance(right, int) else right
    return value(
        "arith.cmpi", like(left.type, i1()), [left, other], {"predicate": ir.IntegerAttr.get(i64(), predicate)}
    )


def select(condition: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
    """`arith.select`."""
    return value("arith.select", yes.type, [condition, yes, no])


def convert_int(number: ir.Value, bits: int, *, signed: bool = True) -> ir.Value:
    """An integer or index scalar or integer vector, extended or truncated to `bits` bits."""
    if isinstance(number.type, ir.IndexType):
        return value("arith.index_cast", int_type(bits), [number])
    have, type_ = bits_of(number.type), like(number.type, int_type(bits))
    if have == bits:
        return number
    if have > bits:
        return value("arith.trunci", type_, [number])
    return value("arith.extsi" if signed else "arith.extui", type_, [number])


def bitcast(source: ir.Value, type_: ir.Type) -> ir.Value:
    """The same bits under another scalar or vector type of the same total size."""
    return source if source.type == type_ else value("llvm.bitcast", type_, [source])


def splat(scalar: ir.Value, count: int) -> ir.Value:
    """A vector of `count` times `scalar`."""
    return value("vector.broadcast", vector_type(count, scalar.type), [scalar])


def extract(vector: ir.Value, index: int) -> ir.Value:
    """Element `index` of a vector."""
    positions = {"static_position": ir.DenseI64ArrayAttr.get([index])}
    return value("vector.extract", element(vector.type), [vector], positions)


def from_elements(scalars: Sequence[ir.Value]) -> ir.Value:
    """The vector of `scalars`.

    A long one is put together from short ones: LLVM's time is quadratic in the length of a chain of insertions.
    """
    if len(scalars) > LONGEST_CHAIN:
        whole = len(scalars) // LONGEST_CHAIN * LONGEST_CHAIN
        chunks = [from_elements(scalars[i : i + LONGEST_CHAIN]) for i in range(0, whole, LONGEST_CHAIN)]
        rest = scalars[whole:]
        return append(concat(chunks), from_elements(rest)) if rest else concat(chunks)
    return value("vector.from_elements", vector_type(len(scalars), scalars[0].type), scalars)


def shuffle(left: ir.Value, right: ir.Value, indices: Sequence[int]) -> ir.Value:
    """Picks elements of two vectors of one type: index i names left[i], or right[i - n]; -1 is don't-care."""
    type_ = vector_type(len(indices), element(left.type))
    return value("vector.shuffle", type_, [left, right], {"mask": ir.DenseI64ArrayAttr.get(list(indices))})


def pick(vector: ir.Value, indices: Sequence[int]) -> ir.Value:
    """The elements `indices` of one vector; the identity permutation emits nothing."""
    if list(indices) == list(range(length(vector))):
        return vector
    return shuffle(vector, vector, indices)


def concat(pieces: Sequence[ir.Value]) -> ir.Value:
    """Vectors of equal length one after another."""
    parts, each = list(pieces), length(pieces[0])
    if each == 1 and len(parts) > 1:
        return from_elements([extract(p, 0) for p in parts])
    while len(parts) > 1:
        n = length(parts[0])
        if len(parts) % 2:
            parts.append(value("llvm.mlir.poison", parts[0].type, []))
        parts = [shuffle(a, b, range(2 * n)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return pick(parts[0], range(each * len(pieces)))


def append(vector: ir.Value, tail: ir.Value) -> ir.Value:
    """`vector` followed by `tail`, whatever their lengths."""
    n, m = length(vector), length(tail)
    longest = max(n, m)
    left = pick(vector, [*range(n), *[-1] * (longest - n)])
    right = pick(tail, [*range(m), *[-1] * (longest - m)])
    return shuffle(left, right, [*range(n), *range(longest, longest + m)])


def overlay(vector: ir.Value, indices: Sequence[int], values: ir.Value) -> ir.Value:
    """`vector` with its elements `indices` replaced by those of `values`, in that order."""
    n = length(vector)
    if list(indices) == list(range(n)):
        return values
    widened = pick(values, [*range(length(values)), *[-1] * (n - length(values))])
    places = {index: n + i for i, index in enumerate(indices)}
    return shuffle(vector, widened, [places.get(i, i) for i in range(n)])


def gep(pointer: ir.Value, byte_offset: ir.Value | int) -> ir.Value:
    """The pointer `byte_offset` bytes further (a value is sign-extended)."""
    if isinstance(byte_offset, int):
        if byte_offset == 0:
            return pointer
        if not -(2**31) < byte_offset < 2**31:
            return gep(pointer, constant(i64(), byte_offset))
        operands, raw = [pointer], byte_offset
    else:
        operands, raw = [pointer, byte_offset], -(2**31)
    attributes = {"elem_type": ir.TypeAttr.get(int_type(8)), "rawConstantIndices": ir.DenseI32ArrayAttr.get([raw])}
    return value("llvm.getelementptr", pointer.type, operands, attributes)


def load(type_: ir.Type, pointer: ir.Value, alignment: int, *, invariant: bool = False) -> ir.Value:
    """A plain load, `alignment` in bytes; `invariant`: nothing writes there while the kernel runs."""
    attributes: dict[str, Any] = {"alignment": ir.IntegerAttr.get(i64(), alignment)}
    if invariant:
        attributes["invariant"] = ir.UnitAttr.get()
    return value("llvm.load", type_, [pointer], attributes)


def store(stored: ir.Value, pointer: ir.Value, alignment: int) -> None:
    """A plain store, `alignment` in bytes."""
    op("llvm.store", [], [stored, pointer], {"alignment": ir.IntegerAttr.get(i64(), alignment)})


def inline_asm(
    text: str, constraints: str, operands: Sequence[ir.Value], results: Sequence[ir.Type], *, effects: bool
) -> list[ir.Value]:
    """Inline PTX; `effects`: it may not be removed, merged or moved."""
    attributes: dict[str, Any] = {
        "asm_string": ir.StringAttr.get(text),
        "constraints": ir.StringAttr.get(constraints),
    }
    if effects:
        attributes["has_side_effects"] = ir.UnitAttr.get()
    if len(results) < 2:
        return list(op("llvm.inline_asm", results, operands, attributes).results)
    struct = ir.Type.parse(f"!llvm.struct<({', '.join(str(t) for t in results)})>")
    packed = value("llvm.inline_asm", struct, operands, attributes)
    return [
        value("llvm.extractvalue", t, [packed], {"position": ir.DenseI64ArrayAttr.get([i])})
        for i, t in enumerate(results)
    ]


def barrier() -> None:
    """All threads of the block meet; their memory accesses are ordered."""
    op("nvvm.barrier", [], [], {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])})


def op_with_region(name: str, attributes: dict[str, Any]) -> Any:
    """Emits an operation with one region, still empty, and no operands or results."""
    return ir.Operation.create(name, attributes=attributes, regions=1)


def op_with_regions(
    name: str,
    operands: Sequence[ir.Value],
    regions: int,
    results: Sequence[ir.Type] = (),
    attributes: dict[str, Any] | None = None,
) -> Any:
    """Emits an operation with empty regions."""
    return ir.Operation.create(
        name, results=list(results), operands=list(operands), attributes=attributes or {}, regions=regions
    )


def declare(module_body: ir.Block, name: str, arguments: Sequence[ir.Type], result: ir.Type) -> None:
    """Declares external function `name` at module level, once."""
    for known in module_body.operations:
        if "sym_name" in known.operation.attributes and known.operation.attributes["sym_name"].value == name:
            return
    signature = f"!llvm.func<{result} ({', '.join(str(t) for t in arguments)})>"
    with ir.InsertionPoint.at_block_begin(module_body):
        op_with_region(
            "llvm.func",
            {
                "sym_name": ir.StringAttr.get(name),
                "function_type": ir.TypeAttr.get(ir.Type.parse(signature)),
                "CConv": ir.Attribute.parse("#llvm.cconv<ccc>"),
                "linkage": ir.Attribute.parse("#llvm.linkage<external>"),
                "visibility_": ir.IntegerAttr.get(i64(), 0),
            },
        )


def call(name: str, operands: Sequence[ir.Value], result: ir.Type) -> ir.Value:
    """Calls function `name` of this module."""
    attributes = {
        "callee": ir.FlatSymbolRefAttr.get(name),
        "CConv": ir.Attribute.parse("#llvm.cconv<ccc>"),
        "TailCallKind": ir.Attribute.parse("#llvm.tailcallkind<none>"),
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
    }
    return value("llvm.call", result, operands, attributes)


def text_constant(module_body: ir.Block, text: str) -> ir.Value:
    """A generic pointer to `text`, which ends in a zero byte, in constant global memory of the module."""
    data = text.encode() + b"\0"
    known = [o.operation.attributes for o in module_body.operations if o.operation.name == "llvm.mlir.global"]
    same = [a["sym_name"].value for a in known if "value" in a and ir.StringAttr(a["value"]).value_bytes == data]
    name = same[0] if same else f"text_{len(known)}"
    if not same:
        with ir.InsertionPoint.at_block_begin(module_body):
            op_with_region(
                "llvm.mlir.global",
                {
                    "sym_name": ir.StringAttr.get(name),
                    "global_type": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{len(data)} x i8>")),
                    "linkage": ir.Attribute.parse("#llvm.linkage<internal>"),
                    "constant": ir.UnitAttr.get(),
                    "value": ir.StringAttr.get(data),
                    "addr_space": ir.IntegerAttr.get(i32(), 1),
                },
            )
    address = value("llvm.mlir.addressof", pointer_type(1), [], {"global_name": ir.FlatSymbolRefAttr.get(name)})
    return value("llvm.addrspacecast", pointer_type(0), [address])
