// RUN: choose-num-warps,assign-layouts,plan-shared-memory,insert-barriers num_warps=4
// The second allocation takes the first one's place: its store waits for the first one's last load.
// CHECK: "mgpu.alloc"() {mgpu.offset = 0 : i32}
// CHECK: "mgpu.load"({{.*}}"smem">) -> tensor<32x32xf32
// CHECK: "mgpu.alloc"() {mgpu.offset = 0 : i32}
// CHECK-NEXT: "mgpu.barrier"
// CHECK-NEXT: "mgpu.store"

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<32x32xf32>, "gmem">, %o: !mgpu.ref<tensor<32x32xf32>, "gmem">):
  %x = "mgpu.load"(%g) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32x32xf32>, "gmem">) -> tensor<32x32xf32>
  %a = "mgpu.alloc"() : () -> !mgpu.ref<tensor<32x32xf32>, "smem">
  "mgpu.store"(%x, %a) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "smem">) -> ()
  %y = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32x32xf32>, "smem">) -> tensor<32x32xf32>
  %b = "mgpu.alloc"() : () -> !mgpu.ref<tensor<32x32xf32>, "smem">
  "mgpu.store"(%y, %b) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "smem">) -> ()
  %u = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32x32xf32>, "smem">) -> tensor<32x32xf32>
  "mgpu.store"(%u, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
