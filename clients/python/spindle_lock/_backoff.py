"""Pauses between attempts that fail."""

from __future__ import annotations

import random


class Backoff:
    """Pauses that double up to a limit, with a random part: many programs must not come back at the same moment."""

    def __init__(self, first: float, limit: float) -> None:
        self._first = first
        self._limit = limit
        self._next = first

    def next(self) -> float:
        """Return how long to pause, in seconds."""
        pause, self._next = self._next, min(self._next * 2, self._limit)
        return pause * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin again with a short pause, after a success."""
        self._next = self._first
