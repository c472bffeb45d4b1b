#include "modules.h"

#include <map>
#include <mutex>
#include <utility>

namespace mosaic_gpu {
namespace {

constexpr int kSharedWithoutOptIn = 48 * 1024;

using Key = std::pair<CUcontext, std::string>;

struct Loaded {
  std::mutex mutex;
  std::map<Key, CUfunction> functions;
};

// Never destroyed: modules go with their context, and XLA's threads may outlive static objects.
Loaded& GetLoaded() {
  static Loaded* const loaded = new Loaded;
  return *loaded;
}

// Allows calls such as loading a module while this thread's stream is captured into a graph.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  int mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

bool Check(const Driver& driver, const char* function, CUresult status, std::string* problem) {
  if (status == CUDA_SUCCESS) return true;
  *problem = Words(driver, function, status);
  return false;
}

bool Prepare(const Driver& driver, CUfunction function, const Code& code, std::string* problem) {
  int fixed = 0;
  if (!Check(driver, "cuFuncGetAttribute",
             driver.cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function), problem))
    return false;
  const int bytes = static_cast<int>(code.shared_bytes);
  if (bytes + fixed > kSharedWithoutOptIn &&
      !Check(driver, "cuFuncSetAttribute (dynamic shared memory)",
             driver.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes), problem))
    return false;
  return !code.has_large_clusters ||
         Check(driver, "cuFuncSetAttribute (cluster size)",
               driver.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1), problem);
}

CUfunction Load(const Driver& driver, const Code& code, std::string* problem) {
  RelaxedCapture relaxed(driver);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  const std::string entry(code.entry);
  if (!Check(driver, "cuModuleLoadData", driver.cuModuleLoadData(&module, code.cubin.data()), problem)) return nullptr;
  if (Check(driver, "cuModuleGetFunction", driver.cuModuleGetFunction(&function, module, entry.c_str()), problem) &&
      Prepare(driver, function, code, problem))
    return function;
  driver.cuModuleUnload(module);
  return nullptr;
}

}  // namespace

CUfunction GetFunction(const Driver& driver, CUcontext context, const Code& code, std::string* problem) {
  Loaded& loaded = GetLoaded();
  const std::lock_guard<std::mutex> lock(loaded.mutex);
  const Key key(context, code.key);
  const auto found = loaded.functions.find(key);
  if (found != loaded.functions.end()) return found->second;
  const CUfunction function = Load(driver, code, problem);
  if (function != nullptr) loaded.functions.emplace(key, function);
  return function;
}

}  // namespace mosaic_gpu
