"""Waits in an event loop."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Optional

from ._driver import Bell
from ._stream import Stream


class Loop:
    """The driver for asyncio. It uses the running loop, which has to watch descriptors: all loops on Unix do."""

    async def readable(self, stream: Stream, seconds: Optional[float]) -> None:
        loop = asyncio.get_running_loop()
        if stream.at_end:  # there is nothing to watch; a release cancels this
            await asyncio.sleep(3600 if seconds is None else max(seconds, 0))
        else:
            await _ready(loop, stream.fileno(), loop.add_reader, loop.remove_reader, seconds)

    async def writable(self, stream: Stream, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        await _ready(loop, stream.fileno(), loop.add_writer, loop.remove_writer, seconds)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def bell(self) -> Bell:
        return _Bell()

    def owner(self) -> object:
        return asyncio.current_task()


async def _ready(
    loop: asyncio.AbstractEventLoop,
    fd: int,
    add: Callable[..., Any],
    remove: Callable[[int], Any],
    seconds: Optional[float],
) -> None:
    ready: "asyncio.Future[None]" = loop.create_future()

    def ring() -> None:
        if not ready.done():
            ready.set_result(None)

    add(fd, ring)
    timer = None if seconds is None else loop.call_later(max(seconds, 0), ring)
    try:
        await ready
    finally:
        remove(fd)
        if timer is not None:
            timer.cancel()


class _Bell:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung: "asyncio.Future[None]" = self._loop.create_future()

    def ring(self) -> None:
        self._loop.call_soon_threadsafe(self._set)

    def _set(self) -> None:
        if not self._rung.done():
            self._rung.set_result(None)

    async def heard(self, seconds: Optional[float]) -> bool:
        await asyncio.wait([self._rung], timeout=seconds)
        return self._rung.done()
