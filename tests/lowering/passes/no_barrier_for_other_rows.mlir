// RUN: choose-num-warps,assign-layouts,plan-shared-memory,insert-barriers num_warps=4
// Constant boxes that do not meet, and arguments that are not aliased, need no barrier.
// CHECK-NOT: "mgpu.barrier"

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<32x32xf32>, "gmem">, %o: !mgpu.ref<tensor<32xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %a = "mgpu.alloc"() : () -> !mgpu.ref<tensor<32x32xf32>, "smem">
  %v = "mgpu.subview"(%a, %c1, %c0) {sizes = [1, 32], strides = [1, 1], dropped = [0], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<32x32xf32>, "smem">, i32, i32) -> !mgpu.ref<tensor<32xf32>, "smem">
  %w = "mgpu.subview"(%a, %c8, %c0) {sizes = [1, 32], strides = [1, 1], dropped = [0], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<32x32xf32>, "smem">, i32, i32) -> !mgpu.ref<tensor<32xf32>, "smem">
  %gv = "mgpu.subview"(%g, %c1, %c0) {sizes = [1, 32], strides = [1, 1], dropped = [0], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<32x32xf32>, "gmem">, i32, i32) -> !mgpu.ref<tensor<32xf32>, "gmem">
  %x = "mgpu.load"(%gv) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "gmem">) -> tensor<32xf32>
  "mgpu.store"(%x, %v) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "smem">) -> ()
  %y = "mgpu.load"(%w) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "smem">) -> tensor<32xf32>
  "mgpu.store"(%y, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
