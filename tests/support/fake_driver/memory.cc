// Memory, streams, events and graphs.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "fake.h"

namespace {

constexpr size_t kAlignment = 256;
constexpr int kPoison = 0xCD;

double now() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

CUresult copy(void* to, const void* from, size_t bytes) {
  std::memmove(to, from, bytes);
  return CUDA_SUCCESS;
}

void* host(CUdeviceptr pointer) { return reinterpret_cast<void*>(pointer); }

CUresult allocate(CUdeviceptr* pointer, size_t bytes, CUcontext context) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  size_t used = 0;
  for (auto& [start, allocation] : g.memory) used += allocation.bytes;
  if (used + bytes > g.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  std::memset(memory, kPoison, bytes);
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  g.memory[*pointer] = Allocation{bytes, context, memory};
  return CUDA_SUCCESS;
}

CUresult release(CUdeviceptr pointer) {
  auto found = g.memory.find(pointer);
  if (found == g.memory.end()) return CUDA_ERROR_INVALID_VALUE;
  std::free(found->second.memory);
  g.memory.erase(found);
  return CUDA_SUCCESS;
}

// Runs `work` now, as a call without a stream does: after all that the legacy stream waits for.
CUresult synchronous(CUcontext context, Work work) {
  TRY(unsafe_while_capturing());
  TRY(enqueue(context->legacy, std::move(work)));
  return drain(context->legacy, context->legacy->pushed);
}

CUresult asynchronous(CUstream handle, Work work) {
  CUstream stream = nullptr;
  TRY(resolve(handle, &stream));
  return enqueue(stream, std::move(work));
}

Work waiting_for(CUstream stream, std::uint64_t mark) {
  return [=] { return g.streams.count(stream) || stream->context->legacy == stream ? drain(stream, mark) : CUDA_SUCCESS; };
}

}  // namespace

std::uint64_t thread_number() {
  static std::atomic<std::uint64_t> next{1};
  thread_local std::uint64_t mine = next++;
  return mine;
}

bool in_device_memory(CUdeviceptr start, size_t bytes) {
  auto after = g.memory.upper_bound(start);
  if (after == g.memory.begin()) return false;
  auto& [first, allocation] = *--after;
  return start + bytes <= first + allocation.bytes;
}

CUresult resolve(CUstream handle, CUstream* stream) {
  CONTEXT(context);
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number <= 2) {  // the default stream, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
    *stream = context->legacy;
    return CUDA_SUCCESS;
  }
  if (!g.streams.count(handle)) return CUDA_ERROR_INVALID_HANDLE;
  *stream = handle;
  return CUDA_SUCCESS;
}

CUresult enqueue(CUstream stream, Work work) {
  if (stream->capture != nullptr) {
    if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->capture->work.push_back(std::move(work));
    return CUDA_SUCCESS;
  }
  CUstream legacy = stream->context->legacy;
  if (stream == legacy) {
    for (CUstream other : g.streams)
      if (other->blocking && other->context == stream->context) {
        stream->queue.push_back(waiting_for(other, other->pushed));
        ++stream->pushed;
      }
  } else if (stream->blocking) {
    stream->queue.push_back(waiting_for(legacy, legacy->pushed));
    ++stream->pushed;
  }
  stream->queue.push_back(std::move(work));
  ++stream->pushed;
  return CUDA_SUCCESS;
}

CUresult drain(CUstream stream, std::uint64_t until) {
  while (stream->done < until && !stream->queue.empty()) {
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    ++stream->done;
    if (stream->context->lost != CUDA_SUCCESS) continue;  // a lost context runs nothing more
    lose(stream->context, work());
  }
  return stream->context->lost;
}

CUresult drain_all(CUcontext context) {
  CUresult first = drain(context->legacy, context->legacy->pushed);
  for (CUstream stream : g.streams)
    if (stream->context == context)
      if (CUresult status = drain(stream, stream->pushed); first == CUDA_SUCCESS) first = status;
  return first;
}

CUresult unsafe_while_capturing() {
  if (t_capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult status = CUDA_SUCCESS;
  for (CUstream stream : g.streams) {
    if (stream->capture == nullptr || stream->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    const bool is_ours = stream->capture_thread == thread_number();
    const bool is_global = stream->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && t_capture_mode == 0;
    if (!is_ours && !is_global) continue;
    stream->capture->invalidated = true;
    status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return status;
}

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  ENTER("cuMemAlloc");
  CONTEXT(context);
  TRY(unsafe_while_capturing());
  return allocate(pointer, bytes, context);
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  ENTER("cuMemFree");
  CONTEXT(context);
  TRY(unsafe_while_capturing());
  if (pointer == 0) return CUDA_SUCCESS;
  TRY(drain_all(context));  // as the driver: freeing waits
  return release(pointer);
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream handle) {
  ENTER("cuMemAllocAsync");
  CUstream stream = nullptr;
  TRY(resolve(handle, &stream));
  if (stream->capture != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // memory of a graph is not modelled
  return allocate(pointer, bytes, stream->context);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
  ENTER("cuMemFreeAsync");
  if (!g.memory.count(pointer)) return CUDA_ERROR_INVALID_VALUE;
  return asynchronous(handle, [=] { return release(pointer); });
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  ENTER("cuMemcpyHtoD");
  CONTEXT(context);
  if (!in_device_memory(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return synchronous(context, [=] { return copy(host(to), from, bytes); });
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  ENTER("cuMemcpyDtoH");
  CONTEXT(context);
  if (!in_device_memory(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return synchronous(context, [=] { return copy(to, host(from), bytes); });
}

// From pageable memory: the data is read before the call returns.
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  ENTER("cuMemcpyHtoDAsync");
  if (!in_device_memory(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  auto data = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
  return asynchronous(stream, [=] { return copy(host(to), data->data(), bytes); });
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER("cuMemcpyDtoHAsync");
  if (!in_device_memory(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return asynchronous(stream, [=] { return copy(to, host(from), bytes); });
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER("cuMemcpyDtoDAsync");
  if (!in_device_memory(to, bytes) || !in_device_memory(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return asynchronous(stream, [=] { return copy(host(to), host(from), bytes); });
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  ENTER("cuMemsetD8Async");
  if (!in_device_memory(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return asynchronous(stream, [=] { std::memset(host(to), value, bytes); return CUDA_SUCCESS; });
}

CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr pointer) {
  ENTER("cuPointerGetAttribute");
  auto after = g.memory.upper_bound(pointer);
  if (after == g.memory.begin() || !in_device_memory(pointer, 1)) return CUDA_ERROR_INVALID_VALUE;
  const Allocation& allocation = std::prev(after)->second;
  switch (attribute) {
    case 1: *static_cast<CUcontext*>(value) = allocation.context; return CUDA_SUCCESS;
    case 2: *static_cast<unsigned*>(value) = 2; return CUDA_SUCCESS;  // CU_MEMORYTYPE_DEVICE
    case 9: *static_cast<int*>(value) = allocation.context->device; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  ENTER("cuStreamCreate");
  CONTEXT(context);
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  *stream = new CUstream_st;
  (*stream)->context = context;
  (*stream)->blocking = flags == 0;  // CU_STREAM_NON_BLOCKING is 1
  g.streams.insert(*stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  ENTER("cuStreamDestroy");
  if (!g.streams.count(stream)) return CUDA_ERROR_INVALID_HANDLE;
  drain(stream, stream->pushed);
  g.streams.erase(stream);
  delete stream;
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  ENTER("cuStreamSynchronize");
  CUstream stream = nullptr;
  TRY(resolve(handle, &stream));
  if (stream->capture != nullptr) {
    stream->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return drain(stream, stream->pushed);
}

CUresult cuStreamQuery(CUstream handle) {
  ENTER("cuStreamQuery");
  CUstream stream = nullptr;
  TRY(resolve(handle, &stream));
  return stream->queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  ENTER("cuStreamGetCtx");
  if (g.streams.count(handle)) {
    *context = handle->context;
    return CUDA_SUCCESS;
  }
  CUstream stream = nullptr;
  TRY(resolve(handle, &stream));
  *context = stream->context;
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
  ENTER("cuStreamWaitEvent");
  CUstream stream = nullptr;
  TRY(resolve(handle, &stream));
  if (!g.events.count(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->captured != nullptr) {  // the waiting stream joins the capture
    stream->capture = event->captured;
    stream->capture_mode = event->stream->capture_mode;
    stream->capture_thread = event->stream->capture_thread;
    return CUDA_SUCCESS;
  }
  if (event->stream == nullptr) return CUDA_SUCCESS;
  return enqueue(stream, waiting_for(event->stream, event->mark));
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  ENTER("cuEventCreate");
  CONTEXT(context);
  *event = new CUevent_st;
  (*event)->context = context;
  g.events.insert(*event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  ENTER("cuEventDestroy");
  if (!g.events.erase(event)) return CUDA_ERROR_INVALID_HANDLE;
  delete event;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream handle) {
  ENTER("cuEventRecord");
  CUstream stream = nullptr;
  TRY(resolve(handle, &stream));
  if (!g.events.count(event)) return CUDA_ERROR_INVALID_HANDLE;
  event->captured = stream->capture;
  event->stream = stream;
  TRY(enqueue(stream, [event] {
    if (g.events.count(event)) event->milliseconds = now();
    return CUDA_SUCCESS;
  }));
  event->mark = stream->pushed;
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
  ENTER("cuEventSynchronize");
  if (!g.events.count(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->captured != nullptr) return 907;  // CUDA_ERROR_CAPTURED_EVENT
  return event->stream == nullptr ? CUDA_SUCCESS : drain(event->stream, event->mark);
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  ENTER("cuEventElapsedTime");
  if (!g.events.count(start) || !g.events.count(end)) return CUDA_ERROR_INVALID_HANDLE;
  if (end->stream == nullptr || end->stream->done < end->mark) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(end->milliseconds - start->milliseconds);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  ENTER("cuStreamBeginCapture");
  if (!g.streams.count(stream)) return 906;  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: not the legacy stream
  if (stream->capture != nullptr) return CUDA_ERROR_INVALID_VALUE;
  stream->capture = new CUgraph_st;
  stream->capture_mode = mode;
  stream->capture_thread = thread_number();
  g.graphs.insert(stream->capture);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  ENTER("cuStreamEndCapture");
  if (!g.streams.count(stream)) return CUDA_ERROR_INVALID_HANDLE;
  CUgraph captured = stream->capture;
  *graph = nullptr;
  if (captured == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (CUstream other : g.streams)
    if (other->capture == captured) other->capture = nullptr, other->capture_mode = kNotCapturing;
  for (CUevent event : g.events)
    if (event->captured == captured) event->captured = nullptr, event->stream = nullptr;
  if (captured->invalidated) {
    g.graphs.erase(captured);
    delete captured;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  *graph = captured;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, int* status) {
  ENTER("cuStreamIsCapturing");
  CUstream stream = nullptr;
  TRY(resolve(handle, &stream));
  *status = stream->capture == nullptr ? 0 : stream->capture->invalidated ? 2 : 1;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  ENTER("cuThreadExchangeStreamCaptureMode");
  std::swap(*mode, t_capture_mode);
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  ENTER("cuGraphInstantiate");
  if (!g.graphs.count(graph)) return CUDA_ERROR_INVALID_VALUE;
  *executable = new CUgraphExec_st{graph->work};
  g.executables.insert(*executable);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle) {
  ENTER("cuGraphLaunch");
  if (!g.executables.count(executable)) return CUDA_ERROR_INVALID_VALUE;
  CUstream stream = nullptr;
  TRY(resolve(handle, &stream));
  for (const Work& work : executable->work) TRY(enqueue(stream, work));
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  ENTER("cuGraphExecDestroy");
  if (!g.executables.erase(executable)) return CUDA_ERROR_INVALID_VALUE;
  delete executable;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  ENTER("cuGraphDestroy");
  if (!g.graphs.erase(graph)) return CUDA_ERROR_INVALID_VALUE;
  delete graph;
  return CUDA_SUCCESS;
}

}  // extern "C"
