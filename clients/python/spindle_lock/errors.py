"""The exceptions. Each message says what to do."""

from __future__ import annotations

from typing import Optional

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
    """The base class of all errors of this package."""


class AgentUnreachable(SpindleError):
    """No agent answers at the socket, or the agent ended or fell silent. This program does not hold the lock."""


class BadRequest(SpindleError, ValueError):
    """The request is invalid, such as a name or a number in it. The same request always fails.

    ``code`` is the agent's code, such as ``bad-parameter``.
    """

    def __init__(self, message: str, code: str = "bad-parameter") -> None:
        super().__init__(message)
        self.code = code


class AlreadyHeld(SpindleError, RuntimeError):
    """This thread or asyncio task already holds the lock that it asked for, so it would wait for itself.

    Other threads and tasks of the program wait for their turn instead.
    """


class NotAcquired(SpindleError):
    """The lock was not acquired, and the program holds nothing. Catch this to handle all reasons in the same way."""


class Busy(NotAcquired):
    """Another holder has the lock, and ``wait`` was 0. Try again later, or allow some time to wait."""


class Timeout(NotAcquired, TimeoutError):
    """The lock was not acquired within ``wait``."""


class Refused(NotAcquired):
    """The agent refuses the lock.

    ``code`` says why, such as ``name-not-allowed``, ``too-many``, ``stopping``, ``unavailable`` or ``passed``. ``passing`` is
    true if the same request may succeed later.
    """

    def __init__(self, message: str, code: str, passing: bool) -> None:
        super().__init__(message)
        self.code = code
        self.passing = passing
        self._after: Optional[int] = None  # after how many seconds the agent wants to be asked again


class Lost(SpindleError):
    """The lock is no longer held, although it was not released. Stop the work, because another program may hold the lock.

    ``reason`` comes from the agent (``expired``, ``superseded``, ``stalled``, ``closed`` or ``exited``) or from this program:
    ``until-passed`` (the agent is stopped or dead, or this program was stopped), ``agent-restarted``, ``forked`` (this process
    is a child, and its parent may hold the lock), or ``released`` (by this program).
    """

    def __init__(self, message: str, reason: str, hold: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self._hold = hold


class ReleaseUnknown(SpindleError):
    """The work was done under the lock, but it is unknown whether the lock has been released. If not, it expires.

    After ``Run.done``, it is also unknown whether the key was recorded as done. Call ``once`` again to find out.
    """
