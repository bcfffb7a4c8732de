"""How long a program may act, if the agent or the program is stopped, killed or forked."""

from __future__ import annotations

import os
import time

from spindle_lock import AgentUnreachable, Lost, ReleaseUnknown, lock

from .world import CONT, KILL, PATIENCE, STOP, SpindleTest, clocks_compare

LEASE = 3.0

PROGRAM = """
held = lock(sys.argv[1], lease=3, stall=float(sys.argv[2]) or None)
while held._hold._difference is None:  # see clocks_compare
    held.release()
    held = lock(sys.argv[1], lease=3, stall=float(sys.argv[2]) or None)
print("held")
for line in sys.stdin:
    try:
        held.check()
        print("holds")
    except Lost as lost:
        print("lost", lost.reason)
"""


class Time(SpindleTest):
    def test_after_the_agents_death_the_lock_is_held_until_its_time_is_over(self) -> None:
        agent = self.agent()
        lost = []
        held = lock(self.name(), lease=LEASE, agent=agent.path, on_lost=lost.append)
        left = held.left()
        agent.signal(KILL)
        self.assertTrue(held.still(), "what was promised holds")
        self.assertTrue(held.lost.wait(left + 20))
        self.assertFalse(held.still())
        self.assertTrue(held.stopping.is_set())
        self.eventually(lambda: lost == [held], "the callback is called once")
        with self.assertRaisesRegex(Lost, "agent is stopped or dead"):
            held.check()
        with self.assertRaises(Lost):
            held.release()

    def test_a_release_after_the_agents_death_says_that_the_lock_expires(self) -> None:
        agent = self.agent()
        held = lock(self.name(), lease=30, agent=agent.path)
        agent.signal(KILL)
        with self.assertRaisesRegex(ReleaseUnknown, "expires within"):
            held.release()
        self.assertRaises(AgentUnreachable, lock, "a", agent=agent.path)

    def test_work_that_has_returned_releases_its_lock_at_the_restarted_agent(self) -> None:
        name, agent = self.name(), self.agent()
        held = lock(name, lease=30, agent=agent.path)
        agent.signal(KILL)
        agent.end()
        self.addCleanup(self.world.start_agent(agent.path).end)
        held.release()
        begin = time.monotonic()
        lock(name, wait=20).release()
        self.assertLess(time.monotonic() - begin, 15, "of a lease of 30 s")

    def test_a_stopped_agent_loses_the_lock_and_the_program_knows_by_itself(self) -> None:
        name, agent = self.name(), self.agent()
        held = lock(name, lease=LEASE, agent=agent.path)
        agent.signal(STOP)
        self.assertTrue(held.still())
        self.assertTrue(held.lost.wait(LEASE + 20))
        self.assertFalse(held.still())
        with lock(name, wait=20):  # or else the release could show that no other program has had the lock
            agent.signal(CONT)
            self.assertRaises(Lost, held.release)

    def test_a_stopped_program_loses_nothing_while_its_agent_runs(self) -> None:
        program = self.program(PROGRAM, self.name(), "0")
        self.assertEqual("held", program.says())
        program.signal(STOP)
        program.hear()
        time.sleep(2 * LEASE)  # the time that the program is stopped
        program.signal(CONT)
        self.assertEqual("holds", program.says())

    def test_a_stopped_program_that_stalls_knows_of_its_loss_at_once(self) -> None:
        name = self.name()
        program = self.program(PROGRAM, name, "0.3")
        self.assertEqual("held", program.says())
        program.signal(STOP)
        program.hear()
        lock(name, wait=20).release()
        program.signal(CONT)
        self.assertEqual("lost stalled", program.says())

    def test_a_stopped_program_whose_agent_is_killed_knows_of_its_loss_at_once(self) -> None:
        agent = self.agent()
        os.environ["SPINDLE_AGENT"] = agent.path
        self.addCleanup(os.environ.__setitem__, "SPINDLE_AGENT", self.world.agent.path)
        program = self.program(PROGRAM, self.name(), "0")
        self.assertEqual("held", program.says())
        program.signal(STOP)
        program.hear()
        agent.signal(KILL)
        time.sleep(LEASE)  # the time that the program is stopped
        program.signal(CONT)
        self.assertEqual("lost until-passed", program.says())

    def test_a_thread_that_does_not_let_others_run_loses_nothing(self) -> None:
        held, limit = lock(self.name(), lease=2), time.monotonic() + PATIENCE
        while not clocks_compare(held):
            self.assertLess(time.monotonic(), limit)
            held.release()
            held = lock(self.name(), lease=2)
        with held:
            follower = held._hold._reading
            with follower:  # the follower can't read, as in a program that is busy
                time.sleep(3)
            self.assertTrue(held.still(), "what the agent sent meanwhile counts")


class Forks(SpindleTest):
    def test_a_forked_child_holds_nothing_and_releases_nothing(self) -> None:
        program = self.program(
            """
            with lock(sys.argv[1]) as held:
                child = os.fork()
                if not child:
                    print("child", held.still())
                    try:
                        held.release()
                    except Lost as lost:
                        print(lost.reason)
                    sys.exit()
                os.waitpid(child, 0)
                print("parent", held.still())
                sys.stdin.readline()
            print("released")
            """.replace("\n            ", "\n"),
            self.name(),
        )
        self.assertEqual(["child False", "forked", "parent True"], [program.says() for _ in range(3)])
        program.hear()
        self.assertEqual("released", program.says())

    def test_a_forked_child_with_the_pid_of_its_parent_holds_nothing(self) -> None:
        program = self.program(
            """
            os.getpid = lambda: 1  # as in two pid namespaces, each of which begins with 1
            with lock(sys.argv[1]) as held:
                child = os.fork()
                if not child:
                    print("child", held.still())
                    sys.exit()
                os.waitpid(child, 0)
                print("parent", held.still())
            """.replace("\n            ", "\n"),
            self.name(),
        )
        self.assertEqual(["child False", "parent True"], [program.says() for _ in range(2)])

    def test_a_forked_child_may_ask_for_locks_of_its_own(self) -> None:
        program = self.program(
            """
            a, b = sys.argv[1:]
            with lock(a):
                child = os.fork()
                if not child:
                    lock(b, wait=10).release()
                    try:
                        lock(a, wait=0)
                    except Busy:
                        print("busy")
                    sys.exit()
                os.waitpid(child, 0)
            print("released")
            """.replace("\n            ", "\n"),
            self.name(),
            self.name(),
        )
        self.assertEqual(["busy", "released"], [program.says() for _ in range(2)])
