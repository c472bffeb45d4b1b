// RUN: choose-num-warps,assign-layouts
// Slices at multiples of what the threads span, and their concatenation, stay in place.
// CHECK-NOT: "mgpu.convert_layout"
// CHECK: "mgpu.slice"({{.*}}(tensor<4x1024xf32, #mgpu.layout<"[[L:.*]]">>) -> tensor<4x512xf32, #mgpu.layout<"[[L]]">>
// CHECK: "mgpu.concatenate"({{.*}} -> tensor<4x1024xf32, #mgpu.layout<"[[L]]">>
// CHECK-NOT: "mgpu.convert_layout"

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<4x1024xf32>, "gmem">, %o: !mgpu.ref<tensor<4x1024xf32>, "gmem">, %p: !mgpu.ref<tensor<4xf32>, "gmem">):
  %z = arith.constant 0.0 : f32
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<4x1024xf32>, "gmem">) -> tensor<4x1024xf32>
  %m = "mgpu.reduce"(%x, %z) ({
  ^bb0(%l: f32, %q: f32):
    %s = arith.addf %l, %q : f32
    "mgpu.yield"(%s) {operandSegmentSizes = array<i32: 1>} : (f32) -> ()
  }) {axes = [1], operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1>} : (tensor<4x1024xf32>, f32) -> tensor<4xf32>
  "mgpu.store"(%m, %p) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4xf32>, !mgpu.ref<tensor<4xf32>, "gmem">) -> ()
  %l = "mgpu.slice"(%x) {starts = [0, 0], strides = [1, 1]} : (tensor<4x1024xf32>) -> tensor<4x512xf32>
  %h = "mgpu.slice"(%x) {starts = [0, 512], strides = [1, 1]} : (tensor<4x1024xf32>) -> tensor<4x512xf32>
  %c = "mgpu.concatenate"(%h, %l) {dimension = 1 : i32, operandSegmentSizes = array<i32: 2>} : (tensor<4x512xf32>, tensor<4x512xf32>) -> tensor<4x1024xf32>
  "mgpu.store"(%c, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4x1024xf32>, !mgpu.ref<tensor<4x1024xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1, 2]} : () -> ()
