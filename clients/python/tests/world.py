"""An emulator, agents and programs, which end when the tests end, however these end."""

from __future__ import annotations

import atexit
import http.client
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from spindle_lock._ask import ask
from spindle_lock._driver import Blocking, finish

ROOT = Path(__file__).resolve().parents[1]
DATABASE = "projects/proj/instances/inst/databases/data"

# Prints the command's process id, and kills the command and its children when the tests' end of the pipe is closed.
_SUPERVISOR = '"$@" & echo $!; read -r _; kill -KILL 0'

# A limit on what should take a moment. Only failures take so long.
PATIENCE = 20.0


def clocks_compare(held: Any) -> bool:
    """Report whether a program has compared the agent's clocks with its own.

    On a busy machine, a program may need over 100 ms for it. Then it asks the agent from then on, and loses its lock if it cannot
    ask in time.
    """
    return held._hold._difference is not None


class Supervised:
    """A command that never outlives the tests."""

    def __init__(self, *argv: str, **env: str) -> None:
        self.log: List[str] = []
        self._supervisor = subprocess.Popen(
            ["/bin/sh", "-c", _SUPERVISOR, "supervisor", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
            env={**os.environ, **env},
        )
        assert self._supervisor.stdout and self._supervisor.stderr
        self.pid = int(self._supervisor.stdout.readline())
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._supervisor.stderr
        for line in self._supervisor.stderr:
            with self._news:
                self.log.append(line)
                self._news.notify_all()

    def logged(self, pattern: str) -> str:
        """Wait for a line in the log, and return what the pattern's first group matches."""

        def found() -> Optional["re.Match[str]"]:
            return next((m for m in (re.search(pattern, line) for line in self.log) if m), None)

        with self._news:
            match = self._news.wait_for(found, PATIENCE)
        if match is None:
            raise AssertionError(f"no {pattern!r} in the log:\n{''.join(self.log)}")
        return match.group(1)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> None:
        """Kill it and its children."""
        assert self._supervisor.stdin and self._supervisor.stdout and self._supervisor.stderr
        self._supervisor.stdin.close()
        self._supervisor.wait()
        self._reader.join()
        self._supervisor.stdout.close()
        self._supervisor.stderr.close()


class World:
    """One emulator with a lock table, for all tests of a run."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="spindle-python-")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.command = os.environ.get("SPINDLE") or self._build()
        grpc, rest = free_port(), free_port()
        self.rest = f"127.0.0.1:{rest}"
        self.emulator = Supervised(
            str(find_gateway()), "--hostname", "127.0.0.1", "--grpc_port", str(grpc), "--http_port", str(rest)
        )
        atexit.register(self.emulator.end)
        self.emulator.logged("(REST server listening)")
        self.env = {"SPANNER_EMULATOR_HOST": f"127.0.0.1:{grpc}", "SPINDLE_DB": DATABASE}
        self.spindle("init", "--create")
        self.agent = self.start_agent()

    def _build(self) -> str:
        path = os.path.join(self.folder, "spindle")
        subprocess.run(["go", "build", "-o", path, "./cmd/spindle"], cwd=ROOT.parents[1], check=True)
        return path

    def spindle(self, *args: str) -> str:
        """Run the command, and return what it prints."""
        done = subprocess.run([self.command, *args], env={**os.environ, **self.env}, capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"spindle {' '.join(args)}: {done.stderr}")
        return done.stdout

    def start_agent(self, path: str = "") -> "Agent":
        return Agent(self, path or os.path.join(self.folder, f"{uuid.uuid4().hex[:8]}.sock"))

    def ask_spanner(self, path: str, body: Dict[str, Any]) -> Dict[str, Any]:
        """Ask Spanner by its REST API, and raise a RuntimeError with its message if it refuses."""
        connection = http.client.HTTPConnection(self.rest, timeout=PATIENCE)
        try:
            connection.request("POST", f"/v1/{path}", json.dumps(body))
            response = connection.getresponse()
            answer: Dict[str, Any] = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise RuntimeError(answer.get("message", str(answer)))
        return answer


class Agent(Supervised):
    """A `spindle agent`."""

    def __init__(self, world: World, path: str) -> None:
        super().__init__(world.command, "agent", "--listen", f"unix:{path}", **world.env)
        self.path = path
        atexit.register(self.end)
        self.logged("(serving locks)")

    def end(self) -> None:
        if self._supervisor.returncode is None:
            super().end()


class Program:
    """A Python program that uses this client. It says lines, and is killed when the test ends."""

    def __init__(self, code: str, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", "from spindle_lock import *\nimport os, signal, sys, time\n" + code, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._lines: "queue.Queue[str]" = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line.strip())

    def says(self) -> str:
        """Wait for the next line."""
        try:
            return self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError("the program says nothing") from None

    def hear(self, line: str = "go") -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        self.process.stdin.close()
        self.process.stdout.close()


class SpindleTest(unittest.TestCase):
    """A test with the emulator and its agent, and names of its own."""

    world: World

    @classmethod
    def setUpClass(cls) -> None:
        cls.world = the_world()
        os.environ["SPINDLE_AGENT"] = cls.world.agent.path

    def name(self) -> str:
        """Return a name of a lock that no other test uses."""
        return f"{self.id().rsplit('.', 1)[-1]}-{uuid.uuid4().hex[:6]}"

    def program(self, code: str, *args: str) -> Program:
        program = Program(code, *args)
        self.addCleanup(program.end)
        return program

    def agent(self) -> Agent:
        """Return an agent that the test may stop and kill."""
        agent = self.world.start_agent()
        self.addCleanup(agent.end)
        return agent

    def thread(self, work: Callable[[], Any]) -> "Result":
        result = Result(work)
        self.addCleanup(result.thread.join, PATIENCE)
        return result

    def await_waiting(self, name: str) -> None:
        """Wait until a program waits for the lock at the agent."""
        self.eventually(lambda: "waiting" in [h["state"] for h in self.holds() if name in h["names"]], "a program waits")

    def holds(self, path: str = "") -> List[Dict[str, Any]]:
        """Return what the agent says of its holds."""
        answer = finish(ask(Blocking(), path or self.world.agent.path, "GET", "/v1/holds", (), PATIENCE))
        holds: List[Dict[str, Any]] = answer.body["holds"]
        return holds

    def eventually(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition that no event announces."""
        ends = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), ends, what)
            time.sleep(0.005)


