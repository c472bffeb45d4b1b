// RUN: wait-for-grids programmatic_launch=yes
// What is inside of a branch counts: the wait is in front of it, where every thread comes by.
// CHECK: "mgpu.program_id"
// CHECK: arith.cmpi
// CHECK-NEXT: "mgpu.wait_for_grids"() : () -> ()
// CHECK-NEXT: scf.if
// CHECK-NOT: "mgpu.wait_for_grids"

"mgpu.kernel"() ({
^bb0(%o: !mgpu.ref<tensor<f32>, "gmem">):
  %x = arith.constant 1.0 : f32
  %c1 = arith.constant 1 : i32
  %i = "mgpu.program_id"() {axis = 0 : i32} : () -> i32
  %p = arith.cmpi eq, %i, %c1 : i32
  scf.if %p {
    "mgpu.store"(%x, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (f32, !mgpu.ref<tensor<f32>, "gmem">) -> ()
  }
}) {grid = [2], num_warps = 1 : i32, num_inputs = 0 : i32, sym_name = "f", aliases = [0]} : () -> ()
