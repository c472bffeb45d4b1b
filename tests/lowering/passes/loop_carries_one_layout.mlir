// RUN: choose-num-warps,assign-layouts
// The accumulator starts as a constant and takes the layout of what is added; start, argument, yield and result agree.
// CHECK: arith.constant dense<0.000000e+00> : tensor<128xf32, #mgpu.layout<"[[L:.*]]">>
// CHECK: scf.for {{.*}} -> (tensor<128xf32, #mgpu.layout<"[[L]]">>)
// CHECK: "mgpu.load"({{.*}} -> tensor<128xf32, #mgpu.layout<"[[L]]">>
// CHECK: scf.yield {{.*}} : tensor<128xf32, #mgpu.layout<"[[L]]">>
// CHECK-NOT: "mgpu.convert_layout"

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<8x128xf32>, "gmem">, %o: !mgpu.ref<tensor<128xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %i = arith.constant dense<0.0> : tensor<128xf32>
  %r = scf.for %k = %c0 to %c8 step %c1 iter_args(%acc = %i) -> (tensor<128xf32>) : i32 {
  %v = "mgpu.subview"(%a, %k, %c0) {sizes = [1, 128], strides = [1, 1], dropped = [0], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<8x128xf32>, "gmem">, i32, i32) -> !mgpu.ref<tensor<128xf32>, "gmem">
  %x = "mgpu.load"(%v) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<128xf32>, "gmem">) -> tensor<128xf32>
  %y = arith.addf %acc, %x : tensor<128xf32>
  scf.yield %y : tensor<128xf32>
  }
  "mgpu.store"(%r, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<128xf32>, !mgpu.ref<tensor<128xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
