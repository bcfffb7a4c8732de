"""Work that is done once."""

from __future__ import annotations

from datetime import timedelta

from spindle_lock import BadRequest, Lost, Refused, Run, once

from .world import SpindleTest


class Once(SpindleTest):
    def run_of(self, name: str, key: str) -> Run:
        run = once(name, key=key)
        assert run is not None
        return run

    def test_work_that_is_done_is_not_done_again(self) -> None:
        name = self.name()
        with self.run_of(name, "2026-11-23") as run:
            self.assertEqual("2026-11-23", run.key)
            self.assertTrue(run.record)
        self.assertIsNone(once(name, key="2026-11-23"))
        self.assertIsNone(once(name, key="2026-11-23", wait=0))

    def test_work_that_fails_is_done_again(self) -> None:
        name = self.name()
        with self.assertRaises(ZeroDivisionError):
            with self.run_of(name, "a"):
                1 / 0
        with self.run_of(name, "a") as run:
            run.release()
            with self.assertRaises(Lost) as caught:
                run.done()  # too late to be recorded
            self.assertEqual("released", caught.exception.reason)
        run = self.run_of(name, "a")
        run.done()
        run.done()
        self.assertIsNone(once(name, key="a"))

    def test_an_older_key_is_refused(self) -> None:
        name = self.name()
        self.run_of(name, "b").done()
        with self.assertRaises(Refused) as caught:
            once(name, key="a")
        self.assertEqual(("passed", False), (caught.exception.code, caught.exception.passing))

    def test_a_time_of_a_schedule_comes_once(self) -> None:
        name = self.name()
        run = once(name, every=timedelta(hours=24))
        assert run is not None
        with run:
            self.assertIn("T", run.key)
        self.assertIsNone(once(name, every=timedelta(hours=24)))

    def test_the_record_in_the_works_own_transaction_is_the_work_done(self) -> None:
        name = self.name()
        run = self.run_of(name, "a")
        session = self.world.ask_spanner("projects/proj/instances/inst/databases/data/sessions", {})["name"]
        single = {"singleUseTransaction": {"readWrite": {}}}
        self.world.ask_spanner(f"{session}:commit", {**single, "mutations": run.record})
        run.release()
        self.assertIsNone(once(name, key="a"))

    def test_arguments_that_contradict_each_other_are_errors(self) -> None:
        self.assertRaises(TypeError, once, "a")
        self.assertRaises(TypeError, once, "a", key="k", every=60)
        self.assertRaises(TypeError, once, "a", key="k", offset=60)
        self.assertRaises(BadRequest, once, "a", key="")
