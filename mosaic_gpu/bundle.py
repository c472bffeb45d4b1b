"""Bundles: kernels compiled ahead of time, in a folder that runs with cuda-python alone.

    mosaic-gpu bundle softmax.py:softmax --shapes f32[4,1000] --targets sm_90a -o softmax.bundle

    kernels = mosaic_gpu.load_bundle("softmax.bundle")   # imports neither JAX nor a compiler
    y = kernels["softmax"](x)

A folder holds `manifest.json` and, for each kernel and target, a cubin and its PTX.  The manifest tells how each kernel
is launched and the checksum of every file, and ends with one of itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mosaic_gpu.errors import KernelError, ToolError, UnsupportedError
from mosaic_gpu.runtime.device_array import is_on_gpu, stream_number, view_of
from mosaic_gpu.runtime.devices import Device, current_device, device
from mosaic_gpu.runtime.gpu import GpuCaller
from mosaic_gpu.runtime.gpu_kernel import GpuKernel
from mosaic_gpu.runtime.loaded import runs_on

VERSION = 2
"""Of the manifest; a bundle of another one is refused."""

_FORMAT = "mosaic_gpu bundle"
_MANIFEST = "manifest.json"


class BundledKernel:
    """A kernel of a bundle, compiled for one or more architectures."""

    def __init__(self, variants: Sequence[GpuKernel]) -> None:
        self.variants = tuple(variants)
        self._callers: dict[str, GpuCaller] = {}

    def __repr__(self) -> str:
        return f"<BundledKernel {self.name!r} for {', '.join(self.targets)}>"

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.variants[0].name

    @property
    def targets(self) -> tuple[str, ...]:
        """The architectures it is compiled for."""
        return tuple(variant.target for variant in self.variants)

    def __call__(self, *operands: Any, out: Any = None, stream: Any = None) -> Any:
        """Enqueues the kernel on a GPU; one result, or a tuple of them.

        Arrays of the host are copied to the GPU, and where all operands are, the results are NumPy arrays, which takes
        a wait.  Arguments and errors are those of `CompiledKernel.launch`, with UnsupportedError where no variant runs
        on the GPU.
        """
        place = _place_of(operands, stream)
        targets = out if out is None or isinstance(out, tuple | list) else [out]
        results: list[Any] = self._caller(place)(operands, targets, stream)
        if out is None and not any(is_on_gpu(a) for a in operands):
            types = self.variants[0].results
            results = [r.numpy().astype(t.dtype, copy=False) for r, t in zip(results, types, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)

    def unload(self) -> None:
        """Gives the code back to the driver; a CUDA graph that holds the kernel must not be launched again."""
        for caller in self._callers.values():
            caller.unload()

    def _caller(self, place: Device) -> GpuCaller:
        variant = next((v for v in self.variants if runs_on(v.target, place.capability)), None)
        if variant is None:
            major, minor = place.capability
            raise UnsupportedError(
                f"the bundle has kernel {self.name!r} for other GPUs than {place.name}",
                got=f"a GPU of compute capability {major}.{minor}",
                expected=f"one that runs {' or '.join(self.targets)}",
                hint="make the bundle with the target of this GPU among --targets",
            )
        return self._callers.setdefault(variant.target, GpuCaller(variant))


def _place_of(operands: Sequence[Any], stream: Any) -> Device:
    """The GPU of the first operand that is on one."""
    number = 0 if stream is None else stream_number(stream)
    views = (view_of(a, number) for a in operands if is_on_gpu(a))
    first = next(views, None)
    return current_device() if first is None else device(first.device)


@dataclass(frozen=True)
class Bundle(Mapping[str, BundledKernel]):
    """The kernels of a bundle, by name.

    Attributes:
      folder: where it was read.
      made_by: the version of mosaic-gpu that made it.
    """

    folder: Path
    made_by: str
    kernels: dict[str, BundledKernel]

    def __getitem__(self, name: str) -> BundledKernel:
        if name not in self.kernels:
            names = ", ".join(self.kernels) or "none"
            raise KernelError(f"the bundle {self.folder} has no kernel {name!r}", got=f"kernels: {names}")
        return self.kernels[name]

    def __contains__(self, name: object) -> bool:
        return name in self.kernels

    def __iter__(self) -> Iterator[str]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)


def write_bundle(folder: str | Path, kernels: Sequence[tuple[GpuKernel, str]]) -> Path:
    """Writes a bundle of kernels, each with its PTX, and returns the path of its manifest.

    Raises:
      KernelError: two kernels of one name and target, or a folder that holds something else.
      ToolError: the folder cannot be written.
    """
    place = Path(folder)
    _check_names(kernels)
    try:
        if place.is_dir() and any(place.iterdir()) and not (place / _MANIFEST).is_file():
            raise KernelError(f"{place} holds other files than a bundle's", hint="name a folder that does not exist")
        place.mkdir(parents=True, exist_ok=True)
        entries = [_write_kernel(place, kernel, ptx) for kernel, ptx in kernels]
        content = {"format": _FORMAT, "version": VERSION, "made_by": _package_version(), "kernels": entries}
        text = json.dumps({**content, "sha256": _content_digest(content)}, indent=1)
        (place / _MANIFEST).write_text(text + "\n")
    except OSError as error:
        raise ToolError(f"the bundle cannot be written to {place}: {error}") from error
    return place / _MANIFEST


def _check_names(kernels: Sequence[tuple[GpuKernel, str]]) -> None:
    seen: set[tuple[str, str]] = set()
    for kernel, _ in kernels:
        if (kernel.name, kernel.target) in seen:
            raise KernelError(
                f"two kernels of the bundle are named {kernel.name!r}", hint="give each pallas_call a name= of its own"
            )
        seen.add((kernel.name, kernel.target))


def _write_kernel(folder: Path, kernel: GpuKernel, ptx: str) -> dict[str, Any]:
    stem = f"{kernel.name}.{kernel.target}"
    files = {"cubin": (f"{stem}.cubin", kernel.cubin), "ptx": (f"{stem}.ptx", ptx.encode())}
    for name, data in files.values():
        (folder / name).write_bytes(data)
    named = {key: {"file": name, "sha256": hashlib.sha256(data).hexdigest()} for key, (name, data) in files.items()}
    return {**kernel.facts(), "files": named}


def _package_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("mosaic-gpu")
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


def _content_digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def load_bundle(folder: str | Path) -> Bundle:
    """The bundle in a folder, every file checked; imports neither JAX nor the compiler, and needs no GPU yet.

    Raises:
      KernelError: the folder holds no bundle.
      UnsupportedError: the bundle is of another version than this package reads.
      ToolError: a file is missing or was changed.
    """
    place = Path(folder)
    content = _read_manifest(place)
    variants: dict[str, list[GpuKernel]] = {}
    for entry in content["kernels"]:
        files = entry.pop("files")
        data = {key: _read_file(place, **named) for key, named in files.items()}
        kernel = GpuKernel.of(entry, data["cubin"])
        variants.setdefault(kernel.name, []).append(kernel)
    return Bundle(place, content["made_by"], {name: BundledKernel(found) for name, found in variants.items()})


def _read_manifest(place: Path) -> dict[str, Any]:
    path = place / _MANIFEST
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise KernelError(f"{place} is no bundle: {error}", hint="`mosaic-gpu bundle ... -o DIR` makes one") from error
    except ValueError as error:
        raise ToolError(f"{path} was changed since the bundle was made: {error}", hint="make it again") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise KernelError(f"{path} is no manifest of a bundle")
    if content.get("version") != VERSION:
        raise UnsupportedError(
            f"the bundle {place} is of another version",
            got=f"version {content.get('version')}, made by mosaic-gpu {content.get('made_by')}",
            expected=f"version {VERSION}",
            hint="make the bundle with the version of mosaic-gpu that loads it",
        )
    if content.pop("sha256", None) != _content_digest(content):
        raise ToolError(f"{path} was changed since the bundle was made", hint="make the bundle again")
    return content


def _read_file(place: Path, file: str, sha256: str) -> bytes:
    try:
        data = (place / Path(file).name).read_bytes()  # nothing outside of the folder
    except OSError as error:
        raise ToolError(f"a file of the bundle is missing: {error}", hint="make the bundle again") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ToolError(f"{place / file} was changed since the bundle was made", hint="make the bundle again")
    return data
