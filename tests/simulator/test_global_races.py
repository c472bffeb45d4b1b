"""Races between blocks in global memory: whoever writes, a read by another block is known."""

from __future__ import annotations

import numpy as np
import pytest

from mosaic_gpu import simulator
from mosaic_gpu.errors import SimulationError

THREADS = 32

PTX = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 places, .param .u64 o){
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [places]; ld.param.u64 %rd3, [o];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 32, %r2;
  mul.wide.u32 %rd4, %r3, 4; add.u64 %rd5, %rd2, %rd4;
  ld.global.u32 %r4, [%rd5];
  mul.wide.u32 %rd6, %r4, 4; add.u64 %rd6, %rd6, %rd1;
  ld.global.u32 %r5, [%rd6];
  add.u64 %rd7, %rd3, %rd4; st.global.u32 [%rd7], %r5;
  setp.eq.u32 %p, %r3, WRITER;
  @%p st.global.u32 [%rd6], %r5;
  ret;
}"""


def finds_a_race(places: np.ndarray[tuple[int], np.dtype[np.uint32]], writer: int) -> bool:
    """Runs a kernel whose threads each read one of `places` of x; then thread `writer` writes the one that it read."""
    x, out = np.zeros(256, np.uint32), np.zeros(len(places), np.uint32)
    module = simulator.load(PTX.replace("WRITER", str(writer)))
    try:
        module.launch("k", len(places) // THREADS, THREADS, [x, places, out])
    except SimulationError as error:
        if "race: global store" not in str(error):
            raise
        return True
    return False


@pytest.mark.parametrize("seed", range(60))
def test_a_write_races_with_the_reads_of_other_threads_and_with_nothing_else(seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks, spread = int(rng.integers(1, 5)), int(rng.integers(1, 200))
    places = rng.integers(0, spread, THREADS * blocks).astype(np.uint32)
    writer = int(rng.integers(0, len(places)))
    readers = [t for t in range(len(places)) if places[t] == places[writer] and t != writer]
    found = finds_a_race(places, writer)
    if any(t // THREADS != writer // THREADS for t in readers):
        assert found
    elif not readers:
        assert not found


@pytest.mark.parametrize("writer", [0, 1, 2])
def test_the_block_that_reads_last_may_be_the_one_that_writes(writer: int) -> None:
    assert finds_a_race(np.zeros(3 * THREADS, np.uint32), writer * THREADS)
