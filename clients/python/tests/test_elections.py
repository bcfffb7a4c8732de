"""Elections: terms, requests to stop, and agents that come and go."""

from __future__ import annotations

from typing import List

from spindle_lock import BadRequest, Busy, Lost, Term, Timeout, lead, lock, who_leads
from spindle_lock._ask import ask
from spindle_lock._driver import Blocking, finish

from .world import KILL, TERM, SpindleTest

LEADER = """
for term in lead(sys.argv[1], lease=5, value="here"):
    with term:
        print("leads")
        term.stopping.wait()
        print("stops", term.stop_reason, term.still())
        sys.stdin.readline()
    print("released")
    break
"""


class Elections(SpindleTest):
    def test_one_leads_and_others_know_who(self) -> None:
        name = self.name()
        self.assertIsNone(who_leads(name))
        for term in lead(name, value="10.0.0.1", label="me"):
            with term:
                leader = who_leads(name)
                assert leader
                self.assertEqual(("10.0.0.1", term.token), (leader.value, leader.token))
                self.assertIn("/me/", leader.id)
            break
        self.assertIsNone(who_leads(name))

    def test_a_follower_hears_who_leads_and_follows(self) -> None:
        name, seen = self.name(), []
        program = self.program(LEADER, name)
        self.assertEqual("leads", program.says())
        terms = lead(name, lease=5, on_leader=seen.append)
        first = self.thread(lambda: next(terms))
        self.eventually(lambda: "here" in [leader.value for leader in seen if leader], "the leader is seen")
        program.signal(KILL)
        with first.get() as term:
            self.assertTrue(term.still())

    def test_a_try_and_a_wait_end(self) -> None:
        name = self.name()
        program = self.program(LEADER, name)
        program.says()
        self.assertRaises(Busy, next, lead(name, wait=0))
        self.assertRaises(Timeout, next, lead(name, wait=0.3))

    def test_a_loop_that_is_left_by_any_way_releases_its_term(self) -> None:
        name = self.name()
        for term in lead(name):
            break
        self.assertFalse(term.still())
        with self.assertRaises(ZeroDivisionError):
            for term in lead(name, wait=5):
                1 / 0
        self.assertFalse(term.still())
        lock(name, wait=5).release()

    def test_a_request_to_stop_is_an_event_and_the_lock_is_held_until_it_is_released(self) -> None:
        name = self.name()
        program = self.program(LEADER, name)
        program.says()
        hold = next(h["hold"] for h in self.holds() if name in h["names"])
        finish(ask(Blocking(), self.world.agent.path, "POST", f"/v1/holds/{hold}/stepdown", (), 5))
        self.assertRegex(program.says(), "stops .* True")
        program.hear()
        self.assertEqual("released", program.says())

    def test_a_term_steps_down_by_itself(self) -> None:
        asked: List[Term] = []
        for term in lead(self.name(), on_stop=asked.append):
            with term:
                term.step_down()
                self.assertTrue(term.stopping.wait(10))
                self.assertTrue(term.still())
                self.eventually(lambda: asked == [term], "the callback is called")
            break

    def test_an_agent_that_ends_asks_for_its_locks(self) -> None:
        agent = self.agent()
        for term in lead(self.name(), agent=agent.path):
            with term:
                agent.signal(TERM)
                self.assertTrue(term.stopping.wait(10))
                self.assertTrue(term.stop_reason)
                self.assertTrue(term.still())
            break

    def test_a_leader_leads_again_after_its_agents_death(self) -> None:
        name, agent = self.name(), self.agent()
        terms = lead(name, lease=3, agent=agent.path)
        first = next(terms)
        agent.signal(KILL)
        agent.end()
        with self.assertLogs("spindle_lock", "WARNING"):
            second = self.thread(lambda: next(terms))
            self.addCleanup(self.world.start_agent(agent.path).end)
            term = second.get()
        self.assertGreater(term.token, first.token)
        self.assertTrue(term.still())
        terms.close()

    def test_the_loss_of_a_term_does_not_end_the_loop(self) -> None:
        name, agent, terms = self.name(), self.agent(), 0
        with self.assertLogs("spindle_lock", "WARNING"):
            for term in lead(name, lease=1, agent=agent.path):
                with term:
                    terms += 1
                    if terms == 2:
                        break
                    agent.signal(KILL)
                    agent.end()
                    self.addCleanup(self.world.start_agent(agent.path).end)
                    term.lost.wait(5)
                    term.check()
        self.assertEqual(2, terms)

    def test_what_can_never_be_is_an_error_of_the_loop(self) -> None:
        self.assertRaises(BadRequest, next, lead("a", priority=99))
        self.assertRaises(TypeError, lead, 1)
        with self.assertRaises(Lost):
            for term in lead(self.name()):
                with term:
                    raise Lost("of another lock", "expired")
