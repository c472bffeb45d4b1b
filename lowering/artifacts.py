"""What the last stages hand on: text or bytes, together with how the kernel is launched.

A text starts with a comment that holds the launch, so that a stage can be entered from a file.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from mosaic_gpu.lowering.launch import LaunchFacts
from mosaic_gpu.lowering.resources import Resources
from mosaic_gpu.lowering.tensor_maps import TensorMapFacts

_MARK = " mgpu.launch "


@dataclass(frozen=True)
class LlvmIr:
    """LLVM IR text of one kernel, its launch in the first line; `launch` is None where a file did not say it."""

    text: str
    launch: LaunchFacts | None


@dataclass(frozen=True)
class Ptx:
    """PTX text of one kernel, its launch in the first line; `launch` is None where a file did not say it."""

    text: str
    launch: LaunchFacts | None


@dataclass(frozen=True)
class Cubin:
    """A binary for one architecture.

    Attributes:
      data: the ELF image.
      resources: what the kernel takes, read back from `data`.
      launch: how it is launched; None where a file did not say it.
      ptx: the PTX it was made of; None where it was read from a file.
    """

    data: bytes
    resources: Resources
    launch: LaunchFacts | None
    ptx: str | None = None


def read_llvm(text: str) -> LlvmIr:
    """The artifact whose text is `text`."""
    return LlvmIr(text, launch_of(text))


def read_ptx(text: str) -> Ptx:
    """The artifact whose text is `text`."""
    return Ptx(text, launch_of(text))


def with_launch(text: str, launch: LaunchFacts | None, comment: str) -> str:
    """`text` under a first line that tells its launch; `comment` is what starts a comment in its language."""
    if launch is None:
        return text
    return f"{comment}{_MARK}{json.dumps(dataclasses.asdict(launch))}\n{text}"


def launch_of(text: str) -> LaunchFacts | None:
    """The launch that the first line of `text` tells; None where it tells none."""
    first = text.split("\n", 1)[0]
    _, mark, facts = first.partition(_MARK)
    if not mark:
        return None
    fields = json.loads(facts)
    for key in ("grid", "block", "cluster"):
        fields[key] = tuple(fields.get(key, (1, 1, 1)))
    fields["tensor_maps"] = tuple(TensorMapFacts.of(entry) for entry in fields.get("tensor_maps", ()))
    return LaunchFacts(**fields)
