"""Every op of the dialect: its text parses, prints and parses again, and its verifier refuses what is wrong."""

from collections.abc import Iterator

import pytest

from mosaic_gpu import dialect
from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.mgpu import Mgpu

# A kernel around the op under test: references, tiles and scalars to use as operands.
KERNEL = """
"mgpu.kernel"() ({{
^bb0(%g: !mgpu.ref<tensor<8x16xf32>, "gmem">, %v: !mgpu.ref<tensor<16xf32>, "gmem">):
  %i = arith.constant 3 : i32
  %f = arith.constant 1.0 : f32
  %b = arith.constant true
  %t = arith.constant dense<2.0> : tensor<8x16xf32>
  %e = arith.constant dense<2.0> : tensor<8x8xf32>
  %h = arith.constant dense<2.0> : tensor<8x16xf16>
  %r = arith.constant dense<2.0> : tensor<16xf32>
  %n = arith.constant dense<2> : tensor<8x16xi32>
  %m = arith.constant dense<true> : tensor<8x16xi1>
  {}
}}) {{sym_name = "k", grid = [2 : i32], num_warps = 0 : i32, num_inputs = 1 : i32,
     aliases = [0 : i32, 1 : i32]}} : () -> ()
"""

G, V = '!mgpu.ref<tensor<8x16xf32>, "gmem">', '!mgpu.ref<tensor<16xf32>, "gmem">'
ADD = """({ ^bb0(%x: f32, %y: f32):
  %s = arith.addf %x, %y : f32
  "mgpu.yield"(%s) {operandSegmentSizes = array<i32: 1>} : (f32) -> () })"""
DOT = 'lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""'
FOLD = "operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1>"


def segments(*counts: int) -> str:
    return f"operandSegmentSizes = array<i32: {', '.join(map(str, counts))}>"


def subview(sizes: str, dropped: str, result: str, offsets: str = "%i, %i", types: str = "i32, i32") -> str:
    return (
        f'%o = "mgpu.subview"(%g, {offsets}) {{sizes = {sizes}, strides = [1, 1], dropped = {dropped}, '
        f"checked = [0, 1], {segments(1, 2)}}} : ({G}, {types}) -> {result}"
    )


