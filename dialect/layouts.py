"""Register layouts as linear maps over bits (placeholder until the real file lands)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

Coordinate = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    base: tuple[int, ...]
    register: tuple[Coordinate, ...]
    lane: tuple[Coordinate, ...]
    warp: tuple[Coordinate, ...]

    @staticmethod
    @lru_cache(1024)
    def parse(text: str) -> Layout:
        base, *parts = text.split()
        images = {p[0]: p[2:] for p in parts}

        def read(s: str) -> tuple[Coordinate, ...]:
            return tuple(tuple(map(int, c.split(","))) for c in s.split(";") if c)

        return Layout(tuple(map(int, base.split("x"))), read(images["r"]), read(images["l"]), read(images["w"]))

    def __str__(self) -> str:
        def show(images: tuple[Coordinate, ...]) -> str:
            return ";".join(",".join(map(str, c)) for c in images)

        return f"{'x'.join(map(str, self.base))} r:{show(self.register)} l:{show(self.lane)} w:{show(self.warp)}"
