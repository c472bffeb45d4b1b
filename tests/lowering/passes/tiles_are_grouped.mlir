// RUN: group-tiles target=sm_90a
// A product of 40 by 16 tiles, of which 132 run at once: groups of 16 rows (the last of 8), columns first.  Outer matrices of
// a batch stay where they are.
// CHECK-NOT: axis = 2
// CHECK: %[[TILE:.*]] = "mgpu.program_id"() {axis = 1
// CHECK: %[[GROUP:.*]] = arith.divui %[[TILE]], %[[SIZE:.*]] : i32
// CHECK: %[[FIRST:.*]] = arith.muli %[[GROUP]]
// CHECK: %[[REST:.*]] = arith.remui %[[TILE]], %[[SIZE]] : i32
// CHECK: %[[LEFT:.*]] = arith.subi {{.*}}, %[[FIRST]] : i32
// CHECK: %[[ROWS:.*]] = arith.minui %[[LEFT]]
// CHECK: %[[IN:.*]] = arith.remui %[[REST]], %[[ROWS]] : i32
// CHECK: %[[ROW:.*]] = arith.addi %[[FIRST]], %[[IN]] : i32
// CHECK: %[[COLUMN:.*]] = arith.divui %[[REST]], %[[ROWS]] : i32
// CHECK: %[[BATCH:.*]] = "mgpu.program_id"() {axis = 0
// CHECK-NOT: axis = 2
// CHECK: "mgpu.subview"(%arg0, %[[BATCH]], %[[ROW]]
// CHECK: "mgpu.subview"(%arg1, %[[BATCH]], {{.*}}, %[[COLUMN]])
// CHECK: grid = [3 : i32, 640 : i32, 1 : i32]

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<3x640x16xf32>, "gmem">, %b: !mgpu.ref<tensor<3x16x256xf32>, "gmem">, %o: !mgpu.ref<tensor<3x640x256xf32>, "gmem">):
  %p = "mgpu.program_id"() {axis = 0 : i32} : () -> i32
  %i = "mgpu.program_id"() {axis = 1 : i32} : () -> i32
  %j = "mgpu.program_id"() {axis = 2 : i32} : () -> i32
  %c0 = arith.constant 0 : i32
  %z = arith.constant dense<0.0> : tensor<16x16xf32>
  %u = "mgpu.subview"(%a, %p, %i, %c0) {sizes = [1, 16, 16], strides = [1, 1, 1], dropped = [0], checked = [0, 0, 0], operandSegmentSizes = array<i32: 1, 3>} : (!mgpu.ref<tensor<3x640x16xf32>, "gmem">, i32, i32, i32) -> !mgpu.ref<tensor<16x16xf32>, "gmem">
  %v = "mgpu.subview"(%b, %p, %c0, %j) {sizes = [1, 16, 16], strides = [1, 1, 1], dropped = [0], checked = [0, 0, 0], operandSegmentSizes = array<i32: 1, 3>} : (!mgpu.ref<tensor<3x16x256xf32>, "gmem">, i32, i32, i32) -> !mgpu.ref<tensor<16x16xf32>, "gmem">
  %w = "mgpu.subview"(%o, %p, %i, %j) {sizes = [1, 16, 16], strides = [1, 1, 1], dropped = [0], checked = [0, 0, 0], operandSegmentSizes = array<i32: 1, 3>} : (!mgpu.ref<tensor<3x640x256xf32>, "gmem">, i32, i32, i32) -> !mgpu.ref<tensor<16x16xf32>, "gmem">
  %x = "mgpu.load"(%u) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<16x16xf32>, "gmem">) -> tensor<16x16xf32>
  %y = "mgpu.load"(%v) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<16x16xf32>, "gmem">) -> tensor<16x16xf32>
  %d = "mgpu.dot"(%x, %y, %z) {kind = "", lhs_transposed = 0 : i32, lhs_unsigned = 0 : i32, precision = "ieee", rhs_transposed = 0 : i32, rhs_unsigned = 0 : i32} : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  "mgpu.store"(%d, %w) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<16x16xf32>, !mgpu.ref<tensor<16x16xf32>, "gmem">) -> ()
}) {grid = [3 : i32, 40 : i32, 16 : i32], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0 : i32, 1 : i32, 2 : i32]} : () -> ()
