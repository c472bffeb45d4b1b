// RUN: canonicalize,hoist-steps,promote-refs,drop-dead-carries,canonicalize,walk-tiles,canonicalize
// Two dimensions whose steps do not depend on each other, one of them with a computed bound: one walk over both.
// CHECK-DAG: %[[N:.*]] = "mgpu.load"(%arg0)
// CHECK-DAG: "mgpu.num_programs"()
// CHECK: %[[TOTAL:.*]] = arith.muli {{.*}} : i64
// CHECK: scf.for %[[TILE:.*]] = {{.*}} to %[[TOTAL]] step {{.*}} : i64
// CHECK: arith.remui %[[TILE]]
// CHECK: %[[R:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %cst)
// CHECK-NOT: scf.for
// CHECK: "mgpu.store"(%[[R]]
// CHECK: grid = [-1 : i32]

"mgpu.kernel"() ({
^bb0(%b: !mgpu.ref<tensor<i32>, "gmem">, %g: !mgpu.ref<tensor<4x32xf32>, "gmem">, %o: !mgpu.ref<tensor<4x32xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %c7 = arith.constant 7 : i32
  %c8 = arith.constant 8 : i32
  %z = arith.constant dense<0.0> : tensor<32xf32>
  %a = "mgpu.alloc"() : () -> !mgpu.ref<tensor<32xf32>, "smem">
  %n = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<i32>, "gmem">) -> i32
  scf.for %k = %c0 to %c4 step %c1 : i32 {
  scf.for %j = %c0 to %n step %c1 : i32 {
    scf.for %i = %c0 to %c8 step %c1 : i32 {
      %first = arith.cmpi eq, %i, %c0 : i32
      scf.if %first {
        "mgpu.store"(%z, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "smem">) -> ()
      }
      %v = "mgpu.subview"(%g, %j, %c0) {sizes = [1, 32], strides = [1, 1], dropped = [0], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<4x32xf32>, "gmem">, i32, i32) -> !mgpu.ref<tensor<32xf32>, "gmem">
      %x = "mgpu.load"(%v) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "gmem">) -> tensor<32xf32>
      %old = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "smem">) -> tensor<32xf32>
      %new = arith.addf %old, %x : tensor<32xf32>
      "mgpu.store"(%new, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "smem">) -> ()
      %last = arith.cmpi eq, %i, %c7 : i32
      scf.if %last {
        %w = "mgpu.subview"(%o, %j, %c0) {sizes = [1, 32], strides = [1, 1], dropped = [0], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<4x32xf32>, "gmem">, i32, i32) -> !mgpu.ref<tensor<32xf32>, "gmem">
        %r = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "smem">) -> tensor<32xf32>
        "mgpu.store"(%r, %w) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "gmem">) -> ()
      }
    }
  } {mgpu.separated}
  } {mgpu.separated}
}) {grid = [], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0 : i32, 1 : i32, 2 : i32]} : () -> ()
