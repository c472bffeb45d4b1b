// RUN: choose-num-warps,choose-dots
// What is added to a dot of zeros becomes its accumulator; a transposed operand becomes a flag.
// CHECK: %[[C:.*]] = "mgpu.load"(%{{.*}} -> tensor<64x64xf32>
// CHECK: "mgpu.dot"(%{{.*}}, %{{.*}}, %[[C]]) {kind = "wgmma", lhs_transposed = 0 : i32, {{.*}}rhs_transposed = 1 : i32
// CHECK-NOT: arith.addf

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<64x64xf16>, "gmem">, %p: !mgpu.ref<tensor<64x64xf32>, "gmem">, %o: !mgpu.ref<tensor<64x64xf32>, "gmem">):
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xf16>, "gmem">) -> tensor<64x64xf16>
  %z = arith.constant dense<0.0> : tensor<64x64xf32>
  %t = "mgpu.transpose"(%x) {permutation = [1, 0]} : (tensor<64x64xf16>) -> tensor<64x64xf16>
  %r = "mgpu.dot"(%x, %t, %z) {lhs_transposed = 0 : i32, rhs_transposed = 0 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %c = "mgpu.load"(%p) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xf32>, "gmem">) -> tensor<64x64xf32>
  %s = arith.addf %c, %r : tensor<64x64xf32>
  "mgpu.store"(%s, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x64xf32>, !mgpu.ref<tensor<64x64xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0, 1, 2]} : () -> ()
