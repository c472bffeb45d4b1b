// Of three repetitions of the base tile only the last is masked; its accesses are predicated PTX, of the full width.
// CHECK: llvm.load {{.*}} -> vector<4xf32>
// CHECK: llvm.load {{.*}} -> vector<4xf32>
// CHECK-NOT: llvm.load
// CHECK: llvm.inline_asm "@$4 ld.global.nc.v4.b32 {$0,$1,$2,$3}, [$5+1024];", "=r,=r,=r,=r,b,l,0,1,2,3"
// CHECK: llvm.store {{.*}} : vector<4xf32>, !llvm.ptr<1>
// CHECK: llvm.store {{.*}} : vector<4xf32>, !llvm.ptr<1>
// CHECK-NOT: llvm.store
// CHECK: llvm.inline_asm has_side_effects "@$0 st.global.v4.b32 [$1+1024], {$2,$3,$4,$5};", "b,l,r,r,r,r,~{memory}"
"mgpu.kernel"() ({
^bb0(%x: !mgpu.ref<tensor<300xf32>, "gmem">, %y: !mgpu.ref<tensor<300xf32>, "gmem">):
  %v = "mgpu.load"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<300xf32>, "gmem">) -> tensor<300xf32, #mgpu.layout<"128 r:1;2 l:4;8;16;32;64 w:">>
  "mgpu.store"(%v, %y) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<300xf32, #mgpu.layout<"128 r:1;2 l:4;8;16;32;64 w:">>, !mgpu.ref<tensor<300xf32>, "gmem">) -> ()
}) {sym_name = "copy", grid = [1 : i32], num_warps = 1 : i32, num_inputs = 1 : i32, aliases = [0 : i32, 1 : i32]} : () -> ()
