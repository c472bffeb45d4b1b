// RUN: choose-num-warps
// 65,536 elements would take 256 registers of each of 8 warps' threads: 32 warps hold 64.
// CHECK: num_warps = 32 : i32

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<256x256xf32>, "gmem">, %o: !mgpu.ref<tensor<256x256xf32>, "gmem">):
  %x = "mgpu.load"(%g) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<256x256xf32>, "gmem">) -> tensor<256x256xf32>
  "mgpu.store"(%x, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<256x256xf32>, !mgpu.ref<tensor<256x256xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
