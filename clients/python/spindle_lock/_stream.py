"""A connection to an agent, which is read without waiting."""

from __future__ import annotations

import errno
import os
import socket
import threading
from typing import Optional

from ._wire import Response
from .errors import AgentUnreachable

_DEFAULT_AGENT = "/run/spindle/agent.sock"


def agent_path(given: Optional[str]) -> str:
    """Return the path of the agent's socket: the given one, SPINDLE_AGENT, or the default."""
    path = given or os.environ.get("SPINDLE_AGENT") or _DEFAULT_AGENT
    return path[len("unix:") :] if path.startswith("unix:") else path


class Stream:
    """One request's connection. Only its owner closes it; others ``shut`` it, which ends the owner's wait for it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.response = Response()
        self.at_end = False  # nothing more will come
        self.ended = threading.Event()  # no thread or task needs more
        self._closing = threading.Lock()
        try:
            self._socket: Optional[socket.socket] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as err:
            raise AgentUnreachable(f"no connection to {path}: {err.strerror}: close descriptors, or raise the limit (ulimit -n)") from None
        self._socket.setblocking(False)

    def connect(self) -> bool:
        """Connect without waiting. Report false if too many programs are connecting: try again."""
        try:
            self._open().connect(self.path)
        except BlockingIOError:
            return False
        except OSError as err:
            raise AgentUnreachable(f"no agent at {self.path}: {err.strerror or err}: {_advice(err)}") from None
        return True

    def send(self, data: bytes) -> int:
        """Send what fits, without waiting, and return how many bytes that was."""
        try:
            return self._open().send(data, socket.MSG_NOSIGNAL if hasattr(socket, "MSG_NOSIGNAL") else 0)
        except BlockingIOError:
            return 0
        except OSError as err:
            raise AgentUnreachable(f"the agent at {self.path} closed the connection: {err.strerror}: ask again") from None

    def receive(self) -> bool:
        """Read what has arrived, without waiting. Report whether anything had arrived."""
        came = False
        while not self.at_end:
            try:
                data = self._open().recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if data:
                self.response.feed(data)
                came = True
            else:
                self.at_end = True
        return came

    def fileno(self) -> int:
        """Return the descriptor, or -1 if the connection is closed."""
        return self._socket.fileno() if self._socket else -1

    def shut(self) -> None:
        """End the connection, and wake up its owner."""
        self.ended.set()
        with self._closing:
            try:
                self._open().shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # one side has closed it

    def close(self) -> None:
        """Close the connection. No thread or task may be waiting for it."""
        self.ended.set()
        self.at_end = True
        with self._closing:  # a descriptor must not be closed, and reused, while another thread shuts it
            sock, self._socket = self._socket, None
            if sock is not None:
                sock.close()

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise OSError(errno.EBADF, "the connection is closed")
        return self._socket


def _advice(err: OSError) -> str:
    if err.errno in (errno.EACCES, errno.EPERM):
        return "this user must be able to write to the socket (spindle agent --mode)"
    return "start `spindle agent`, or let SPINDLE_AGENT name its socket"
