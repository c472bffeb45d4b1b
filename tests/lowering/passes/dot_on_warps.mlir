// RUN: choose-num-warps,choose-dots,assign-layouts
// 16 rows are too few for a warpgroup: fragments in registers, B's through a transposition that costs nothing.
// CHECK: "mgpu.dot"(%{{.*}}, %{{.*}}, %{{.*}}) {kind = "mma"
// CHECK-SAME: mgpu.lhs_layout = #mgpu.layout<"16x16 r:0,1;8,0;0,8 l:0,2;0,4;1,0;2,0;4,0 w:0,0
// CHECK-SAME: mgpu.rhs_layout = #mgpu.layout<"16x{{[0-9]+}} r:1,0;8,0 l:2,0;4,0;0,1;0,2;0,4 w:0,8
// CHECK-SAME: rhs_transposed = 0 : i32

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<16x64xbf16>, "gmem">, %b: !mgpu.ref<tensor<64x64xbf16>, "gmem">, %o: !mgpu.ref<tensor<16x64xf32>, "gmem">):
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<16x64xbf16>, "gmem">) -> tensor<16x64xbf16>
  %y = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xbf16>, "gmem">) -> tensor<64x64xbf16>
  %z = arith.constant dense<0.0> : tensor<16x64xf32>
  %r = "mgpu.dot"(%x, %y, %z) {lhs_transposed = 0 : i32, rhs_transposed = 1 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<16x64xbf16>, tensor<64x64xbf16>, tensor<16x64xf32>) -> tensor<16x64xf32>
  "mgpu.store"(%r, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<16x64xf32>, !mgpu.ref<tensor<16x64xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0, 1, 2]} : () -> ()
