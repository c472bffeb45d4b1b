#include "driver.h"

#include <dlfcn.h>

namespace mosaic_gpu {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

struct Found {
  Driver driver = {};
  std::string problem;
};

// Stores the function `name` of the driver in `*slot`; tells whether there is one.
template <typename Function>
bool Find(void* library, const char* name, Function** slot, std::string* problem) {
  *slot = reinterpret_cast<Function*>(dlsym(library, name));
  if (*slot == nullptr && problem->empty())
    *problem = std::string("the NVIDIA driver is too old: it has no ") + name + "; CUDA 12.9 or newer is needed";
  return *slot != nullptr;
}

Found Load() {
  Found found;
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* words = dlerror();
    found.problem = std::string("there is no NVIDIA driver: ") + (words == nullptr ? kLibrary : words);
    return found;
  }
  Driver& driver = found.driver;
  std::string* problem = &found.problem;
  bool has_all = true;
#define FIND(member, name) has_all = Find(library, name, &driver.member, problem) && has_all
  FIND(cuInit, "cuInit");
  FIND(cuGetErrorName, "cuGetErrorName");
  FIND(cuGetErrorString, "cuGetErrorString");
  FIND(cuCtxGetCurrent, "cuCtxGetCurrent");
  FIND(cuCtxPushCurrent, "cuCtxPushCurrent_v2");
  FIND(cuCtxPopCurrent, "cuCtxPopCurrent_v2");
  FIND(cuStreamGetCtx, "cuStreamGetCtx");
  FIND(cuModuleLoadData, "cuModuleLoadData");
  FIND(cuModuleUnload, "cuModuleUnload");
  FIND(cuModuleGetFunction, "cuModuleGetFunction");
  FIND(cuFuncGetAttribute, "cuFuncGetAttribute");
  FIND(cuFuncSetAttribute, "cuFuncSetAttribute");
  FIND(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  FIND(cuLaunchKernelEx, "cuLaunchKernelEx");
  FIND(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled");
#undef FIND
  if (!has_all) return found;
  if (CUresult status = driver.cuInit(0)) *problem = Words(driver, "cuInit", status);
  return found;
}

}  // namespace

const Driver* GetDriver(std::string* problem) {
  static const Found* const found = new Found(Load());  // never destroyed: XLA's threads may outlive static objects
  if (found->problem.empty()) return &found->driver;
  *problem = found->problem;
  return nullptr;
}

std::string Words(const Driver& driver, const char* function, CUresult status) {
  const char *name = nullptr, *words = nullptr;
  driver.cuGetErrorName(status, &name);
  driver.cuGetErrorString(status, &words);
  std::string text = std::string(function) + " failed: " + (name ? name : "status " + std::to_string(status));
  return words ? text + ": " + words : text;
}

}  // namespace mosaic_gpu
