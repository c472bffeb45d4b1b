"""A kernel ready to be interpreted: what a `pallas_call` or a `plgpu.kernel` says, checked and made ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.checks import check_grid, check_written_inputs
from mosaic_gpu.errors import KernelError, SourceLine, UnsupportedError
from mosaic_gpu.interpreter import rules
from mosaic_gpu.interpreter.blocks import BlockMap
from mosaic_gpu.interpreter.code import Code, code_of
from mosaic_gpu.lowering.jaxpr import compat

__all__ = ["Axes", "Kernel", "axes_of", "kernel_of", "mesh_kernel_of", "rules"]


@dataclass(frozen=True)
class Axes:
    """The axes of a kernel over a mesh (`plgpu.kernel`): names and sizes of grid, cluster and threads."""

    grid: tuple[tuple[Any, int], ...]
    cluster: tuple[tuple[Any, int], ...]
    threads: tuple[tuple[Any, int], ...]


@dataclass(frozen=True)
class Kernel:
    """What a `pallas_call`, or a `plgpu.kernel`, runs.

    Attributes:
      name: for messages.
      code: the body.
      grid: bounds; None where one is dynamic.
      parallel: the dimensions whose steps may run at the same time; a mesh's all.
      vmapped: dimensions that `jax.vmap` added, which `program_id` does not count.
      blocks: for each input and output how its blocks are found; None for all of it.
      indices, inputs, outputs: abstract values of index operands, inputs, outputs.
      aliases: pairs (operand, result) that are one array; index operands count as operands.
      scratch: abstract references of scratch memory.
      axes: of a mesh.
      source: where the kernel is defined.
    """

    name: str
    code: Code
    grid: tuple[int | None, ...]
    parallel: tuple[int, ...]
    vmapped: tuple[int, ...]
    blocks: tuple[BlockMap | None, ...]
    indices: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    names: tuple[str, ...]
    aliases: tuple[tuple[int, int], ...]
    scratch: tuple[Any, ...]
    axes: Axes | None
    source: SourceLine | None


def kernel_of(params: Mapping[str, Any]) -> Kernel:
    """The kernel of a `pallas_call` equation's parameters.

    Raises UnsupportedError or KernelError, before anything runs, for what cannot be interpreted.
    """
    mapping, jaxpr = params["grid_mapping"], params["jaxpr"]
    if jaxpr.constvars:
        raise UnsupportedError(
            "the kernel uses arrays or references from outside of it", hint="pass them to the kernel as operands"
        )
    mesh = params.get("mesh")
    if mesh is None:
        check_written_inputs(jaxpr, params["input_output_aliases"], mapping)
    first = mapping.num_index_operands
    blocks = mapping.block_mappings
    origins = [f"index operand {i}" for i in range(first)] + [str(b.origin) for b in blocks]
    axes = None if mesh is None else axes_of(mesh)
    rank = len(mapping.grid)
    source = _definition(jaxpr)
    try:
        check_grid(mapping.grid, mapping.vmapped_dims)
    except KernelError as error:
        raise error.at(source) from None
    return Kernel(
        name=jaxpr.debug_info.func_name or "kernel",
        code=code_of(jaxpr),
        grid=tuple(None if compat.is_dynamic_bound(n) else int(n) for n in mapping.grid),
        parallel=_parallel(params.get("compiler_params"), rank, mapping.vmapped_dims),
        vmapped=tuple(mapping.vmapped_dims),
        blocks=tuple(None if mesh is not None else BlockMap.of(b, first) for b in blocks),
        indices=tuple(v.aval.inner_aval for v in jaxpr.invars[:first]),
        inputs=tuple(b.array_aval for b in blocks[: mapping.num_inputs]),
        outputs=tuple(b.array_aval for b in blocks[mapping.num_inputs :]),
        names=tuple(_names(jaxpr, origins)),
        aliases=tuple(params["input_output_aliases"]),
        scratch=tuple(v.aval for v in jaxpr.invars[first + len(blocks) :]),
        axes=axes,
        source=source,
    )


def mesh_kernel_of(params: Mapping[str, Any], operands: int) -> Kernel:
    """The kernel of an `mpmd_map` equation's parameters: a `plgpu.kernel`."""
    (mesh,), (jaxpr,) = params["meshes"], params["jaxprs"]
    opened = compat.open_jaxpr(jaxpr)
    avals = [getattr(v.aval, "inner_aval", v.aval) for v in opened.invars]
    results = len(params["out_avals"])
    axes = axes_of(mesh)
    return Kernel(
        name=params["name"] or "kernel",
        code=code_of(jaxpr),
        grid=tuple(n for _, n in (*axes.grid, *axes.cluster, *axes.threads)),
        parallel=(),
        vmapped=(),
        blocks=(None,) * (operands + results),
        indices=(),
        inputs=tuple(avals[:operands]),
        outputs=tuple(avals[operands : operands + results]),
        names=tuple(_names(opened, [f"argument {i}" for i in range(operands + results)])),
        aliases=tuple(dict(params["input_output_aliases"]).items()),
        scratch=tuple(v.aval for v in opened.invars[operands + results :]),
        axes=axes,
        source=_definition(opened),
    )


def axes_of(mesh: Any) -> Axes:
    """The axes of JAX's `plgpu.Mesh`."""
    if not hasattr(mesh, "cluster_names"):
        raise UnsupportedError(f"a kernel over a {type(mesh).__name__} is not supported", expected="plgpu.Mesh")
    threads = ((mesh.thread_name, int(mesh.num_threads)),) if mesh.num_threads else ()
    return Axes(
        tuple(zip(mesh.grid_names, map(int, mesh.grid), strict=True)),
        tuple(zip(mesh.cluster_names, map(int, mesh.cluster), strict=True)),
        threads,
    )


def _names(jaxpr: Any, origins: Sequence[str]) -> list[str]:
    """The kernel's own names for its arguments, where JAX kept them."""
    origins = [*origins, *(f"scratch {i}" for i in range(len(jaxpr.invars) - len(origins)))]
    names = jaxpr.debug_info.arg_names
    known = names is not None and len(names) >= len(origins)
    return [names[i] if known and names[i] else origin for i, origin in enumerate(origins)]


def _definition(jaxpr: Any) -> SourceLine | None:
    found = compat.function_source(jaxpr)
    return found and SourceLine(*found, jaxpr.debug_info.func_name or "")


def _parallel(compiler_params: Any, rank: int, vmapped: Sequence[int]) -> tuple[int, ...]:
    """Dimensions that the user calls parallel; and vmap's, where there are any others."""
    said = getattr(compiler_params, "dimension_semantics", None)
    if said is None:
        return ()
    own = [d for d in range(rank) if d not in vmapped]
    if len(said) not in (len(own), rank):
        raise KernelError("dimension_semantics does not fit the grid", got=tuple(said), expected=f"{len(own)} words")
    dims = own if len(said) == len(own) else range(rank)
    words = [str(getattr(word, "name", word)).lower() for word in said]
    named = {d for d, word in zip(dims, words, strict=True) if word.endswith("parallel")}
    return tuple(sorted({*named, *vmapped}))
