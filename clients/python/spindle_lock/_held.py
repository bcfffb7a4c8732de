"""What a held lock tells, in threads and in asyncio alike."""

from __future__ import annotations

from typing import Any, Callable, Generic, List, Optional, Tuple, TypeVar, cast

from ._acquire import log
from ._hold import Hold
from .errors import Lost
from .types import Fence, Mutation

#: threading.Event or asyncio.Event
E = TypeVar("E", bound=Any)

#: A function that is called with the held lock.
Callback = Optional[Callable[[Any], Any]]


class HeldBase(Generic[E]):
    """A lock that is held, until it is released or lost."""

    stopping: E
    """Is set when the agent asks for the lock, and when it is lost. Complete the work, and release the lock."""
    lost: E
    """Is set when the lock is lost."""

    def __init__(self, hold: Hold, event: Callable[[], E], on_stop: Callback, on_lost: Callback) -> None:
        self._hold = hold
        self._line = hold.result or {}
        self.stopping = event()
        self.lost = event()
        self._on_stop = on_stop
        self._on_lost = on_lost
        hold.changed = self._set

    @property
    def names(self) -> Tuple[str, ...]:
        """The names of the locks, as they were given."""
        return self._hold.names

    @property
    def token(self) -> int:
        """The token of this term: larger than those of all earlier holders of these locks."""
        return int(self._line.get("token", 0))

    @property
    def fence(self) -> List[Fence]:
        """What makes a transaction of Spanner fail unless the lock is held: one for each name. Use all of them."""
        return cast(List[Fence], self._line.get("fence", []))

    @property
    def hold(self) -> str:
        """The id of this hold at the agent. It is a secret: whoever knows it can release the lock."""
        return self._hold.id

    @property
    def stop_reason(self) -> Optional[str]:
        """Why the agent asks for the lock: ``stepdown``, ``handover`` or ``agent-stops``; None if it does not ask."""
        return self._hold.stop_reason

    def still(self) -> bool:
        """Report whether the program may act, now.

        True means that by every clock of this system the lock is held at this moment. It asks nobody and takes no mutex, so
        call it before each effect. Once it was false, it stays false. It is false in a forked child.
        """
        return self._hold.still()

    def check(self) -> None:
        """Raise Lost unless the program may act, now: see ``still``."""
        if not self.still():
            raise self._hold.lost()

    def left(self) -> float:
        """Return for how many seconds the program may act without news of the agent: 0.0 if it may not."""
        return self._hold.left_ms() / 1000 if self.still() else 0.0

    def fileno(self) -> int:
        """Return the descriptor of the connection, for ``pass_fds`` of worker processes that act under this lock.

        The agent releases the lock of a program that was killed only when all processes that have the connection have ended.
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
        """Set the events for what has happened, and call the callbacks for what was not told yet."""
        self._set()
        if self._hold.stop_reason is not None:
            self._on_stop = self._call(self._on_stop)
        if self._hold.loss is not None:
            self._on_lost = self._call(self._on_lost)

    def _call(self, callback: Callback) -> None:
        """Call a callback, of which nothing remains: it is called once."""
        try:
            if callback is not None:
                callback(self)
        except Exception:
            log.exception("a callback of %r failed", self)

    def _check_parent(self) -> None:
        if self._hold.forked:
            raise self._hold.lost()

    def _is_mine(self, error: Optional[BaseException]) -> bool:
        return isinstance(error, Lost) and error._hold == self._hold.id


def key_of(held: HeldBase[Any]) -> str:
    """Return the key of work that is done once."""
    return str(held._line.get("key", ""))


def record_of(held: HeldBase[Any]) -> List[Mutation]:
    """Return the mutations that record that key as done."""
    return cast(List[Mutation], held._line.get("record", []))
