"""Locks for threads."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Callable, Generator, List, Optional, Type, TypeVar

from ._acquire import abandon, acquire, log
from ._driver import Blocking, finish
from ._follow import follow
from ._held import Callback, HeldBase, key_of, record_of
from ._hold import Hold
from ._lead import Campaign, leader
from ._release import release, step_down
from ._stream import agent_path
from ._wanted import Common, OnLeader, Seconds, Wanted, schedule, wanted
from .errors import Lost, ReleaseUnknown
from .types import Leader, Mutation

H = TypeVar("H", bound="Held")

_driver = Blocking()


class Held(HeldBase[threading.Event]):
    """A lock that this program holds. Leaving its ``with`` block releases it.

    ``stopping`` and ``lost`` are ``threading.Event``. A daemon thread follows the agent, and calls the callbacks.
    """

    def __init__(self, hold: Hold, on_stop: Callback = None, on_lost: Callback = None) -> None:
        super().__init__(hold, threading.Event, on_stop, on_lost)
        name = f"spindle {hold.names[0]}"
        threading.Thread(target=self._follow, name=name, daemon=True).start()

    def _follow(self) -> None:
        finish(follow(_driver, self._hold, self._tell))

    def release(self) -> None:
        """Release the lock. Call it once the work has returned: another program may have the lock at once.

        Raises Lost if the lock was lost before: part of the work may have been done beside another holder's. Raises
        ReleaseUnknown if nobody knows. Either way this program does not hold it any more. Releasing twice does nothing. Release a
        lost lock too: the agent may still keep it from others.
        """
        self._check_parent()
        finish(release(_driver, self._hold))

    def __enter__(self: H) -> H:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> Optional[bool]:
        """Release the lock. An error of the block goes before one of the release."""
        if self._hold.forked:
            return None  # this child leaves the block, and its parent holds the lock
        if error is None:
            self._end()
        else:
            self._end_quietly()
        return None

    def _end(self) -> None:
        self.release()

    def _end_quietly(self) -> None:
        if self._hold.forked:
            return
        try:
            self.release()
        except Lost:
            pass  # it is logged
        except ReleaseUnknown as err:
            log.warning("%s", err)


class Term(Held):
    """One term of leading an election.

    Its ``with`` block swallows this term's Lost, as the next term of ``lead`` follows.
    """

    def step_down(self) -> None:
        """Ask the agent for the end of this term. It sets ``stopping`` when it is time to release the lock.

        The agent announces the end first, so that followers are prepared. That takes about a third of the lease.
        """
        self._check_parent()
        finish(step_down(_driver, self._hold))

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> Optional[bool]:
        """Release the lock, and swallow the loss of this term."""
        if error is None or self._is_mine(error):
            self._end_quietly()
            return True
        return super().__exit__(kind, error, trace)


class Run(Held):
    """Work that is done once. Leaving its ``with`` block without an error records the key as done."""

    @property
    def key(self) -> str:
        """The key that is done once: for a schedule, its time."""
        return key_of(self)

    @property
    def record(self) -> List[Mutation]:
        """Mutations that record the key as done: in one transaction with the work's own writes, these happen exactly once."""
        return record_of(self)

    def done(self) -> None:
        """Record the key as done, and release the lock, in one commit.

        Raises Lost if the lock was lost, and the key is not done. Raises ReleaseUnknown if nobody knows: ask ``once`` again.
        """
        self._check_parent()
        finish(release(_driver, self._hold, "/done"))

    def _end(self) -> None:
        self.done()


def lock(
    *names: str,
    wait: Optional[Seconds] = None,
    lease: Seconds = 10.0,
    stall: Optional[Seconds] = None,
    label: Optional[str] = None,
    value: Optional[str] = None,
    release_at_eof: bool = False,
    on_stop: Optional[Callable[[Held], object]] = None,
    on_lost: Optional[Callable[[Held], object]] = None,
    agent: Optional[str] = None,
) -> Held:
    """Wait for a lock, or for all of several locks, and return it held. Use it in a ``with`` statement.

    Threads of one program take turns. A thread that asks for what it holds itself gets AlreadyHeld.

    :param wait: how long to wait, in seconds or as a timedelta; None is forever, and 0 a try, which raises Busy.
    :param lease: how long the lock stays with this program if its agent fails.
    :param stall: this program loses the lock if it has not read its lines for so long: it is stopped, or writes a core dump.
    :param label: what the program is called in ``spindle ls``; otherwise its command.
    :param value: what others see beside the holder.
    :param release_at_eof: let the end of the connection release the lock, for kernels that can't show the end of a process.
    :param on_stop: is called, in another thread, when the agent asks for the lock.
    :param on_lost: is called, in another thread, when the lock is lost.
    :param agent: the agent's socket; otherwise ``SPINDLE_AGENT`` names it, or it is ``/run/spindle/agent.sock``.
    :raises NotAcquired: Busy, Timeout or Refused: nothing is held.
    :raises AgentUnreachable: no agent answers; nothing is held.
    :raises BadRequest: a name or a parameter is wrong.
    """
    common = Common(wait, lease, stall, label, value, release_at_eof, agent)
    return _held(Held, wanted("locks", names, common), on_stop, on_lost)


