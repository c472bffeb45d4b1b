// RUN: choose-num-warps,choose-dots,assign-layouts
// The left side of the second dot comes from the first one: its registers are renamed, not stored.
// CHECK: "mgpu.dot"(%{{.*}}, %{{.*}}, %{{.*}}) {kind = "wgmma"
// CHECK: %[[P:.*]] = arith.truncf
// CHECK: %[[Q:.*]] = "mgpu.convert_layout"(%[[P]]){{.*}} -> tensor<64x64xf16, #mgpu.layout<"64x16 r:0,1;8,0;0,8 l:0,2;0,4;1,0;2,0;4,0 w:16,0;32,0">>
// CHECK: "mgpu.dot"(%[[Q]], %{{.*}}, %{{.*}}) {kind = "wgmma"{{.*}}mgpu.lhs_layout

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<64x64xf16>, "gmem">, %b: !mgpu.ref<tensor<64x64xf16>, "gmem">, %o: !mgpu.ref<tensor<64x64xf32>, "gmem">):
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xf16>, "gmem">) -> tensor<64x64xf16>
  %y = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xf16>, "gmem">) -> tensor<64x64xf16>
  %z = arith.constant dense<0.0> : tensor<64x64xf32>
  %r = "mgpu.dot"(%x, %y, %z) {lhs_transposed = 0 : i32, rhs_transposed = 0 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %h = arith.truncf %r : tensor<64x64xf32> to tensor<64x64xf16>
  %s = "mgpu.dot"(%h, %y, %z) {lhs_transposed = 0 : i32, rhs_transposed = 0 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
  "mgpu.store"(%s, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x64xf32>, !mgpu.ref<tensor<64x64xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0, 1, 2]} : () -> ()
