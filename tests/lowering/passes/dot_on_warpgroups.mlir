// RUN: choose-num-warps,choose-dots,assign-layouts,plan-shared-memory,insert-barriers
// Operands go to swizzled shared memory, K's tail is zero, and the accumulator's layout is the epilogue's.
// CHECK: %[[A:.*]] = "mgpu.alloc"() {mgpu.offset = 0 : i32, mgpu.swizzle = 128 : i32} : () -> !mgpu.ref<tensor<64x64xf16>, "smem">
// CHECK: %[[VA:.*]] = "mgpu.subview"(%[[A]], {{.*}} sizes = [64 : i32, 40 : i32]
// CHECK: "mgpu.store"(%{{.*}}, %[[VA]])
// CHECK: "mgpu.subview"(%[[A]], {{.*}} sizes = [64 : i32, 8 : i32]
// CHECK: %[[B:.*]] = "mgpu.alloc"() {mgpu.offset = 8192 : i32, mgpu.swizzle = 64 : i32} : () -> !mgpu.ref<tensor<48x32xf16>, "smem">
// CHECK: %[[VB:.*]] = "mgpu.subview"(%[[B]], {{.*}} sizes = [40 : i32, 24 : i32]
// CHECK: "mgpu.fence_async"()
// CHECK-NEXT: "mgpu.barrier"()
// CHECK-NEXT: %[[R:.*]] = "mgpu.dot"(%[[VA]], %[[VB]], %{{.*}}) {kind = "wgmma"
// CHECK-NEXT: arith.addf %[[R]], %{{.*}} : tensor<64x24xf32, #mgpu.layout<"64x8 r:0,1;8,0 l:0,2;0,4;1,0;2,0;4,0 w:16,0;32,0">>

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<64x40xf16>, "gmem">, %b: !mgpu.ref<tensor<40x24xf16>, "gmem">, %o: !mgpu.ref<tensor<64x24xf32>, "gmem">):
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x40xf16>, "gmem">) -> tensor<64x40xf16>
  %y = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<40x24xf16>, "gmem">) -> tensor<40x24xf16>
  %z = arith.constant dense<0.0> : tensor<64x24xf32>
  %r = "mgpu.dot"(%x, %y, %z) {lhs_transposed = 0 : i32, rhs_transposed = 0 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<64x40xf16>, tensor<40x24xf16>, tensor<64x24xf32>) -> tensor<64x24xf32>
  %s = arith.addf %r, %r : tensor<64x24xf32>
  "mgpu.store"(%s, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x24xf32>, !mgpu.ref<tensor<64x24xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0, 1, 2]} : () -> ()
