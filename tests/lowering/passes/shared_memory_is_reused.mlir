// RUN: choose-num-warps,assign-layouts,plan-shared-memory
// %a is dead when %b comes, and %c lives with %b; what a loop uses stays until the loop ends.
// CHECK: "mgpu.alloc"() {mgpu.offset = 0 : i32} : () -> !mgpu.ref<tensor<32x32xf32>, "smem">
// CHECK: "mgpu.alloc"() {mgpu.offset = 0 : i32} : () -> !mgpu.ref<tensor<100xf32>, "smem">
// CHECK: scf.for
// CHECK: "mgpu.alloc"() {mgpu.offset = 512 : i32} : () -> !mgpu.ref<tensor<64xf32>, "smem">
// CHECK: "mgpu.alloc"() {mgpu.offset = 0 : i32} : () -> !mgpu.ref<tensor<4xf32>, "smem">
// CHECK: mgpu.smem_bytes = 4096 : i32

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<32x32xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %k = arith.constant dense<1.0> : tensor<32x32xf32>
  %k1 = arith.constant dense<1.0> : tensor<100xf32>
  %k2 = arith.constant dense<1.0> : tensor<64xf32>
  %k4 = arith.constant dense<1.0> : tensor<4xf32>
  %a = "mgpu.alloc"() : () -> !mgpu.ref<tensor<32x32xf32>, "smem">
  "mgpu.store"(%k, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "smem">) -> ()
  %b = "mgpu.alloc"() : () -> !mgpu.ref<tensor<100xf32>, "smem">
  scf.for %i = %c0 to %c8 step %c1 : i32 {
  "mgpu.store"(%k1, %b) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<100xf32>, !mgpu.ref<tensor<100xf32>, "smem">) -> ()
  %c = "mgpu.alloc"() : () -> !mgpu.ref<tensor<64xf32>, "smem">
  "mgpu.store"(%k2, %c) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64xf32>, !mgpu.ref<tensor<64xf32>, "smem">) -> ()
  }
  %d = "mgpu.alloc"() : () -> !mgpu.ref<tensor<4xf32>, "smem">
  "mgpu.store"(%k4, %d) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4xf32>, !mgpu.ref<tensor<4xf32>, "smem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0]} : () -> ()
