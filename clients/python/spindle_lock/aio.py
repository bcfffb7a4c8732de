"""Locks for asyncio: what ``spindle_lock`` has for threads, without threads.

::

    from spindle_lock import aio

    async with aio.lock("nightly", wait=30) as held:
        async for invoice in invoices():
            held.check()  # raises Lost if another program may hold the lock
            await send(invoice)

Parameters and errors are those of ``spindle_lock``. Tasks of one program take turns, also with its threads. Callbacks are
called in the event loop.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import (
    Any,
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Generic,
    List,
    Optional,
    Set,
    Type,
    TypeVar,
)

from ._acquire import acquire, log
from ._aiodriver import Loop
from ._follow import follow
from ._held import Callback, HeldBase, key_of, record_of
from ._hold import Hold
from ._lead import Campaign, leader
from ._release import release, step_down
from ._stream import agent_path
from ._wanted import Common, OnLeader, Seconds, Wanted, schedule, wanted
from .errors import Lost, ReleaseUnknown
from .types import Leader, Mutation

__all__ = ["Acquiring", "Held", "Run", "Term", "lead", "lock", "once", "semaphore", "who_leads"]

H = TypeVar("H", bound="Held")
T = TypeVar("T")

_driver = Loop()

# The event loop itself has only weak references to tasks.
_tasks: Set["asyncio.Task[Any]"] = set()


def _task(steps: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    task = asyncio.get_running_loop().create_task(steps)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


class Held(HeldBase[asyncio.Event]):
    """A lock that this program holds. Leaving its ``async with`` block releases it.

    ``stopping`` and ``lost`` are ``asyncio.Event``. ``still`` and ``check`` may be called from any thread.
    """

    def __init__(self, hold: Hold, on_stop: Callback = None, on_lost: Callback = None) -> None:
        super().__init__(hold, asyncio.Event, on_stop, on_lost)
        self._loop = asyncio.get_running_loop()
        hold.changed = self._changed
        self._follower = _task(follow(_driver, hold, self._tell))

    def _changed(self) -> None:
        """Let the loop know of a loss that another thread may have found."""
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            pass  # the loop is closed, and nobody waits any more

    async def release(self) -> None:
        """Release the lock. Call it once the work has returned: another program may have the lock at once.

        Raises Lost if the lock was lost before: part of the work may have been done beside another holder's. Raises
        ReleaseUnknown if nobody knows. Either way this program does not hold it any more. Releasing twice does nothing. Release a
        lost lock too: the agent may still keep it from others. If the caller is cancelled, the release goes on.
        """
        await self._release("/release")

    async def _release(self, verb: str) -> None:
        self._check_parent()
        try:
            await asyncio.shield(_task(release(_driver, self._hold, verb)))
        finally:
            if self._hold.stream.ended.is_set():
                self._follower.cancel()

    async def run(self, work: Awaitable[T]) -> T:
        """Await work under this lock, and return its result. If the lock is lost, cancel the work and raise Lost."""
        task = asyncio.ensure_future(work)
        lost = _task(self.lost.wait())
        try:
            await asyncio.wait([task, lost], return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
            cut = not task.done()
            if cut:
                task.cancel()
                await asyncio.wait([task])
        if cut:
            raise self._hold.lost() from (None if task.cancelled() else task.exception())
        return task.result()

    async def __aenter__(self: H) -> H:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> Optional[bool]:
        """Release the lock. An error of the block goes before one of the release."""
        if self._hold.forked:
            return None  # this child leaves the block, and its parent holds the lock
        if error is None:
            await self._end()
        else:
            await self._end_quietly()
        return None

    async def _end(self) -> None:
        await self.release()

    async def _end_quietly(self) -> None:
        if self._hold.forked:
            return
        try:
            await self.release()
        except Lost:
            pass  # it is logged
        except ReleaseUnknown as err:
            log.warning("%s", err)


class Term(Held):
    """One term of leading an election.

    Its ``async with`` block swallows this term's Lost, as the next term of ``lead`` follows.
    """

    async def step_down(self) -> None:
        """Ask the agent for the end of this term. It sets ``stopping`` when it is time to release the lock.

        The agent announces the end first, so that followers are prepared. That takes about a third of the lease.
        """
        self._check_parent()
        await step_down(_driver, self._hold)

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> Optional[bool]:
        """Release the lock, and swallow the loss of this term."""
        if error is None or self._is_mine(error):
            await self._end_quietly()
            return True
        return await super().__aexit__(kind, error, trace)


class Run(Held):
    """Work that is done once. Leaving its ``async with`` block without an error records the key as done."""

    @property
    def key(self) -> str:
        """The key that is done once: for a schedule, its time."""
        return key_of(self)

    @property
    def record(self) -> List[Mutation]:
        """Mutations that record the key as done: in one transaction with the work's own writes, these happen exactly once."""
        return record_of(self)

    async def done(self) -> None:
        """Record the key as done, and release the lock, in one commit.

        Raises Lost if the lock was lost, and the key is not done. Raises ReleaseUnknown if nobody knows: ask ``once`` again.
        """
        await self._release("/done")

    async def _end(self) -> None:
        await self.done()


