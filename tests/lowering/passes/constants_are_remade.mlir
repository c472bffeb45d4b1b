// RUN: choose-num-warps,assign-layouts
// One constant and one iota feed two layouts (a tile and its transposition): they are made twice, never converted.
// CHECK-DAG: arith.constant dense<2.000000e+00> : tensor<32x32xf32, #mgpu.layout<"[[A:.*]]">>
// CHECK-DAG: arith.constant dense<2.000000e+00> : tensor<32x32xf32, #mgpu.layout<"[[B:.*]]">>
// CHECK: "mgpu.transpose"
// CHECK-NOT: "mgpu.convert_layout"

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<32x32xf32>, "gmem">, %o: !mgpu.ref<tensor<32x32xf32>, "gmem">, %p: !mgpu.ref<tensor<32xf32>, "gmem">):
  %z = arith.constant 0.0 : f32
  %two = arith.constant dense<2.0> : tensor<32x32xf32>
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32x32xf32>, "gmem">) -> tensor<32x32xf32>
  %m = arith.mulf %x, %two : tensor<32x32xf32>
  %t = "mgpu.transpose"(%m) {permutation = [1, 0]} : (tensor<32x32xf32>) -> tensor<32x32xf32>
  %u = arith.addf %t, %two : tensor<32x32xf32>
  "mgpu.store"(%u, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1, 2]} : () -> ()
