// The CUDA driver, reached through dlopen.
#ifndef MOSAIC_GPU_DRIVER_H_
#define MOSAIC_GPU_DRIVER_H_

#include <string>

#include "cuda_driver.h"

namespace mosaic_gpu {

// The driver's functions that the launcher calls.  Members are named as the functions are.
struct Driver {
  CUresult (*cuInit)(unsigned);
  CUresult (*cuGetErrorName)(CUresult, const char**);
  CUresult (*cuGetErrorString)(CUresult, const char**);
  CUresult (*cuCtxGetCurrent)(CUcontext*);
  CUresult (*cuCtxPushCurrent)(CUcontext);
  CUresult (*cuCtxPopCurrent)(CUcontext*);
  CUresult (*cuStreamGetCtx)(CUstream, CUcontext*);
  CUresult (*cuModuleLoadData)(CUmodule*, const void*);
  CUresult (*cuModuleUnload)(CUmodule);
  CUresult (*cuModuleGetFunction)(CUfunction*, CUmodule, const char*);
  CUresult (*cuFuncGetAttribute)(int*, int, CUfunction);
  CUresult (*cuFuncSetAttribute)(CUfunction, int, int);
  CUresult (*cuThreadExchangeStreamCaptureMode)(int*);
  CUresult (*cuLaunchKernelEx)(const CUlaunchConfig*, CUfunction, void**, void**);
  CUresult (*cuTensorMapEncodeTiled)(CUtensorMap*, int, std::uint32_t, void*, const std::uint64_t*, const std::uint64_t*,
                                     const std::uint32_t*, const std::uint32_t*, int, int, int, int);
};

// The driver, initialised when it is first asked for; null where it is missing, too old, or sees no GPU, and then
// `problem` says what is wrong.
const Driver* GetDriver(std::string* problem);

// What the driver says of a status: "cuLaunchKernelEx failed: CUDA_ERROR_INVALID_VALUE: invalid argument".
std::string Words(const Driver& driver, const char* function, CUresult status);

}  // namespace mosaic_gpu

#endif  // MOSAIC_GPU_DRIVER_H_
