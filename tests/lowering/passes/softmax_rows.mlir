// RUN: canonicalize,cse,choose-num-warps,assign-layouts
// Softmax over rows: one layout throughout, a warp a row, no conversion and no exchange between warps.
// CHECK-LABEL: "mgpu.kernel"
// CHECK-NOT: mgpu.convert_layout
// CHECK: %[[X:.*]] = "mgpu.load"({{.*}} -> tensor<4x1000xf32, #mgpu.layout<"[[L:4x128 r:0,1;0,2 l:0,4;0,8;0,16;0,32;0,64 w:1,0;2,0]]">>
// CHECK: "mgpu.reduce"(%[[X]]
// CHECK: -> tensor<4xf32, #mgpu.layout<"[[R:4 r: l:0;0;0;0;0 w:1;2]]">>
// CHECK: "mgpu.reshape"({{.*}} -> tensor<4x1xf32, #mgpu.layout<"4x1 r: l:0,0;0,0;0,0;0,0;0,0 w:1,0;2,0">>
// CHECK: "mgpu.broadcast"({{.*}} -> tensor<4x1000xf32, #mgpu.layout<"[[L]]">>
// CHECK: -> tensor<4xf32, #mgpu.layout<"[[R]]">>
// CHECK: arith.truncf {{.*}} to tensor<4x1000xbf16, #mgpu.layout<"[[L]]">>
// CHECK-NOT: mgpu.convert_layout
// CHECK: num_warps = 4 : i32
"mgpu.kernel"() ({
^bb0(%a: !mgpu.ref<tensor<512x1000xf32>,"gmem">, %o: !mgpu.ref<tensor<512x1000xbf16>,"gmem">):
  %p = "mgpu.program_id"() {axis = 0 : i32} : () -> i32
  %c4 = arith.constant 4 : i32
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %r = arith.muli %p, %c4 : i32
  %v = "mgpu.subview"(%a, %r, %c0) {sizes=[4,1000],strides=[1,1],dropped=[],checked=[1,0], operandSegmentSizes=array<i32:1,2>} : (!mgpu.ref<tensor<512x1000xf32>,"gmem">,i32,i32) -> !mgpu.ref<tensor<4x1000xf32>,"gmem">
  %w = "mgpu.subview"(%o, %r, %c0) {sizes=[4,1000],strides=[1,1],dropped=[],checked=[1,0], operandSegmentSizes=array<i32:1,2>} : (!mgpu.ref<tensor<512x1000xbf16>,"gmem">,i32,i32) -> !mgpu.ref<tensor<4x1000xbf16>,"gmem">
  %x = "mgpu.load"(%v) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!mgpu.ref<tensor<4x1000xf32>,"gmem">) -> tensor<4x1000xf32>
  %m = "mgpu.reduce"(%x, %ninf) ({
   ^bb0(%l: f32, %q: f32):
    %s = arith.maximumf %l, %q : f32
    "mgpu.yield"(%s) {operandSegmentSizes = array<i32: 1>} : (f32) -> ()
  }) {axes=[1], operandSegmentSizes = array<i32: 1,1>, resultSegmentSizes = array<i32:1>} : (tensor<4x1000xf32>, f32) -> tensor<4xf32>
  %mr = "mgpu.reshape"(%m) : (tensor<4xf32>) -> tensor<4x1xf32>
  %mb = "mgpu.broadcast"(%mr) {dimensions=[0,1]} : (tensor<4x1xf32>) -> tensor<4x1000xf32>
  %d = arith.subf %x, %mb : tensor<4x1000xf32>
  %l2e = arith.constant dense<1.44269502> : tensor<4x1000xf32>
  %d2 = arith.mulf %d, %l2e : tensor<4x1000xf32>
  %e = math.exp2 %d2 : tensor<4x1000xf32>
  %sum = "mgpu.reduce"(%e, %zero) ({
   ^bb0(%l: f32, %q: f32):
    %s = arith.addf %l, %q : f32
    "mgpu.yield"(%s) {operandSegmentSizes = array<i32: 1>} : (f32) -> ()
  }) {axes=[1], operandSegmentSizes = array<i32: 1,1>, resultSegmentSizes = array<i32:1>} : (tensor<4x1000xf32>, f32) -> tensor<4xf32>
  %sr = "mgpu.reshape"(%sum) : (tensor<4xf32>) -> tensor<4x1xf32>
  %sb = "mgpu.broadcast"(%sr) {dimensions=[0,1]} : (tensor<4x1xf32>) -> tensor<4x1000xf32>
  %y = arith.divf %e, %sb : tensor<4x1000xf32>
  %t = arith.truncf %y : tensor<4x1000xf32> to tensor<4x1000xbf16>
  "mgpu.store"(%t, %w) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4x1000xbf16>, !mgpu.ref<tensor<4x1000xbf16>,"gmem">) -> ()
}) {grid=[128 : i32], num_warps = 0 : i32, num_inputs = 1 : i32, sym_name = "softmax", aliases = [0 : i32, 1 : i32]} : () -> ()
