"""Following a hold while its lock is held: new times, a request to stop, the loss."""

from __future__ import annotations

from typing import Callable

from ._acquire import log, renew
from ._driver import Driver
from ._hold import Hold

_RELEASING = 1.0


async def follow(driver: Driver, hold: Hold, tell: Callable[[], None]) -> None:
    """Return when the lock is lost or released. ``tell`` is called after each change.

    After the end of the agent there is nothing to read, but the lock is held until its time is over.
    """
    try:
        # Not until it is released: to close the stream before the agent has answered would be a loss.
        while hold.loss is None and not hold.stream.ended.is_set():
            # A millisecond more, as clocks are rounded down: then the time is over indeed.
            await driver.readable(hold.stream, _RELEASING if hold.released else (hold.left_ms() + 1) / 1000)
            hold.look()
            if not hold.released and hold.loss is None:
                await renew(driver, hold)
            hold.expire()
            tell()
    finally:
        if hold.loss is not None:
            log.warning("%s", hold.lost())
        if hold.loss is not None or hold.stream.ended.is_set():  # else it was cancelled with all tasks, and the lock is still held
            if not hold.released:  # otherwise the release gives the turn to the next, when it has its answer
                hold.leave()
            hold.close()
