// An elementwise op stays one op on the vector of a thread's registers; aligned whole tiles need no masks.
// CHECK-LABEL: llvm.func @add(
// CHECK-SAME: %[[X:.*]]: !llvm.ptr<1> {llvm.align = 16 : i64, llvm.noalias, llvm.readonly}
// CHECK-SAME: mgpu.grid = [8 : i32], mgpu.num_warps = 4 : i32, mgpu.smem_bytes = 0 : i32
// CHECK: %[[TID:.*]] = nvvm.read.ptx.sreg.tid.x
// CHECK-COUNT-4: llvm.load {{.*}} invariant {alignment = 16 : i64} : !llvm.ptr<1> -> vector<8xbf16>
// CHECK: %[[V:.*]] = vector.shuffle {{.*}} : vector<16xbf16>, vector<16xbf16>
// CHECK: %[[W:.*]] = arith.addf %[[V]], %[[V]] : vector<32xbf16>
// CHECK: vector.shuffle %[[W]], %[[W]] [0, 1, 2, 3, 4, 5, 6, 7]
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<8xbf16>, !llvm.ptr<1>
// CHECK-NOT: inline_asm
"mgpu.kernel"() ({
^bb0(%x: !mgpu.ref<tensor<16x256xbf16>, "gmem">, %y: !mgpu.ref<tensor<16x256xbf16>, "gmem">):
  %v = "mgpu.load"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<16x256xbf16>, "gmem">) -> tensor<16x256xbf16, #mgpu.layout<"4x256 r:0,1;0,2;0,4 l:0,8;0,16;0,32;0,64;0,128 w:1,0;2,0">>
  %s = arith.addf %v, %v : tensor<16x256xbf16, #mgpu.layout<"4x256 r:0,1;0,2;0,4 l:0,8;0,16;0,32;0,64;0,128 w:1,0;2,0">>
  "mgpu.store"(%s, %y) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<16x256xbf16, #mgpu.layout<"4x256 r:0,1;0,2;0,4 l:0,8;0,16;0,32;0,64;0,128 w:1,0;2,0">>, !mgpu.ref<tensor<16x256xbf16>, "gmem">) -> ()
}) {sym_name = "add", grid = [8 : i32], num_warps = 4 : i32, num_inputs = 1 : i32, aliases = [0 : i32, 1 : i32]} : () -> ()
