// RUN: choose-num-warps,assign-layouts
// The load and the store are coalesced each on its own side; the tile is exchanged once between.
// CHECK: %[[X:.*]] = "mgpu.load"({{.*}} -> tensor<64x64xf32, #mgpu.layout<"[[L:8x64 r:0,1;0,2 l:0,4;0,8;0,16;0,32;1,0 w:2,0;4,0]]">>
// CHECK-NEXT: %[[T:.*]] = "mgpu.transpose"(%[[X]]){{.*}} -> tensor<64x64xf32, #mgpu.layout<"64x8 r:1,0;2,0 l:4,0;8,0;16,0;32,0;0,1 w:0,2;0,4">>
// CHECK-NEXT: %[[C:.*]] = "mgpu.convert_layout"(%[[T]]){{.*}} -> tensor<64x64xf32, #mgpu.layout<"[[L]]">>
// CHECK-NEXT: "mgpu.store"(%[[C]]

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<64x64xf32>, "gmem">, %o: !mgpu.ref<tensor<64x64xf32>, "gmem">):
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xf32>, "gmem">) -> tensor<64x64xf32>
  %t = "mgpu.transpose"(%x) {permutation = [1, 0]} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  "mgpu.store"(%t, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x64xf32>, !mgpu.ref<tensor<64x64xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
