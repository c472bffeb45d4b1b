// RUN: promote-refs,canonicalize
// What it accumulates into is the same memory as what it reads: nothing is carried.
// CHECK-NOT: iter_args
// CHECK: "mgpu.store"
// CHECK-NEXT: }

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<8x32xf32>, "gmem">, %o: !mgpu.ref<tensor<32xf32>, "gmem">, %b: !mgpu.ref<tensor<i32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %n = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<i32>, "gmem">) -> i32
  scf.for %i = %c0 to %n step %c1 : i32 {
    %v = "mgpu.subview"(%g, %i, %c0) {sizes = [1, 32], strides = [1, 1], dropped = [0], checked = [1, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<8x32xf32>, "gmem">, i32, i32) -> !mgpu.ref<tensor<32xf32>, "gmem">
    %x = "mgpu.load"(%v) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "gmem">) -> tensor<32xf32>
    %old = "mgpu.load"(%o) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "gmem">) -> tensor<32xf32>
    %new = arith.addf %old, %x : tensor<32xf32>
    "mgpu.store"(%new, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "gmem">) -> ()
  }
}) {grid = [1], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0, 0, 2]} : () -> ()
