// RUN: choose-num-warps,assign-layouts,plan-shared-memory,insert-barriers num_warps=1
// The window moves by a row each time, so that another thread stores to the same place in the next iteration.
// CHECK: scf.for
// CHECK: "mgpu.store"
// CHECK-NEXT: "mgpu.barrier"
// CHECK-NEXT: }

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<8x8xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %k = arith.constant dense<1.0> : tensor<4x8xf32>
  %a = "mgpu.alloc"() : () -> !mgpu.ref<tensor<8x8xf32>, "smem">
  scf.for %i = %c0 to %c8 step %c1 : i32 {
  %v = "mgpu.subview"(%a, %i, %c0) {sizes = [4, 8], strides = [1, 1], dropped = [], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<8x8xf32>, "smem">, i32, i32) -> !mgpu.ref<tensor<4x8xf32>, "smem">
  "mgpu.store"(%k, %v) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4x8xf32>, !mgpu.ref<tensor<4x8xf32>, "smem">) -> ()
  }
}) {grid = [1], num_warps = 1 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0]} : () -> ()
