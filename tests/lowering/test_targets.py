"""How a user may name a GPU architecture, and what the table says of each."""

from __future__ import annotations

import pytest

from mosaic_gpu.errors import KernelError, UnsupportedError
from mosaic_gpu.lowering.targets import TARGETS, parse_target


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sm_90a", "sm_90a"),
        ("SM_90A", "sm_90a"),
        ("sm90a", "sm_90a"),
        ("90a", "sm_90a"),
        ("9.0a", "sm_90a"),
        ("compute_90a", "sm_90a"),
        ("9.0", "sm_90"),
        ((9, 0), "sm_90"),
        ("8.9", "sm_89"),
        ("8.0", "sm_80"),
        ("10.0a", "sm_100a"),
        ("12.1", "sm_121"),
        ((12, 0), "sm_120"),
    ],
)
def test_every_usual_way_to_name_an_architecture_is_understood(name: str | tuple[int, int], expected: str) -> None:
    assert parse_target(name).name == expected


@pytest.mark.parametrize("name", ["gfx950", "gfx90a", "7.5", "sm_70", "9.9", "sm_900"])
def test_an_architecture_that_is_not_in_the_table_is_unsupported_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError, match=name):
        parse_target(name)


@pytest.mark.parametrize("name", ["", "hopper", "sm_", "9.0b", "90a sm", None, 9.0, ("9", "0", "x")])
def test_what_names_no_architecture_is_the_users_error(name: object) -> None:
    with pytest.raises(KernelError, match="expected"):
        parse_target(name)  # type: ignore[arg-type]


def test_a_target_stands_for_itself() -> None:
    assert parse_target(TARGETS["sm_86"]) is TARGETS["sm_86"]


def test_shared_memory_limits_are_those_of_the_programming_guide() -> None:
    # CUDA C++ Programming Guide, "Compute Capabilities": KiB one block may use, 1 KiB of the SM's being reserved
    kibibytes = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90a": 227, "sm_100a": 227, "sm_120": 99}
    assert {name: TARGETS[name].max_shared_bytes for name in kibibytes} == {n: k * 1024 for n, k in kibibytes.items()}


def test_only_hopper_has_wgmma() -> None:
    assert [t.name for t in TARGETS.values() if "wgmma" in t.features] == ["sm_90a"]


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "per_multiprocessor"),
    [
        (32, 16, 0, 32),  # the number of blocks
        (256, 16, 0, 8),  # threads
        (128, 128, 0, 4),  # registers
        (1024, 64, 0, 1),
        (128, 32, 76_800, 3),  # shared memory: 228 KB for 3 blocks, each with 1 KB of the system's
        (128, 32, 76_801, 2),
        (1024, 255, 232_448, 1),  # never none
    ],
)
def test_the_blocks_that_hopper_holds_at_once(
    threads: int, registers: int, shared_bytes: int, per_multiprocessor: int
) -> None:
    found = TARGETS["sm_90a"].blocks_at_once(threads, registers, shared_bytes)
    assert found == 132 * per_multiprocessor
