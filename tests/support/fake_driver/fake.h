// A stand-in for libcuda.so.1: the state that its entry points share.
//
// Device memory is host memory.  Work that a real driver hands to the GPU waits in its stream's queue until
// something waits for it, so that a missing wait shows.  Launches go to a function of the test process, which runs the
// PTX kept beside the cubin on the simulator.  What the real driver refuses is refused with the same status.
#ifndef MOSAIC_GPU_FAKE_DRIVER_H_
#define MOSAIC_GPU_FAKE_DRIVER_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda_driver.h"

extern "C" {
typedef struct CUgraph_st* CUgraph;
typedef struct CUgraphExec_st* CUgraphExec;
}

constexpr int kNotCapturing = -1;

using Work = std::function<CUresult()>;

struct CUgraph_st {
  std::vector<Work> work;
  bool invalidated = false;
};

struct CUgraphExec_st {
  std::vector<Work> work;
};

struct CUctx_st {
  int device = 0;
  int retained = 0;
  CUresult lost = CUDA_SUCCESS;  // what every call answers after the GPU faulted
  CUstream legacy = nullptr;
};

struct CUfunc_st {
  CUmodule module = nullptr;
  std::string name;
  int registers = 0, static_shared = 0, max_threads = 1024;
  int dynamic_limit = 0;
  int clusters_beyond_8 = 0;
  std::vector<size_t> params;  // bytes of each
};

struct CUmod_st {
  CUcontext context = nullptr;
  std::string key;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

struct CUstream_st {
  CUcontext context = nullptr;
  bool blocking = true;  // waits for the legacy stream, and it for this one
  std::deque<Work> queue;
  std::uint64_t pushed = 0, done = 0;
  CUgraph capture = nullptr;
  int capture_mode = kNotCapturing;
  std::uint64_t capture_thread = 0;
};

struct CUevent_st {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  std::uint64_t mark = 0;
  CUgraph captured = nullptr;
  double milliseconds = 0;
};

struct Allocation {
  size_t bytes = 0;
  CUcontext context = nullptr;
  void* memory = nullptr;
};

typedef int (*DescribeFunction)(const void* image, size_t bytes, char* answer, size_t capacity);
typedef int (*LaunchFunction)(const char* key, const char* entry, const unsigned* dims, unsigned shared, void** params);

struct Fault {
  CUresult status;
  int skip;  // calls that still go well
};

struct State {
  std::recursive_mutex mutex;
  bool initialised = false;
  int devices = 1, major = 9, minor = 0, multiprocessors = 132;
  size_t memory_bytes = size_t{1} << 30;
  std::map<int, CUcontext> primary;
  std::set<CUmodule> modules;
  std::set<CUstream> streams;
  std::set<CUevent> events;
  std::set<CUgraph> graphs;
  std::set<CUgraphExec> executables;
  std::map<CUdeviceptr, Allocation> memory;
  std::map<std::string, Fault> faults;
  std::map<std::string, long> calls;
  DescribeFunction describe = nullptr;
  LaunchFunction launch = nullptr;
};

extern State g;
extern thread_local std::vector<CUcontext> t_contexts;
extern thread_local int t_capture_mode;

using Lock = std::lock_guard<std::recursive_mutex>;

// Counts the call, and gives the status it must fail with: an injected one, or that of a driver not initialised.
CUresult enter(const char* name, bool needs_init = true);
// The current context, if it lives and no fault lost it.
CUresult current(CUcontext* context);
// Makes the current context answer `status` from now on, if `status` is one that kills a context.
void lose(CUcontext context, CUresult status);

CUresult resolve(CUstream handle, CUstream* stream);
CUresult enqueue(CUstream stream, Work work);
CUresult drain(CUstream stream, std::uint64_t until);
CUresult drain_all(CUcontext context);
// The status of a call that may not be made while a stream is captured; it spoils the capture.
CUresult unsafe_while_capturing();
bool in_device_memory(CUdeviceptr start, size_t bytes);
std::uint64_t thread_number();

#define ENTER(name)                               \
  Lock lock(g.mutex);                             \
  do {                                            \
    if (CUresult status = enter(name)) return status; \
  } while (0)

#define CONTEXT(context)                                     \
  CUcontext context = nullptr;                               \
  do {                                                       \
    if (CUresult status = current(&context)) return status;  \
  } while (0)

#define TRY(expression)                             \
  do {                                              \
    if (CUresult status = (expression)) return status; \
  } while (0)

#endif  // MOSAIC_GPU_FAKE_DRIVER_H_