W, S = '!mgpu.ref<tensor<4xi64>, "smem">', '!mgpu.ref<tensor<8x16xf32>, "smem">'
WORDS = f'%w = "mgpu.alloc"() : () -> {W}\n'
STAGE = f'%s = "mgpu.alloc"() : () -> {S}\n'
FEW = f'%q = "mgpu.alloc"() : () -> {W.replace("4xi64", "4xi32")}\n'
ASYNC = {
    "barrier_init": f'{WORDS}"mgpu.barrier_init"(%w) {{arrivals = 1 : i32}} : ({W}) -> ()',
    "barrier_destroy": f'{WORDS}"mgpu.barrier_destroy"(%w) : ({W}) -> ()',
    "barrier_expect": f'{WORDS}"mgpu.barrier_expect"(%w, %i) {{num_bytes = 512 : i32}} : ({W}, i32) -> ()',
    "barrier_arrive": f'{WORDS}"mgpu.barrier_arrive"(%w, %i) : ({W}, i32) -> ()',
    "barrier_wait": f'{WORDS}"mgpu.barrier_wait"(%w, %i, %i) : ({W}, i32, i32) -> ()',
    "async_load": f'{WORDS}{STAGE}"mgpu.async_load"(%g, %s, %w, %i) : ({G}, {S}, {W}, i32) -> ()',
    "async_store": f'{STAGE}"mgpu.async_store"(%s, %g) : ({S}, {G}) -> ()',
    "async_copy": f'{STAGE}"mgpu.async_copy"(%g, %s) {{layout = #mgpu.layout<"1x32 r: l:0,1;0,2;0,4;0,8;0,16 w:">}}'
    f" : ({G}, {S}) -> ()",
    "async_commit": '"mgpu.async_commit"() : () -> ()',
    "async_wait_copies": '"mgpu.async_wait_copies"() {pending = 2 : i32} : () -> ()',
    "async_wait_stores": '"mgpu.async_wait_stores"() : () -> ()',
    "specialize": '"mgpu.specialize"() ({ }, { "mgpu.barrier"() : () -> () }) '
    "{producer_registers = 0 : i32, consumer_registers = 0 : i32} : () -> ()",
}
VALID = ASYNC | {
    "kernel": "",
    "num_programs": '%o = "mgpu.num_programs"() {axis = 0 : i32} : () -> i32',
    "program_id": '%o = "mgpu.program_id"() {axis = 0 : i32} : () -> i32',
    "barrier": '"mgpu.barrier"() : () -> ()',
    "wait_for_grids": '"mgpu.wait_for_grids"() : () -> ()',
    "debug_print": f'"mgpu.debug_print"(%t) {{format = "x = {{}}", kinds = ["float"], {segments(1)}}} '
    ": (tensor<8x16xf32>) -> ()",
    "alloc": '%o = "mgpu.alloc"() : () -> !mgpu.ref<tensor<4xi8>, "smem">',
    "subview": subview("[1, 4]", "[0]", '!mgpu.ref<tensor<4xf32>, "gmem">'),
    "load": f'%o = "mgpu.load"(%g, %m, %f) {{{segments(1, 1, 1)}}} : ({G}, tensor<8x16xi1>, f32) -> tensor<8x16xf32>',
    "store": f'"mgpu.store"(%t, %g) {{{segments(1, 1, 0)}}} : (tensor<8x16xf32>, {G}) -> ()',
    "gather": f'%o = "mgpu.gather"(%g, %n, %n) {{{segments(1, 2, 0, 0)}}} '
    f": ({G}, tensor<8x16xi32>, tensor<8x16xi32>) -> tensor<8x16xf32>",
    "scatter": f'"mgpu.scatter"(%t, %g, %n, %n, %m) {{{segments(1, 1, 2, 1)}}} '
    f": (tensor<8x16xf32>, {G}, tensor<8x16xi32>, tensor<8x16xi32>, tensor<8x16xi1>) -> ()",
    "iota": '%o = "mgpu.iota"() {dimension = 1 : i32} : () -> tensor<8x16xi32>',
    "broadcast": '%o = "mgpu.broadcast"(%r) {dimensions = [1]} : (tensor<16xf32>) -> tensor<8x16xf32>',
    "reshape": '%o = "mgpu.reshape"(%t) : (tensor<8x16xf32>) -> tensor<4x2x16xf32>',
    "transpose": '%o = "mgpu.transpose"(%t) {permutation = [1, 0]} : (tensor<8x16xf32>) -> tensor<16x8xf32>',
    "slice": '%o = "mgpu.slice"(%t) {starts = [7, 1], strides = [-1, 3]} : (tensor<8x16xf32>) -> tensor<8x5xf32>',
    "concatenate": f'%o = "mgpu.concatenate"(%t, %t) {{dimension = 0 : i32, {segments(2)}}} '
    ": (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>",
    "reduce": f'%o = "mgpu.reduce"(%t, %f) {ADD} {{axes = [0], {FOLD}}} : (tensor<8x16xf32>, f32) -> tensor<16xf32>',
    "yield": f'%o = "mgpu.reduce"(%r, %f) {ADD} {{axes = [0], {FOLD}}} : (tensor<16xf32>, f32) -> f32',
    "scan": f'%o = "mgpu.scan"(%t, %f) {ADD} {{axis = 1 : i32, reverse = 1 : i32, {FOLD}}} '
    ": (tensor<8x16xf32>, f32) -> tensor<8x16xf32>",
    "convert_layout": '%o = "mgpu.convert_layout"(%r) : (tensor<16xf32>) '
    '-> tensor<16xf32, #mgpu.layout<"32 r: l:1;2;4;8;16 w:">>',
    "bitcast": '%o = "mgpu.bitcast"(%t) : (tensor<8x16xf32>) -> tensor<8x16x2xf16>',
    "libdevice": f'%o = "mgpu.libdevice"(%t) {{function = "__nv_sinf", {segments(1)}}} '
    ": (tensor<8x16xf32>) -> tensor<8x16xf32>",
    "dot": f'%o = "mgpu.dot"(%t, %t, %e) {{lhs_transposed = 0 : i32, rhs_transposed = 1 : i32, {DOT}}} '
    ": (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>",
    "dot_wait": '%o = "mgpu.dot_wait"(%e) {pending = 1 : i32} : (tensor<8x8xf32>) -> tensor<8x8xf32>',
    "fence_async": '"mgpu.fence_async"() : () -> ()',
    "ptx": f'%o = "mgpu.ptx"(%f) {{asm = "ex2.approx.f32 $0, $1;", constraints = "=f,f", {segments(1)}}} '
    ": (f32) -> f32",
}

INVALID = {
    "mbarriers_of_32_bits": (
        f'{FEW}"mgpu.barrier_init"(%q) {{arrivals = 1 : i32}} : ({W.replace("4xi64", "4xi32")}) -> ()',
        "barriers must be 64-bit words",
    ),
    "an_mbarrier_without_arrivals": (ASYNC["barrier_init"].replace("arrivals = 1", "arrivals = 0"), "must be positive"),
    "a_wait_for_no_bytes": (ASYNC["barrier_expect"].replace("512", "0"), "num_bytes must be positive"),
    "a_wait_for_less_than_no_copies": ('"mgpu.async_wait_copies"() {pending = -1 : i32} : () -> ()', "not be negative"),
    "an_asynchronous_copy_to_global_memory": (
        f'{STAGE}"mgpu.async_copy"(%s, %g) {{layout = #mgpu.layout<"1x32 r: l:0,1;0,2;0,4;0,8;0,16 w:">}} '
        f": ({S}, {G}) -> ()",
        "copies from gmem to smem",
    ),
    "an_asynchronous_load_from_shared_memory": (
        f'{WORDS}{STAGE}"mgpu.async_load"(%s, %s, %w, %i) : ({S}, {S}, {W}, i32) -> ()',
        "copies from gmem to smem",
    ),
    "an_asynchronous_store_of_another_shape": (
        f'{STAGE}"mgpu.async_store"(%s, %v) : ({S}, {V}) -> ()',
        "shapes of source and dest differ",
    ),
    "num_programs_of_a_negative_axis": (
        '%o = "mgpu.num_programs"() {axis = -1 : i32} : () -> i32',
        "axis must be >= 0",
    ),
    "a_program_id_of_a_negative_axis": ('%o = "mgpu.program_id"() {axis = -1 : i32} : () -> i32', "axis must be >= 0"),
    "a_print_of_several_floats": (
        f'"mgpu.debug_print"(%f, %f) {{format = "{{}} {{}}", kinds = ["float", "float"], {segments(2)}}} '
        ": (f32, f32) -> ()",
        "several values must be i64",
    ),
    "a_print_of_an_unknown_kind": (
        f'"mgpu.debug_print"(%f) {{format = "{{}}", kinds = ["complex"], {segments(1)}}} : (f32) -> ()',
        "unknown kinds",
    ),
    "an_alloc_in_global_memory": (f'%o = "mgpu.alloc"() : () -> {G}', 'allocates "smem" only'),
    "a_reference_to_an_unknown_space": (
        '%o = "mgpu.alloc"() : () -> !mgpu.ref<tensor<4xi8>, "tmem">',
        'allocates "smem" only',
    ),
    "a_subview_of_another_shape": (subview("[2, 4]", "[]", V), "result shape must be"),
    "a_subview_that_drops_a_long_dimension": (
        subview("[2, 4]", "[0]", '!mgpu.ref<tensor<4xf32>, "gmem">'),
        "a dropped dimension must have size 1",
    ),
    "a_subview_at_a_float": (
        subview("[2, 16]", "[]", '!mgpu.ref<tensor<2x16xf32>, "gmem">', "%f, %i", "f32, i32"),
        "offsets must be integers",
    ),
    "a_subview_of_another_element": (
        subview("[1, 4]", "[0]", '!mgpu.ref<tensor<4xf16>, "gmem">'),
        "element types differ",
    ),
    "a_subview_in_another_space": (
        subview("[1, 4]", "[0]", '!mgpu.ref<tensor<4xf32>, "smem">'),
        "memory spaces differ",
    ),
    "a_load_of_another_shape": (
        f'%o = "mgpu.load"(%g) {{{segments(1, 0, 0)}}} : ({G}) -> tensor<16x8xf32>',
        "shape must be",
    ),
    "a_load_of_another_element": (
        f'%o = "mgpu.load"(%g) {{{segments(1, 0, 0)}}} : ({G}) -> tensor<8x16xf16>',
        "element type must be f32",
    ),
    "a_load_with_an_integer_mask": (
        f'%o = "mgpu.load"(%g, %n) {{{segments(1, 1, 0)}}} : ({G}, tensor<8x16xi32>) -> tensor<8x16xf32>',
        "mask must be of i1",
    ),
    "a_store_of_another_shape": (
        f'"mgpu.store"(%r, %g) {{{segments(1, 1, 0)}}} : (tensor<16xf32>, {G}) -> ()',
        "shape must be",
    ),
    "a_gather_with_an_index_too_few": (
        f'%o = "mgpu.gather"(%g, %n) {{{segments(1, 1, 0, 0)}}} : ({G}, tensor<8x16xi32>) -> tensor<8x16xf32>',
        "needs 2 indices",
    ),
    "a_gather_with_float_indices": (
        f'%o = "mgpu.gather"(%v, %t) {{{segments(1, 1, 0, 0)}}} : ({V}, tensor<8x16xf32>) -> tensor<8x16xf32>',
        "indices must be integers",
    ),
    "a_scatter_of_a_scalar_to_many_places": (
        f'"mgpu.scatter"(%f, %v, %n) {{{segments(1, 1, 1, 0)}}} : (f32, {V}, tensor<8x16xi32>) -> ()',
        "indices must be integers",
    ),
    "an_iota_outside_of_the_rank": (
        '%o = "mgpu.iota"() {dimension = 2 : i32} : () -> tensor<8x16xi32>',
        "dimension must be below 2",
    ),
    "an_iota_of_floats": ('%o = "mgpu.iota"() {dimension = 0 : i32} : () -> tensor<8xf32>', "must be integers"),
    "a_broadcast_that_does_not_stretch": (
        '%o = "mgpu.broadcast"(%r) {dimensions = [0]} : (tensor<16xf32>) -> tensor<8x16xf32>',
        "does not stretch",
    ),
    "a_broadcast_with_a_dimension_too_few": (
        '%o = "mgpu.broadcast"(%r) {dimensions = []} : (tensor<16xf32>) -> tensor<8x16xf32>',
        "dimensions must have 1 entries",
    ),
    "a_broadcast_out_of_order": (
        '%o = "mgpu.broadcast"(%t) {dimensions = [1, 0]} : (tensor<8x16xf32>) -> tensor<16x8xf32>',
        "must ascend",
    ),
    "a_reshape_to_more_elements": (
        '%o = "mgpu.reshape"(%t) : (tensor<8x16xf32>) -> tensor<8x17xf32>',
        "numbers of elements differ",
    ),
    "a_transpose_by_no_permutation": (
        '%o = "mgpu.transpose"(%t) {permutation = [0, 0]} : (tensor<8x16xf32>) -> tensor<8x8xf32>',
        "not a permutation",
    ),
    "a_transpose_to_another_shape": (
        '%o = "mgpu.transpose"(%t) {permutation = [1, 0]} : (tensor<8x16xf32>) -> tensor<8x16xf32>',
        "result shape must be",
    ),
    "a_slice_that_leaves_the_operand": (
        '%o = "mgpu.slice"(%r) {starts = [9], strides = [2]} : (tensor<16xf32>) -> tensor<8xf32>',
        "the box leaves the operand",
    ),
    "a_concatenation_of_unequal_rows": (
        f'%o = "mgpu.concatenate"(%t, %e) {{dimension = 0 : i32, {segments(2)}}} '
        ": (tensor<8x16xf32>, tensor<8x8xf32>) -> tensor<16x16xf32>",
        "expected 'tensor<8x16xf32>' but got 'tensor<8x8xf32>'",
    ),
    "a_concatenation_of_another_length": (
        f'%o = "mgpu.concatenate"(%t, %t) {{dimension = 0 : i32, {segments(2)}}} '
        ": (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<15x16xf32>",
        "result shape must be",
    ),
    "a_reduce_to_another_shape": (
        f'%o = "mgpu.reduce"(%t, %f) {ADD} {{axes = [1], {FOLD}}} : (tensor<8x16xf32>, f32) -> tensor<16xf32>',
        "result shape must be",
    ),
    "a_reduce_whose_body_takes_other_scalars": (
        f'%o = "mgpu.reduce"(%h, %f) {ADD} {{axes = [0], {FOLD}}} : (tensor<8x16xf16>, f32) -> tensor<16xf16>',
        "the body must take two scalars",
    ),
    "a_scan_outside_of_the_rank": (
        f'%o = "mgpu.scan"(%t, %f) {ADD} {{axis = 2 : i32, reverse = 0 : i32, {FOLD}}} '
        ": (tensor<8x16xf32>, f32) -> tensor<8x16xf32>",
        "axis is outside the rank",
    ),
    "a_layout_conversion_that_changes_the_element": (
        '%o = "mgpu.convert_layout"(%t) : (tensor<8x16xf32>) -> tensor<8x16xf16>',
        "element types",
    ),
    "a_bitcast_to_a_narrower_element_of_the_same_shape": (
        '%o = "mgpu.bitcast"(%t) : (tensor<8x16xf32>) -> tensor<8x16xf16>',
        "result shape must be",
    ),
    "a_bitcast_to_a_wider_element_without_a_fitting_dimension": (
        '%o = "mgpu.bitcast"(%h) : (tensor<8x16xf16>) -> tensor<8xf32>',
        "last dimension does not fit",
    ),
    "a_libdevice_call_of_two_shapes": (
        f'%o = "mgpu.libdevice"(%t, %r) {{function = "__nv_powf", {segments(2)}}} '
        ": (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>",
        "shapes differ",
    ),
    "a_dot_that_contracts_unequal_extents": (
        f'%o = "mgpu.dot"(%t, %t, %e) {{lhs_transposed = 0 : i32, rhs_transposed = 0 : i32, {DOT}}} '
        ": (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>",
        "contracts 16 with 8 elements",
    ),
    "a_dot_into_another_shape": (
        f'%o = "mgpu.dot"(%t, %t, %e) {{lhs_transposed = 1 : i32, rhs_transposed = 0 : i32, {DOT}}} '
        ": (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>",
        "acc must be 16x16",
    ),
    "a_dot_of_two_element_types": (
        f'%o = "mgpu.dot"(%t, %h, %e) {{lhs_transposed = 0 : i32, rhs_transposed = 1 : i32, {DOT}}} '
        ": (tensor<8x16xf32>, tensor<8x16xf16>, tensor<8x8xf32>) -> tensor<8x8xf32>",
        "element types do not fit",
    ),
    "a_wait_that_changes_the_type": (
        '%o = "mgpu.dot_wait"(%e) {pending = 1 : i32} : (tensor<8x8xf32>) -> tensor<8x16xf32>',
        "result and operand differ",
    ),
    "a_wait_for_less_than_no_group": (
        '%o = "mgpu.dot_wait"(%e) {pending = -1 : i32} : (tensor<8x8xf32>) -> tensor<8x8xf32>',
        "pending must be in",
    ),
    "a_dot_of_vectors": (
        f'%o = "mgpu.dot"(%r, %t, %e) {{lhs_transposed = 0 : i32, rhs_transposed = 1 : i32, {DOT}}} '
        ": (tensor<16xf32>, tensor<8x16xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>",
        "operands must have two dimensions",
    ),
    "a_dot_of_global_memory": (
        f'%o = "mgpu.dot"(%g, %t, %e) {{lhs_transposed = 0 : i32, rhs_transposed = 1 : i32, {DOT}}} '
        f": ({G}, tensor<8x16xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>",
        "references must be to shared memory",
    ),
    "a_dot_of_an_unknown_precision": (
        f'%o = "mgpu.dot"(%t, %t, %e) {{lhs_transposed = 0 : i32, rhs_transposed = 1 : i32, {DOT}}} '.replace(
            "ieee", "good"
        )
        + ": (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>",
        "precision must be of",
    ),
    "a_ptx_instruction_on_two_shapes": (
        f'%o = "mgpu.ptx"(%t) {{asm = "neg.f32 $0, $1;", constraints = "=f,f", {segments(1)}}} '
        ": (tensor<8x16xf32>) -> tensor<16xf32>",
        "shapes differ",
    ),
}


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with ir.Context(), ir.Location.unknown():
        dialect.load()
        yield


def test_every_op_of_the_dialect_has_a_valid_example() -> None:
    assert set(VALID) == {op.OPERATION_NAME.removeprefix("mgpu.") for op in Mgpu.operations}


@pytest.mark.parametrize("text", VALID.values(), ids=VALID)
def test_an_op_survives_printing_and_parsing(text: str) -> None:
    printed = str(ir.Module.parse(KERNEL.format(text)))
    assert str(ir.Module.parse(printed)) == printed


@pytest.mark.parametrize(("text", "message"), INVALID.values(), ids=INVALID)
def test_the_verifier_refuses(text: str, message: str) -> None:
    with pytest.raises(ir.MLIRError, match=message):
        ir.Module.parse(KERNEL.format(text))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("grid = [2 : i32]", "grid = [-2 : i32]"), "grid extents must be >= 0"),
        (("aliases = [0 : i32, 1 : i32]", "aliases = [0 : i32]"), "aliases must have one entry"),
        (('%v: !mgpu.ref<tensor<16xf32>, "gmem">', '%v: !mgpu.ref<tensor<16xf32>, "smem">'), "global memory"),
        (('%v: !mgpu.ref<tensor<16xf32>, "gmem">', "%v: f32"), "global memory"),
    ],
)
def test_the_verifier_refuses_a_kernel_with(change: tuple[str, str], message: str) -> None:
    with pytest.raises(ir.MLIRError, match=message):
        ir.Module.parse(KERNEL.format("").replace(*change))
