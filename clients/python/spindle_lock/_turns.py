"""Turns of the threads and tasks of this process, which share one queue for each name.

The agent knows a program by its process. If two threads asked for one name, the second would wait for its own process, so the
agent refuses that. Here the second waits until the first has released the lock, and asks then.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Callable, Deque, Dict, List, Sequence, Tuple

from .errors import AlreadyHeld

#: A lock's agent and name.
Key = Tuple[str, str]


class Ticket:
    """A place in the queues of some names. Its turn comes when it is first in all of the queues."""

    def __init__(self, keys: Sequence[Key], owner: object, call: Callable[[], None]) -> None:
        self.keys = list(dict.fromkeys(keys))
        self.owner = owner
        self.call = call
        self.granted = False


class Turns:
    """The queues of all names. A ticket enters all of its queues at one moment, so tickets never wait in a circle."""

    def __init__(self) -> None:
        self._reset()
        # A forked child has none of the threads that hold these places, and none of their locks. Another thread may have
        # held the mutex at the time of the fork.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._queues: Dict[Key, Deque[Ticket]] = {}

    def ask(self, keys: Sequence[Key], owner: object, call: Callable[[], None]) -> Ticket:
        """Queue up. ``call`` is called once, from any thread, when it is this ticket's turn: perhaps before this returns."""
        ticket = Ticket(keys, owner, call)
        with self._lock:
            for key in ticket.keys:
                first = self._queues[key][0] if key in self._queues else None
                if first and first.granted and first.owner is owner:
                    raise AlreadyHeld(
                        f"{key[1]!r} is held by this very thread or task, which would wait for itself: "
                        "use the lock that it holds, or release that one first"
                    )
            for key in ticket.keys:
                self._queues.setdefault(key, deque()).append(ticket)
            ready = self._grant([ticket])
        self._call(ready)
        return ticket

    def disown(self, ticket: Ticket) -> None:
        """Let the owner of a ticket ask again, because its lock is being released: the new ticket waits for the end of that."""
        with self._lock:
            ticket.owner = None

    def leave(self, ticket: Ticket) -> None:
        """Leave all queues, whether it was this ticket's turn or not. Leaving twice does nothing."""
        with self._lock:
            heads: List[Ticket] = []
            for key in ticket.keys:
                queue = self._queues.get(key)
                if queue is None or ticket not in queue:
                    continue
                queue.remove(ticket)
                if queue:
                    heads.append(queue[0])
                else:
                    del self._queues[key]
            ready = self._grant(heads)
        self._call(ready)

    def _grant(self, tickets: Sequence[Ticket]) -> List[Ticket]:
        ready = []
        for ticket in tickets:
            if not ticket.granted and all(self._queues[key][0] is ticket for key in ticket.keys):
                ticket.granted = True
                ready.append(ticket)
        return ready

    def _call(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            try:
                ticket.call()
            except RuntimeError:  # its event loop is closed, so no task waits any more
                self.leave(ticket)


turns = Turns()
