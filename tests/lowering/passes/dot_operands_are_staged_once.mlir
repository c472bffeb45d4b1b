// RUN: choose-num-warps,choose-dots
// What the loop does not change is staged before it, and the tile that both dots read is staged once.
// CHECK: %[[A:.*]] = "mgpu.alloc"()
// CHECK: "mgpu.store"
// CHECK-NEXT: "mgpu.fence_async"
// CHECK: scf.for
// CHECK: "mgpu.alloc"()
// CHECK: "mgpu.store"
// CHECK-NOT: "mgpu.store"
// CHECK: "mgpu.dot"(%{{.*}}, %[[B:.*]], %{{.*}}) {{.*}} rhs_transposed = 0 : i32
// CHECK-NOT: "mgpu.store"
// CHECK: "mgpu.dot"(%{{.*}}, %[[B]], %{{.*}}) {{.*}} rhs_transposed = 1 : i32

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<64x64xf16>, "gmem">, %b: !mgpu.ref<tensor<64x64xf16>, "gmem">, %o: !mgpu.ref<tensor<64x64xf32>, "gmem">):
  %z = arith.constant dense<0.0> : tensor<64x64xf32>
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xf16>, "gmem">) -> tensor<64x64xf16>
  %l = scf.for %i = %c0 to %c4 step %c1 iter_args(%s = %z) -> (tensor<64x64xf32>) : i32 {
  %y = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xf16>, "gmem">) -> tensor<64x64xf16>
    %r = "mgpu.dot"(%x, %y, %s) {lhs_transposed = 0 : i32, rhs_transposed = 0 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %t = "mgpu.dot"(%x, %y, %r) {lhs_transposed = 0 : i32, rhs_transposed = 1 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
    scf.yield %t : tensor<64x64xf32>
  }
  "mgpu.store"(%l, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x64xf32>, !mgpu.ref<tensor<64x64xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0, 1, 2]} : () -> ()
