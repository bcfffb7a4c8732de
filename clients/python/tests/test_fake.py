"""What a client does with lines, clocks and answers that a healthy agent on the same machine does not have."""

from __future__ import annotations

import json
import threading
import time
import traceback
import unittest
from datetime import timedelta
from typing import Callable, Optional, Type
from unittest import mock

import spindle_lock._acquire
import spindle_lock._driver
from spindle_lock import (
    AgentUnreachable,
    BadRequest,
    Busy,
    Lost,
    Refused,
    ReleaseUnknown,
    Timeout,
    lead,
    lock,
    once,
    semaphore,
)
from spindle_lock import _clocks

from .fake import Connection, FakeAgent
from .world import PATIENCE, ROOT


def holding(c: Connection) -> None:
    c.hello()
    c.held(20_000)
    c.gone()


class Clocks(unittest.TestCase):
    def test_other_clocks_are_not_believed_and_the_question_counts_from_before_it(self) -> None:
        for off in (-3_600_000, 3_600_000):
            def ask(c: Connection, off: int = off) -> None:
                c.hello(off)
                c.held(10_000, off)
                c.gone()

            def about(c: Connection) -> None:
                time.sleep(0.2)  # an answer that is slow must not lengthen the time
                c.answer(200, left_ms=10_000)

            agent = FakeAgent(self, ask=ask, about=about)
            with lock("a", agent=agent.path) as held:
                self.assertTrue(held.still())
                self.assertLessEqual(held.left(), 9.8)
            self.assertIn(("GET", "/v1/holds/h1"), agent.requests)

    def test_each_line_of_other_clocks_is_asked_about(self) -> None:
        more = threading.Event()

        def ask(c: Connection) -> None:
            c.hello(10_000_000)
            c.held(5_000, 10_000_000)
            more.wait(PATIENCE)
            c.held(60_000, 10_000_000, "until")
            c.gone()

        left = [60_000, 5_000]
        agent = FakeAgent(self, ask=ask, about=lambda c: c.answer(200, left_ms=left.pop()))
        held = lock("a", agent=agent.path)
        self.assertLessEqual(held.left(), 5)
        more.set()
        ends = time.monotonic() + PATIENCE
        while held.left() <= 5:
            self.assertLess(time.monotonic(), ends)
        held.release()

    def test_clocks_that_cannot_be_compared_closely_are_not_believed(self) -> None:
        def ask(c: Connection) -> None:
            time.sleep(0.15)  # longer than a difference that the comparison may miss
            c.hello()
            c.held(5000)
            c.gone()

        agent = FakeAgent(self, ask=ask, about=lambda c: c.answer(200, left_ms=5000))
        with lock("a", agent=agent.path):
            self.assertIn(("GET", "/v1/holds/h1"), agent.requests)

    def test_an_agent_without_all_clocks_is_asked(self) -> None:
        def ask(c: Connection) -> None:
            c.head()
            c.line(event="hello", hold="h1", now={"unix_ms": time.time_ns() // 1_000_000})
            c.line(event="held", token=7, until={"unix_ms": time.time_ns() // 1_000_000 + 9000}, left_ms=9000)
            c.gone()

        agent = FakeAgent(self, ask=ask, about=lambda c: c.answer(200, left_ms=5000))
        with lock("a", agent=agent.path) as held:
            self.assertLessEqual(held.left(), 5)

    def test_a_lock_of_unknown_time_is_not_held(self) -> None:
        def ask(c: Connection) -> None:
            c.hello(99_999_999)
            c.held(5000)
            c.gone()

        agent = FakeAgent(self, ask=ask, about=lambda c: c.answer(404))
        with self.assertRaisesRegex(AgentUnreachable, "until when"):
            lock("a", agent=agent.path)

    def test_each_clock_alone_ends_the_lock(self) -> None:
        for clock in _clocks.read():
            with self.subTest(clock):
                held = lock("a", agent=FakeAgent(self, ask=holding).path)
                self.assertTrue(held.still())
                now = _clocks.read()
                with mock.patch.object(_clocks, "read", lambda c=clock: {**now, c: now[c] + 20_000}):
                    self.assertFalse(held.still())
                self.assertFalse(held.still(), "once it was false, it stays false")
                held.release()


class Lines(unittest.TestCase):
    def test_unknown_events_and_fields_and_empty_lines_are_ignored(self) -> None:
        def ask(c: Connection) -> None:
            c.hello()
            c.raw(b'\n\n{"event":"sings","song":[1]}\n[1]\n7\nnot json\n{"no":"event"}\n')
            c.line(event="waiting", more={"deep": 1})
            c.held(60_000)
            c.line(event="jeopardy", detail="x")
            c.line(event="dances")
            c.gone()

        with lock("a", agent=FakeAgent(self, ask=ask).path) as held:
            self.assertEqual(7, held.token)

    def test_lines_may_come_in_any_pieces(self) -> None:
        def ask(c: Connection) -> None:
            whole: list = []
            send, c.raw = c.raw, whole.append  # type: ignore[method-assign, assignment]
            c.hello()
            c.held(60_000)
            for byte in b"".join(whole):
                send(bytes([byte]))
            c.gone()

        with lock("a", agent=FakeAgent(self, ask=ask).path) as held:
            self.assertEqual(7, held.token)

    def test_a_silent_agent_is_not_waited_for_forever(self) -> None:
        def ask(c: Connection) -> None:
            c.hello()
            c.gone()

        with mock.patch.object(spindle_lock._acquire, "SILENCE", 0.2):
            with self.assertRaisesRegex(AgentUnreachable, "has not answered"):
                lock("a", agent=FakeAgent(self, ask=ask).path)

    def test_an_agent_that_ends_while_it_is_waited_for_is_unreachable(self) -> None:
        with self.assertRaisesRegex(AgentUnreachable, "ask again"):
            lock("a", agent=FakeAgent(self, ask=lambda c: c.hello()).path)

    def test_results_of_a_wait_are_typed(self) -> None:
        def says(**line: object) -> str:
            def ask(c: Connection) -> None:
                c.hello()
                c.line(**line)

            return FakeAgent(self, ask=ask).path

        self.assertRaises(Timeout, lock, "a", wait=9, agent=says(event="timeout"))
        self.assertRaises(Busy, lock, "a", agent=says(event="refused", reason="busy"))
        self.assertIsNone(once("a", key="k", agent=says(event="done")))
        for reason, passing in (("stopping", True), ("passed", False), (None, True)):
            with self.assertRaises(Refused) as caught:
                lock("a", agent=says(event="refused", reason=reason, detail="d"))
            self.assertEqual(passing, caught.exception.passing)

    def test_statuses_are_typed(self) -> None:
        def answers(status: int, code: str) -> str:
            return FakeAgent(self, ask=lambda c: c.answer(status, code=code, detail="because")).path

        for status, code, error in (
            (400, "unknown-parameter", BadRequest),
            (404, "no-such-path", BadRequest),
            (403, "name-not-allowed", Refused),
            (409, "busy", Busy),
            (409, "passed", Refused),
            (409, "already-held", Busy),
            (429, "too-many", Refused),
            (503, "unavailable", Refused),
        ):
            with self.subTest(code), self.assertRaisesRegex(error, "because"):
                lock("a", wait=0, agent=answers(status, code))
        self.assertIsNone(once("a", key="k", wait=0, agent=answers(409, "done")))

    def test_another_hold_of_this_process_is_waited_for(self) -> None:
        answers = [holding, lambda c: c.answer(409, code="already-held", detail="x")]
        with lock("a", agent=FakeAgent(self, ask=lambda c: answers.pop()(c)).path):
            self.assertEqual([], answers)

    def test_a_program_with_too_many_holds_asks_again_when_the_agent_says_so(self) -> None:
        def full(seconds: int) -> Callable[[Connection], None]:
            return lambda c: c.raw(
                f"HTTP/1.0 429 X\r\nRetry-After: {seconds}\r\n\r\n".encode() + b'{"code":"too-many","detail":"because"}'
            )

        answers = [holding, full(1)]
        began = time.monotonic()
        with self.assertLogs("spindle_lock", "WARNING"):
            lock("a", wait=3600, agent=FakeAgent(self, ask=lambda c: answers.pop()(c)).path).release()
        self.assertGreaterEqual(time.monotonic() - began, 1)
        for wait in (0, 0.1):
            with self.subTest(wait), self.assertRaisesRegex(Refused, "because"):
                lock("a", wait=wait, agent=FakeAgent(self, ask=full(60)).path)

    def test_an_agent_that_is_gone_is_asked_more_often_than_the_lease_ends(self) -> None:
        for lease, limit in ((2, 2 / 3), (3600, 5)):
            pauses = []

            def sleep(seconds: float) -> None:
                pauses.append(seconds)
                if len(pauses) == 20:
                    raise KeyboardInterrupt

            with mock.patch.object(spindle_lock._driver.time, "sleep", sleep), self.assertRaises(KeyboardInterrupt):
                next(lead("a", lease=lease, agent="/no/such.sock"))
            self.assertLessEqual(max(pauses), limit)
            self.assertGreater(max(pauses), limit / 2)


class Requests(unittest.TestCase):
    def test_every_argument_reaches_the_agent(self) -> None:
        agent = FakeAgent(self, ask=lambda c: c.answer(409, code="busy"))
        common = {"wait": 0, "lease": 2, "stall": 0.5, "label": "a b", "value": "v&", "release_at_eof": True}
        sent = "lease=2000000us&stall=500000us&eof=release&label=a%20b&value=v%26"
        for call, path in (
            (lambda: lock("x", "y/z", agent=agent.path, **common), f"locks?name=x&name=y%2Fz&{sent}&wait=0s"),
            (lambda: semaphore("x", 3, agent=agent.path, **common), f"semaphores?name=x&{sent}&slots=3&wait=0s"),
            (
                lambda: once("x", every=timedelta(hours=1), offset=60, agent=agent.path, **common),
                f"once?name=x&{sent}&every=3600000000us&offset=60000000us&wait=0s",
            ),
            (lambda: once("x", key="k", agent=agent.path, **common), f"once?name=x&{sent}&key=k&wait=0s"),
            (
                lambda: next(lead("x", priority=3, handover=True, agent=agent.path, **common)),
                f"elections?name=x&{sent}&priority=3&handover=true&wait=0s",
            ),
        ):
            self.assertRaises(Busy, call)
            self.assertEqual(("POST", f"/v1/{path}"), agent.requests[-1])


class Releases(unittest.TestCase):
    def test_a_release_says_what_became_of_it(self) -> None:
        for status, error in ((202, ReleaseUnknown), (410, Lost), (404, Lost)):
            agent = FakeAgent(self, ask=holding, release=lambda c, s=status: c.answer(s, detail="because"))  # type: ignore
            with self.subTest(status), self.assertRaises(error):
                with lock("a", agent=agent.path) as held:
                    pass
            self.assertEqual(error is Lost, held.lost.is_set())

    def test_the_connection_stays_open_until_the_release_is_answered(self) -> None:
        asked, news, closed = threading.Event(), threading.Event(), threading.Event()

        def ask(c: Connection) -> None:
            c.hello()
            c.held(20_000)
            asked.wait(PATIENCE)
            c.held(20_000, event="until")
            news.set()
            c.gone()
            closed.set()

        early = []

        def release(c: Connection) -> None:
            asked.set()
            news.wait(PATIENCE)
            early.append(closed.wait(0.1))  # nothing may happen for so long
            c.answer(200)

        lock("a", agent=FakeAgent(self, ask=ask, release=release).path).release()
        self.assertEqual([False], early, "the agent would take a closed connection for a loss")
        self.assertTrue(closed.wait(PATIENCE))

    def test_an_error_of_the_work_goes_before_one_of_the_release(self) -> None:
        agent = FakeAgent(self, ask=holding, release=lambda c: c.answer(202))
        with self.assertLogs("spindle_lock", "WARNING"), self.assertRaises(ZeroDivisionError):
            with lock("a", agent=agent.path):
                1 / 0

    def test_an_agent_that_ends_before_it_answers_leaves_the_outcome_unknown(self) -> None:
        agent = FakeAgent(self, ask=holding, release=lambda c: None)
        with self.assertRaisesRegex(ReleaseUnknown, "expires within"):
            lock("a", agent=agent.path).release()

    def test_the_lock_of_a_restarted_agent_is_released_by_its_token(self) -> None:
        agent = FakeAgent(
            self, ask=holding, release=lambda c: c.answer(404), orphan=lambda c: c.answer(200, state="released")
        )
        lock("a", agent=agent.path).release()
        self.assertEqual(("POST", "/v1/release?name=a&token=7&hold=h1"), agent.requests[-1])

    def test_the_slot_of_a_restarted_agent_is_released_by_its_own_name(self) -> None:
        def ask(c: Connection) -> None:
            c.hello()
            c.line(event="held", names=["a/slot/2"], token=7, until=_clocks.later(_clocks.read(), 20_000), left_ms=20_000)
            c.promised = time.monotonic() + 20
            c.gone()

        agent = FakeAgent(self, ask=ask, release=lambda c: c.answer(404), orphan=lambda c: c.answer(200))
        semaphore("a", 3, agent=agent.path).release()
        self.assertEqual(("POST", "/v1/release?name=a%2Fslot%2F2&token=7&hold=h1"), agent.requests[-1])

    def test_a_lock_ends_as_the_table_of_all_clients_says(self) -> None:
        table = json.loads((ROOT.parent / "endings.json").read_text())
        errors = {"released": None, "lost": Lost, "unknown": ReleaseUnknown}
        for verb in ("release", "done"):
            for answers, endings in table[verb].items():
                for work, ending in endings.items():
                    with self.subTest(verb=verb, answers=answers, work=work):
                        self.assertIs(errors[ending], self._end(verb, answers.split(), work == "late"))

    def _end(self, verb: str, answers: list, late: bool) -> Optional[Type[Exception]]:
        def ask(c: Connection) -> None:
            c.hello()
            c.held(300 if late else 20_000)
            c.gone()

        def says(c: Connection) -> None:
            status = answers.pop(0)
            if status != "none":
                c.answer(int(status), detail="because")

        agent = FakeAgent(self, ask=ask, release=says, orphan=says)
        run = once("a", key="k", agent=agent.path)
        assert run
        while late and run.still():
            time.sleep(0.01)
        try:
            getattr(run, verb)()
        except (Lost, ReleaseUnknown) as err:
            shown = traceback.format_exc()
            self.assertEqual(1, shown.count("Traceback"), shown)
            return type(err)
        return None

    def test_a_run_of_a_restarted_agent_is_not_recorded_and_says_so(self) -> None:
        agent = FakeAgent(
            self, ask=holding, release=lambda c: c.answer(404), orphan=lambda c: c.answer(200, state="released")
        )
        run = once("a", key="k", agent=agent.path)
        assert run
        with self.assertRaisesRegex(Lost, "not recorded as done"):
            run.done()

    def test_the_next_thread_gets_its_turn_whatever_became_of_the_release(self) -> None:
        agent = FakeAgent(self, ask=holding, release=lambda c: c.answer(202))
        held = lock("a", agent=agent.path)
        self.assertRaises(ReleaseUnknown, held.release)
        self.assertRaises(ReleaseUnknown, lock("a", wait=5, agent=agent.path).release)

    def test_an_interrupted_wait_lets_go_of_what_it_may_just_have_got(self) -> None:
        released = threading.Event()

        def interrupt(leader: object) -> None:
            raise KeyboardInterrupt

        def ask(c: Connection) -> None:
            c.hello()
            c.line(event="leader", leader=None)
            c.gone()

        agent = FakeAgent(self, ask=ask, release=lambda c: released.set())
        with self.assertRaises(KeyboardInterrupt):
            next(iter(lead("a", on_leader=interrupt, agent=agent.path)))
        self.assertTrue(released.wait(PATIENCE), "closing does not release a lock that was acquired meanwhile")
