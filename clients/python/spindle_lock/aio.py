"""Locks for asyncio: what ``spindle_lock`` has for threads, without threads.

::

    from spindle_lock import aio

    async with aio.lock("nightly", wait=30) as held:
        async for invoice in invoices():
            held.check()  # raises Lost if another program may hold the lock
            await send(invoice)

The functions have the same parameters and errors as in ``spindle_lock``. Tasks take turns with each other and with the threads
of the program. Callbacks are called in the event loop.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Generic,
    Optional,
    Set,
    Type,
    TypeVar,
)

from ._aiodriver import Loop
from ._follow import follow
from ._held import Callback, HeldBase, RunBase, TermBase, acquired, begun
from ._hold import Hold
from ._lead import Campaign, leader
from ._stream import agent_path
from ._wanted import OnLeader, Options, Seconds, Wanted, election, schedule, wanted, with_options
from .types import Leader

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Acquiring", "Held", "Run", "Term", "lead", "lock", "once", "semaphore", "who_leads"]

H = TypeVar("H", bound="Held")
T = TypeVar("T")

_driver = Loop()

# The event loop itself keeps only weak references to tasks.
_tasks: Set["asyncio.Task[Any]"] = set()


def _task(steps: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    task = asyncio.get_running_loop().create_task(steps)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def _ended(task: "asyncio.Future[Any]") -> None:
    """Cancel a task, and wait until it has ended. If the caller is cancelled meanwhile, cancel the task again."""
    again: Optional[asyncio.CancelledError] = None
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as err:
            again = err
    if again:
        raise again


class Held(HeldBase[asyncio.Event]):
    """A lock that this program holds. Leaving its ``async with`` block releases it.

    ``stopping`` and ``lost`` are ``asyncio.Event``. ``still`` and ``check`` may be called from any thread.
    """

    def __init__(self, hold: Hold, on_stop: Callback = None, on_lost: Callback = None) -> None:
        super().__init__(_driver, hold, asyncio.Event, on_stop, on_lost)
        self._loop = asyncio.get_running_loop()
        hold.changed = self._changed
        self._follower = _task(follow(_driver, hold, self._tell))

    def _changed(self) -> None:
        """Notify the loop of a loss that another thread may have found."""
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            pass  # the loop is closed, so no task waits any more

    async def release(self) -> None:
        """Release the lock. Call this when the work has returned, because another program may get the lock immediately.

        Raises Lost if the lock had already been lost: another holder may have worked at the same time. Raises ReleaseUnknown
        if the outcome is unknown. In both cases, this program no longer holds the lock. Calling it again does nothing. Release
        a lost lock too, because the agent may still keep it from other programs.

        If the caller is cancelled, the release still completes.
        """
        await self._release()

    async def _complete(self, steps: Coroutine[Any, Any, None]) -> None:
        try:
            await asyncio.shield(_task(steps))
        finally:
            if self._hold.stream.ended.is_set():
                self._follower.cancel()
                if self._follower.done():  # it was cancelled before, with all tasks
                    self._hold.close()

    async def run(self, work: Awaitable[T]) -> T:
        """Await work under this lock, and return its result. If the lock is lost, cancel the work and raise Lost.

        Return only when the work has returned, even if the caller is cancelled several times.
        """
        if not self.still():
            if asyncio.iscoroutine(work):
                work.close()
            else:
                asyncio.ensure_future(work).cancel()
            raise self._hold.lost()
        task = asyncio.ensure_future(work)
        lost = _task(self.lost.wait())
        try:
            await asyncio.wait([task, lost], return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
            cut = not task.done()
            if cut:
                await _ended(task)
        if cut:
            raise self._hold.lost() from (None if task.cancelled() else task.exception())
        return task.result()

    async def __aenter__(self: H) -> H:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> Optional[bool]:
        """Release the lock. If the block raised an error, an error of the release is only logged."""
        return await self._leave(error)


class Term(TermBase[asyncio.Event], Held):
    """One term of leading an election.

    Its ``async with`` block suppresses Lost for this term, so that ``lead`` can go on to the next term.
    """

    async def step_down(self) -> None:
        """Ask the agent to end this term. ``stopping`` is set when it is time to release the lock.

        The agent first announces the end to the other candidates, which takes about a third of the lease.
        """
        await self._step_down()


class Run(RunBase[asyncio.Event], Held):
    """Work that is done once. Leaving its ``async with`` block without an error records the key as done."""

    async def done(self) -> None:
        """Record the key as done and release the lock, in one commit.

        Raises Lost if the lock was lost or released, in which case the key is not recorded. Raises ReleaseUnknown if the outcome is
        unknown: call ``once`` again to find out.
        """
        await self._done()


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


@with_options
def lock(
    *names: str,
    on_stop: Optional[Callable[[Held], object]] = None,
    on_lost: Optional[Callable[[Held], object]] = None,
    **options: Unpack[Options],
) -> Acquiring[Held]:
    """Acquire a lock, or several locks at once: ``async with lock("a") as held``, or ``held = await lock("a")``.

    For the parameters and errors, see ``spindle_lock.lock``. A task that is cancelled while it waits holds nothing.
    """
    want = wanted("locks", names, options)
    return Acquiring(lambda: _held(Held, want, on_stop, on_lost))


@with_options
def semaphore(
    name: str,
    slots: int,
    *,
    on_stop: Optional[Callable[[Held], object]] = None,
    on_lost: Optional[Callable[[Held], object]] = None,
    **options: Unpack[Options],
) -> Acquiring[Held]:
    """Acquire one of the slots of a semaphore. Use it like ``lock``, with the parameters of ``spindle_lock.semaphore``."""
    want = wanted("semaphores", (name,), options, {"slots": str(slots)})
    return Acquiring(lambda: _held(Held, want, on_stop, on_lost))


@with_options
async def once(
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

        if run := await once("report", every=timedelta(days=1)):
            async with run:
                await send_report()

    See ``spindle_lock.once``.
    """
    return await _maybe(Run, wanted("once", (name,), options, schedule(every, offset, key)), on_stop, on_lost)


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
) -> AsyncGenerator[Term, None]:
    """Take part in an election, and yield each term in which this program leads::

        async for term in lead("scheduler"):
            async with term:
                await term.run(schedule_until(term.stopping))

    See ``spindle_lock.lead``. Use ``async with`` as shown, which releases the term at the end of the block. Without it, a term
    that is left by ``break`` or an error is released only when the event loop closes the iterator.
    """
    return _terms(wanted("elections", (name,), options, election(priority, handover), on_leader), on_stop, on_lost)


async def who_leads(name: str, *, agent: Optional[str] = None) -> Optional[Leader]:
    """Return the leader of an election, which may be on another machine, or None if there is no leader."""
    return await leader(_driver, agent_path(agent), name)


async def _terms(want: Wanted, on_stop: Callback, on_lost: Callback) -> AsyncGenerator[Term, None]:
    campaign = Campaign(_driver, want)
    while True:
        term = begun(await campaign.win(), lambda hold: Term(hold, on_stop, on_lost))
        try:
            yield term
        finally:
            await term._end_quietly()


async def _maybe(kind: Type[H], want: Wanted, on_stop: Callback, on_lost: Callback) -> Optional[H]:
    return await acquired(_driver, want, lambda hold: kind(hold, on_stop, on_lost))


async def _held(kind: Type[H], want: Wanted, on_stop: Callback, on_lost: Callback) -> H:
    held = await _maybe(kind, want, on_stop, on_lost)
    assert held is not None, "only the work of once is done already"
    return held
