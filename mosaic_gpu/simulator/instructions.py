"""Importing this module registers every instruction."""

from mosaic_gpu.simulator import exec_arithmetic as exec_arithmetic
from mosaic_gpu.simulator import exec_async as exec_async
from mosaic_gpu.simulator import exec_atomic as exec_atomic
from mosaic_gpu.simulator import exec_bits as exec_bits
from mosaic_gpu.simulator import exec_compare as exec_compare
from mosaic_gpu.simulator import exec_convert as exec_convert
from mosaic_gpu.simulator import exec_math as exec_math
from mosaic_gpu.simulator import exec_matrix as exec_matrix
from mosaic_gpu.simulator import exec_memory as exec_memory
from mosaic_gpu.simulator import exec_mma as exec_mma
from mosaic_gpu.simulator import exec_move as exec_move
from mosaic_gpu.simulator import exec_sync as exec_sync
from mosaic_gpu.simulator import exec_warp as exec_warp
from mosaic_gpu.simulator import exec_wgmma as exec_wgmma
from mosaic_gpu.simulator import exec_wmma as exec_wmma
from mosaic_gpu.simulator.registry import INSTRUCTIONS as INSTRUCTIONS
