// RUN: split-tiles,canonicalize
// 1000 rows of a product with 64 columns, summed over 1024: parts of 64 rows, and inside of them
// a loop that carries the sum.  The last rows overhang.
// CHECK: scf.for %[[I:.*]] = %c0_i32 to %c16_i32
// CHECK: %[[ROW:.*]] = arith.muli %[[I]], %c64_i32
// CHECK: %[[SUM:.*]] = scf.for %[[K:.*]] = %c0_i32 to %c4_i32 step %c1_i32 iter_args(%[[ACC:.*]] = %cst)
// CHECK: %[[PLACE:.*]] = arith.muli %[[K]], %c256_i32
// CHECK: "mgpu.dot"({{.*}}, %[[ACC]])
// CHECK-SAME: (tensor<64x256xf32>, tensor<256x64xf32>, tensor<64x64xf32>)
// CHECK: "mgpu.subview"(%arg2, %[[ROW]], %c0_i32) {checked = [1 : i32, 0 : i32]
// CHECK: "mgpu.store"(%[[SUM]]

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<1000x1024xf32>, "gmem">, %b: !mgpu.ref<tensor<1024x64xf32>, "gmem">, %o: !mgpu.ref<tensor<1000x64xf32>, "gmem">):
  %z = arith.constant dense<0.0> : tensor<1000x64xf32>
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<1000x1024xf32>, "gmem">) -> tensor<1000x1024xf32>
  %y = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<1024x64xf32>, "gmem">) -> tensor<1024x64xf32>
  %d = "mgpu.dot"(%x, %y, %z) {lhs_transposed = 0 : i32, rhs_transposed = 0 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<1000x1024xf32>, tensor<1024x64xf32>, tensor<1000x64xf32>) -> tensor<1000x64xf32>
  "mgpu.store"(%d, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1000x64xf32>, !mgpu.ref<tensor<1000x64xf32>, "gmem">) -> ()
}) {grid = [], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0 : i32, 1 : i32, 2 : i32]} : () -> ()
