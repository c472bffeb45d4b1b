// RUN: choose-num-warps,assign-layouts,plan-shared-memory,insert-barriers num_warps=4
// Each iteration stores the whole and loads a row: a barrier between, and one before the next iteration's store.
// CHECK: scf.for
// CHECK-NEXT: "mgpu.store"
// CHECK-NEXT: "mgpu.subview"
// CHECK-NEXT: "mgpu.barrier"
// CHECK-NEXT: "mgpu.load"
// CHECK: "mgpu.barrier"
// CHECK-NEXT: scf.yield
// CHECK-NOT: "mgpu.barrier"

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<32x32xf32>, "gmem">, %o: !mgpu.ref<tensor<32xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %i0 = arith.constant dense<0.0> : tensor<32xf32>
  %x = "mgpu.load"(%g) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32x32xf32>, "gmem">) -> tensor<32x32xf32>
  %a = "mgpu.alloc"() : () -> !mgpu.ref<tensor<32x32xf32>, "smem">
  %s = scf.for %i = %c0 to %c8 step %c1 iter_args(%acc = %i0) -> (tensor<32xf32>) : i32 {
  "mgpu.store"(%x, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "smem">) -> ()
  %v = "mgpu.subview"(%a, %i, %c0) {sizes = [1, 32], strides = [1, 1], dropped = [0], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<32x32xf32>, "smem">, i32, i32) -> !mgpu.ref<tensor<32xf32>, "smem">
  %r = "mgpu.load"(%v) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "smem">) -> tensor<32xf32>
  %n = arith.addf %acc, %r : tensor<32xf32>
  scf.yield %n : tensor<32xf32>
  }
  "mgpu.store"(%s, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
