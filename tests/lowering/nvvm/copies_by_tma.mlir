// One thread says how many bytes are coming and starts two boxes, one a panel; everybody waits; a parameter holds the map.
// CHECK: llvm.func @copy({{.*}}!llvm.ptr<1>{{.*}}!llvm.ptr<1>{{.*}}%{{.*}}: !llvm.ptr {llvm.align = 128 : i64, llvm.byval = !llvm.array<128 x i8>, nvvm.grid_constant}
// CHECK-SAME: argument{{.*}}: 0, {{.*}}box{{.*}}: [64, 8]
// CHECK: mbarrier.init.shared::cta.b64 [$1+0], 1;
// CHECK: mbarrier.arrive.expect_tx.shared::cta.b64 _, [$1], 2048;
// CHECK: cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$1], [$2, {$4, $5}], [$3];
// CHECK: cp.async.bulk.tensor.2d
// CHECK-NOT: cp.async.bulk.tensor.2d
// CHECK: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;
// CHECK: mbarrier.inval.shared::cta.b64 [$1+0];
"mgpu.kernel"() ({
^bb0(%x: !mgpu.ref<tensor<8x128xf16>, "gmem">, %y: !mgpu.ref<tensor<8x128xf16>, "gmem">):
  %c0 = arith.constant 0 : i32
  %s = "mgpu.alloc"() {mgpu.offset = 0 : i32, mgpu.swizzle = 128 : i32} : () -> !mgpu.ref<tensor<8x128xf16>, "smem">
  %w = "mgpu.alloc"() {mgpu.offset = 2048 : i32} : () -> !mgpu.ref<tensor<1xi64>, "smem">
  "mgpu.barrier_init"(%w) {arrivals = 1 : i32} : (!mgpu.ref<tensor<1xi64>, "smem">) -> ()
  "mgpu.barrier"() : () -> ()
  "mgpu.barrier_expect"(%w, %c0) {num_bytes = 2048 : i32} : (!mgpu.ref<tensor<1xi64>, "smem">, i32) -> ()
  "mgpu.async_load"(%x, %s, %w, %c0) : (!mgpu.ref<tensor<8x128xf16>, "gmem">, !mgpu.ref<tensor<8x128xf16>, "smem">, !mgpu.ref<tensor<1xi64>, "smem">, i32) -> ()
  "mgpu.barrier_wait"(%w, %c0, %c0) : (!mgpu.ref<tensor<1xi64>, "smem">, i32, i32) -> ()
  %v = "mgpu.load"(%s) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<8x128xf16>, "smem">) -> tensor<8x128xf16, #mgpu.layout<"2x128 r:0,1;0,2;0,4 l:0,8;0,16;0,32;0,64;1,0 w:">>
  "mgpu.store"(%v, %y) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<8x128xf16, #mgpu.layout<"2x128 r:0,1;0,2;0,4 l:0,8;0,16;0,32;0,64;1,0 w:">>, !mgpu.ref<tensor<8x128xf16>, "gmem">) -> ()
  "mgpu.barrier"() : () -> ()
  "mgpu.barrier_destroy"(%w) : (!mgpu.ref<tensor<1xi64>, "smem">) -> ()
}) {sym_name = "copy", grid = [1 : i32], num_warps = 1 : i32, num_inputs = 1 : i32, aliases = [0 : i32, 1 : i32], mgpu.smem_bytes = 2056 : i32} : () -> ()
