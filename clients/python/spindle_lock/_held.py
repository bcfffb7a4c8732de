"""What a held lock says and does, with threads and with asyncio alike: what waits is a coroutine."""

from __future__ import annotations

from typing import Any, Callable, Coroutine, Generic, List, Optional, Tuple, TypeVar, cast

from ._acquire import abandon, acquire, log
from ._driver import Driver
from ._hold import Hold
from ._release import release, step_down
from ._wanted import Wanted
from .errors import Lost, ReleaseUnknown
from .types import Fence, Mutation

#: threading.Event or asyncio.Event
E = TypeVar("E", bound=Any)
H = TypeVar("H")

#: A function that is called with the held lock.
Callback = Optional[Callable[[Any], Any]]


class HeldBase(Generic[E]):
    """A lock that is held, until it is released or lost."""

    stopping: E
    """Set when the agent asks for the lock, and when the lock is lost. Complete the work, and release the lock."""
    lost: E
    """Set when the lock is lost."""

    def __init__(self, driver: Driver, hold: Hold, event: Callable[[], E], on_stop: Callback, on_lost: Callback) -> None:
        self._driver = driver
        self._hold = hold
        self._line = hold.result or {}
        self.stopping = event()
        self.lost = event()
        self._on_stop = on_stop
        self._on_lost = on_lost
        hold.changed = self._set

    @property
    def names(self) -> Tuple[str, ...]:
        """The names of the locks, as the program passed them."""
        return self._hold.names

    @property
    def token(self) -> int:
        """The token of this term. Each term of a lock has a larger token than all earlier terms."""
        return int(self._line.get("token", 0))

    @property
    def fence(self) -> List[Fence]:
        """A fence for each name, which makes a Spanner transaction fail unless the lock is held. Use all of the fences."""
        return cast(List[Fence], self._line.get("fence", []))

    @property
    def hold(self) -> str:
        """The id of this hold at the agent. Keep it secret, because it is sufficient to release the lock."""
        return self._hold.id

    @property
    def stop_reason(self) -> Optional[str]:
        """Why the agent asks for the lock: ``stepdown``, ``handover`` or ``agent-stops``. None if it has not asked."""
        return self._hold.stop_reason

    def still(self) -> bool:
        """Report whether the program may act now.

        It is true if every clock of this system is still before the time until which the lock is held. It sends no request
        and, while it is true, takes no mutex, so call it before each effect. Once false, it stays false. It is false in a
        forked child.
        """
        return self._hold.still()

    def check(self) -> None:
        """Raise Lost unless the program may act now: see ``still``."""
        if not self.still():
            raise self._hold.lost()

    def left(self) -> float:
        """Return for how many seconds the program may act without hearing from the agent, or 0.0 if it may not act."""
        return self._hold.left_ms() / 1000 if self.still() else 0.0

    def fileno(self) -> int:
        """Return the descriptor of the connection. Pass it to worker processes that act under this lock, with ``pass_fds``.

        If the program is killed, the agent releases the lock only when all processes that have the connection have ended.
        """
        return self._hold.stream.fileno()

    def __repr__(self) -> str:
        state = f"held for {self.left():.1f} s" if self.still() else f"lost ({self._hold.loss})" if self._hold.loss else "released"
        return f"<{type(self).__name__} {', '.join(self.names)}: token {self.token}, {state}>"

    def _set(self) -> None:
        """Set the events for what has happened."""
        if self._hold.stop_reason is not None or self._hold.loss is not None:
            self.stopping.set()
        if self._hold.loss is not None:
            self.lost.set()

    def _tell(self) -> None:
        """Set the events for what has happened, and call the callbacks that are due."""
        self._set()
        if self._hold.stop_reason is not None:
            self._on_stop = self._call(self._on_stop)
        if self._hold.loss is not None:
            self._on_lost = self._call(self._on_lost)

    def _call(self, callback: Callback) -> None:
        """Call a callback, and return None in its place, because it is called only once."""
        try:
            if callback is not None:
                callback(self)
        except Exception:
            log.exception("a callback of %r failed", self)

    def _check_parent(self) -> None:
        if self._hold.forked:
            raise self._hold.lost()

    async def _release(self, verb: str = "/release") -> None:
        self._check_parent()
        await self._complete(release(self._driver, self._hold, verb))

    async def _complete(self, steps: Coroutine[Any, Any, None]) -> None:
        """Run steps that must not end halfway."""
        await steps

    async def _end(self) -> None:
        """End the hold of a block that raised nothing."""
        await self._release()

    async def _end_quietly(self) -> None:
        """Release the lock if this process may, and log what goes wrong."""
        try:
            if not self._hold.forked:
                await self._release()
        except Lost:
            pass  # it is logged
        except ReleaseUnknown as err:
            log.warning("%s", err)

    async def _leave(self, error: Optional[BaseException]) -> bool:
        """Leave the block. An error of the block goes before one of the release. Report whether it ends here."""
        if error is None and not self._hold.forked:  # a child that leaves the block does not end what its parent holds
            await self._end()
        else:
            await self._end_quietly()
        return False


class TermBase(HeldBase[E]):
    """A term of an election."""

    async def _step_down(self) -> None:
        self._check_parent()
        await step_down(self._driver, self._hold)

    async def _leave(self, error: Optional[BaseException]) -> bool:
        mine = isinstance(error, Lost) and error._hold == self._hold.id
        await self._end_quietly()
        return error is None or mine


class RunBase(HeldBase[E]):
    """Work that is done once."""

    @property
    def key(self) -> str:
        """The key of this run. For a schedule, it is the scheduled time."""
        return str(self._line.get("key", ""))

    @property
    def record(self) -> List[Mutation]:
        """Mutations that record the key as done. Commit them with the work's own writes, which then take effect exactly once."""
        return cast(List[Mutation], self._line.get("record", []))

    async def _end(self) -> None:
        await self._release("/done")

    async def _done(self) -> None:
        if self._hold.undone:
            raise self._hold.lost()
        await self._release("/done")


async def acquired(driver: Driver, want: Wanted, begin: Callable[[Hold], H]) -> Optional[H]:
    """Return a held lock, or None if the work of a ``once`` is done already."""
    hold = await acquire(driver, want)
    return None if hold is None else begun(hold, begin)


def begun(hold: Hold, begin: Callable[[Hold], H]) -> H:
    """Return a held lock that ``begin`` makes of its hold."""
    try:
        return begin(hold)
    except BaseException:  # no more threads, or an interrupt: otherwise nothing could release the lock
        abandon(hold)
        hold.leave()
        raise
