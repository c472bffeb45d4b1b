// RUN: choose-num-warps,assign-layouts,plan-shared-memory,insert-barriers num_warps=4
// A branch that stores makes what follows wait; a branch whose load meets an earlier store waits before the branch.
// CHECK: "mgpu.store"
// CHECK: "mgpu.barrier"
// CHECK-NEXT: scf.if
// CHECK-NOT: "mgpu.barrier"
// CHECK: } else {
// CHECK: "mgpu.store"
// CHECK: }
// CHECK: "mgpu.barrier"
// CHECK-NEXT: "mgpu.load"

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<32x32xf32>, "gmem">, %o: !mgpu.ref<tensor<32xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %p = "mgpu.program_id"() {axis = 0 : i32} : () -> i32
  %b = arith.cmpi eq, %p, %c0 : i32
  %k = arith.constant dense<0.0> : tensor<32x32xf32>
  %a = "mgpu.alloc"() : () -> !mgpu.ref<tensor<32x32xf32>, "smem">
  "mgpu.store"(%k, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "smem">) -> ()
  %v = "mgpu.subview"(%a, %p, %c0) {sizes = [1, 32], strides = [1, 1], dropped = [0], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<32x32xf32>, "smem">, i32, i32) -> !mgpu.ref<tensor<32xf32>, "smem">
  %s = scf.if %b -> (tensor<32xf32>) {
  %r = "mgpu.load"(%v) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "smem">) -> tensor<32xf32>
    scf.yield %r : tensor<32xf32>
  } else {
    %one = arith.constant dense<1.0> : tensor<32xf32>
  "mgpu.store"(%one, %v) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "smem">) -> ()
    scf.yield %one : tensor<32xf32>
  }
  %y = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32x32xf32>, "smem">) -> tensor<32x32xf32>
  "mgpu.store"(%y, %g) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "gmem">) -> ()
  "mgpu.store"(%s, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
