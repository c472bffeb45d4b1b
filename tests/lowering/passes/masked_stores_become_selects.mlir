// RUN: promote-refs,canonicalize
// A masked store to scratch memory keeps what was there; a branch gives what either side leaves.
// CHECK-NOT: "mgpu.alloc"
// CHECK: %[[X:.*]] = "mgpu.load"(%arg0)
// CHECK: %[[Y:.*]] = scf.if
// CHECK: %[[M:.*]] = arith.select %{{.*}}, %[[X]], %{{.*}} : tensor<32xi1>, tensor<32xf32>
// CHECK: scf.yield %[[M]]
// CHECK: } else {
// CHECK: scf.yield %[[X]]
// CHECK: "mgpu.store"(%[[Y]], %arg1)

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<32xf32>, "gmem">, %o: !mgpu.ref<tensor<32xf32>, "gmem">, %b: !mgpu.ref<tensor<i32>, "gmem">, %p: !mgpu.ref<tensor<32xi1>, "gmem">):
  %c0 = arith.constant 0 : i32
  %one = arith.constant dense<1.0> : tensor<32xf32>
  %n = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<i32>, "gmem">) -> i32
  %a = "mgpu.alloc"() : () -> !mgpu.ref<tensor<32xf32>, "smem">
  %x = "mgpu.load"(%g) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "gmem">) -> tensor<32xf32>
  "mgpu.store"(%one, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "smem">) -> ()
  %t = arith.cmpi slt, %n, %c0 : i32
  scf.if %t {
    %m = "mgpu.load"(%p) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xi1>, "gmem">) -> tensor<32xi1>
    "mgpu.store"(%x, %a, %m) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "smem">, tensor<32xi1>) -> ()
  } else {
    "mgpu.store"(%x, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "smem">) -> ()
  }
  %y = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "smem">) -> tensor<32xf32>
  "mgpu.store"(%y, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1, 2, 3]} : () -> ()
