"""The fence: Spanner refuses the writes of a holder that lost its lock. By Spanner's REST API, which any client can speak."""

from __future__ import annotations

from typing import Any, Dict, List

from spindle_lock import Fence, lock, semaphore

from .world import DATABASE, SpindleTest


class Fences(SpindleTest):
    def session(self) -> str:
        return str(self.world.ask_spanner(f"{DATABASE}/sessions", {})["name"])

    def commit(self, mutations: List[Dict[str, Any]]) -> None:
        transaction = {"singleUseTransaction": {"readWrite": {}}}
        self.world.ask_spanner(f"{self.session()}:commit", {**transaction, "mutations": mutations})

    def rows(self, fence: Fence) -> int:
        """Run the fence's statement in a transaction, roll that back, and return how many rows it changed."""
        session = self.session()
        begin = self.world.ask_spanner(f"{session}:beginTransaction", {"options": {"readWrite": {}}})
        statement = {"sql": fence["googlesql"], "params": {"p1": fence["p1"]}, "seqno": "1"}
        done = self.world.ask_spanner(f"{session}:executeSql", {**statement, "transaction": {"id": begin["id"]}})
        self.world.ask_spanner(f"{session}:rollback", {"transactionId": begin["id"]})
        return int(done["stats"]["rowCountExact"])

    def test_a_write_with_the_mutation_takes_effect_only_while_the_lock_is_held(self) -> None:
        with lock(self.name(), self.name()) as held:
            mutations = [fence["mutation"] for fence in held.fence]
            self.assertEqual(2, len(mutations))
            self.commit(mutations)
        with self.assertRaises(RuntimeError):
            self.commit(mutations)

    def test_the_statement_changes_its_rows_only_while_the_lock_is_held(self) -> None:
        for held in (lock(self.name()), semaphore(self.name(), 3)):
            (fence,) = held.fence
            self.assertEqual(fence["rows"], self.rows(fence))
            held.release()
            self.assertNotEqual(fence["rows"], self.rows(fence))
