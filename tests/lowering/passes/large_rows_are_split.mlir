// RUN: split-tiles,canonicalize
// 300 rows of 200 are 60,000 words, more than a block keeps: parts of 15 rows, a divisor of 300 just below 16.  What
// is loaded for all rows alike stays outside of the loop, coordinates are those of the whole.
// CHECK: %[[ROW:.*]] = "mgpu.load"(%arg1)
// CHECK: scf.for %[[K:.*]] = %c0_i32 to %c20_i32 step %c1_i32
// CHECK: %[[FIRST:.*]] = arith.muli %[[K]], %c15_i32
// CHECK: "mgpu.subview"(%arg0, %[[FIRST]], %c0_i32) {checked = [0 : i32, 0 : i32], {{.*}}sizes = [15 : i32, 200 : i32]
// CHECK: "mgpu.broadcast"(%[[ROW]]) {{.*}} -> tensor<15x200xf32>
// CHECK: %[[I:.*]] = "mgpu.iota"() {dimension = 0 : i32} : () -> tensor<15xi32>
// CHECK: %[[B:.*]] = "mgpu.broadcast"(%[[FIRST]])
// CHECK: arith.addi %[[I]], %[[B]]
// CHECK: "mgpu.reduce"
// CHECK: -> tensor<15xf32>
// CHECK: "mgpu.subview"(%arg2, %[[FIRST]], %c0_i32)
// CHECK: "mgpu.store"({{.*}}tensor<15x200xf32>
// CHECK-NOT: tensor<300x200xf32>
// CHECK: } {mgpu.separated}

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<300x200xf32>, "gmem">, %b: !mgpu.ref<tensor<200xf32>, "gmem">, %o: !mgpu.ref<tensor<300x200xf32>, "gmem">):
  %z = arith.constant 0.0 : f32
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<300x200xf32>, "gmem">) -> tensor<300x200xf32>
  %y = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<200xf32>, "gmem">) -> tensor<200xf32>
  %s = "mgpu.reduce"(%x, %z) ({
  ^bb0(%l: f32, %r: f32):
    %t = arith.addf %l, %r : f32
    "mgpu.yield"(%t) {operandSegmentSizes = array<i32: 1>} : (f32) -> ()
  }) {axes = [1 : i32], operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1>} : (tensor<300x200xf32>, f32) -> tensor<300xf32>
  %i = "mgpu.iota"() {dimension = 0 : i32} : () -> tensor<300xi32>
  %f = arith.sitofp %i : tensor<300xi32> to tensor<300xf32>
  %m = arith.mulf %s, %f : tensor<300xf32>
  %p = "mgpu.broadcast"(%m) {dimensions = [0 : i32]} : (tensor<300xf32>) -> tensor<300x200xf32>
  %q = "mgpu.broadcast"(%y) {dimensions = [1 : i32]} : (tensor<200xf32>) -> tensor<300x200xf32>
  %u = arith.addf %p, %q : tensor<300x200xf32>
  %v = arith.addf %u, %x : tensor<300x200xf32>
  "mgpu.store"(%v, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<300x200xf32>, !mgpu.ref<tensor<300x200xf32>, "gmem">) -> ()
}) {grid = [], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0 : i32, 1 : i32, 2 : i32]} : () -> ()
