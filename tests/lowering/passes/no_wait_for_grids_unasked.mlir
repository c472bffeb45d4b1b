// RUN: wait-for-grids
// CHECK: "mgpu.store"
// CHECK-NOT: "mgpu.wait_for_grids"

"mgpu.kernel"() ({
^bb0(%o: !mgpu.ref<tensor<f32>, "gmem">):
  %x = arith.constant 1.0 : f32
  "mgpu.store"(%x, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (f32, !mgpu.ref<tensor<f32>, "gmem">) -> ()
}) {grid = [1], num_warps = 1 : i32, num_inputs = 0 : i32, sym_name = "f", aliases = [0]} : () -> ()
