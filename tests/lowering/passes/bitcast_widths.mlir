// RUN: choose-num-warps,assign-layouts
// The bytes of a word stay with its thread, in the lowest registers.
// CHECK: %[[B:.*]] = "mgpu.bitcast"({{.*}}tensor<64xi32, #mgpu.layout<"64 r:1 l:2;4;8;16;32 w:">>) -> tensor<64x4xi8, #mgpu.layout<"64x4 r:0,1;0,2;1,0 l:2,0;4,0;8,0;16,0;32,0 w:">>
// CHECK: "mgpu.bitcast"({{.*}} -> tensor<64xi32, #mgpu.layout<"

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<64xi32>, "gmem">, %o: !mgpu.ref<tensor<64xi32>, "gmem">):
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64xi32>, "gmem">) -> tensor<64xi32>
  %b = "mgpu.bitcast"(%x) : (tensor<64xi32>) -> tensor<64x4xi8>
  %c = arith.addi %b, %b : tensor<64x4xi8>
  %d = "mgpu.bitcast"(%c) : (tensor<64x4xi8>) -> tensor<64xi32>
  "mgpu.store"(%d, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64xi32>, !mgpu.ref<tensor<64xi32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
