// Modules, functions, launches and tensor maps.
#include <cstring>
#include <sstream>

#include "fake.h"

namespace {

constexpr int kRegistersOfBlock = 65536;
constexpr int kDefaultShared = 48 * 1024;
constexpr int kReservedShared = 1024;

int most_shared() { return g.major >= 9 ? 232448 : 166912; }
int shared_of_multiprocessor() { return g.major >= 9 ? 233472 : 167936; }

template <typename T>
T field(const void* image, size_t at) {
  T value;
  std::memcpy(&value, static_cast<const char*>(image) + at, sizeof(T));
  return value;
}

// The size of a 64-bit ELF file: its headers tell where the last section ends (ELF-64 Object File Format, 3 and 4).
size_t elf_bytes(const void* image) {
  const auto table = field<std::uint64_t>(image, 40);
  const auto entry = field<std::uint16_t>(image, 58), count = field<std::uint16_t>(image, 60);
  size_t end = table + size_t{entry} * count;
  for (unsigned i = 0; i < count; ++i) {
    const size_t header = table + size_t{entry} * i;
    const bool has_bytes = field<std::uint32_t>(image, header + 4) != 8;  // SHT_NOBITS
    const size_t last = field<std::uint64_t>(image, header + 24) + field<std::uint64_t>(image, header + 32);
    if (has_bytes && last > end) end = last;
  }
  const auto programs = field<std::uint64_t>(image, 32);
  const size_t last = programs + size_t{field<std::uint16_t>(image, 54)} * field<std::uint16_t>(image, 56);
  return programs != 0 && last > end ? last : end;
}

// Reads the answer of the test process: lines "key K", "target MAJOR MINOR", "kernel NAME REGISTERS SHARED THREADS P..".
CUresult describe(const void* image, CUmodule module) {
  const bool is_elf = std::memcmp(image, "\x7f" "ELF\x02", 5) == 0;
  const bool is_ptx = !is_elf && std::strstr(static_cast<const char*>(image), ".version ") != nullptr;  // text, which ends with a 0
  if ((!is_elf && !is_ptx) || g.describe == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  std::vector<char> answer(1 << 16);
  const size_t bytes = is_elf ? elf_bytes(image) : std::strlen(static_cast<const char*>(image));
  TRY(g.describe(image, bytes, answer.data(), answer.size()));
  std::istringstream lines(answer.data());
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "key") words >> module->key;
    if (word == "target") {
      int major = 0, minor = 0;
      words >> major >> minor;
      const bool runs = major == g.major ? minor <= g.minor : is_ptx && major < g.major;  // PTX is compiled for this GPU
      if (!runs) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (word != "kernel") continue;
    auto function = std::make_unique<CUfunc_st>();
    words >> function->name >> function->registers >> function->static_shared >> function->max_threads;
    for (size_t bytes; words >> bytes;) function->params.push_back(bytes);
    function->module = module;
    function->dynamic_limit = kDefaultShared - function->static_shared;
    module->functions[function->name] = std::move(function);
  }
  return CUDA_SUCCESS;
}

bool is_function(CUfunction function) {
  for (CUmodule module : g.modules)
    for (auto& [name, known] : module->functions)
      if (known.get() == function) return true;
  return false;
}

struct Launch {
  unsigned dims[9];  // grid, block, cluster
  unsigned shared;
};

CUresult check_grid(const Launch& launch) {
  const unsigned most[6] = {2147483647u, 65535, 65535, 1024, 1024, 64};
  for (int i = 0; i < 6; ++i)
    if (launch.dims[i] == 0 || launch.dims[i] > most[i]) return CUDA_ERROR_INVALID_VALUE;
  const unsigned threads = launch.dims[3] * launch.dims[4] * launch.dims[5];
  return threads > 1024 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult check_cluster(CUfunction function, const Launch& launch) {
  const unsigned size = launch.dims[6] * launch.dims[7] * launch.dims[8];
  if (size == 1) return CUDA_SUCCESS;
  if (g.major < 9) return CUDA_ERROR_NOT_SUPPORTED;
  for (int i = 0; i < 3; ++i)
    if (launch.dims[6 + i] == 0 || launch.dims[i] % launch.dims[6 + i]) return 912;
  return size > 16 || (size > 8 && !function->clusters_beyond_8) ? 912 : CUDA_SUCCESS;
}

CUresult check_resources(CUfunction function, const Launch& launch) {
  const int threads = launch.dims[3] * launch.dims[4] * launch.dims[5];
  if (static_cast<long>(launch.shared) > function->dynamic_limit) return CUDA_ERROR_INVALID_VALUE;
  if (threads > function->max_threads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const int warps = (threads + 31) / 32, of_warp = (function->registers * 32 + 255) / 256 * 256;
  return warps * of_warp > kRegistersOfBlock ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS;
}

CUresult launch(CUfunction function, const Launch& launch, CUstream handle, void** params) {
  CONTEXT(context);
  CUstream stream = nullptr;
  TRY(resolve(handle, &stream));
  if (!is_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (function->module->context != context || stream->context != context) return CUDA_ERROR_INVALID_CONTEXT;
  TRY(check_grid(launch));
  TRY(check_cluster(function, launch));
  TRY(check_resources(function, launch));
  if (params == nullptr && !function->params.empty()) return CUDA_ERROR_INVALID_VALUE;
  // The driver reads the parameters before the call returns.
  auto values = std::make_shared<std::vector<std::vector<std::uint64_t>>>();
  for (size_t i = 0; i < function->params.size(); ++i) {
    values->emplace_back((function->params[i] + 7) / 8);
    std::memcpy(values->back().data(), params[i], function->params[i]);
  }
  const std::string key = function->module->key, entry = function->name;
  return enqueue(stream, [=]() -> CUresult {
    std::vector<void*> pointers;
    for (auto& value : *values) pointers.push_back(value.data());
    ++g.calls["launched"];
    if (g.launch == nullptr) return CUDA_SUCCESS;
    return g.launch(key.c_str(), entry.c_str(), launch.dims, launch.shared, pointers.data());
  });
}

struct Map {
  int type;
  unsigned rank;
  std::uint64_t address;
  const std::uint64_t *dims, *strides;
  const std::uint32_t *box, *steps;
  int interleave, swizzle;

  int element_bytes() const {
    constexpr int kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    return kBytes[type];
  }
};

// The rules of cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management").
bool is_valid(const Map& map) {
  if (map.type < 0 || map.type > 12 || map.rank < 1 || map.rank > 5 || map.interleave != 0) return false;
  if (map.address == 0 || map.address % 16 || map.swizzle < 0 || map.swizzle > 3) return false;
  for (unsigned i = 0; i < map.rank; ++i) {
    if (map.dims[i] == 0 || map.dims[i] > std::uint64_t{1} << 31) return false;
    if (map.box[i] == 0 || map.box[i] > 256 || map.steps[i] == 0 || map.steps[i] > 8) return false;
    if (i + 1 < map.rank && (map.strides[i] % 16 || map.strides[i] >= std::uint64_t{1} << 40)) return false;
  }
  const unsigned inner = map.box[0] * map.element_bytes();
  return inner % 16 == 0 && (map.swizzle == 0 || inner <= 16u << map.swizzle);
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  ENTER("cuModuleLoadData");
  CONTEXT(context);
  TRY(unsafe_while_capturing());
  auto loaded = std::make_unique<CUmod_st>();
  loaded->context = context;
  TRY(describe(image, loaded.get()));
  *module = loaded.release();
  g.modules.insert(*module);
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  ENTER("cuModuleUnload");
  CONTEXT(context);
  if (!g.modules.count(module)) return CUDA_ERROR_INVALID_HANDLE;
  TRY(drain_all(context));
  g.modules.erase(module);
  delete module;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  ENTER("cuModuleGetFunction");
  CONTEXT(context);
  if (!g.modules.count(module)) return CUDA_ERROR_INVALID_HANDLE;
  auto found = module->functions.find(name);
  if (found == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
  *function = found->second.get();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  ENTER("cuFuncGetAttribute");
  if (!is_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = function->max_threads; return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = function->static_shared; return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = function->registers; return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->dynamic_limit; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  ENTER("cuFuncSetAttribute");
  CONTEXT(context);
  if (!is_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value + function->static_shared > most_shared()) return CUDA_ERROR_INVALID_VALUE;
      function->dynamic_limit = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      function->clusters_beyond_8 = value;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads, size_t shared) {
  ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  if (!is_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (threads < 1 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  const int warps = (threads + 31) / 32, of_warp = (function->registers * 32 + 255) / 256 * 256;
  const int by_registers = of_warp ? kRegistersOfBlock / (warps * of_warp) : 32;
  const int by_shared = shared_of_multiprocessor() / static_cast<int>(shared + function->static_shared + kReservedShared);
  *blocks = std::min(std::min(32, 2048 / (warps * 32)), std::min(by_registers, by_shared));
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void** params, void** extra) {
  ENTER("cuLaunchKernel");
  if (extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch(function, Launch{{gx, gy, gz, bx, by, bz, 1, 1, 1}, shared}, stream, params);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params, void** extra) {
  ENTER("cuLaunchKernelEx");
  if (extra != nullptr || (config->numAttrs != 0 && config->attrs == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  Launch request{{config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                  config->blockDimZ, 1, 1, 1},
                 config->sharedMemBytes};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE: break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        request.dims[6] = attribute.value.clusterDim.x;
        request.dims[7] = attribute.value.clusterDim.y;
        request.dims[8] = attribute.value.clusterDim.z;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        if (g.major < 9) return CUDA_ERROR_NOT_SUPPORTED;
        g.calls["programmatic"] += attribute.value.programmaticStreamSerializationAllowed;
        break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return launch(function, request, config->hStream, params);
}

// The driver's own format is not published.  This one is read back by tests/support/stand_in.py: "standin!", address,
// then four bytes rank, bytes an element, swizzle in bytes, 0; box (5 x u32), dims (5 x u64), strides (4 x u64).
CUresult cuTensorMapEncodeTiled(CUtensorMap* result, int type, std::uint32_t rank, void* address, const std::uint64_t* dims,
                                const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps,
                                int interleave, int swizzle, int promotion, int fill) {
  ENTER("cuTensorMapEncodeTiled");
  if (g.major < 9) return CUDA_ERROR_NOT_SUPPORTED;
  const Map map{type, rank, reinterpret_cast<std::uint64_t>(address), dims, strides, box, steps, interleave, swizzle};
  if (reinterpret_cast<std::uintptr_t>(result) % 64 || !is_valid(map)) return CUDA_ERROR_INVALID_VALUE;
  if (promotion < 0 || promotion > 3 || fill != 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < rank; ++i)
    if (steps[i] != 1) return CUDA_ERROR_NOT_SUPPORTED;  // not modelled by the simulator
  char* bytes = reinterpret_cast<char*>(result);
  std::memset(bytes, 0, sizeof(CUtensorMap));
  std::memcpy(bytes, "standin!", 8);
  std::memcpy(bytes + 8, &map.address, 8);
  bytes[16] = static_cast<char>(rank), bytes[17] = static_cast<char>(map.element_bytes());
  bytes[18] = static_cast<char>(swizzle == 0 ? 0 : 16 << swizzle);
  std::memcpy(bytes + 20, box, 4 * rank);
  std::memcpy(bytes + 40, dims, 8 * rank);
  if (rank > 1) std::memcpy(bytes + 80, strides, 8 * (rank - 1));
  return CUDA_SUCCESS;
}

}  // extern "C"
