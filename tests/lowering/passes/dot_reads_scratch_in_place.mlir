// RUN: choose-num-warps,choose-dots
// The ring is read where it lies; the other operand was overwritten after it was loaded, so it is staged.
// CHECK: %[[RING:.*]] = "mgpu.alloc"() {mgpu.swizzle = 128 : i32} : () -> !mgpu.ref<tensor<2x64x64xf16>, "smem">
// CHECK: "mgpu.alloc"() : () -> !mgpu.ref<tensor<64x64xf16>, "smem">
// CHECK: %[[SLOT:.*]] = "mgpu.subview"(%[[RING]],
// CHECK: "mgpu.store"(%{{.*}}, %[[SLOT]])
// CHECK-NEXT: "mgpu.fence_async"
// CHECK-NOT: "mgpu.load"(%[[SLOT]])
// CHECK: "mgpu.alloc"() {mgpu.swizzle = 128 : i32} : () -> !mgpu.ref<tensor<64x64xf16>, "smem">
// CHECK: "mgpu.dot"(%[[SLOT]],

"mgpu.kernel"() ({
^bb0(%o: !mgpu.ref<tensor<64x64xf32>, "gmem">):
  %z = arith.constant dense<0.0> : tensor<64x64xf32>
  %h = arith.constant dense<1.0> : tensor<64x64xf16>
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %ring = "mgpu.alloc"() : () -> !mgpu.ref<tensor<2x64x64xf16>, "smem">
  %one = "mgpu.alloc"() : () -> !mgpu.ref<tensor<64x64xf16>, "smem">
  %s = "mgpu.subview"(%ring, %c1, %c0, %c0) {sizes = [1, 64, 64], strides = [1, 1, 1], dropped = [0], checked = [0, 0, 0], operandSegmentSizes = array<i32: 1, 3>} : (!mgpu.ref<tensor<2x64x64xf16>, "smem">, i32, i32, i32) -> !mgpu.ref<tensor<64x64xf16>, "smem">
  "mgpu.store"(%h, %s) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x64xf16>, !mgpu.ref<tensor<64x64xf16>, "smem">) -> ()
  "mgpu.store"(%h, %one) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x64xf16>, !mgpu.ref<tensor<64x64xf16>, "smem">) -> ()
  %x = "mgpu.load"(%s) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xf16>, "smem">) -> tensor<64x64xf16>
  %y = "mgpu.load"(%one) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xf16>, "smem">) -> tensor<64x64xf16>
  "mgpu.store"(%h, %one) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x64xf16>, !mgpu.ref<tensor<64x64xf16>, "smem">) -> ()
  %r = "mgpu.dot"(%x, %y, %z) {lhs_transposed = 0 : i32, rhs_transposed = 0 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
  "mgpu.store"(%r, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x64xf32>, !mgpu.ref<tensor<64x64xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 0 : i32, sym_name = "f", aliases = [0]} : () -> ()
