"""What can go wrong, as exceptions. Each message says what to do."""

from __future__ import annotations

__all__ = [
    "AgentUnreachable",
    "AlreadyHeld",
    "BadRequest",
    "Busy",
    "Lost",
    "NotAcquired",
    "Refused",
    "ReleaseUnknown",
    "SpindleError",
    "Timeout",
]


class SpindleError(Exception):
    """The base of all errors of this package."""


class AgentUnreachable(SpindleError):
    """No agent answers at the socket, or it ended, or it fell silent. This program does not hold what it asked for."""


class BadRequest(SpindleError, ValueError):
    """The agent does not understand the request: a name or a number is wrong. The same request always fails.

    ``code`` is the agent's word for it, such as ``bad-parameter``.
    """

    def __init__(self, message: str, code: str = "bad-parameter") -> None:
        super().__init__(message)
        self.code = code


class AlreadyHeld(SpindleError, RuntimeError):
    """This thread, or asyncio task, asked for a lock that it holds already: it would wait for itself.

    Other threads and tasks of the program wait for their turn instead.
    """


class NotAcquired(SpindleError):
    """The lock was not acquired, and nothing is held. Catch this to treat all reasons alike."""


class Busy(NotAcquired):
    """With ``wait=0``: another holder has the lock. Try again later, or give it a time to wait."""


class Timeout(NotAcquired, TimeoutError):
    """``wait`` is over, and the lock is not held."""


class Refused(NotAcquired):
    """The agent refuses the lock.

    ``code`` says why: ``name-not-allowed``, ``too-many``, ``stopping``, ``unavailable``, ``passed``. ``passing`` is true if the
    same request may succeed later.
    """

    def __init__(self, message: str, code: str, passing: bool) -> None:
        super().__init__(message)
        self.code = code
        self.passing = passing


class Lost(SpindleError):
    """The lock is not held any more, although it was not released. Stop the work: another program may hold the lock.

    ``reason`` is the agent's: ``expired``, ``superseded``, ``stalled``, ``closed`` or ``exited``. Or it is this program's:
    ``until-passed`` (the agent is stopped or dead, or this program was stopped), ``agent-restarted``, or ``forked`` (this is
    a child, and its parent may hold the lock).
    """

    def __init__(self, message: str, reason: str, hold: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self._hold = hold


class ReleaseUnknown(SpindleError):
    """The work was done under the lock, but nobody knows whether the lock is released. If not, it expires by itself.

    After ``Run.done`` it is not known either whether the key was recorded as done. Ask ``once`` again to learn that.
    """
