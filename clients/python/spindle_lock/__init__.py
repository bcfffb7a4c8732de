"""Locks on Cloud Spanner, through the spindle agent of this machine.

::

    from spindle_lock import lock

    with lock("nightly", wait=30) as held:
        for invoice in invoices():
            held.check()  # raises Lost if another program may hold the lock
            send(invoice)

``lock`` acquires one or more mutexes, ``semaphore`` a slot, ``lead`` the leadership of an election, and ``once`` the right to do
work once. These functions are for threads. ``spindle_lock.aio`` has the same functions for asyncio.
"""

from . import errors
from ._sync import Held, Run, Term, lead, lock, once, semaphore, who_leads
from .errors import (
    AgentUnreachable,
    AlreadyHeld,
    BadRequest,
    Busy,
    Lost,
    NotAcquired,
    Refused,
    ReleaseUnknown,
    SpindleError,
    Timeout,
)
from .types import Fence, Leader, Mutation

__all__ = [
    "AgentUnreachable",
    "AlreadyHeld",
    "BadRequest",
    "Busy",
    "Fence",
    "Held",
    "Leader",
    "Lost",
    "Mutation",
    "NotAcquired",
    "Refused",
    "ReleaseUnknown",
    "Run",
    "SpindleError",
    "Term",
    "Timeout",
    "errors",
    "lead",
    "lock",
    "once",
    "semaphore",
    "who_leads",
]

__version__ = "0.0.0"
