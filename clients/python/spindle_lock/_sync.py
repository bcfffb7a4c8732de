"""Locks for threads."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Callable, Generator, Optional, Type, TypeVar

from ._driver import Blocking, finish
from ._follow import follow
from ._held import Callback, HeldBase, RunBase, TermBase, acquired, begun
from ._hold import Hold
from ._lead import Campaign, leader
from ._stream import agent_path
from ._wanted import OnLeader, Options, Seconds, Wanted, election, schedule, wanted, with_options
from .types import Leader

if TYPE_CHECKING:
    from typing_extensions import Unpack

H = TypeVar("H", bound="Held")

_driver = Blocking()


class Held(HeldBase[threading.Event]):
    """A lock that this program holds. Leaving its ``with`` block releases it.

    ``stopping`` and ``lost`` are ``threading.Event``. A daemon thread reads what the agent sends, and calls the callbacks.
    """

    def __init__(self, hold: Hold, on_stop: Callback = None, on_lost: Callback = None) -> None:
        super().__init__(_driver, hold, threading.Event, on_stop, on_lost)
        name = f"spindle {hold.names[0]}"
        threading.Thread(target=self._follow, name=name, daemon=True).start()

    def _follow(self) -> None:
        finish(follow(_driver, self._hold, self._tell))

    def release(self) -> None:
        """Release the lock. Call this when the work has returned, because another program may get the lock immediately.

        Raises Lost if the lock had already been lost: another holder may have worked at the same time. Raises ReleaseUnknown
        if the outcome is unknown. In both cases, this program no longer holds the lock. Calling it again does nothing. Release
        a lost lock too, because the agent may still keep it from other programs.
        """
        finish(self._release())

    def __enter__(self: H) -> H:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> Optional[bool]:
        """Release the lock. If the block raised an error, an error of the release is only logged."""
        return finish(self._leave(error))


class Term(TermBase[threading.Event], Held):
    """One term of leading an election.

    Its ``with`` block suppresses Lost for this term, so that ``lead`` can go on to the next term.
    """

    def step_down(self) -> None:
        """Ask the agent to end this term. ``stopping`` is set when it is time to release the lock.

        The agent first announces the end to the other candidates, which takes about a third of the lease.
        """
        finish(self._step_down())


class Run(RunBase[threading.Event], Held):
    """Work that is done once. Leaving its ``with`` block without an error records the key as done."""

    def done(self) -> None:
        """Record the key as done and release the lock, in one commit.

        Raises Lost if the lock was lost or released, in which case the key is not recorded. Raises ReleaseUnknown if the outcome is
        unknown: call ``once`` again to find out.
        """
        finish(self._done())


@with_options
def lock(
    *names: str,
    on_stop: Optional[Callable[[Held], object]] = None,
    on_lost: Optional[Callable[[Held], object]] = None,
    **options: Unpack[Options],
) -> Held:
    """Acquire a lock, or several locks at once, waiting if necessary. Use the result in a ``with`` statement.

    Threads of one program take turns. A thread that asks for a lock that it already holds gets AlreadyHeld.

    :param wait: how long to wait, in seconds or as a timedelta. None waits forever. With 0, a lock that is taken raises Busy.
    :param lease: how long the lock stays with this program if its agent fails.
    :param stall: if this program reads nothing for this long, because it is stopped or dumping core, it loses the lock.
    :param label: the program's name in ``spindle ls``; by default, its command.
    :param value: a text that other programs see beside the holder.
    :param release_at_eof: release the lock when the connection ends, on kernels that do not report the end of a process.
    :param on_stop: called in another thread when the agent asks for the lock.
    :param on_lost: called in another thread when the lock is lost.
    :param agent: the path of the agent's socket; by default, ``SPINDLE_AGENT`` or ``/run/spindle/agent.sock``.
    :raises NotAcquired: as Busy, Timeout or Refused. The program holds nothing.
    :raises AgentUnreachable: if no agent answers. The program holds nothing.
    :raises BadRequest: if a name or a parameter is invalid.
    """
    return _held(Held, wanted("locks", names, options), on_stop, on_lost)


@with_options
def semaphore(
    name: str,
    slots: int,
    *,
    on_stop: Optional[Callable[[Held], object]] = None,
    on_lost: Optional[Callable[[Held], object]] = None,
    **options: Unpack[Options],
) -> Held:
    """Acquire one of the slots of a semaphore, waiting if necessary. All programs must pass the same number of slots.

    Threads of one program may hold several slots. For the other parameters and the errors, see ``lock``.
    """
    return _held(Held, wanted("semaphores", (name,), options, {"slots": str(slots)}), on_stop, on_lost)


@with_options
def once(
    name: str,
    *,
    every: Optional[Seconds] = None,
    offset: Optional[Seconds] = None,
    key: Optional[str] = None,
    on_stop: Optional[Callable[[Run], object]] = None,
    on_lost: Optional[Callable[[Run], object]] = None,
    **options: Unpack[Options],
) -> Optional[Run]:
    """Acquire the right to do work that is done once, or return None if the work is already done::

        if run := once("report", every=timedelta(days=1)):
            with run:
                send_report()

    Leaving the ``with`` block without an error records the work as done. After an error, another call does the work again.

    :param every: the period of a schedule, which has one run for each of its times.
    :param offset: how long after each multiple of ``every`` since 1970 a run is due; by default, the agent chooses.
    :param key: instead of a schedule, a key that has one run. Keys must increase: once a larger key is done, smaller ones are
        Refused as ``passed``.
    """
    return _maybe(Run, wanted("once", (name,), options, schedule(every, offset, key)), on_stop, on_lost)


@with_options
def lead(
    name: str,
    *,
    priority: int = 9,
    handover: bool = False,
    on_stop: Optional[Callable[[Term], object]] = None,
    on_lost: Optional[Callable[[Term], object]] = None,
    on_leader: Optional[OnLeader] = None,
    **options: Unpack[Options],
) -> Generator[Term, None, None]:
    """Take part in an election, and yield each term in which this program leads::

        for term in lead("scheduler"):
            with term:
                while not term.stopping.wait(1.0):
                    term.check()
                    schedule_one()

    Leaving the ``with`` block ends the term, and the next iteration competes again. To stop competing, leave the loop with
    ``break``. If the agent is gone or temporarily refuses, this logs a warning and tries again, after longer and longer pauses.

    :param priority: from 0 to 9, the highest. Candidates yield to candidates of higher priority.
    :param handover: announce the end of a term to the successor first, which shortens the time without a leader.
    :param wait: how long to wait for each term before Timeout is raised. With 0, Busy is raised.
    :param on_leader: called during the wait with the current leader, or with None.
    """
    return _terms(wanted("elections", (name,), options, election(priority, handover), on_leader), on_stop, on_lost)


def who_leads(name: str, *, agent: Optional[str] = None) -> Optional[Leader]:
    """Return the leader of an election, which may be on another machine, or None if there is no leader."""
    return finish(leader(_driver, agent_path(agent), name))


def _terms(want: Wanted, on_stop: Callback, on_lost: Callback) -> Generator[Term, None, None]:
    campaign = Campaign(_driver, want)
    while True:
        term = begun(finish(campaign.win()), lambda hold: Term(hold, on_stop, on_lost))
        try:
            yield term
        finally:
            finish(term._end_quietly())


def _maybe(kind: Type[H], want: Wanted, on_stop: Callback, on_lost: Callback) -> Optional[H]:
    return finish(acquired(_driver, want, lambda hold: kind(hold, on_stop, on_lost)))


def _held(kind: Type[H], want: Wanted, on_stop: Callback, on_lost: Callback) -> H:
    held = _maybe(kind, want, on_stop, on_lost)
    assert held is not None, "only the work of once is done already"
    return held
