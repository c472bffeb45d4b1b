// RUN: choose-num-warps,assign-layouts,pipeline-loops,plan-shared-memory,insert-barriers num_warps=4 max_concurrent_steps=3
// A ring of three stages: two steps are started before the loop, the third on the way; barriers say why they are there.
// CHECK: %[[RING:.*]] = "mgpu.alloc"() {mgpu.offset = 0 : i32} : () -> !mgpu.ref<tensor<3x32x32xf32>, "smem">
// CHECK: %[[FULL:.*]] = "mgpu.alloc"() {{.*}} !mgpu.ref<tensor<3xi64>, "smem">
// CHECK: "mgpu.barrier_init"(%[[FULL]]) {arrivals = 1 : i32}
// CHECK: "mgpu.barrier"() {mgpu.why = "the mbarriers are made
// CHECK: "mgpu.barrier_expect"(%[[FULL]], {{.*}}) {num_bytes = 4096 : i32}
// CHECK: "mgpu.async_load"
// CHECK: "mgpu.barrier_expect"
// CHECK: "mgpu.async_load"
// CHECK-NOT: "mgpu.async_load"
// CHECK: scf.for
// CHECK: "mgpu.barrier"() {mgpu.why = "everybody is done
// CHECK: scf.if
// CHECK: "mgpu.async_load"
// CHECK: "mgpu.barrier_wait"(%[[FULL]]
// CHECK: %[[STAGE:.*]] = "mgpu.subview"(%[[RING]]
// CHECK: "mgpu.load"(%[[STAGE]])
// CHECK-NOT: "mgpu.barrier"()
// CHECK: scf.yield
// CHECK: "mgpu.barrier_destroy"(%[[FULL]])

"mgpu.kernel"() ({
^bb0(%g: !mgpu.ref<tensor<256x32xf32>, "gmem">, %o: !mgpu.ref<tensor<32x32xf32>, "gmem">):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c32 = arith.constant 32 : i32
  %z = arith.constant dense<0.0> : tensor<32x32xf32>
  %r = scf.for %i = %c0 to %c8 step %c1 iter_args(%a = %z) -> (tensor<32x32xf32>) : i32 {
    %row = arith.muli %i, %c32 : i32
    %v = "mgpu.subview"(%g, %row, %c0) {sizes = [32, 32], strides = [1, 1], dropped = [], checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>} : (!mgpu.ref<tensor<256x32xf32>, "gmem">, i32, i32) -> !mgpu.ref<tensor<32x32xf32>, "gmem">
    %x = "mgpu.load"(%v) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<32x32xf32>, "gmem">) -> tensor<32x32xf32>
    %s = arith.addf %a, %x : tensor<32x32xf32>
    scf.yield %s : tensor<32x32xf32>
  }
  "mgpu.store"(%r, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<32x32xf32>, !mgpu.ref<tensor<32x32xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]} : () -> ()
