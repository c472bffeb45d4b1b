"""Stage "cubin": PTX becomes the binary of one architecture."""

from __future__ import annotations

from mosaic_gpu.lowering.artifacts import Cubin, Ptx
from mosaic_gpu.lowering.assemblers import assemble
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.resources import read_resources
from mosaic_gpu.lowering.targets import parse_target


def assemble_cubin(ptx: Ptx, options: LoweringOptions) -> Cubin:
    """The cubin of `ptx` for the target of `options`.

    Raises:
      ToolError: no assembler is installed, or it refuses the PTX; the message holds its log.
    """
    data, report = assemble(ptx.text, parse_target(options.target))
    entry = None if ptx.launch is None else ptx.launch.entry
    return Cubin(data, read_resources(data, entry, report), ptx.launch, ptx.text)
