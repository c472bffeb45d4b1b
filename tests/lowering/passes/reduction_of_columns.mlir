// RUN: choose-num-warps,assign-layouts
// A fold along the slow dimension: warps are turned towards the columns, so that none of them have to exchange.
// CHECK: "mgpu.load"({{.*}} -> tensor<64x512xf32, #mgpu.layout<"{{[^"]*}} w:0,{{[0-9]+}};0,{{[0-9]+}}{{[^"]*}}">>
// CHECK: -> tensor<512xf32, #mgpu.layout<"

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<64x512xf32>, "gmem">, %o: !mgpu.ref<tensor<512xf32>, "gmem">):
  %z = arith.constant 0.0 : f32
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x512xf32>, "gmem">) -> tensor<64x512xf32>
  %s = "mgpu.reduce"(%x, %z) ({
  ^bb0(%l: f32, %q: f32):
    %s = arith.addf %l, %q : f32
    "mgpu.yield"(%s) {operandSegmentSizes = array<i32: 1>} : (f32) -> ()
  }) {axes = [0], operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1>} : (tensor<64x512xf32>, f32) -> tensor<512xf32>
  "mgpu.store"(%s, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<512xf32>, !mgpu.ref<tensor<512xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
