// RUN: choose-num-warps,choose-dots target=sm_80
// No warpgroups there, and no matrix unit for f8, which f16 holds.
// CHECK: "mgpu.dot"({{.*}} {kind = "mma"
// CHECK: arith.extf %{{.*}} : tensor<64x64xf8E4M3FN> to tensor<64x64xf16>
// CHECK: "mgpu.dot"({{.*}} {kind = "mma"{{.*}} : (tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32>)

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<64x64xf16>, "gmem">, %b: !mgpu.ref<tensor<64x64xf8E4M3FN>, "gmem">, %o: !mgpu.ref<tensor<64x64xf32>, "gmem">):
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xf16>, "gmem">) -> tensor<64x64xf16>
  %z = arith.constant dense<0.0> : tensor<64x64xf32>
  %r = "mgpu.dot"(%x, %x, %z) {lhs_transposed = 0 : i32, rhs_transposed = 0 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %y = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xf8E4M3FN>, "gmem">) -> tensor<64x64xf8E4M3FN>
  %s = "mgpu.dot"(%y, %y, %z) {lhs_transposed = 0 : i32, rhs_transposed = 0 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<64x64xf8E4M3FN>, tensor<64x64xf8E4M3FN>, tensor<64x64xf32>) -> tensor<64x64xf32>
  "mgpu.store"(%r, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x64xf32>, !mgpu.ref<tensor<64x64xf32>, "gmem">) -> ()
  "mgpu.store"(%s, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x64xf32>, !mgpu.ref<tensor<64x64xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0, 1, 2]} : () -> ()
