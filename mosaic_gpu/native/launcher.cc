#include "launcher.h"

#include <array>
#include <string>
#include <vector>

#include "driver.h"
#include "modules.h"

namespace mosaic_gpu {
namespace {

namespace ffi = ::xla::ffi;
using Numbers = ffi::Span<const std::int64_t>;

constexpr std::uintptr_t kPointerAlignment = 16;
constexpr int kPortableCluster = 8;
constexpr int kMaxRank = 5;
constexpr std::int64_t kUnknownSize = -1;

ffi::Error Invalid(std::string_view kernel, const std::string& what) {
  return ffi::Error::InvalidArgument("mosaic_gpu kernel '" + std::string(kernel) + "': " + what);
}

ffi::Error Failed(std::string_view kernel, const std::string& what) {
  return ffi::Error::Internal("mosaic_gpu kernel '" + std::string(kernel) + "': " + what);
}

// What the attributes say; the views live as long as the call.
struct Request {
  std::string_view name, entry, target, cubin, key;
  Numbers grid, block, cluster, arguments, aliases, tensor_maps;
  std::int64_t shared_bytes = 0, programmatic = 0;
};

template <typename T>
bool Read(const ffi::Dictionary& attributes, const char* name, T* value, std::string* missing) {
  ffi::ErrorOr<T> found = attributes.get<T>(name);
  if (!found) {
    *missing = name;
    return false;
  }
  *value = *found;
  return true;
}

ffi::Error Decode(const ffi::Dictionary& attributes, Request* r) {
  std::int64_t version = 0;
  std::string missing;
  if (!Read(attributes, "version", &version, &missing) || version != kVersion)
    return Invalid("?", "the call has version " + std::to_string(version) + ", this launcher runs version " +
                            std::to_string(kVersion) + "; export the program again with the mosaic_gpu that is installed here");
  const bool has_all =
      Read(attributes, "name", &r->name, &missing) && Read(attributes, "entry", &r->entry, &missing) &&
      Read(attributes, "target", &r->target, &missing) && Read(attributes, "cubin", &r->cubin, &missing) &&
      Read(attributes, "key", &r->key, &missing) && Read(attributes, "grid", &r->grid, &missing) &&
      Read(attributes, "block", &r->block, &missing) && Read(attributes, "cluster", &r->cluster, &missing) &&
      Read(attributes, "shared_bytes", &r->shared_bytes, &missing) &&
      Read(attributes, "programmatic", &r->programmatic, &missing) &&
      Read(attributes, "arguments", &r->arguments, &missing) && Read(attributes, "aliases", &r->aliases, &missing) &&
      Read(attributes, "tensor_maps", &r->tensor_maps, &missing);
  if (!has_all) return Invalid(r->name, "the call has no attribute '" + missing + "' of the type it must have");
  if (r->grid.size() != 3 || r->block.size() != 3 || r->cluster.size() != 3)
    return Invalid(r->name, "grid, block and cluster must have three numbers each");
  return ffi::Error::Success();
}

// Reads numbers one after the other, and knows when they run out.
class Reader {
 public:
  explicit Reader(Numbers numbers) : numbers_(numbers) {}
  bool done() const { return at_ >= numbers_.size(); }
  bool failed() const { return failed_; }
  std::int64_t next() {
    if (at_ < numbers_.size()) return numbers_[at_++];
    failed_ = true;
    return 0;
  }

