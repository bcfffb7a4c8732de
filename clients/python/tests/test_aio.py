"""The same for asyncio, without threads."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from typing import Any, Callable, Coroutine, List

from spindle_lock import AlreadyHeld, Busy, Lost, Timeout, aio, lock

from .fake import Connection, FakeAgent
from .world import CONT, KILL, ROOT, STOP, SpindleTest, clocks_compare

Test = Callable[[Any], Coroutine[Any, Any, None]]


def in_a_loop(test: Test) -> Callable[[Any], None]:
    async def limited(self: Any) -> None:
        asyncio.get_running_loop().slow_callback_duration = 10  # these tests block it on purpose
        await asyncio.wait_for(test(self), 30)

    def run(self: Any) -> None:
        asyncio.run(limited(self), debug=True)

    run.__name__ = test.__name__
    return run


class Asyncio(SpindleTest):
    @in_a_loop
    async def test_a_lock_is_held_inside_its_block_without_a_thread(self) -> None:
        name, threads = self.name(), threading.active_count()
        async with aio.lock(name) as held:
            self.assertTrue(held.still())
            self.assertEqual(threads, threading.active_count())
        self.assertFalse(held.still())
        await held.release()

    @in_a_loop
    async def test_tasks_and_threads_take_turns(self) -> None:
        name, inside, most = self.name(), [], []

        async def work() -> None:
            async with aio.lock(name, wait=20):
                inside.append(1)
                most.append(len(inside))
                await asyncio.sleep(0)
                inside.pop()

        def work_in_a_thread() -> None:
            with lock(name, wait=20):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(work() for _ in range(4)), *(loop.run_in_executor(None, work_in_a_thread) for _ in range(2))
        )
        self.assertEqual([1] * 6, most)

    @in_a_loop
    async def test_a_task_does_not_wait_for_itself(self) -> None:
        name = self.name()
        async with aio.lock(name):
            with self.assertRaises(AlreadyHeld):
                await aio.lock(name)
            with self.assertRaises(Timeout):
                await asyncio.ensure_future(_get(name, wait=0.05))

    async def _holds_nothing_once_cancelled(self, name: str, task: "asyncio.Task[aio.Held]") -> None:
        task.cancel()
        try:
            await (await task).release()
        except asyncio.CancelledError:
            pass
        begin = time.monotonic()
        async with aio.lock(name, wait=20):
            self.assertLess(time.monotonic() - begin, 20, "of a lease of 60 s")

    @in_a_loop
    async def test_a_cancelled_wait_holds_nothing(self) -> None:
        name = self.name()
        async with aio.lock(name):
            in_the_queue = asyncio.ensure_future(_get(name))
            await asyncio.sleep(0)
            in_the_queue.cancel()
        task = asyncio.ensure_future(_get(name, lease=60))
        await asyncio.sleep(0.02)  # at some moment of the acquisition, or after it
        await self._holds_nothing_once_cancelled(name, task)

    @in_a_loop
    async def test_a_cancelled_block_releases_its_lock(self) -> None:
        name, held = self.name(), asyncio.Event()

        async def work() -> None:
            async with aio.lock(name):
                held.set()
                await asyncio.sleep(60)

        task = asyncio.ensure_future(work())
        await held.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        async with aio.lock(name, wait=5):
            pass

    @in_a_loop
    async def test_work_is_cancelled_when_its_lock_is_lost(self) -> None:
        agent, lost = self.agent(), []
        held = await aio.lock(self.name(), lease=3, agent=agent.path, on_lost=lost.append)
        self.assertEqual(7, await held.run(asyncio.sleep(0, 7)))
        agent.signal(KILL)
        self.assertTrue(held.still())
        with self.assertRaises(Lost):
            await held.run(asyncio.sleep(60))
        self.assertFalse(held.still())
        self.assertTrue(held.stopping.is_set())
        self.assertEqual([held], lost)
        with self.assertRaises(Lost):
            await held.release()

    @in_a_loop
    async def test_a_lost_lock_starts_no_work(self) -> None:
        agent, begun = self.agent(), []
        held = await aio.lock(self.name(), lease=1, agent=agent.path)
        agent.signal(KILL)
        await asyncio.wait_for(held.lost.wait(), 20)

        async def work() -> None:
            begun.append(True)

        with self.assertRaises(Lost):
            await held.run(work())
        self.assertEqual([], begun)
        with self.assertRaises(Lost):
            await held.release()

    @in_a_loop
    async def test_work_has_ended_when_its_lock_is_released_however_often_the_caller_is_cancelled(self) -> None:
        name, begun, done = self.name(), asyncio.Event(), []

        async def work() -> None:
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                for _ in range(3):  # each cancellation interrupts one of them
                    try:
                        await asyncio.sleep(0.2)
                    except asyncio.CancelledError:
                        pass
                done.append(True)

        async def block() -> None:
            try:
                async with aio.lock(name) as held:
                    await held.run(work())
            finally:
                self.assertEqual([True], done)

        task = asyncio.ensure_future(block())
        await begun.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.05)
        with self.assertRaises(asyncio.CancelledError):
            await task

    @in_a_loop
    async def test_a_lock_outlives_its_follower(self) -> None:
        name = self.name()
        async with aio.lock(name, release_at_eof=True) as held:
            await asyncio.sleep(0.01)
            held._follower.cancel()  # as when all tasks of a program are cancelled
            await asyncio.sleep(0.5)
            self.assertTrue(held.still())
            self.assertTrue(await _taken(name))
        self.assertFalse(await _taken(name))

    @in_a_loop
    async def test_a_wait_whose_lines_were_not_read_holds_nothing(self) -> None:
        for steps in (1, 2, 3, 4):
            name = self.name()
            task = asyncio.ensure_future(_get(name, lease=60))
            for _ in range(steps):
                await asyncio.sleep(0)
            time.sleep(0.3)  # the lines come while the loop is blocked
            await self._holds_nothing_once_cancelled(name, task)

    @in_a_loop
    async def test_a_task_can_ask_again_while_its_release_goes_on(self) -> None:
        agent, name = self.agent(), self.name()
        held = await aio.lock(name, lease=30, agent=agent.path)
        agent.signal(STOP)
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(held.release(), 0.2)
        agent.signal(CONT)
        async with aio.lock(name, agent=agent.path, wait=20):
            pass

    @in_a_loop
    async def test_a_stopped_agent_is_noticed_without_its_help(self) -> None:
        agent = self.agent()
        held = await aio.lock(self.name(), lease=1, agent=agent.path)
        agent.signal(STOP)
        await asyncio.wait_for(held.lost.wait(), 20)
        await asyncio.sleep(1)  # until the agent's lease is over, too: before, it may still release the lock in time
        agent.signal(CONT)
        with self.assertRaises(Lost):
            await held.release()

    @in_a_loop
    async def test_a_loop_that_is_blocked_loses_nothing(self) -> None:
        held = await aio.lock(self.name(), lease=2)
        while not clocks_compare(held):
            await held.release()
            held = await aio.lock(self.name(), lease=2)
        async with held:
            time.sleep(3)  # longer than the lease
            self.assertTrue(held.still(), "what the agent sent meanwhile counts")

    @in_a_loop
    async def test_a_loss_that_another_thread_finds_is_told_in_the_loop(self) -> None:
        agent = self.agent()
        held = await aio.lock(self.name(), lease=0.5, agent=agent.path)
        agent.signal(KILL)

        def watch() -> None:
            while held.still():
                time.sleep(0.001)

        await asyncio.get_running_loop().run_in_executor(None, watch)
        await asyncio.wait_for(held.lost.wait(), 20)
        with self.assertRaises(Lost):
            await held.release()

    @in_a_loop
    async def test_terms_follow_each_other(self) -> None:
        name, tokens = self.name(), []  # type: str, List[int]
        async for term in aio.lead(name, lease=3):
            async with term:
                tokens.append(term.token)
                if len(tokens) == 2:
                    break
                await term.step_down()
                await term.stopping.wait()
                self.assertTrue(term.still())
        self.assertLess(*tokens)
        self.assertIsNone(await aio.who_leads(name))

    @in_a_loop
    async def test_a_leader_leads_again_after_its_agents_death(self) -> None:
        agent, terms = self.agent(), 0
        with self.assertLogs("spindle_lock", "WARNING"):
            async for term in aio.lead(self.name(), lease=1, agent=agent.path):
                async with term:
                    terms += 1
                    if terms == 2:
                        break
                    agent.signal(KILL)
                    agent.end()
                    self.addCleanup(self.world.start_agent(agent.path).end)
                    await term.run(asyncio.sleep(60))
        self.assertEqual(2, terms)

    @in_a_loop
    async def test_semaphores_and_work_that_is_done_once(self) -> None:
        name = self.name()
        async with aio.semaphore(name, 2), aio.semaphore(name, 2):
            with self.assertRaises(Busy):
                await aio.semaphore(name, 2, wait=0)
        name = self.name()
        run = await aio.once(name, key="k")
        assert run is not None
        async with run:
            self.assertEqual("k", run.key)
            self.assertTrue(run.record)
        self.assertIsNone(await aio.once(name, key="k"))

    @in_a_loop
    async def test_other_clocks_are_not_believed(self) -> None:
        def ask(c: Connection) -> None:
            c.hello(3_600_000)
            c.held(1000, 3_600_000)
            c.gone()

        agent = FakeAgent(self, ask=ask, about=lambda c: c.answer(200, left_ms=400))
        async with aio.lock("a", agent=agent.path) as held:
            self.assertLessEqual(held.left(), 0.4)
            await held.lost.wait()


async def _taken(name: str) -> bool:
    """Report whether any program holds the lock."""
    script = "import spindle_lock, sys\ntry: spindle_lock.lock(sys.argv[1], wait=0).release()\nexcept spindle_lock.Busy: sys.exit(7)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, name, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return await process.wait() == 7


async def _get(name: str, **options: Any) -> aio.Held:
    return await aio.lock(name, **options)
