"""The state of one hold: what the agent's lines have said, and therefore whether the lock is still held."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _clocks
from ._stream import Stream
from .errors import Lost

#: The events after which a request has its result.
_RESULTS = ("held", "timeout", "refused", "done")

# How many forks lie between this process and the one that imported this module. A child in a new pid namespace can have
# the pid of its parent, so pids alone don't tell them apart. A fork in C runs no hooks, but does change the pid.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def _process() -> Tuple[int, int]:
    return os.getpid(), _forks


class Hold:
    """One request for a lock, and one term of holding it.

    The follower is the thread or task that waits for lines. Any thread may call ``still``, which only compares clocks while
    the lock is held. Before ``still`` is false for the first time, it reads what the agent has already sent, which is newer
    than what it knows if this program was paused.
    """

    def __init__(self, stream: Stream, kind: str, names: Tuple[str, ...], leave: Callable[[], None]) -> None:
        self.stream = stream
        self.kind = kind
        self.names = names
        self.leave = leave  # gives the turn to the next thread
        self.disown: Callable[[], None] = lambda: None  # lets this thread ask for the lock again, behind the release
        self.id = ""
        self.result: Optional[Dict[str, Any]] = None  # the line that ended the wait
        self.leaders: List[Optional[Dict[str, Any]]] = []  # that were seen, and not yet reported
        self.stop_reason: Optional[str] = None
        self.loss: Optional[str] = None
        self.to_ask = False  # the agent has sent an `until` by other clocks: ask how much time is left
        self.released = False  # or being released: the work has returned
        self.undone = False  # released by ``release``, which records no key
        self.changed: Callable[[], None] = lambda: None  # called by any thread, if the loss was found there
        self._before = _clocks.read()
        self._difference: Optional[int] = None  # by how much the clocks can differ from the agent's; None: they are other clocks
        self._until: _clocks.Reading = {}
        self._process = _process()
        self._reading = threading.Lock()

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that asked."""
        return _process() != self._process

    def left_ms(self) -> int:
        """Return how long the lock is still held without news."""
        return max(_clocks.left_ms(self._until), 0)

    def still(self) -> bool:
        """Report whether the program may act. Once it may not, it never may again."""
        if self.released or self.loss is not None or self.forked:
            return False
        return _clocks.left_ms(self._until) > 0 or self._look_again()

    def _look_again(self) -> bool:
        # A signal handler can interrupt the very thread that has the mutex. It gets the safe answer.
        if self._reading.acquire(timeout=0.1):
            try:
                self._take_in()
            finally:
                self._reading.release()
        if self.loss is None and _clocks.left_ms(self._until) > 0:
            return True
        self.loss = self.loss or "until-passed"
        self.changed()
        return False

    def look(self) -> bool:
        """Take in what the agent has sent, without waiting. Report whether it was something."""
        with self._reading:
            return self._take_in()

    def _take_in(self) -> bool:
        came = self.stream.receive()
        if self.stream.response.status == 200:
            for line in self.stream.response.lines():
                self._take(line)
        return came

    def _take(self, line: Dict[str, Any]) -> None:
        event = line.get("event")
        if event == "hello":
            self.id = str(line.get("hold", ""))
            self._difference = _clocks.difference(self._before, line.get("now"), _clocks.read())
        elif event == "leader":
            self.leaders.append(line.get("leader"))
        elif event == "stop":
            self.stop_reason = str(line.get("reason", ""))
        elif event == "lost":
            self.loss = self.loss or str(line.get("reason") or "expired")
        if event in _RESULTS and self.result is None:
            self.result = line
        if event in ("held", "until"):
            self._extend(line.get("until"))

    def _extend(self, until: Any) -> None:
        ours = _clocks.ours(until)
        if self._difference is not None and ours:
            self._until = _clocks.later(ours, -self._difference)
        else:
            self.to_ask = True

    def count(self, before: _clocks.Reading, left_ms: int) -> None:
        """Take in how much was left, by a question that was asked after the clocks were read."""
        if left_ms > 0:
            self._until = _clocks.later(before, left_ms)

    def expire(self) -> None:
        """Take in that the time is over, if it is."""
        if not self.released:
            self.still()

    def close(self) -> None:
        """Close the stream, which no thread may be reading."""
        with self._reading:
            self.stream.close()

    def lost(self) -> Lost:
        """Return the error that says why the lock is not held."""
        reason = "forked" if self.forked else self.loss or "released"
        return Lost(f"{quoted(self.names)}: {_MEANING.get(reason, reason)}", reason, self.id)


def quoted(names: Tuple[str, ...]) -> str:
    """Return names for a message."""
    shown = ", ".join(repr(name) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


_STOP = "stop the work: another program may hold the lock"

_MEANING = {
    "expired": f"the lease expired: {_STOP}",
    "superseded": f"the lock was taken away by an operator: {_STOP}",
    "stalled": f"this program did not read its lines for `stall` seconds: {_STOP}",
    "closed": f"the connection to the agent was closed: {_STOP}",
    "exited": f"the process that asked for the lock has ended: {_STOP}",
    "until-passed": f"its time is over (the agent is stopped or dead, or this program was stopped): {_STOP}",
    "agent-restarted": f"the agent that held it has ended: {_STOP}",
    "forked": "this is a forked child: the lock is its parent's, so act and release it there",
    "released": "this program released it: ask for it again",
}
