// RUN: choose-num-warps,choose-dots
// Of 8-bit operands the unit wants K along the rows of memory.
// CHECK: %[[T:.*]] = "mgpu.transpose"(%{{.*}}) {{.*}} -> tensor<40x64xi8>
// CHECK: "mgpu.alloc"() {mgpu.swizzle = 64 : i32} : () -> !mgpu.ref<tensor<48x64xi8>, "smem">
// CHECK: "mgpu.store"(%[[T]],
// CHECK: "mgpu.dot"({{.*}} {kind = "wgmma"{{.*}} rhs_transposed = 1 : i32

"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<64x64xi8>, "gmem">, %b: !mgpu.ref<tensor<64x40xi8>, "gmem">, %o: !mgpu.ref<tensor<64x40xi32>, "gmem">):
  %x = "mgpu.load"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x64xi8>, "gmem">) -> tensor<64x64xi8>
  %y = "mgpu.load"(%b) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<64x40xi8>, "gmem">) -> tensor<64x40xi8>
  %z = arith.constant dense<0> : tensor<64x40xi32>
  %r = "mgpu.dot"(%x, %y, %z) {lhs_transposed = 0 : i32, rhs_transposed = 0 : i32, lhs_unsigned = 0 : i32, rhs_unsigned = 0 : i32, precision = "ieee", kind = ""} : (tensor<64x64xi8>, tensor<64x40xi8>, tensor<64x40xi32>) -> tensor<64x40xi32>
  "mgpu.store"(%r, %o) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x40xi32>, !mgpu.ref<tensor<64x40xi32>, "gmem">) -> ()
}) {grid = [1], num_warps = 0 : i32, num_inputs = 2 : i32, sym_name = "f", aliases = [0, 1, 2]} : () -> ()
