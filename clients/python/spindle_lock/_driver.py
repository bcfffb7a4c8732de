"""How to wait: the one thing in which threads and asyncio differ.

All steps that wait are written once, as coroutines, and call a Driver. ``Blocking`` waits in the calling thread, so that its
coroutines never suspend and ``finish`` runs them like functions. The driver for asyncio is in ``aio``.
"""

from __future__ import annotations

import math
import select
import threading
import time
from typing import Any, Coroutine, Optional, Protocol, TypeVar

from ._stream import Stream

T = TypeVar("T")


class Driver(Protocol):
    """Waits for something."""

    async def readable(self, stream: Stream, seconds: Optional[float]) -> None:
        """Return when the stream has something to read, has ended, or was shut; or after so many seconds."""

    async def writable(self, stream: Stream, seconds: float) -> None:
        """Return when the stream can be written to, or after so many seconds."""

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""

    def bell(self) -> "Bell":
        """Return something to wait for."""

    def owner(self) -> object:
        """Return the thread or task that calls."""


class Bell(Protocol):
    """Rings once."""

    def ring(self) -> None:
        """Let the wait end, from any thread."""

    async def heard(self, seconds: Optional[float]) -> bool:
        """Return when it has rung, or false after so many seconds."""


def finish(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose driver is ``Blocking``."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    steps.close()
    raise RuntimeError("a step suspended although its driver blocks")


class Blocking:
    """Waits in the calling thread."""

    async def readable(self, stream: Stream, seconds: Optional[float]) -> None:
        if stream.at_end:  # poll would return at once, again and again
            stream.ended.wait(seconds)
        else:
            _poll(stream, select.POLLIN, seconds)

    async def writable(self, stream: Stream, seconds: float) -> None:
        _poll(stream, select.POLLOUT, seconds)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def bell(self) -> Bell:
        return _Event()

    def owner(self) -> object:
        return threading.current_thread()


class _Event:
    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        self._event.set()

    async def heard(self, seconds: Optional[float]) -> bool:
        return self._event.wait(seconds)


def _poll(stream: Stream, events: int, seconds: Optional[float]) -> None:
    poll = select.poll()
    poll.register(stream.fileno(), events)
    poll.poll(None if seconds is None else math.ceil(max(seconds, 0) * 1000))
