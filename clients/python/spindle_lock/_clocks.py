"""The clocks by which a program knows until when it may act."""

from __future__ import annotations

import time
from typing import Any, Dict, Mapping, Optional

#: What clocks said at one moment, in whole milliseconds, rounded down.
Reading = Dict[str, int]

# The wall clock may be set, and the monotonic clock stands still while the machine is suspended, so a program checks every
# clock. Only Linux has CLOCK_BOOTTIME.
_IDS = {
    name: getattr(time, clock)
    for name, clock in (
        ("monotonic_ms", "CLOCK_MONOTONIC"),
        ("unix_ms", "CLOCK_REALTIME"),
        ("boottime_ms", "CLOCK_BOOTTIME"),
    )
    if hasattr(time, clock)
}


def read() -> Reading:
    """Read all clocks of this system."""
    return {name: time.clock_gettime_ns(clock) // 1_000_000 for name, clock in _IDS.items()}


def left_ms(until: Reading) -> int:
    """Return how much time is left by the clock that has the least. An empty reading has none."""
    now = read()
    return min((end - now[name] for name, end in until.items()), default=0)


def later(reading: Reading, ms: int) -> Reading:
    """Return the reading moved by that many milliseconds."""
    return {name: at + ms for name, at in reading.items()}


def ours(given: Any) -> Reading:
    """Return the agent's reading of the clocks that this system has. It is empty if one is missing."""
    if not isinstance(given, Mapping) or not all(isinstance(given.get(name), int) for name in _IDS):
        return {}
    return {name: given[name] for name in _IDS}


_LONGEST_COMPARISON_MS = 100


def difference(before: Reading, agent: Any, after: Reading) -> Optional[int]:
    """Compare the agent's clocks with this program's: the agent read its own between two readings here.

    Return by how many milliseconds the clocks can differ at most, which is how long the comparison took. Return None if
    they do differ, or if it took too long.
    """
    between = ours(agent)
    took = max(after[name] - before[name] for name in _IDS)
    if not between or took > _LONGEST_COMPARISON_MS or took < 0:
        return None
    return took if all(before[name] <= between[name] <= after[name] for name in _IDS) else None
