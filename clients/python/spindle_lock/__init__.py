"""Locks on Cloud Spanner, through the spindle agent of this machine.

::

    from spindle_lock import lock

    with lock("nightly", wait=30) as held:
        for invoice in invoices():
            held.check()  # raises Lost if another program may hold the lock
            send(invoice)

``lock`` is a mutex or a set of them, ``semaphore`` has slots, ``lead`` is an election, ``once`` does work once. These are for
threads. ``spindle_lock.aio`` has the same for asyncio.
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
