// RUN: choose-num-warps,assign-layouts,plan-shared-memory,insert-barriers num_warps=4
// A store and a load of the transposed tile; the next store waits for that load; a load in the same place does not wait.
// CHECK: "mgpu.store"
// CHECK-NEXT: %[[X:.*]] = "mgpu.load"({{.*}} -> tensor<32x32xf32
// CHECK-NEXT: "mgpu.store"
// CHECK-NEXT: "mgpu.subview"
// CHECK-NEXT: "mgpu.barrier"
// CHECK-NEXT: "mgpu.load"({{.*}} -> tensor<32xf32
// CHECK-NEXT: "mgpu.barrier"
// CHECK-NEXT: "mgpu.store"
// CHECK-NOT: "mgpu.barrier"

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<32x32xf32>, "gmem">, %o: !mgpu.ref<tensor<32xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %x = "mgpu.load"(%g) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32x32xf32>, "gmem">) -> tensor<32x32xf32>
  %a = "mgpu.alloc"() : () -> !mgpu.ref<tensor<32x32xf32>, "smem">
  "mgpu.store"(%x, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "smem">) -> ()
  %y = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32x32xf32>, "smem">) -> tensor<32x32xf32>
  "mgpu.store"(%y, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "smem">) -> ()
  %v = "mgpu.subview"(%a, %c1, %c0) {sizes = [1, 32], strides = [1, 1], dropped = [0], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<32x32xf32>, "smem">, i32, i32) -> !mgpu.ref<tensor<32xf32>, "smem">
  %r = "mgpu.load"(%v) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "smem">) -> tensor<32xf32>
  "mgpu.store"(%y, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "smem">) -> ()
  "mgpu.store"(%r, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
