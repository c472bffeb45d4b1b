// RUN: choose-num-warps,assign-layouts num_warps=2
// Between a scalar and a tile every thread has all of the tile.
// CHECK: "mgpu.bitcast"({{.*}} : (i32) -> tensor<4xi8, #mgpu.layout<"4 r:1;2 l:0;0;0;0;0 w:0">>
// CHECK: "mgpu.bitcast"({{.*}} : (tensor<4xi8, #mgpu.layout<"4 r:1;2 l:0;0;0;0;0 w:0">>) -> i32

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<4xi8>, "gmem">, %o: !mgpu.ref<tensor<4xi8>, "gmem">, %p: !mgpu.ref<tensor<i32>, "gmem">):
  %s = "mgpu.load"(%p) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<i32>, "gmem">) -> i32
  %b = "mgpu.bitcast"(%s) : (i32) -> tensor<4xi8>
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<4xi8>, "gmem">) -> tensor<4xi8>
  %c = arith.addi %b, %x : tensor<4xi8>
  "mgpu.store"(%c, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4xi8>, !mgpu.ref<tensor<4xi8>, "gmem">) -> ()
  %d = "mgpu.bitcast"(%c) : (tensor<4xi8>) -> i32
  "mgpu.store"(%d, %p) {operandSegmentSizes = array<i32: 1, 1, 0>} : (i32, !mgpu.ref<tensor<i32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1, 2]} : () -> ()
