// Warps 0 and on are the consumers, which meet at a barrier of their own; one thread of the warpgroup after them produces.
// CHECK: mgpu.num_warps = 8 : i32
// CHECK: nvvm.barrier
// CHECK: %[[P:.*]] = arith.cmpi uge
// CHECK: scf.if %[[P]] {
// CHECK: setmaxnreg.dec.sync.aligned.u32 40;
// CHECK: %[[ONE:.*]] = arith.cmpi eq
// CHECK: scf.if %[[ONE]] {
// CHECK: mbarrier.try_wait.parity
// CHECK: } else {
// CHECK: setmaxnreg.inc.sync.aligned.u32 232;
// CHECK: bar.warp.sync
// CHECK: mbarrier.arrive.shared::cta.b64 _, [$1];
// CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %{{.*}}
"mgpu.kernel"() ({
^bb0(%x: !mgpu.ref<tensor<8x128xf16>, "gmem">):
  %c0 = arith.constant 0 : i32
  %w = "mgpu.alloc"() {mgpu.offset = 0 : i32} : () -> !mgpu.ref<tensor<1xi64>, "smem">
  "mgpu.barrier_init"(%w) {arrivals = 4 : i32} : (!mgpu.ref<tensor<1xi64>, "smem">) -> ()
  "mgpu.barrier"() : () -> ()
  "mgpu.specialize"() ({
    "mgpu.barrier_wait"(%w, %c0, %c0) : (!mgpu.ref<tensor<1xi64>, "smem">, i32, i32) -> ()
  }, {
    "mgpu.barrier_arrive"(%w, %c0) : (!mgpu.ref<tensor<1xi64>, "smem">, i32) -> ()
    "mgpu.barrier"() : () -> ()
  }) {producer_registers = 40 : i32, consumer_registers = 232 : i32} : () -> ()
}) {sym_name = "parts", grid = [1 : i32], num_warps = 4 : i32, num_inputs = 1 : i32, aliases = [0 : i32], mgpu.smem_bytes = 8 : i32, mgpu.producer_warps = 4 : i32} : () -> ()
