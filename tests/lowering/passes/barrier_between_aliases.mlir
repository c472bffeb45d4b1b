// RUN: choose-num-warps,assign-layouts,plan-shared-memory,insert-barriers num_warps=4
// Two arguments that are one memory: the scalar load that follows the store of the whole waits.
// CHECK: "mgpu.store"
// CHECK: "mgpu.barrier"
// CHECK-NEXT: "mgpu.load"({{.*}} -> f32

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<32xf32>, "gmem">, %o: !mgpu.ref<tensor<32xf32>, "gmem">, %p: !mgpu.ref<tensor<f32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %x = "mgpu.load"(%g) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "gmem">) -> tensor<32xf32>
  %y = arith.addf %x, %x : tensor<32xf32>
  "mgpu.store"(%y, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "gmem">) -> ()
  %v = "mgpu.subview"(%g, %c1) {sizes = [1], strides = [1], dropped = [0], checked = [0], operandSegmentSizes = array<i32: 1, 1>} : (!mgpu.ref<tensor<32xf32>, "gmem">, i32) -> !mgpu.ref<tensor<f32>, "gmem">
  %s = "mgpu.load"(%v) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<f32>, "gmem">) -> f32
  "mgpu.store"(%s, %p) {operandSegmentSizes = array<i32: 1, 1, 0>} : (f32, !mgpu.ref<tensor<f32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 0, 2]} : () -> ()
