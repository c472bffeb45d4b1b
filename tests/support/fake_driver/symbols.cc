// cuGetProcAddress: where the functions of this library are found by name, as cuda-python does.
#include <dlfcn.h>

#include <string>

#include "fake.h"

namespace {

void* find(const std::string& name) {
  static void* const self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  for (const char* suffix : {"_v2", ""})  // the newest form of a function first
    if (void* found = dlsym(self, (name + suffix).c_str())) return found;
  return nullptr;
}

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t, int* status) {
  // In CUDA 13 two functions got forms with other parameters, which are not modelled.
  const std::string asked = name;
  const bool other_form = version >= 12050 && (asked == "cuCtxGetDevice" || asked == "cuCtxSynchronize" || asked == "cuStreamGetCtx");
  const bool is_ours = asked.rfind("cu", 0) == 0 && !other_form;
  *function = is_ours ? find(asked == "cuGraphInstantiate" ? "cuGraphInstantiateWithFlags" : asked) : nullptr;
  if (status != nullptr) *status = *function ? 0 : 1;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"
