// RUN: split-tiles,canonicalize
// Two vectors one behind the other, of 70,000 and 30 elements, are put together in shared memory.  Parts of them come
// from one or the other, and the memory is gone.
// CHECK-NOT: "mgpu.alloc"
// CHECK: scf.for %[[K:.*]] = %c0_i32
// CHECK: %[[START:.*]] = arith.muli %[[K]], %c4096_i32
// CHECK: %[[BEHIND:.*]] = arith.addi %[[START]], %c-70000_i32
// CHECK: %[[B:.*]] = "mgpu.subview"(%arg1, %[[BEHIND]]) {checked = [1 : i32]
// CHECK: %[[Y:.*]] = "mgpu.load"(%[[B]])
// CHECK: %[[A:.*]] = "mgpu.subview"(%arg0, {{.*}}) {checked = [1 : i32]
// CHECK: %[[X:.*]] = "mgpu.load"(%[[A]])
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult, {{.*}}, %cst
// CHECK: %[[R:.*]] = arith.select %[[INSIDE]], %[[Y]], %[[X]]
// CHECK: "mgpu.store"(%[[R]]

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<70000xf32>, "gmem">, %b: !mgpu.ref<tensor<30xf32>, "gmem">, %o: !mgpu.ref<tensor<70030xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 70000 : i32
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<70000xf32>, "gmem">) -> tensor<70000xf32>
  %y = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<30xf32>, "gmem">) -> tensor<30xf32>
  %s = "mgpu.alloc"() : () -> !mgpu.ref<tensor<70030xf32>, "smem">
  %v = "mgpu.subview"(%s, %c0) {sizes = [70000], strides = [1], dropped = [], checked = [0], operandSegmentSizes = array<i32: 1, 1>} : (!mgpu.ref<tensor<70030xf32>, "smem">, i32) -> !mgpu.ref<tensor<70000xf32>, "smem">
  "mgpu.store"(%x, %v) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<70000xf32>, !mgpu.ref<tensor<70000xf32>, "smem">) -> ()
  %w = "mgpu.subview"(%s, %c1) {sizes = [30], strides = [1], dropped = [], checked = [0], operandSegmentSizes = array<i32: 1, 1>} : (!mgpu.ref<tensor<70030xf32>, "smem">, i32) -> !mgpu.ref<tensor<30xf32>, "smem">
  "mgpu.store"(%y, %w) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<30xf32>, !mgpu.ref<tensor<30xf32>, "smem">) -> ()
  %j = "mgpu.load"(%s) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<70030xf32>, "smem">) -> tensor<70030xf32>
  "mgpu.store"(%j, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<70030xf32>, !mgpu.ref<tensor<70030xf32>, "gmem">) -> ()
}) {grid = [], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0 : i32, 1 : i32, 2 : i32]} : () -> ()
