// Initialisation, devices, contexts, errors, and the controls of the tests.
#include <cstring>

#include "fake.h"

State g;
thread_local std::vector<CUcontext> t_contexts;
thread_local int t_capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

namespace {

struct ErrorWords {
  int status;
  const char* name;
  const char* words;
};

constexpr ErrorWords kErrors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "cluster misconfiguration"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorWords* words_of(int status) {
  for (const ErrorWords& entry : kErrors)
    if (entry.status == status) return &entry;
  return nullptr;
}

bool is_context(CUcontext context) {
  for (auto& [device, known] : g.primary)
    if (known == context) return true;
  return false;
}

// What a context owns goes with it.
void destroy(CUcontext context) {
  for (auto it = g.modules.begin(); it != g.modules.end();)
    if ((*it)->context == context) { delete *it; it = g.modules.erase(it); } else ++it;
  for (auto it = g.events.begin(); it != g.events.end();)
    if ((*it)->context == context) { delete *it; it = g.events.erase(it); } else ++it;
  for (auto it = g.streams.begin(); it != g.streams.end();)
    if ((*it)->context == context) { delete *it; it = g.streams.erase(it); } else ++it;
  for (auto it = g.memory.begin(); it != g.memory.end();)
    if (it->second.context == context) { std::free(it->second.memory); it = g.memory.erase(it); } else ++it;
  delete context->legacy;
  g.primary.erase(context->device);
  delete context;
}

}  // namespace

CUresult enter(const char* name, bool needs_init) {
  ++g.calls[name];
  auto fault = g.faults.find(name);
  if (fault != g.faults.end() && fault->second.skip-- == 0) {
    CUresult status = fault->second.status;
    g.faults.erase(fault);
    if (!t_contexts.empty()) lose(t_contexts.back(), status);
    return status;
  }
  return needs_init && !g.initialised ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

CUresult current(CUcontext* context) {
  if (t_contexts.empty() || !is_context(t_contexts.back())) return CUDA_ERROR_INVALID_CONTEXT;
  *context = t_contexts.back();
  return (*context)->lost;
}

void lose(CUcontext context, CUresult status) {
  bool kills = status == CUDA_ERROR_ILLEGAL_ADDRESS || (status >= 714 && status <= 719);
  if (kills && is_context(context) && context->lost == CUDA_SUCCESS) context->lost = status;
}

extern "C" {

CUresult cuInit(unsigned flags) {
  Lock lock(g.mutex);
  TRY(enter("cuInit", false));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (g.devices == 0) return 100;
  g.initialised = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult status, const char** name) {
  const ErrorWords* entry = words_of(status);
  *name = entry ? entry->name : nullptr;
  return entry ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult status, const char** words) {
  const ErrorWords* entry = words_of(status);
  *words = entry ? entry->words : nullptr;
  return entry ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int* count) {
  ENTER("cuDeviceGetCount");
  *count = g.devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  ENTER("cuDeviceGet");
  if (ordinal < 0 || ordinal >= g.devices) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int capacity, CUdevice device) {
  ENTER("cuDeviceGetName");
  if (device < 0 || device >= g.devices) return CUDA_ERROR_INVALID_DEVICE;
  std::strncpy(name, "Stand-in GPU", capacity);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  ENTER("cuDeviceTotalMem");
  if (device < 0 || device >= g.devices) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = g.memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER("cuMemGetInfo");
  CONTEXT(context);
  *free = *total = g.memory_bytes;
  for (auto& [start, allocation] : g.memory) *free -= allocation.bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  ENTER("cuDeviceGetAttribute");
  if (device < 0 || device >= g.devices) return CUDA_ERROR_INVALID_DEVICE;
  const int is_hopper = g.major >= 9;
  const std::map<int, int> values = {
      {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152}, {10, 32},
      {12, 65536}, {13, 1830000}, {16, g.multiprocessors}, {36, 3201000}, {37, 6144}, {38, 62914560}, {39, 2048},
      {75, g.major}, {76, g.minor}, {81, is_hopper ? 233472 : 167936}, {82, 65536}, {95, 1},
      {97, is_hopper ? 232448 : 166912}, {106, 32}, {111, 1024}, {115, 1}, {120, is_hopper}, {127, is_hopper},
  };
  auto found = values.find(attribute);
  if (found == values.end()) return CUDA_ERROR_INVALID_VALUE;
  *value = found->second;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ENTER("cuDevicePrimaryCtxRetain");
  if (device < 0 || device >= g.devices) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext& known = g.primary[device];
  if (known == nullptr) {
    known = new CUctx_st;
    known->device = device;
    known->legacy = new CUstream_st;
    known->legacy->context = known;
  }
  ++known->retained;
  *context = known;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER("cuDevicePrimaryCtxRelease");
  auto found = g.primary.find(device);
  if (found == g.primary.end()) return CUDA_ERROR_INVALID_CONTEXT;
  if (--found->second->retained == 0) destroy(found->second);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER("cuCtxPushCurrent");
  if (!is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  t_contexts.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  ENTER("cuCtxPopCurrent");
  if (t_contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = t_contexts.back();
  t_contexts.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER("cuCtxSetCurrent");
  if (context != nullptr && !is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!t_contexts.empty()) t_contexts.pop_back();
  if (context != nullptr) t_contexts.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  ENTER("cuCtxGetCurrent");
  *context = t_contexts.empty() ? nullptr : t_contexts.back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  ENTER("cuCtxGetDevice");
  CONTEXT(context);
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  ENTER("cuCtxSynchronize");
  CONTEXT(context);
  TRY(unsafe_while_capturing());
  return drain_all(context);
}

// The controls of the tests.

void fake_install(DescribeFunction describe, LaunchFunction launch) {
  g.describe = describe;
  g.launch = launch;
}

void fake_configure(int devices, int major, int minor, int multiprocessors, size_t memory_bytes) {
  Lock lock(g.mutex);
  g.devices = devices, g.major = major, g.minor = minor;
  g.multiprocessors = multiprocessors, g.memory_bytes = memory_bytes;
}

// The call after `skip` good ones of the function `name` answers `status`.
void fake_fail(const char* name, int status, int skip) {
  Lock lock(g.mutex);
  g.faults[name] = Fault{status, skip};
}

// All contexts are healthy again, and no fault is planned.
void fake_heal() {
  Lock lock(g.mutex);
  g.faults.clear();
  for (auto& [device, context] : g.primary) context->lost = CUDA_SUCCESS;
}

// Bytes from `pointer` to the end of its allocation; 0 where it is in none.
size_t fake_bytes_behind(CUdeviceptr pointer) {
  Lock lock(g.mutex);
  auto after = g.memory.upper_bound(pointer);
  if (after == g.memory.begin() || !in_device_memory(pointer, 1)) return 0;
  auto& [first, allocation] = *std::prev(after);
  return first + allocation.bytes - pointer;
}

// How many of a kind are alive; of a function's name, how often it was called.
long fake_count(const char* what) {
  Lock lock(g.mutex);
  const std::string kind = what;
  if (kind == "modules") return g.modules.size();
  if (kind == "streams") return g.streams.size();
  if (kind == "events") return g.events.size();
  if (kind == "graphs") return g.graphs.size() + g.executables.size();
  if (kind == "allocations") return g.memory.size();
  if (kind == "contexts") {
    long retained = 0;
    for (auto& [device, context] : g.primary) retained += context->retained;
    return retained;
  }
  if (kind == "pushed") return t_contexts.size();
  auto found = g.calls.find(kind);
  return found == g.calls.end() ? 0 : found->second;
}

}  // extern "C"
