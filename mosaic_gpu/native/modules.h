// Cubins that are loaded: one load for each context and kernel, whichever thread asks first.
#ifndef MOSAIC_GPU_MODULES_H_
#define MOSAIC_GPU_MODULES_H_

#include <string>
#include <string_view>

#include "driver.h"

namespace mosaic_gpu {

struct Code {
  std::string_view key, cubin, entry;
  std::int64_t shared_bytes = 0;
  bool has_large_clusters = false;
};

// The function of `code` in `context`, which is current; null where the driver refuses, and `problem` says why.
CUfunction GetFunction(const Driver& driver, CUcontext context, const Code& code, std::string* problem);

}  // namespace mosaic_gpu

#endif  // MOSAIC_GPU_MODULES_H_
