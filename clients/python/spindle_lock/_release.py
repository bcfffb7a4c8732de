"""The end of a hold: its release, and what became of it."""

from __future__ import annotations

from . import _ask
from ._acquire import log
from ._ask import Answer, ask
from ._driver import Driver
from ._hold import Hold, quoted
from ._wire import hold_path
from .errors import AgentUnreachable, Lost, ReleaseUnknown

# How long an answer may take after the lock has expired. The agent itself gives up after a lease.
_ANSWERING = 5.0


async def release(driver: Driver, hold: Hold, verb: str = "/release") -> None:
    """Release a lock whose work has returned, even if it is lost: the agent may still keep it from other programs.

    Return if the agent says that the lock was held until now. Otherwise, raise Lost, or ReleaseUnknown if the work returned in
    time and the rest is unknown. ``clients/endings.json`` has all cases.
    """
    if hold.released:
        return
    in_time = hold.still()
    left = hold.left_ms() / 1000
    hold.released, hold.undone = True, verb == "/release"
    hold.disown()
    try:
        given = await ask(driver, hold.stream.path, "POST", hold_path(hold.id, verb), (), left + _ANSWERING)
        if given.status == 404:
            given = await _release_orphan(driver, hold, left + _ANSWERING)
            if verb == "/done":
                raise _lost(hold, "agent-restarted", "the key is not recorded as done, and its work will run again")
    except AgentUnreachable as err:
        if not in_time:
            raise hold.lost() from None
        raise ReleaseUnknown(f"{err}. {quoted(hold.names)} expires within {left:.1f} s; the work was done under it") from None
    finally:
        hold.stream.shut()
        hold.leave()
    _judge(hold, given, in_time)


async def _release_orphan(driver: Driver, hold: Hold, limit: float) -> Answer:
    """Release the lock of an agent that has been restarted since: the new one knows no such hold."""
    token = (hold.result or {}).get("token", "")
    names = (hold.result or {}).get("names", hold.names)  # of a semaphore, the slot
    query = [("name", name) for name in names] + [("token", str(token)), ("hold", hold.id)]
    return await ask(driver, hold.stream.path, "POST", "/v1/release", query, limit)


def _judge(hold: Hold, given: Answer, in_time: bool) -> None:
    if given.status == 200:
        return
    detail = str(given.body.get("detail") or given.status)
    if given.status in (404, 410) or not in_time:
        raise _lost(hold, hold.loss or ("agent-restarted" if given.status == 404 else "expired"), detail)
    raise ReleaseUnknown(f"{detail}. {quoted(hold.names)} is released, or expires by itself; the work was done under it")


def _lost(hold: Hold, reason: str, detail: str) -> Lost:
    known, hold.loss = hold.loss, hold.loss or reason
    lost = hold.lost()
    if not known:
        log.warning("%s", lost)
        hold.changed()
    lost.args = (f"{lost} ({detail})",)
    return lost


async def step_down(driver: Driver, hold: Hold) -> None:
    """Ask the agent to end a term."""
    given = await ask(driver, hold.stream.path, "POST", hold_path(hold.id, "/stepdown"), (), _ANSWERING)
    if given.status == 404:
        raise _lost(hold, "agent-restarted", str(given.body.get("detail", "")))
    if given.status not in (200, 202):
        raise _ask.problem(given, hold.names[0])
