// RUN: choose-num-warps,assign-layouts
// Control flow of every kind: what it carries or yields has one layout, or is converted (the runner checks it).
// CHECK: scf.while
// CHECK: scf.if
// CHECK: scf.index_switch
// CHECK: "mgpu.store"

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<16x16xf32>, "gmem">, %o: !mgpu.ref<tensor<16x16xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %one = arith.constant dense<1.0> : tensor<16x16xf32>
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<16x16xf32>, "gmem">) -> tensor<16x16xf32>
  %w:2 = scf.while (%n = %c0, %v = %x) : (i32, tensor<16x16xf32>) -> (i32, tensor<16x16xf32>) {
    %go = arith.cmpi slt, %n, %c8 : i32
    scf.condition(%go) %n, %v : i32, tensor<16x16xf32>
  } do {
  ^bb0(%n: i32, %v: tensor<16x16xf32>):
    %n1 = arith.addi %n, %c1 : i32
    %t = "mgpu.transpose"(%v) {permutation = [1, 0]} : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %s = arith.addf %t, %v : tensor<16x16xf32>
    scf.yield %n1, %s : i32, tensor<16x16xf32>
  }
  %b = arith.cmpi eq, %w#0, %c8 : i32
  %y = scf.if %b -> (tensor<16x16xf32>) {
    scf.yield %one : tensor<16x16xf32>
  } else {
    %t = "mgpu.transpose"(%w#1) {permutation = [1, 0]} : (tensor<16x16xf32>) -> tensor<16x16xf32>
    scf.yield %t : tensor<16x16xf32>
  }
  %k = arith.index_cast %w#0 : i32 to index
  %u = scf.index_switch %k -> tensor<16x16xf32>
  case 0 {
    scf.yield %y : tensor<16x16xf32>
  }
  default {
    scf.yield %one : tensor<16x16xf32>
  }
  "mgpu.store"(%u, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<16x16xf32>, !mgpu.ref<tensor<16x16xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
