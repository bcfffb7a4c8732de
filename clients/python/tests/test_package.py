"""The package itself: its queues, its names, its types."""

from __future__ import annotations

import ast
import inspect
import os
import time
import unittest
from typing import Any, Iterator, List, Tuple
from unittest import mock

import spindle_lock
from spindle_lock import _stream, _wanted, aio
from spindle_lock._turns import Turns

from .world import ROOT


def members(thing: Any) -> Iterator[Tuple[str, Any]]:
    """The public names of a module, and of its classes."""
    for name in thing.__all__:
        value = getattr(thing, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield name, value
        if inspect.isclass(value) and value.__module__.startswith("spindle_lock"):
            for base in value.__mro__:
                for inner, member in vars(base).items() if base.__module__.startswith("spindle_lock") else ():
                    if not inner.startswith("_") and (callable(member) or isinstance(member, property)):
                        yield f"{name}.{inner}", member


class Package(unittest.TestCase):
    def test_every_public_name_has_a_doc_string(self) -> None:
        for module in (spindle_lock, spindle_lock.errors, aio):
            for name, member in members(module):
                self.assertTrue(inspect.getdoc(member), f"{module.__name__}.{name}")

    def test_every_function_has_types(self) -> None:
        for path in sorted((ROOT / "spindle_lock").glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                    bare = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
                    self.assertEqual([], bare, f"{path.name}:{node.lineno}")
                    self.assertIsNotNone(node.returns, f"{path.name}:{node.lineno}")
        self.assertTrue((ROOT / "spindle_lock" / "py.typed").exists())

    def test_threads_and_asyncio_have_the_same_functions(self) -> None:
        for name in ("lock", "semaphore", "once", "lead", "who_leads"):
            here, there = (inspect.signature(getattr(m, name)).parameters for m in (spindle_lock, aio))
            self.assertEqual(
                [(p.name, p.kind, p.default) for p in here.values()], [(p.name, p.kind, p.default) for p in there.values()]
            )

    def test_the_functions_show_their_options_and_take_no_others(self) -> None:
        self.assertEqual(inspect.Parameter.empty, inspect.signature(spindle_lock.semaphore).parameters["slots"].default)
        self.assertEqual(10.0, inspect.signature(spindle_lock.lock).parameters["lease"].default)
        self.assertNotIn("options", inspect.signature(spindle_lock.lock).parameters)
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'leese'"):
            spindle_lock.lock("a", leese=2)  # type: ignore[call-arg]

    def test_the_environment_names_the_socket(self) -> None:
        with mock.patch.dict(os.environ, {"SPINDLE_AGENT": "unix:/a.sock"}):
            self.assertEqual("/a.sock", _stream.agent_path(None))
            self.assertEqual("/b.sock", _stream.agent_path("/b.sock"))
        with mock.patch.dict(os.environ):
            os.environ.pop("SPINDLE_AGENT", None)
            self.assertEqual("/run/spindle/agent.sock", _stream.agent_path(None))

    def test_a_short_wait_is_no_try(self) -> None:
        self.assertEqual("0s", _wanted.duration(0))
        self.assertEqual("1us", _wanted.duration(1e-9))
        self.assertEqual("86400000000us", _wanted.duration(86400))

    def test_still_costs_no_more_than_a_few_microseconds(self) -> None:
        from .fake import FakeAgent
        from .test_fake import holding

        with spindle_lock.lock("a", agent=FakeAgent(self, ask=holding).path) as held:
            begin = time.thread_time()
            for _ in range(1000):
                held.still()
            self.assertLess(time.thread_time() - begin, 0.2)


class Queue(unittest.TestCase):
    def setUp(self) -> None:
        self.turns, self.called = Turns(), []  # type: Turns, List[str]

    def ask(self, *names: str) -> Any:
        label = "".join(names) + str(len(self.called))
        return self.turns.ask([("", n) for n in names], object(), lambda: self.called.append(label))

    def test_the_first_is_called_at_once_and_the_next_when_it_leaves(self) -> None:
        first, second, third = (self.ask("a") for _ in range(3))
        self.assertEqual([True, False, False], [t.granted for t in (first, second, third)])
        self.turns.leave(second)
        self.turns.leave(first)
        self.turns.leave(first)
        self.assertTrue(third.granted)
        self.assertEqual(2, len(self.called))

    def test_a_set_waits_for_all_of_its_names(self) -> None:
        a, b = self.ask("a"), self.ask("b")
        both = self.ask("b", "a", "a")
        self.turns.leave(a)
        self.assertFalse(both.granted)
        self.turns.leave(b)
        self.assertTrue(both.granted)

    def test_a_waiter_whose_loop_is_closed_lets_the_next_pass(self) -> None:
        def closed() -> None:
            raise RuntimeError("Event loop is closed")

        first = self.ask("a")
        self.turns.ask([("", "a")], object(), closed)
        last = self.ask("a")
        self.turns.leave(first)
        self.assertTrue(last.granted)
        self.turns.leave(last)
        self.assertEqual({}, self.turns._queues, "names are forgotten")