class Result:
    """What a function returned or raised in a thread of its own."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._value: Any = None
        self._error: Optional[BaseException] = None
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self.thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._value = work()
        except BaseException as err:
            self._error = err

    def get(self) -> Any:
        self.thread.join(PATIENCE)
        if self.thread.is_alive():
            raise AssertionError("the thread does not end")
        if self._error:
            raise self._error
        return self._value


_world: List[World] = []


def the_world() -> World:
    """Return the world that all tests share."""
    if not _world:
        _world.append(World())
    return _world[0]


def find_gateway() -> Path:
    """Return the emulator's gateway, which starts emulator_main beside it, and has Spanner's REST API too."""
    emulator = os.environ.get("SPINDLE_EMULATOR") or shutil.which("emulator_main")
    gcloud = shutil.which("gcloud")
    if not emulator and gcloud:
        emulator = str(Path(gcloud).resolve().parent / "cloud_spanner_emulator" / "emulator_main")
    gateway = Path(emulator or "emulator_main").parent / "gateway_main"
    if not gateway.is_file():
        raise AssertionError(
            f"no Cloud Spanner emulator: {gateway} does not exist: `gcloud components install cloud-spanner-emulator`, "
            "or let SPINDLE_EMULATOR name emulator_main with gateway_main beside it"
        )
    return gateway


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


KILL, STOP, CONT, TERM = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM
