// RUN: canonicalize,hoist-steps,promote-refs,hoist-loads,canonicalize,cse
// The scratch memory of a matmul-like loop: zeroed in the first step, written out in the last one.
// CHECK-NOT: "mgpu.alloc"
// CHECK: %[[Z:.*]] = arith.constant dense<0.000000e+00>
// CHECK: %[[R:.*]] = scf.for {{.*}} iter_args(%[[A:.*]] = %[[Z]])
// CHECK-NOT: scf.if
// CHECK: %[[S:.*]] = arith.addf %[[A]]
// CHECK-NEXT: scf.yield %[[S]]
// CHECK: "mgpu.store"(%[[R]], %arg1)

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<8x32xf32>, "gmem">, %o: !mgpu.ref<tensor<32xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c7 = arith.constant 7 : i32
  %c8 = arith.constant 8 : i32
  %z = arith.constant dense<0.0> : tensor<32xf32>
  %a = "mgpu.alloc"() : () -> !mgpu.ref<tensor<32xf32>, "smem">
  scf.for %i = %c0 to %c8 step %c1 : i32 {
    %first = arith.cmpi eq, %i, %c0 : i32
    scf.if %first {
      "mgpu.store"(%z, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "smem">) -> ()
    }
    %v = "mgpu.subview"(%g, %i, %c0) {sizes = [1, 32], strides = [1, 1], dropped = [0], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<8x32xf32>, "gmem">, i32, i32) -> !mgpu.ref<tensor<32xf32>, "gmem">
    %x = "mgpu.load"(%v) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "gmem">) -> tensor<32xf32>
    %old = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "smem">) -> tensor<32xf32>
    %new = arith.addf %old, %x : tensor<32xf32>
    "mgpu.store"(%new, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "smem">) -> ()
    %last = arith.cmpi eq, %i, %c7 : i32
    scf.if %last {
      %r = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "smem">) -> tensor<32xf32>
      "mgpu.store"(%r, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "gmem">) -> ()
    }
  }
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
