// Behind the wait loads are plain ones: nothing says that the memory stays as it is while the kernel runs.
// CHECK: llvm.func @copy(
// CHECK-NOT: llvm.noalias
// CHECK-NOT: llvm.readonly
// CHECK: mgpu.programmatic
// CHECK: griddepcontrol.wait;
// CHECK-SAME: ~{memory}
// CHECK-NEXT: griddepcontrol.launch_dependents;
// CHECK: llvm.load
// CHECK-NOT: invariant
// CHECK: st.global.b32
"mgpu.kernel"() ({
^bb0(%x: !mgpu.ref<tensor<f32>, "gmem">, %y: !mgpu.ref<tensor<f32>, "gmem">):
  "mgpu.wait_for_grids"() : () -> ()
  %v = "mgpu.load"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<f32>, "gmem">) -> f32
  "mgpu.store"(%v, %y) {operandSegmentSizes = array<i32: 1, 1, 0>} : (f32, !mgpu.ref<tensor<f32>, "gmem">) -> ()
}) {sym_name = "copy", grid = [1 : i32], num_warps = 1 : i32, num_inputs = 1 : i32, aliases = [0 : i32, 1 : i32], mgpu.smem_bytes = 0 : i32} : () -> ()
