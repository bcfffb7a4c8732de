"""One question to the agent, and its answer."""

from __future__ import annotations

import time
from typing import Any, Dict, NamedTuple, Optional

from ._driver import Driver
from ._stream import Stream
from ._wire import Query, request
from .errors import AgentUnreachable, BadRequest, Busy, NotAcquired, Refused, SpindleError

#: The agent sends a line at least every 5 s. One that has sent nothing for longer is stopped.
SILENCE = 15.0

_CONNECTING = 5.0


class Answer(NamedTuple):
    """An answer, whatever its status."""

    status: int
    body: Dict[str, Any]
    retry_after: Optional[int] = None


async def send(driver: Driver, stream: Stream, data: bytes) -> None:
    """Connect and send a request, or raise AgentUnreachable."""
    ends = time.monotonic() + _CONNECTING
    while not stream.connect():
        if time.monotonic() > ends:
            raise AgentUnreachable(f"the agent at {stream.path} accepts no connections: see whether it runs")
        await driver.sleep(0.01)
    while data:
        sent = stream.send(data)
        data = data[sent:]
        if time.monotonic() > ends:
            raise silent(stream, _CONNECTING)
        if not sent:
            await driver.writable(stream, _CONNECTING)


async def ask(driver: Driver, path: str, method: str, target: str, query: Query, limit: float) -> Answer:
    """Return the answer, or raise AgentUnreachable if there is none within the limit."""
    stream = Stream(path)
    try:
        await send(driver, stream, request(method, target, query))
        return await answer(driver, stream, limit)
    finally:
        stream.close()


async def answer(driver: Driver, stream: Stream, limit: float) -> Answer:
    """Read the rest of an answer that is no stream of lines."""
    response = stream.response
    ends = time.monotonic() + limit
    while not (response.complete or stream.at_end):
        if time.monotonic() > ends:
            raise silent(stream, limit)
        await driver.readable(stream, ends - time.monotonic())
        stream.receive()
    if response.status is None or response.cut:
        raise AgentUnreachable(f"the agent at {stream.path} ended before it answered: ask again")
    return Answer(response.status, response.body(), response.retry_after)


def silent(stream: Stream, limit: float) -> AgentUnreachable:
    """Return the error of an agent that does not answer."""
    return AgentUnreachable(f"the agent at {stream.path} has not answered for {limit:.0f} s: see whether it is stopped")


def problem(given: Answer, name: str) -> SpindleError:
    """Return the error that an answer other than 200 stands for."""
    code = str(given.body.get("code") or f"status-{given.status}")
    detail = f"{name!r}: " + str(given.body.get("detail") or f"the agent answered with status {given.status}")
    if code == "busy":
        return Busy(f"{detail}: try again later, or wait for it")
    if code == "already-held":
        return Conflict(detail)
    if given.status in (403, 409, 429) or given.status >= 500:
        error = refused(code, detail)
        error._after = given.retry_after if code == "too-many" else None
        return error
    return BadRequest(detail, code)


def refused(code: str, detail: str) -> Refused:
    """Return the error of a request that the agent refuses, with what to do."""
    passing = code not in ("name-not-allowed", "proxied", "not-yours", "unknown-peer", "no-socket", "passed")
    return Refused(f"{detail} ({code})" + (": try again later" if passing else ""), code, passing)


class Conflict(NotAcquired):
    """The agent says that this process has the lock by another request: one that is ending, or one of another library."""
