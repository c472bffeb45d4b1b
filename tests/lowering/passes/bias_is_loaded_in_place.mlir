// RUN: choose-num-warps,assign-layouts
// A row that is broadcast is loaded by every warp in the layout that the broadcast wants: no conversion.
// CHECK: "mgpu.load"({{.*}} -> tensor<1000xf32, #mgpu.layout<"128 r:1;2 l:4;8;16;32;64 w:0;0">>
// CHECK-NOT: "mgpu.convert_layout"

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<4x1000xf32>, "gmem">, %b: !mgpu.ref<tensor<1000xf32>, "gmem">, %o: !mgpu.ref<tensor<4x1000xf32>, "gmem">, %p: !mgpu.ref<tensor<4xf32>, "gmem">):
  %z = arith.constant 0.0 : f32
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<4x1000xf32>, "gmem">) -> tensor<4x1000xf32>
  %y = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<1000xf32>, "gmem">) -> tensor<1000xf32>
  %yb = "mgpu.broadcast"(%y) {dimensions = [1]} : (tensor<1000xf32>) -> tensor<4x1000xf32>
  %xy = arith.addf %x, %yb : tensor<4x1000xf32>
  %m = "mgpu.reduce"(%xy, %z) ({
  ^bb0(%l: f32, %q: f32):
    %s = arith.addf %l, %q : f32
    "mgpu.yield"(%s) {operandSegmentSizes = array<i32: 1>} : (f32) -> ()
  }) {axes = [1], operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1>} : (tensor<4x1000xf32>, f32) -> tensor<4xf32>
  "mgpu.store"(%m, %p) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4xf32>, !mgpu.ref<tensor<4xf32>, "gmem">) -> ()
  "mgpu.store"(%xy, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4x1000xf32>, !mgpu.ref<tensor<4x1000xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1, 2, 3]} : () -> ()
