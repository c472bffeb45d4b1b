"""The `mgpu` dialect object: the class that every type, attribute and op of the dialect hangs on.

IRDL unifies the types of all values in one variadic list: a `Sequence[Operand[Any]]` holds values of
ONE type.  An op that takes values of several types names each of them.
"""

from mosaic_gpu.dialect._mlir import ext, ir


class Mgpu(ext.Dialect, name="mgpu"):
    """Tiles, memory references and the kernels that work on them."""


def _empty_array() -> ir.ArrayAttr:
    return ir.ArrayAttr.get([])


def accept_empty_arrays() -> None:
    """Lets every op be built with an empty array attribute.

    `ext` tests attributes for truth, so that an empty array counts as a missing one; a default that is
    itself the empty array gives it back.
    """
    for op in Mgpu.operations:
        for field in op._fields:
            if isinstance(field, ext.AttributeDef):
                field.default_factory = _empty_array
