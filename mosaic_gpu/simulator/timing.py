"""When asynchronous work happens, and in which order threads run.

Everything asynchronous is done as late as PTX allows, so that a missing wait shows.  A seed other than 0
draws other legal times: work may also be done at once, or at any moment between.
"""

from __future__ import annotations

import numpy as np


class Timing:
    """Draws the times of a wave's asynchronous work."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed) if seed else None

    def early(self) -> bool:
        """True if some work is to be done now although it could wait."""
        return self.rng is not None and bool(self.rng.random() < 0.5)

    def now_and_then(self) -> bool:
        """True if threads are to run in another order than they do without a seed."""
        return self.rng is not None and bool(self.rng.random() < 0.125)

    def half(self, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """About half of `count` things."""
        return np.zeros(count, np.bool_) if self.rng is None else self.rng.random(count) < 0.5

    def choose(self, count: int) -> int:
        """Which of `count` things that may happen in any order happens next: the first without a seed."""
        return 0 if self.rng is None else int(self.rng.integers(count))
