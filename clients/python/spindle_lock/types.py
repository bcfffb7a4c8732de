"""The types of what the agent sends."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, TypedDict

__all__ = ["Fence", "Leader", "Mutation"]

#: A mutation in the form of Spanner's REST API, such as ``{"update": {"table": …, "columns": […], "values": [[…]]}}``.
Mutation = Dict[str, Any]


class Fence(TypedDict):
    """Makes a serializable Spanner transaction take effect only if one lock is still held under its token.

    Add ``mutation`` to the transaction. Or run the statement of your dialect, ``googlesql`` or ``postgresql``, with the
    parameter ``p1``, and roll back unless it changes exactly ``rows`` rows.
    """

    googlesql: str
    postgresql: str
    p1: str
    rows: int
    mutation: Mutation


class Leader(NamedTuple):
    """The leader of an election, which may be this program."""

    id: str
    """The leader's id, as ``spindle ls`` shows it."""
    value: str
    """The leader's ``value``, or an empty string."""
    token: int
    """The token of its term. Each term has a larger token than all earlier terms."""
    leaving: bool
    """Whether it is about to step down."""


def leader_of(given: Optional[Dict[str, Any]]) -> Optional[Leader]:
    """Return the leader that a line or an answer contains."""
    if not given:
        return None
    return Leader(
        str(given.get("id", "")), str(given.get("value", "")), int(given.get("token", 0)), bool(given.get("leaving", False))
    )
