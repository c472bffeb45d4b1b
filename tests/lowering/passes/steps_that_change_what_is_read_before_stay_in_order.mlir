// RUN: parallelize-loops
// Argument 1 is the memory of argument 0, whose first row is read before the loop: another block's step could have
// changed it by then.
// CHECK-NOT: "mgpu.program_id"
// CHECK: scf.for
// CHECK: grid = []

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<4x32xf32>, "gmem">, %o: !mgpu.ref<tensor<4x32xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %first = "mgpu.subview"(%g, %c0, %c0) {sizes = [1, 32], strides = [1, 1], dropped = [0], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<4x32xf32>, "gmem">, i32, i32) -> !mgpu.ref<tensor<32xf32>, "gmem">
  %x = "mgpu.load"(%first) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "gmem">) -> tensor<32xf32>
  scf.for %j = %c0 to %c4 step %c1 : i32 {
    %w = "mgpu.subview"(%o, %j, %c0) {sizes = [1, 32], strides = [1, 1], dropped = [0], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<4x32xf32>, "gmem">, i32, i32) -> !mgpu.ref<tensor<32xf32>, "gmem">
    %y = "mgpu.load"(%w) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "gmem">) -> tensor<32xf32>
    %z = arith.addf %x, %y : tensor<32xf32>
    "mgpu.store"(%z, %w) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "gmem">) -> ()
  } {mgpu.separated}
}) {grid = [], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0 : i32, 0 : i32]} : () -> ()
