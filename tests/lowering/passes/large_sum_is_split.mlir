// RUN: split-tiles,canonicalize
// The largest of 70,001 elements: what was found so far is carried from part to part; the last part, which overhangs, is
// filled up with what leaves the other side as it is.
// CHECK: %[[LOW:.*]] = arith.constant 0xFF800000 : f32
// CHECK: %[[R:.*]] = scf.for %[[K:.*]] = %c0_i32 to %c5_i32 step %c1_i32 iter_args(%[[SO_FAR:.*]] = %[[LOW]])
// CHECK: %[[FIRST:.*]] = arith.muli %[[K]], %c16384_i32
// CHECK: "mgpu.subview"(%arg0, %[[FIRST]]) {checked = [1 : i32]
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult, {{.*}} : tensor<16384xi32>
// CHECK: %[[FILLED:.*]] = arith.select %[[INSIDE]]
// CHECK: %[[PART:.*]] = "mgpu.reduce"(%[[FILLED]], %[[LOW]])
// CHECK: %[[NEXT:.*]] = arith.maximumf %[[SO_FAR]], %[[PART]] : f32
// CHECK: scf.yield %[[NEXT]]
// CHECK: "mgpu.store"(%[[R]]

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<70001xf32>, "gmem">, %o: !mgpu.ref<tensor<f32>, "gmem">):
  %z = arith.constant 0xFF800000 : f32
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<70001xf32>, "gmem">) -> tensor<70001xf32>
  %s = "mgpu.reduce"(%x, %z) ({
  ^bb0(%l: f32, %r: f32):
    %t = arith.maximumf %l, %r : f32
    "mgpu.yield"(%t) {operandSegmentSizes = array<i32: 1>} : (f32) -> ()
  }) {axes = [0 : i32], operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1>} : (tensor<70001xf32>, f32) -> f32
  "mgpu.store"(%s, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (f32, !mgpu.ref<tensor<f32>, "gmem">) -> ()
}) {grid = [], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0 : i32, 1 : i32]} : () -> ()
