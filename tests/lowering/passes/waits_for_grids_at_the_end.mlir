// RUN: wait-for-grids programmatic_launch=yes
// Shared memory is the block's own; a kernel that touches nothing else waits all the same: the grid behind relies on it.
// CHECK: "mgpu.store"
// CHECK-NEXT: "mgpu.wait_for_grids"() : () -> ()
// CHECK-NOT: "mgpu.wait_for_grids"

"mgpu.kernel"() ({
^bb0(%o: !mgpu.ref<tensor<f32>, "gmem">):
  %x = arith.constant 1.0 : f32
  %a = "mgpu.alloc"() : () -> !mgpu.ref<tensor<f32>, "smem">
  "mgpu.store"(%x, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (f32, !mgpu.ref<tensor<f32>, "smem">) -> ()
}) {grid = [1], num_warps = 1 : i32, num_inputs = 0 : i32, sym_name = "f", aliases = [0]} : () -> ()
