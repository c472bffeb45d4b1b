// The launcher's custom call on XLA's CPU client: the same launch, on the stand-in driver, whose device memory is host
// memory.  It takes the place that XLA's GPU client has: it has a context and a stream, and waits for the work.
#include <string>

#include "launcher.h"

extern "C" {
CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
CUresult cuCtxPushCurrent_v2(CUcontext);
CUresult cuCtxPopCurrent_v2(CUcontext*);
CUresult cuStreamCreate(CUstream*, unsigned);
CUresult cuStreamSynchronize(CUstream);
CUresult cuGetErrorString(CUresult, const char**);
}

namespace {

struct Place {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
};

const Place& GetPlace() {
  static const Place place = [] {
    Place made;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&made.context, 0);
    cuCtxPushCurrent_v2(made.context);
    cuStreamCreate(&made.stream, 1);
    cuCtxPopCurrent_v2(nullptr);
    return made;
  }();
  return place;
}

xla::ffi::Error LaunchOnHost(xla::ffi::RemainingArgs operands, xla::ffi::RemainingRets results,
                             xla::ffi::Dictionary attributes) {
  const Place& place = GetPlace();
  xla::ffi::Error error = mosaic_gpu::Launch(place.stream, operands, results, attributes);
  if (error.failure()) return error;
  cuCtxPushCurrent_v2(place.context);
  const CUresult status = cuStreamSynchronize(place.stream);
  cuCtxPopCurrent_v2(nullptr);
  if (status == CUDA_SUCCESS) return xla::ffi::Error::Success();
  const char* words = nullptr;
  cuGetErrorString(status, &words);
  return xla::ffi::Error::Internal(std::string("the stream failed: ") + (words ? words : "?"));
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(MosaicGpuKernelOnHost, LaunchOnHost,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