def semaphore(
    name: str,
    slots: int,
    *,
    wait: Optional[Seconds] = None,
    lease: Seconds = 10.0,
    stall: Optional[Seconds] = None,
    label: Optional[str] = None,
    value: Optional[str] = None,
    release_at_eof: bool = False,
    on_stop: Optional[Callable[[Held], object]] = None,
    on_lost: Optional[Callable[[Held], object]] = None,
    agent: Optional[str] = None,
) -> Held:
    """Wait for one of the slots of a semaphore, and return it held. All programs must give the same number of slots.

    Threads of one program may hold several slots. The other parameters and the errors are those of ``lock``.
    """
    common = Common(wait, lease, stall, label, value, release_at_eof, agent)
    return _held(Held, wanted("semaphores", (name,), common, {"slots": str(slots)}), on_stop, on_lost)


def once(
    name: str,
    *,
    every: Optional[Seconds] = None,
    offset: Optional[Seconds] = None,
    key: Optional[str] = None,
    wait: Optional[Seconds] = None,
    lease: Seconds = 10.0,
    stall: Optional[Seconds] = None,
    label: Optional[str] = None,
    value: Optional[str] = None,
    release_at_eof: bool = False,
    on_stop: Optional[Callable[[Run], object]] = None,
    on_lost: Optional[Callable[[Run], object]] = None,
    agent: Optional[str] = None,
) -> Optional[Run]:
    """Wait for the right to do work that is done once, or return None if it is done already::

        if run := once("report", every=timedelta(days=1)):
            with run:
                send_report()

    Leaving the ``with`` block without an error records the work as done. After an error another call does it again.

    :param every: the period of a schedule: one run for each of its times.
    :param offset: when the schedule's times are, after multiples of ``every`` since 1970; otherwise the agent chooses.
    :param key: instead of a schedule: one run for the key. Keys must grow: after a larger one, a key is Refused as ``passed``.
    """
    common = Common(wait, lease, stall, label, value, release_at_eof, agent)
    return _maybe(Run, wanted("once", (name,), common, schedule(every, offset, key)), on_stop, on_lost)


def lead(
    name: str,
    *,
    priority: int = 9,
    handover: bool = False,
    wait: Optional[Seconds] = None,
    lease: Seconds = 10.0,
    stall: Optional[Seconds] = None,
    label: Optional[str] = None,
    value: Optional[str] = None,
    release_at_eof: bool = False,
    on_stop: Optional[Callable[[Term], object]] = None,
    on_lost: Optional[Callable[[Term], object]] = None,
    on_leader: Optional[OnLeader] = None,
    agent: Optional[str] = None,
) -> Generator[Term, None, None]:
    """Compete in an election, and yield each term of leading it::

        for term in lead("scheduler"):
            with term:
                while not term.stopping.wait(1.0):
                    term.check()
                    schedule_one()

    When the ``with`` block is left, the term is released, and the next iteration competes again. Leave the loop by ``break`` to
    stop competing. If the agent is gone or refuses for a while, this waits for it, with growing pauses and a logged warning.

    :param priority: 0 to 9, which is the highest: candidates yield to candidates of higher priority.
    :param handover: announce the end of a term to the successor first, so that nobody leads for as short as possible.
    :param wait: how long to wait for each term, before Timeout is raised; with 0 it is Busy.
    :param on_leader: is called while this waits: who leads instead, or None.
    """
    own = {"priority": str(priority), **({"handover": "true"} if handover else {})}
    common = Common(wait, lease, stall, label, value, release_at_eof, agent)
    return _terms(wanted("elections", (name,), common, own, on_leader), on_stop, on_lost)


def who_leads(name: str, *, agent: Optional[str] = None) -> Optional[Leader]:
    """Return who leads an election, which may be on another machine, or None if nobody does."""
    return finish(leader(_driver, agent_path(agent), name))


def _terms(want: Wanted, on_stop: Callback, on_lost: Callback) -> Generator[Term, None, None]:
    campaign = Campaign(_driver, want)
    while True:
        term = _begin(Term, finish(campaign.win()), on_stop, on_lost)
        try:
            yield term
        finally:
            term._end_quietly()


def _maybe(kind: Type[H], want: Wanted, on_stop: Callback, on_lost: Callback) -> Optional[H]:
    hold = finish(acquire(_driver, want))
    return None if hold is None else _begin(kind, hold, on_stop, on_lost)


def _begin(kind: Type[H], hold: Hold, on_stop: Callback, on_lost: Callback) -> H:
    try:
        return kind(hold, on_stop, on_lost)
    except BaseException:  # no more threads, or an interrupt: nobody would have the lock to release it
        abandon(hold)
        hold.leave()
        raise


def _held(kind: Type[H], want: Wanted, on_stop: Callback, on_lost: Callback) -> H:
    held = _maybe(kind, want, on_stop, on_lost)
    assert held is not None, "only the work of once is done already"
    return held
