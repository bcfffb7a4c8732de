"""What the agent tells, as types."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, TypedDict

__all__ = ["Fence", "Leader", "Mutation"]

#: A mutation in the form of Spanner's REST API, such as ``{"update": {"table": …, "columns": […], "values": [[…]]}}``.
Mutation = Dict[str, Any]


class Fence(TypedDict):
    """Lets a serializable transaction of Spanner take effect only while one lock is held under its token.

    Put ``mutation`` into the transaction. Or run the statement of your dialect, ``googlesql`` or ``postgresql``, with the
    parameter ``p1``, and roll back unless it changed exactly ``rows`` rows.
    """

    googlesql: str
    postgresql: str
    p1: str
    rows: int
    mutation: Mutation


class Leader(NamedTuple):
    """Who leads an election: perhaps this program."""

    id: str
    """The holder, as ``spindle ls`` shows it."""
    value: str
    """What the leader says of itself, or an empty string."""
    token: int
    """The token of its term: larger than those of earlier terms."""
    leaving: bool
    """Whether it is about to step down."""


def leader_of(given: Optional[Dict[str, Any]]) -> Optional[Leader]:
    """Return the leader that a line or an answer tells of."""
    if not given:
        return None
    return Leader(
        str(given.get("id", "")), str(given.get("value", "")), int(given.get("token", 0)), bool(given.get("leaving", False))
    )