 private:
  Numbers numbers_;
  size_t at_ = 0;
  bool failed_ = false;
};

std::string Which(size_t index, size_t operands) {
  return index < operands ? "operand " + std::to_string(index) : "result " + std::to_string(index - operands);
}

// Compares one array with what the kernel was compiled for, and keeps its address.
ffi::Error CheckArray(const Request& r, const ffi::AnyBuffer& array, const std::string& which, Reader* expected,
                      std::vector<void*>* pointers) {
  const auto dims = array.dimensions();
  if (static_cast<std::int64_t>(array.element_type()) != expected->next())
    return Invalid(r.name, which + " has another dtype than the kernel was compiled for");
  if (static_cast<std::int64_t>(dims.size()) != expected->next())
    return Invalid(r.name, which + " has another rank than the kernel was compiled for");
  bool is_empty = false;
  for (const std::int64_t size : dims) {
    const std::int64_t wanted = expected->next();
    if (wanted != kUnknownSize && size != wanted)
      return Invalid(r.name, which + " has another shape than the kernel was compiled for");
    is_empty = is_empty || size == 0;
  }
  void* const pointer = array.untyped_data();
  if (!is_empty && reinterpret_cast<std::uintptr_t>(pointer) % kPointerAlignment != 0)
    return Invalid(r.name, which + " starts at an address that 16 does not divide");
  pointers->push_back(pointer);
  return ffi::Error::Success();
}

ffi::Error CheckArrays(const Request& r, const ffi::RemainingArgs& operands, const ffi::RemainingRets& results,
                       std::vector<void*>* pointers) {
  Reader expected(r.arguments);
  const size_t count = operands.size() + results.size();
  pointers->reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string which = Which(i, operands.size());
    if (expected.done()) return Invalid(r.name, "the call has more arrays than the kernel takes");
    if (i < operands.size()) {
      auto array = operands.get<ffi::AnyBuffer>(i);
      if (!array) return array.error();
      if (auto error = CheckArray(r, *array, which, &expected, pointers); error.failure()) return error;
    } else {
      auto array = results.get<ffi::AnyBuffer>(i - operands.size());
      if (!array) return array.error();
      if (auto error = CheckArray(r, **array, which, &expected, pointers); error.failure()) return error;
    }
  }
  if (!expected.done() || expected.failed()) return Invalid(r.name, "the call has fewer arrays than the kernel takes");
  for (Reader pairs(r.aliases); !pairs.done();) {
    const size_t operand = pairs.next(), result = operands.size() + pairs.next();
    if (operand >= operands.size() || result >= count || (*pointers)[operand] != (*pointers)[result])
      return Invalid(r.name, "operand " + std::to_string(operand) + " is to be overwritten, but XLA gave it other memory");
  }
  return ffi::Error::Success();
}

int MapType(std::int64_t element_bytes) {
  switch (element_bytes) {
    case 1: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case 2: return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case 4: return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    case 8: return CU_TENSOR_MAP_DATA_TYPE_UINT64;
    default: return -1;
  }
}

int MapSwizzle(std::int64_t bytes) {
  switch (bytes) {
    case 0: return CU_TENSOR_MAP_SWIZZLE_NONE;
    case 32: return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64: return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128: return CU_TENSOR_MAP_SWIZZLE_128B;
    default: return -1;
  }
}

ffi::Error EncodeMaps(const Driver& driver, const Request& r, const std::vector<void*>& pointers,
                      std::vector<CUtensorMap>* maps) {
  for (Reader facts(r.tensor_maps); !facts.done();) {
    const size_t argument = facts.next();
    const int type = MapType(facts.next()), swizzle = MapSwizzle(facts.next());
    const std::int64_t rank = facts.next();
    if (argument >= pointers.size() || type < 0 || swizzle < 0 || rank < 1 || rank > kMaxRank)
      return Invalid(r.name, "a tensor map is malformed");
    std::array<std::uint64_t, kMaxRank> dims{}, strides{};
    std::array<std::uint32_t, kMaxRank> box{}, steps{1, 1, 1, 1, 1};
    for (int i = 0; i < rank; ++i) dims[i] = facts.next();
    for (int i = 0; i + 1 < rank; ++i) strides[i] = facts.next();
    for (int i = 0; i < rank; ++i) box[i] = static_cast<std::uint32_t>(facts.next());
    if (facts.failed()) return Invalid(r.name, "a tensor map is malformed");
    const CUresult status = driver.cuTensorMapEncodeTiled(
        &maps->emplace_back(), type, static_cast<std::uint32_t>(rank), pointers[argument], dims.data(), strides.data(),
        box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status != CUDA_SUCCESS)
      return Failed(r.name, Words(driver, "cuTensorMapEncodeTiled", status) + " (argument " + std::to_string(argument) + ")");
  }
  return ffi::Error::Success();
}

// Makes the stream's context current while it lives.
class InContext {
 public:
  InContext(const Driver& driver, CUstream stream) : driver_(driver) {
    CUcontext now = nullptr;
    status = driver_.cuCtxGetCurrent(&now);
    context = now;
    if (status != CUDA_SUCCESS || stream == nullptr) return;
    status = driver_.cuStreamGetCtx(stream, &context);
    if (status != CUDA_SUCCESS || context == now) return;
    status = driver_.cuCtxPushCurrent(context);
    pushed_ = status == CUDA_SUCCESS;
  }
  ~InContext() {
    if (pushed_) driver_.cuCtxPopCurrent(nullptr);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

  CUresult status = CUDA_SUCCESS;
  CUcontext context = nullptr;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

CUlaunchConfig Configure(const Request& r, CUstream stream, CUlaunchAttribute* attributes) {
  CUlaunchConfig config = {};
  config.gridDimX = static_cast<unsigned>(r.grid[0]);
  config.gridDimY = static_cast<unsigned>(r.grid[1]);
  config.gridDimZ = static_cast<unsigned>(r.grid[2]);
  config.blockDimX = static_cast<unsigned>(r.block[0]);
  config.blockDimY = static_cast<unsigned>(r.block[1]);
  config.blockDimZ = static_cast<unsigned>(r.block[2]);
  config.sharedMemBytes = static_cast<unsigned>(r.shared_bytes);
  config.hStream = stream;
  config.attrs = attributes;
  if (r.cluster[0] * r.cluster[1] * r.cluster[2] > 1) {
    CUlaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {static_cast<unsigned>(r.cluster[0]), static_cast<unsigned>(r.cluster[1]),
                                static_cast<unsigned>(r.cluster[2])};
  }
  if (r.programmatic != 0) {
    CUlaunchAttribute& serialization = attributes[config.numAttrs++];
    serialization.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    serialization.value.programmaticStreamSerializationAllowed = 1;
  }
  return config;
}

}  // namespace

ffi::Error Launch(CUstream stream, ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  Request r;
  std::vector<void*> pointers;
  if (auto error = Decode(attributes, &r); error.failure()) return error;
  if (auto error = CheckArrays(r, operands, results, &pointers); error.failure()) return error;

  std::string problem;
  const Driver* const driver = GetDriver(&problem);
  if (driver == nullptr) return Failed(r.name, problem);
  const InContext in_context(*driver, stream);
  if (in_context.status != CUDA_SUCCESS) return Failed(r.name, Words(*driver, "entering the context", in_context.status));

  const bool has_large_clusters = r.cluster[0] * r.cluster[1] * r.cluster[2] > kPortableCluster;
  const Code code{r.key, r.cubin, r.entry, r.shared_bytes, has_large_clusters};
  const CUfunction function = GetFunction(*driver, in_context.context, code, &problem);
  if (function == nullptr) return Failed(r.name, problem + " (the code is for " + std::string(r.target) + ")");

  std::vector<CUtensorMap> maps;
  if (auto error = EncodeMaps(*driver, r, pointers, &maps); error.failure()) return error;
  std::vector<void*> params;
  params.reserve(pointers.size() + maps.size());
  for (void*& pointer : pointers) params.push_back(&pointer);
  for (CUtensorMap& map : maps) params.push_back(&map);

  CUlaunchAttribute launch_attributes[2] = {};
  const CUlaunchConfig config = Configure(r, stream, launch_attributes);
  const CUresult status = driver->cuLaunchKernelEx(&config, function, params.data(), nullptr);
  return status == CUDA_SUCCESS ? ffi::Error::Success() : Failed(r.name, Words(*driver, "cuLaunchKernelEx", status));
}

#pragma GCC visibility push(default)
// The launch holds no state and reads nothing back, so XLA may record it in a command buffer (a CUDA graph).
XLA_FFI_DEFINE_HANDLER_SYMBOL(MosaicGpuKernel, Launch,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<CUstream>>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attrs(),
                              {ffi::Traits::kCmdBufferCompatible});
#pragma GCC visibility pop

}  // namespace mosaic_gpu
