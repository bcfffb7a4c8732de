"""HTTP/1.0 as far as an agent needs it: its responses are not chunked, and end with the connection."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Sequence, Tuple
from urllib.parse import quote, urlencode

#: Parameters of a request. A name may occur several times.
Query = Sequence[Tuple[str, str]]


def request(method: str, path: str, query: Query = ()) -> bytes:
    """Return the bytes of a request. There are no bodies."""
    target = path + ("?" + urlencode(query, quote_via=quote) if query else "")
    return f"{method} {target} HTTP/1.0\r\nHost: agent\r\nUser-Agent: spindle-python\r\n\r\n".encode("ascii")


def hold_path(hold: str, verb: str = "") -> str:
    """Return the path of a hold, or of what can be done with it."""
    return f"/v1/holds/{quote(hold, safe='')}{verb}"


class Response:
    """A response, as far as it has come. Bytes go in by ``feed``, and whole lines come out of ``lines``."""

    def __init__(self) -> None:
        self.status: Optional[int] = None
        self._data = bytearray()
        self.retry_after: Optional[int] = None  # in seconds
        self._length: Optional[int] = None

    def feed(self, data: bytes) -> None:
        """Add bytes that came."""
        self._data += data
        if self.status is None:
            self._parse_head()

    def _parse_head(self) -> None:
        head, end, rest = self._data.partition(b"\r\n\r\n")
        if not end:
            return
        status, *fields = head.decode("latin-1").split("\r\n")
        words = status.split()
        self.status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        self._data = rest
        for field in fields:
            name, _, value = field.partition(":")
            if name.lower() == "content-length" and value.strip().isdigit():
                self._length = int(value)
            if name.lower() == "retry-after" and value.strip().isdigit():
                self.retry_after = int(value) or None

    @property
    def complete(self) -> bool:
        """Whether all of the body has come, if its length is known."""
        return self.status is not None and self._length is not None and len(self._data) >= self._length

    @property
    def cut(self) -> bool:
        """Whether something is missing, if nothing more comes. A body of unknown length ends with the connection."""
        return self.status is None or (self._length is not None and not self.complete)

    def lines(self) -> List[Dict[str, Any]]:
        """Take the events that have come. Empty lines, and lines that are no events, are left out."""
        if self.status is None:
            return []
        whole, newline, rest = self._data.rpartition(b"\n")
        if not newline:
            return []
        self._data = rest
        return [line for line in map(_object, whole.split(b"\n")) if line]

    def body(self) -> Dict[str, Any]:
        """Return the body, which is a JSON object, or an empty one if it is not."""
        return _object(bytes(self._data))


def _object(text: bytes) -> Dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
