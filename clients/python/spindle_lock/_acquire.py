"""From a request to a hold whose lock is held."""

from __future__ import annotations

import logging
import time
from typing import Callable, Optional, Tuple

from . import _ask, _clocks
from ._ask import SILENCE, Conflict
from ._backoff import Backoff
from ._driver import Driver
from ._hold import Hold
from ._stream import Stream
from ._turns import turns
from ._wanted import Wanted
from ._wire import hold_path, request
from .errors import AgentUnreachable, Busy, NotAcquired, Refused, Timeout
from .types import leader_of

log = logging.getLogger("spindle_lock")


async def acquire(driver: Driver, want: Wanted) -> Optional[Hold]:
    """Return a hold whose lock is held, or None if the work of a ``once`` is done already."""
    deadline = _Deadline(want)
    leave, disown = await _turn(driver, want, deadline)
    conflicts = Backoff(0.02, 1.0)
    try:
        while True:
            try:
                hold = await _attempt(driver, want, deadline, leave)
                break
            except Conflict as err:
                if deadline.passed():
                    raise deadline.error(f"{err}") from None
                await driver.sleep(deadline.limited(conflicts.next()))
            except Refused as err:
                if err._after is None or deadline.passed():
                    raise
                log.warning("asking for %r again in %d s: %s", want.names[0], err._after, err)
                await driver.sleep(deadline.limited(err._after))
    except BaseException:
        leave()
        raise
    if hold is None:
        leave()
    else:
        hold.disown = disown
    return hold


class _Deadline:
    """When the wait of a request is over."""

    def __init__(self, want: Wanted) -> None:
        self._want = want
        self._ends = None if want.wait is None else time.monotonic() + want.wait

    def left(self) -> Optional[float]:
        """Return how much of the wait is left, or None for no limit. It is 0 only if ``wait`` is 0, which means not to wait."""
        if self._ends is None or self._want.wait == 0:
            return self._want.wait
        return max(self._ends - time.monotonic(), 0.000001)

    def passed(self) -> bool:
        return self._ends is not None and time.monotonic() >= self._ends

    def limited(self, seconds: float) -> float:
        left = self.left()
        return seconds if left is None else min(seconds, left)

    def error(self, why: str) -> NotAcquired:
        if self._want.wait == 0:
            return Busy(f"{why}: try again later, or wait for it")
        return Timeout(f"{why}: not acquired within {self._want.wait} s: wait longer, or do without")


async def _turn(driver: Driver, want: Wanted, deadline: _Deadline) -> Tuple[Callable[[], None], Callable[[], None]]:
    """Wait until no other thread or task of this process wants the names.

    Return a function that ends the turn, and one to call when the release begins.
    """
    bell = driver.bell()
    ticket = turns.ask(want.turns, driver.owner(), bell.ring)
    if not want.turns:
        return lambda: None, lambda: None
    try:
        if not ticket.granted and not await bell.heard(deadline.left()):
            raise deadline.error(f"{want.names[0]!r}: another thread or task of this program holds it, or waits for it")
    except BaseException:
        turns.leave(ticket)
        raise
    return lambda: turns.leave(ticket), lambda: turns.disown(ticket)


async def _attempt(driver: Driver, want: Wanted, deadline: _Deadline, leave: Callable[[], None]) -> Optional[Hold]:
    hold = Hold(Stream(want.agent), want.kind, want.names, leave)
    held = False
    try:
        wait = deadline.left()
        await _ask.send(driver, hold.stream, request("POST", f"/v1/{want.kind}", want.query(wait)))
        await _decided(driver, want, hold, SILENCE if wait != 0 else 2 * want.lease + SILENCE)
        held = await _result(driver, want, hold)
    finally:
        if not held:
            abandon(hold)
    return hold if held else None


async def _decided(driver: Driver, want: Wanted, hold: Hold, limit: float) -> None:
    """Read lines until one is the result, or the status says that no lines will come."""
    heard = time.monotonic()
    while hold.result is None and hold.stream.response.status in (None, 200):
        if hold.stream.at_end:
            raise AgentUnreachable(f"the agent at {want.agent} ended while {want.names[0]!r} was waited for: ask again")
        await driver.readable(hold.stream, limit)
        if hold.look():
            heard = time.monotonic()
        elif time.monotonic() - heard >= limit:
            raise _ask.silent(hold.stream, limit)
        _report_leaders(want, hold)


def _report_leaders(want: Wanted, hold: Hold) -> None:
    seen, hold.leaders = hold.leaders, []
    for leader in seen:
        if want.on_leader:
            want.on_leader(leader_of(leader))


async def _result(driver: Driver, want: Wanted, hold: Hold) -> bool:
    """Report true if the lock is held, and false if the work is done already. Otherwise raise."""
    if hold.result is None:
        given = await _ask.answer(driver, hold.stream, SILENCE)
        if given.body.get("code") == "done":
            return False
        raise _ask.problem(given, want.names[0])
    event = hold.result.get("event")
    if event == "held":
        await renew(driver, hold)
        if not hold.left_ms() and hold.loss is None and hold.to_ask:
            raise AgentUnreachable(f"the agent at {want.agent} does not say until when {want.names[0]!r} is held: ask again")
        return True
    if event == "done":
        return False
    if event == "timeout":
        raise Timeout(f"{want.names[0]!r}: not acquired within {want.wait} s: wait longer, or do without")
    reason = str(hold.result.get("reason") or "unavailable")
    detail = f"{want.names[0]!r}: " + str(hold.result.get("detail") or "not acquired")
    raise Busy(f"{detail}: try again later") if reason == "busy" else _ask.refused(reason, detail)


async def renew(driver: Driver, hold: Hold) -> None:
    """Ask how long the lock is still held, if a line has extended it by clocks that are not this program's."""
    if not hold.to_ask:
        return
    before = _clocks.read()
    limit = min(max(hold.left_ms() / 1000, 1.0), SILENCE)
    try:
        given = await _ask.ask(driver, hold.stream.path, "GET", hold_path(hold.id), (), limit)
    except AgentUnreachable as err:
        log.debug("until when %s is held is not known: %s", hold.names, err)
        return
    left = given.body.get("left_ms")
    if given.status == 200 and isinstance(left, int):
        hold.to_ask = False
        hold.count(before, left)


def abandon(hold: Hold) -> None:
    """Abandon a request, without waiting. It also releases the lock, which the agent may have acquired already."""
    try:
        hold.look()  # the lines may have come without having been read
        if hold.id and (hold.result is None or hold.result.get("event") == "held"):
            stream = Stream(hold.stream.path)
            try:
                if stream.connect():
                    stream.send(request("POST", hold_path(hold.id, "/release")))
            finally:
                stream.close()
    except AgentUnreachable:
        pass  # the lock expires with its lease
    finally:
        hold.stream.close()
