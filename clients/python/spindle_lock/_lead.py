"""Competing in an election again and again."""

from __future__ import annotations

from typing import Optional

from ._acquire import acquire, log
from ._ask import SILENCE, ask, problem
from ._backoff import Backoff
from ._driver import Driver
from ._hold import Hold
from ._wanted import Wanted
from .errors import AgentUnreachable, Refused
from .types import Leader, leader_of


class Campaign:
    """One candidate, which outlives agents."""

    def __init__(self, driver: Driver, want: Wanted) -> None:
        self._driver = driver
        self._want = want
        self._backoff = Backoff(0.1, min(max(want.lease / 3, 0.1), 5.0))

    async def win(self) -> Hold:
        """Return a hold that leads. If the agent is gone, or can't help for now, wait for it."""
        while True:
            try:
                hold = await acquire(self._driver, self._want)
            except AgentUnreachable as err:
                await self._pause(err)
            except Refused as err:
                if not err.passing:
                    raise
                await self._pause(err)
            else:
                assert hold is not None, "only the work of once is done already"
                self._backoff.reset()
                return hold

    async def _pause(self, err: Exception) -> None:
        pause = self._backoff.next()
        log.warning("competing for %r again in %.1f s: %s", self._want.names[0], pause, err)
        await self._driver.sleep(pause)


async def leader(driver: Driver, path: str, name: str) -> Optional[Leader]:
    """Ask who leads."""
    given = await ask(driver, path, "GET", "/v1/elections", [("name", name)], 2 * SILENCE + 5)
    if given.status != 200:
        raise problem(given, name)
    return leader_of(given.body.get("leader"))