class Acquiring(Generic[H]):
    """A lock that is being acquired: ``await`` it, or use it in ``async with``, once."""

    def __init__(self, acquired: Callable[[], Coroutine[Any, Any, H]]) -> None:
        self._acquired = acquired
        self._held: Optional[H] = None

    def __await__(self) -> Generator[Any, None, H]:
        return self._acquired().__await__()

    async def __aenter__(self) -> H:
        self._held = await self._acquired()
        return self._held

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> Optional[bool]:
        assert self._held is not None
        return await self._held.__aexit__(kind, error, trace)


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
) -> Acquiring[Held]:
    """Wait for a lock, or for all of several locks: ``async with lock("a") as held``, or ``held = await lock("a")``.

    Parameters and errors are those of ``spindle_lock.lock``. A task that is cancelled while it waits holds nothing.
    """
    common = Common(wait, lease, stall, label, value, release_at_eof, agent)
    want = wanted("locks", names, common)
    return Acquiring(lambda: _held(Held, want, on_stop, on_lost))


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
) -> Acquiring[Held]:
    """Wait for one of the slots of a semaphore: see ``spindle_lock.semaphore``, and ``lock`` for how to use it."""
    common = Common(wait, lease, stall, label, value, release_at_eof, agent)
    want = wanted("semaphores", (name,), common, {"slots": str(slots)})
    return Acquiring(lambda: _held(Held, want, on_stop, on_lost))


async def once(
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

        if run := await once("report", every=timedelta(days=1)):
            async with run:
                await send_report()

    See ``spindle_lock.once``.
    """
    common = Common(wait, lease, stall, label, value, release_at_eof, agent)
    return await _maybe(Run, wanted("once", (name,), common, schedule(every, offset, key)), on_stop, on_lost)


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
) -> AsyncGenerator[Term, None]:
    """Compete in an election, and yield each term of leading it::

        async for term in lead("scheduler"):
            async with term:
                await term.run(schedule_until(term.stopping))

    See ``spindle_lock.lead``. Use ``async with`` as here: it releases the term when the block is left. Without it, a term that is
    left by ``break`` or an error is released only when the event loop gets to close the iterator.
    """
    own = {"priority": str(priority), **({"handover": "true"} if handover else {})}
    common = Common(wait, lease, stall, label, value, release_at_eof, agent)
    return _terms(wanted("elections", (name,), common, own, on_leader), on_stop, on_lost)


async def who_leads(name: str, *, agent: Optional[str] = None) -> Optional[Leader]:
    """Return who leads an election, which may be on another machine, or None if nobody does."""
    return await leader(_driver, agent_path(agent), name)


async def _terms(want: Wanted, on_stop: Callback, on_lost: Callback) -> AsyncGenerator[Term, None]:
    campaign = Campaign(_driver, want)
    while True:
        term = Term(await campaign.win(), on_stop, on_lost)
        try:
            yield term
        finally:
            await term._end_quietly()


async def _maybe(kind: Type[H], want: Wanted, on_stop: Callback, on_lost: Callback) -> Optional[H]:
    hold = await acquire(_driver, want)
    return None if hold is None else kind(hold, on_stop, on_lost)


async def _held(kind: Type[H], want: Wanted, on_stop: Callback, on_lost: Callback) -> H:
    held = await _maybe(kind, want, on_stop, on_lost)
    assert held is not None, "only the work of once is done already"
    return held
