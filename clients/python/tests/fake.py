"""An agent that does what a test says: strange clocks, strange lines, strange answers."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
import time
import unittest
from typing import Any, Callable, Dict, List, Tuple

from spindle_lock import _clocks

Handler = Callable[["Connection"], None]


class Connection:
    """One request, and what the test answers."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.promised = 0.0  # until when the lock is held, by the monotonic clock
        data = b""
        while b"\r\n\r\n" not in data:
            more = sock.recv(65536)
            if not more:
                break
            data += more
        self.request = data.decode().split("\r\n")[0]
        self.method, _, rest = self.request.partition(" ")
        self.path = rest.partition(" ")[0]

    def head(self, status: int = 200) -> None:
        self.raw(f"HTTP/1.0 {status} X\r\nContent-Type: application/x-ndjson\r\n\r\n".encode())

    def raw(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            pass  # the client does not listen any more

    def line(self, **fields: Any) -> None:
        self.raw(json.dumps(fields).encode() + b"\n")

    def answer(self, status: int, **body: Any) -> None:
        text = json.dumps(body).encode() + b"\n"
        self.raw(f"HTTP/1.0 {status} X\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)

    def hello(self, off: int = 0) -> None:
        """Say hello, with clocks that are off by so many milliseconds."""
        self.head()
        self.line(event="hello", hold="h1", now=_clocks.later(_clocks.read(), off))

    def held(self, left_ms: int, off: int = 0, event: str = "held") -> None:
        until = _clocks.later(_clocks.read(), left_ms + off)
        self.promised = time.monotonic() + left_ms / 1000
        self.line(event=event, names=["a"], token=7, until=until, left_ms=left_ms, fence=[])

    def gone(self) -> None:
        """Wait until the client closes the connection."""
        try:
            while self.socket.recv(65536):
                pass
        except OSError:
            pass


class FakeAgent:
    """Answers requests by handlers, which are found by the beginning of method and path.

    It answers by itself for how long the lock is held, unless a handler does: on a busy machine, any program may have to ask.
    """

    def __init__(self, test: unittest.TestCase, **handlers: Handler) -> None:
        folder = tempfile.TemporaryDirectory(prefix="spindle-fake-")
        test.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "agent.sock")
        self.requests: List[Tuple[str, str]] = []
        self._handlers: Dict[str, Handler] = handlers
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._open: List[socket.socket] = []
        self._connections: List[Connection] = []
        test.addCleanup(self.end)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(sock)
            threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        with sock:
            connection = Connection(sock)
            self._connections.append(connection)
            self.requests.append((connection.method, connection.path))
            self._handler(connection)(connection)

    def _handler(self, connection: Connection) -> Handler:
        if connection.method == "GET":
            return self._handlers.get("about", self._about)
        if connection.path.startswith("/v1/holds/"):
            return self._handlers.get("release", lambda c: c.answer(200, state="released"))
        if connection.path.startswith("/v1/release"):
            return self._handlers.get("orphan", lambda c: c.answer(404))
        return self._handlers["ask"]

    def _about(self, connection: Connection) -> None:
        left = max(c.promised for c in self._connections) - time.monotonic()
        connection.answer(200, left_ms=max(int(left * 1000), 0))

    def end(self) -> None:
        """End it, as if it were killed."""
        self._listener.close()
        for sock in self._open:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
