"""Locks, sets and semaphores: who holds them, and who waits."""

from __future__ import annotations

import resource
import threading
import time
from datetime import timedelta

from spindle_lock import AgentUnreachable, AlreadyHeld, BadRequest, Busy, Lost, NotAcquired, ReleaseUnknown, Timeout, lock, semaphore

from .world import KILL, SpindleTest

HOLDER = """
held = lock(*sys.argv[1:], lease=30)
print("held", held.token)
sys.stdin.readline()
held.release()
print("released")
sys.stdin.readline()
"""


class Locks(SpindleTest):
    def test_a_lock_is_held_inside_its_block_and_not_after(self) -> None:
        name = self.name()
        with lock(name) as held:
            self.assertTrue(held.still())
            self.assertEqual((name,), held.names)
            self.assertGreater(held.token, 0)
            self.assertGreater(held.left(), 5)
            held.check()
        self.assertFalse(held.still())
        self.assertEqual(0.0, held.left())
        self.assertRaises(Lost, held.check)
        self.assertFalse(held.lost.is_set(), "a release is no loss")
        held.release()  # twice does nothing

    def test_without_a_free_descriptor_there_is_no_agent(self) -> None:
        name, (soft, hard) = self.name(), resource.getrlimit(resource.RLIMIT_NOFILE)
        held = lock(name)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with self.assertRaises(ReleaseUnknown):
                held.release()
            with self.assertRaisesRegex(AgentUnreachable, "close descriptors"):
                lock(self.name())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_tokens_grow(self) -> None:
        name, tokens = self.name(), []
        for _ in range(3):
            with lock(name) as held:
                tokens.append(held.token)
        self.assertEqual(sorted(set(tokens)), tokens)

    def test_two_processes_never_hold_it_together(self) -> None:
        name = self.name()
        program = self.program(HOLDER, name)
        self.assertIn("held", program.says())
        waiter = self.thread(lambda: lock(name, wait=20))
        self.await_waiting(name)
        self.assertTrue(waiter.thread.is_alive())
        program.hear()
        held = waiter.get()
        self.assertTrue(held.still())
        held.release()

    def test_without_a_wait_a_held_lock_is_busy(self) -> None:
        name = self.name()
        self.program(HOLDER, name).says()
        with self.assertRaisesRegex(Busy, "try again"):
            lock(name, wait=0)

    def test_a_wait_ends_in_time(self) -> None:
        name = self.name()
        self.program(HOLDER, name).says()
        begin = time.monotonic()
        with self.assertRaisesRegex(Timeout, "within 0.3 s"):
            lock(name, wait=timedelta(milliseconds=300))
        self.assertLess(time.monotonic() - begin, 3)
        self.assertTrue(issubclass(Timeout, TimeoutError) and issubclass(Timeout, NotAcquired))

    def test_a_set_is_held_whole_or_not_at_all(self) -> None:
        a, b, c = self.name(), self.name(), self.name()
        self.program(HOLDER, b).says()
        self.assertRaises(Busy, lock, a, b, c, wait=0)
        with lock(a, c, wait=5) as held:
            self.assertEqual(2, len(held.fence))

    def test_a_semaphore_has_its_slots(self) -> None:
        name = self.name()
        with semaphore(name, 2) as first, semaphore(name, 2) as second:
            self.assertTrue(first.still() and second.still())
            self.assertRaises(Busy, semaphore, name, 2, wait=0)
        with semaphore(name, 2, wait=5):
            pass

    def test_a_killed_holder_costs_much_less_than_its_lease(self) -> None:
        name = self.name()
        program = self.program(HOLDER, name)
        program.says()
        waiter = self.thread(lambda: lock(name, lease=10))
        self.await_waiting(name)
        killed = time.monotonic()
        program.signal(KILL)
        waiter.get().release()
        self.assertLess(time.monotonic() - killed, 15, "of a lease of 30 s")

    def test_others_see_the_label(self) -> None:
        name = self.name()
        with lock(name, label="invoices", value="10.0.0.1"):
            self.assertIn("invoices", self.world.spindle("ls", name))

    def test_the_errors_of_a_request_say_what_is_wrong(self) -> None:
        with self.assertRaises(BadRequest) as caught:
            lock("", wait=0)
        self.assertEqual("bad-parameter", caught.exception.code)
        self.assertRaises(BadRequest, lock, "a", lease=0.001)
        self.assertRaises(BadRequest, semaphore, "a", 0)
        self.assertRaises(TypeError, lock)
        self.assertRaises(TypeError, lock, 7)
        self.assertRaises(TypeError, lock, "a", wait="30s")
        self.assertRaises(ValueError, lock, "a", wait=-1)
        self.assertRaises(ValueError, lock, "a", lease=float("inf"))

    def test_without_an_agent_the_error_says_where_it_was_looked_for(self) -> None:
        with self.assertRaisesRegex(AgentUnreachable, "/nowhere.sock.*SPINDLE_AGENT"):
            lock("a", agent="/nowhere.sock")


class Threads(SpindleTest):
    def test_threads_of_a_program_take_turns(self) -> None:
        name, inside, most = self.name(), [], []

        def work() -> None:
            with lock(name, wait=20):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

        for result in [self.thread(work) for _ in range(8)]:
            result.get()
        self.assertEqual([1] * 8, most)

    def test_a_thread_that_waits_for_its_turn_times_out(self) -> None:
        name = self.name()
        with lock(name):
            self.assertRaises(Busy, self.thread(lambda: lock(name, wait=0)).get)
            self.assertRaises(Timeout, self.thread(lambda: lock(name, wait=0.05)).get)
        with lock(name, wait=5):
            pass

    def test_a_thread_does_not_wait_for_itself(self) -> None:
        a, b = self.name(), self.name()
        with lock(a):
            self.assertRaises(AlreadyHeld, lock, a)
            self.assertRaises(AlreadyHeld, lock, b, a)
            with lock(b, wait=5):
                pass

    def test_sets_in_any_order_never_wait_in_a_circle(self) -> None:
        a, b = self.name(), self.name()

        def work(*names: str) -> None:
            for _ in range(4):
                lock(*names, wait=20).release()

        results = [self.thread(lambda: work(a, b)), self.thread(lambda: work(b, a))]
        for result in results:
            result.get()

    def test_no_thread_remains_after_a_release(self) -> None:
        with lock(self.name()) as held:
            name = f"spindle {held.names[0]}"
        self.eventually(lambda: name not in [t.name for t in threading.enumerate()], "the follower ends")
