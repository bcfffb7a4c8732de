"""What a program asks for, checked as far as it needs no agent."""

from __future__ import annotations

import inspect
import math
from datetime import timedelta
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, TypedDict, TypeVar, Union

from ._stream import agent_path
from ._turns import Key
from .types import Leader

#: A time, in seconds or as a timedelta.
Seconds = Union[float, timedelta]

OnLeader = Callable[[Optional[Leader]], None]


class Wanted(NamedTuple):
    """A request for a hold."""

    kind: str
    names: Tuple[str, ...]
    parameters: Dict[str, str]
    wait: Optional[float]
    lease: float
    agent: str
    on_leader: Optional[OnLeader] = None

    @property
    def turns(self) -> List[Key]:
        """The queues that it waits in. Threads may hold several slots of one semaphore."""
        return [] if self.kind == "semaphores" else [(self.agent, name) for name in self.names]

    def query(self, wait: Optional[float]) -> List[Tuple[str, str]]:
        """Return the parameters of the request, with what is left of the time to wait."""
        query = [("name", name) for name in self.names] + list(self.parameters.items())
        return query if wait is None else query + [("wait", duration(wait))]


class Options(TypedDict, total=False):
    """The options that all kinds of locks have. The doc string of ``lock`` explains them."""

    wait: Optional[Seconds]
    lease: Seconds
    stall: Optional[Seconds]
    label: Optional[str]
    value: Optional[str]
    release_at_eof: bool
    agent: Optional[str]


class Given(NamedTuple):
    """The same options, with their defaults."""

    wait: Optional[Seconds] = None
    lease: Seconds = 10.0
    stall: Optional[Seconds] = None
    label: Optional[str] = None
    value: Optional[str] = None
    release_at_eof: bool = False
    agent: Optional[str] = None


F = TypeVar("F", bound=Callable[..., object])


def with_options(function: F) -> F:
    """Let ``help`` and ``inspect`` show each option of a function that takes ``**options``."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=Given._field_defaults[name], annotation=kind.__forward_arg__)
        for name, kind in Options.__annotations__.items()
    ]
    setattr(function, "__signature__", signature.replace(parameters=own + options))
    return function


def wanted(
    kind: str,
    names: Tuple[str, ...],
    options: Options,
    own: Optional[Mapping[str, str]] = None,
    on_leader: Optional[OnLeader] = None,
) -> Wanted:
    """Check a request. ``own`` has the parameters of its kind."""
    if not names:
        raise TypeError("give a lock's name")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"the name of a lock is a str, not {name!r}")
    for option in options.keys() - set(Given._fields):
        raise TypeError(f"got an unexpected keyword argument {option!r}")
    given = Given(**options)
    return Wanted(
        kind=kind,
        names=tuple(names),
        parameters={**_parameters(given), **(own or {})},
        wait=None if given.wait is None else seconds("wait", given.wait),
        lease=seconds("lease", given.lease),
        agent=agent_path(given.agent),
        on_leader=on_leader,
    )


def _parameters(given: Given) -> Dict[str, str]:
    """Return the agent's parameters, except for the wait: how much of it is left changes."""
    parameters = {"lease": duration(seconds("lease", given.lease))}
    if given.stall is not None:
        parameters["stall"] = duration(seconds("stall", given.stall))
    if given.release_at_eof:
        parameters["eof"] = "release"
    if given.label is not None:
        parameters["label"] = given.label
    if given.value is not None:
        parameters["value"] = given.value
    return parameters


def election(priority: int, handover: bool) -> Dict[str, str]:
    """Return the parameters of an election."""
    return {"priority": str(priority), **({"handover": "true"} if handover else {})}


def schedule(every: Optional[Seconds], offset: Optional[Seconds], key: Optional[str]) -> Dict[str, str]:
    """Return the parameters of work that is done once."""
    if (every is None) == (key is None):
        raise TypeError("give every=, the period of a schedule, or key=, the key that is done once")
    if key is not None:
        if offset is not None:
            raise TypeError("offset= is for a schedule: give every= instead of key=, or leave it out")
        return {"key": key}
    given = {"every": duration(seconds("every", every))}
    if offset is not None:
        given["offset"] = duration(seconds("offset", offset))
    return given


def seconds(name: str, given: Any) -> float:
    """Return a time in seconds."""
    if isinstance(given, timedelta):
        given = given.total_seconds()
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(f"{name}={given!r}: want seconds as a number, or a timedelta")
    if not (0 <= given < math.inf):
        raise ValueError(f"{name}={given!r}: want seconds, not negative and finite")
    return float(given)


def duration(given: float) -> str:
    """Return a time as the agent takes it. What is more than nothing stays more than nothing."""
    return f"{math.ceil(given * 1_000_000)}us" if given else "0s"
