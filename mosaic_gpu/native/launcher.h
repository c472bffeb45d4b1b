// The custom call `mosaic_gpu_kernel_v1`: launches a kernel of mosaic_gpu on XLA's stream.
//
// Attributes (mosaic_gpu/registration.py writes them):
//   version      i64: kVersion
//   name         string: the kernel's name, for messages
//   entry        string: its name in the cubin
//   target       string: the architecture of the cubin
//   cubin        string: the binary
//   key          string: what is the same for the same cubin and entry only
//   grid, block, cluster   3 x i64
//   shared_bytes i64: dynamic shared memory of a block
//   programmatic i64: 1 where the kernel may start before its predecessor on the stream ends
//   arguments    i64s: for each operand, then for each result: XLA's number of the dtype, rank, dimensions (-1: any)
//   aliases      i64s: pairs (operand, result) that are one memory
//   tensor_maps  i64s: for each map: number of the argument, bytes an element, swizzle, rank, dimensions (rank),
//                strides in bytes (rank - 1), box (rank)
// and for profilers, not read here:
//   cost_estimate_json   string: "flops", "transcendentals", "bytes_accessed" as far as they are known
// The kernel's parameters: a pointer an operand, a pointer a result, the maps.
#ifndef MOSAIC_GPU_LAUNCHER_H_
#define MOSAIC_GPU_LAUNCHER_H_

#include "cuda_driver.h"
#include "xla/ffi/api/ffi.h"

namespace mosaic_gpu {

constexpr std::int64_t kVersion = 2;

xla::ffi::Error Launch(CUstream stream, xla::ffi::RemainingArgs operands, xla::ffi::RemainingRets results,
                       xla::ffi::Dictionary attributes);

}  // namespace mosaic_gpu

#endif  // MOSAIC_GPU_LAUNCHER_H_
