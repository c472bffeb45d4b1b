// RUN: choose-num-warps,assign-layouts,warp-specialize,pipeline-loops,wait-for-grids num_warps=4 warp_specialize=yes programmatic_launch=yes
// Mbarriers are made while the predecessor ends; producer and consumers both touch global memory behind the wait.
// CHECK: "mgpu.barrier_init"
// CHECK: "mgpu.barrier"
// CHECK-NOT: "mgpu.async_load"
// CHECK: "mgpu.wait_for_grids"() : () -> ()
// CHECK-NEXT: "mgpu.specialize"
// CHECK-NOT: "mgpu.wait_for_grids"

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<256x32xf32>, "gmem">, %o: !mgpu.ref<tensor<32x32xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c32 = arith.constant 32 : i32
  %z = arith.constant dense<0.0> : tensor<32x32xf32>
  %r = scf.for %i = %c0 to %c8 step %c1 iter_args(%a = %z) -> (tensor<32x32xf32>) : i32 {
    %row = arith.muli %i, %c32 : i32
    %v = "mgpu.subview"(%g, %row, %c0) {sizes = [32, 32], strides = [1, 1], dropped = [], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<256x32xf32>, "gmem">, i32, i32) -> !mgpu.ref<tensor<32x32xf32>, "gmem">
    %x = "mgpu.load"(%v) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32x32xf32>, "gmem">) -> tensor<32x32xf32>
    %s = arith.addf %a, %x : tensor<32x32xf32>
    scf.yield %s : tensor<32x32xf32>
  }
  "mgpu.store"(%r, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
