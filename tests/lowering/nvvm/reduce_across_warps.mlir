// Registers in a tree, lanes by five shuffles, two warps through shared memory: one barrier, as it is the first use.
// CHECK: %[[V:.*]] = llvm.load {{.*}} -> vector<4xi32>
// CHECK: %[[L:.*]] = vector.shuffle %[[V]], %[[V]] [0, 2]
// CHECK: %[[R:.*]] = vector.shuffle %[[V]], %[[V]] [1, 3]
// CHECK: arith.addi %[[L]], %[[R]] : vector<2xi32>
// CHECK: arith.addi {{.*}} : vector<1xi32>
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK: llvm.inline_asm has_side_effects "@$0 st.shared.b32 [$1+0], $2;"
// CHECK-NEXT: nvvm.barrier
// CHECK: llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xi32>
// CHECK-NOT: nvvm.barrier
// CHECK: llvm.inline_asm has_side_effects "@$0 st.global.b32 [$1+0], $2;"
"mgpu.kernel"() ({
^bb0(%x: !mgpu.ref<tensor<256xi32>, "gmem">, %y: !mgpu.ref<tensor<i32>, "gmem">):
  %v = "mgpu.load"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<256xi32>, "gmem">) -> tensor<256xi32, #mgpu.layout<"256 r:1;2 l:4;8;16;32;64 w:128">>
  %zero = arith.constant 0 : i32
  %s = "mgpu.reduce"(%v, %zero) ({
   ^bb0(%l: i32, %r: i32):
    %t = arith.addi %l, %r : i32
    "mgpu.yield"(%t) {operandSegmentSizes = array<i32: 1>} : (i32) -> ()
  }) {axes = [0], operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1>} : (tensor<256xi32, #mgpu.layout<"256 r:1;2 l:4;8;16;32;64 w:128">>, i32) -> i32
  "mgpu.store"(%s, %y) {operandSegmentSizes = array<i32: 1, 1, 0>} : (i32, !mgpu.ref<tensor<i32>, "gmem">) -> ()
}) {sym_name = "sum", grid = [1 : i32], num_warps = 2 : i32, num_inputs = 1 : i32, aliases = [0 : i32, 1 : i32]} : () -> ()
