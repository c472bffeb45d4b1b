// RUN: choose-num-warps
// CHECK: num_warps = 1 : i32

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<32xf32>, "gmem">, %o: !mgpu.ref<tensor<32xf32>, "gmem">):
  %x = "mgpu.load"(%g) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32xf32>, "gmem">) -> tensor<32xf32>
  "mgpu.store"(%x, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32xf32>, !mgpu.ref<tensor<32xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
