"""The CUDA driver: found, initialised, and called so that every failure is a `ToolError` with the driver's words.

Nothing here is imported or looked for before it is needed.  The driver's library is looked for first and cuda-python
asked only when it is there, because without it parts of cuda-python can hang.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from mosaic_gpu.errors import ToolError

_LIBRARY = "libcuda.so.1"
_lock = threading.Lock()
_bindings: Any = None

_HINTS = {
    "CUDA_ERROR_OUT_OF_MEMORY": "free arrays, or run with smaller ones: other processes may hold the GPU's memory",
    "CUDA_ERROR_NO_DEVICE": "the driver sees no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "compile the kernel for this GPU: leave target= out",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "make this call before the capture starts",
}
# The driver answers every later call of the process with the same status (CUDA driver API, CUresult).
_LOST = (
    "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_HARDWARE_STACK_ERROR", "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC", "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_ASSERT",
)  # fmt: skip
_LOST_HINT = (
    "a kernel faulted and this process's GPU context is lost: start a new process; compute-sanitizer, or "
    "running the kernel on the simulator (`CompiledKernel.simulate`), shows where"
)


def is_installed() -> bool:
    """Whether the driver's library is on this machine; says nothing of a GPU."""
    if _bindings is not None:
        return True
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    return True


def bindings() -> Any:
    """`cuda.bindings.driver`, initialised.

    Raises ToolError where there is no driver, no GPU or no cuda-python.
    """
    global _bindings
    if _bindings is not None:
        return _bindings
    with _lock:
        if _bindings is None:
            loaded = _load()
            status = loaded.cuInit(0)[0]
            if status:
                _fail(loaded, "cuInit", status)
            _bindings = loaded
    return _bindings


def _load() -> Any:
    if not is_installed():
        raise ToolError(
            f"there is no NVIDIA driver on this machine ({_LIBRARY} is not found)",
            hint="arrays of NumPy run on the simulator; `mosaic-gpu doctor` shows what is installed",
        )
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise ToolError(
            f"cuda-python is not installed: {error}", hint="pip install 'mosaic-gpu[cuda13]' (or [cuda12])"
        ) from error
    return driver


def library() -> Any:
    """The driver's library itself, for what cuda-python cannot do."""
    bindings()
    return ctypes.CDLL(_LIBRARY)


def call(name: str, *arguments: Any, about: str = "") -> Any:
    """The results of the driver function `name`: None, one value, or a tuple.

    Arguments:
      about: what the call is for, told in the error: "kernel softmax".

    Raises ToolError with the function's name and the driver's words where the status is not success.
    """
    cuda = bindings()
    try:
        status, *results = getattr(cuda, name)(*arguments)
    except ValueError as error:  # a status that is newer than cuda-python
        raise ToolError(f"{name} failed{f' for {about}' if about else ''}: {error}") from error
    if status:
        _fail(cuda, name, status, about)
    if len(results) > 1:
        return tuple(results)
    return results[0] if results else None


def check(name: str, status: int, about: str = "") -> None:
    """Raises the ToolError of a status that is not success."""
    if status:
        cuda = bindings()
        known = status in cuda.CUresult.__members__.values()
        _fail(cuda, name, cuda.CUresult(status) if known else status, about)


def _fail(cuda: Any, name: str, status: Any, about: str = "") -> NoReturn:
    is_known = isinstance(status, cuda.CUresult)
    word = _text(cuda.cuGetErrorName(status)) if is_known else f"status {int(status)}"
    explanation = _text(cuda.cuGetErrorString(status)) if is_known else "newer than this cuda-python"
    hint = _LOST_HINT if word in _LOST else _HINTS.get(word, "")
    raise ToolError(f"{name} failed{f' for {about}' if about else ''}: {word}: {explanation}", hint=hint)


def _text(answer: tuple[Any, ...]) -> str:
    status, text = answer
    return "" if status or text is None else str(text.decode())


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Inside, calls such as loading a module are allowed while a stream of this process is captured.

    They are not part of the graph (CUDA driver API, `cuThreadExchangeStreamCaptureMode`).
    """
    cuda = bindings()
    before = call("cuThreadExchangeStreamCaptureMode", cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", before)
