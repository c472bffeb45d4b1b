// RUN: choose-num-warps,choose-dots,expand-dots
// IEEE f32: both operands in shared memory with K first, and outer products of their rows.
// CHECK: %[[T:.*]] = "mgpu.transpose"(%{{.*}}) {{.*}} -> tensor<33x24xf32>
// CHECK: %[[A:.*]] = "mgpu.alloc"() : () -> !mgpu.ref<tensor<33x24xf32>, "smem">
// CHECK-NEXT: "mgpu.store"(%[[T]], %[[A]])
// CHECK: scf.for %{{.*}} = %c0_i32{{.*}} to %c32_i32 step %c4_i32
// CHECK-COUNT-4: math.fma
// CHECK: scf.yield
// CHECK: math.fma
// CHECK-NOT: mgpu.dot

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<24x33xf32>, "gmem">, %b: !mgpu.ref<tensor<33x16xf32>, "gmem">, %o: !mgpu.ref<tensor<24x16xf32>, "gmem">):
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<24x33xf32>, "gmem">) -> tensor<24x33xf32>
  %y = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<33x16xf32>, "gmem">) -> tensor<33x16xf32>
  %z = arith.constant dense<0.0> : tensor<24x16xf32>
  %r = "mgpu.dot"(%x, %y, %z) {lhs_transposed = 0 : i32, rhs_transposed = 0 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<24x33xf32>, tensor<33x16xf32>, tensor<24x16xf32>) -> tensor<24x16xf32>
  "mgpu.store"(%r, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<24x16xf32>, !mgpu.ref<tensor<24x16xf32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0, 1, 2]} : () -> ()
