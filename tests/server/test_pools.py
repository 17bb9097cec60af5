"""Thread pools of a worker: what is admitted runs, once, and ends with its own outcome."""

import asyncio
import threading
import time
import weakref
from functools import partial

import pytest

from omnigraph.server.pools import BoundedPool
from omnigraph.server.refusals import HttpRefusal

THREADS = 6


def test_jobs_that_wait_for_each_other_have_a_thread_each() -> None:
    async def run() -> None:
        pool = BoundedPool("write", THREADS, 10)
        together = threading.Barrier(THREADS)
        jobs = [pool.submit(lambda: together.wait(30)) for _ in range(THREADS)]
        assert sorted(await asyncio.gather(*jobs)) == list(range(THREADS))
        pool.close()

    asyncio.run(run())


def test_a_job_that_was_given_up_before_it_began_does_not_run() -> None:
    async def run() -> None:
        pool = BoundedPool("read", 1, 1_000)
        end, ran = threading.Event(), []
        first = pool.submit(end.wait)
        second = pool.submit(lambda: ran.append("second"))
        third = pool.submit(lambda: ran.append("third"))
        second.cancel()
        end.set()
        await asyncio.gather(first, third)
        assert ran == ["third"]
        assert pool.inside == 0
        pool.close()

    asyncio.run(run())


@pytest.mark.parametrize("patience_s", [0.0, 0.001])
def test_what_was_given_up_waits_in_no_queue(patience_s: float) -> None:
    class Work:
        def __call__(self) -> None: ...

    async def run() -> None:
        pool = BoundedPool("read", 1, 4, patience_s)
        end = threading.Event()
        first = pool.submit(end.wait)
        kept = weakref.WeakSet[Work]()
        for _ in range(50):
            work = Work()
            kept.add(work)
            pool.submit(work).cancel()
            await asyncio.sleep(0)
        del work
        assert not kept, "clients that came and went have filled the memory"
        last = pool.submit(lambda: "last")
        end.set()
        assert await asyncio.gather(first, last) == [True, "last"]
        pool.close()

    asyncio.run(run())


def test_the_failure_of_a_job_is_its_own() -> None:
    def fail() -> None:
        raise KeyError("no")

    def stop() -> None:
        raise StopIteration

    async def run() -> None:
        pool = BoundedPool("read", 2, 1_000)
        failed, stopped, good = pool.submit(fail), pool.submit(stop), pool.submit(lambda: 5)
        with pytest.raises(KeyError):
            await failed
        with pytest.raises(RuntimeError, match="StopIteration"):
            await stopped
        assert await good == 5
        pool.close()

    asyncio.run(run())


def test_a_full_queue_refuses_and_takes_jobs_again() -> None:
    async def run() -> None:
        pool = BoundedPool("read", 2, 1)
        end = threading.Event()
        jobs = [pool.submit(end.wait) for _ in range(3)]
        with pytest.raises(HttpRefusal) as refused:
            pool.submit(end.wait)
        assert refused.value.status == 429
        end.set()
        await asyncio.gather(*jobs)
        assert await pool.submit(lambda: 5) == 5
        pool.close()

    asyncio.run(run())


def test_a_pool_tells_how_long_all_its_threads_have_been_busy_with_one_job() -> None:
    async def run() -> None:
        pool = BoundedPool("read", 2, 10)
        end, other = threading.Event(), threading.Event()
        first = pool.submit(end.wait)
        await asyncio.sleep(0.05)
        assert pool.stuck_s() == 0  # one thread is free
        second = pool.submit(other.wait)
        second.cancel()  # a request that is given up leaves its thread busy
        third = pool.submit(other.wait)
        while pool.stuck_s() == 0:
            await asyncio.sleep(0.01)
        third.cancel()
        before = pool.stuck_s()
        await asyncio.sleep(0.05)
        assert pool.stuck_s() > before
        other.set()
        while pool.stuck_s():
            await asyncio.sleep(0.01)
        end.set()
        await first
        pool.close()

    asyncio.run(run())


def test_threads_end_when_their_pool_is_closed() -> None:
    async def run() -> None:
        pool = BoundedPool("ending", 3, 10)
        await asyncio.gather(*(pool.submit(lambda: time.sleep(0.05)) for _ in range(3)))
        pool.close()

    asyncio.run(run())
    ends_at = time.monotonic() + 30
    while any(t.name.startswith("omnigraph-ending") for t in threading.enumerate()):
        assert time.monotonic() < ends_at
        time.sleep(0.01)


def test_jobs_of_one_turn_wake_one_thread() -> None:
    async def run() -> None:
        pool = BoundedPool("short", THREADS, 100, patience_s=5)
        names = [pool.submit(lambda: threading.current_thread().name) for _ in range(20)]
        assert set(await asyncio.gather(*names)) == {"omnigraph-short_1"}
        pool.close()

    asyncio.run(run())


def test_a_short_job_passes_a_long_one() -> None:
    async def run() -> None:
        pool = BoundedPool("short", 2, 100, patience_s=0.001)
        end = threading.Event()
        before, long, after = pool.submit(lambda: 1), pool.submit(end.wait), pool.submit(lambda: 2)
        # One thread has all three: what it did before the long job is brought, what comes behind
        # it goes to another thread.
        assert await asyncio.wait_for(asyncio.gather(before, after), 30) == [1, 2]
        assert await asyncio.wait_for(pool.submit(lambda: 3), 30) == 3
        assert not long.done()
        end.set()
        assert await long
        pool.close()

    asyncio.run(run())


def test_a_short_job_passes_a_long_one_that_was_taken_before_the_turn_ended() -> None:
    async def run() -> None:
        pool = BoundedPool("short", 1, 100, patience_s=0.001)
        begun, end, taken, end_long = (threading.Event() for _ in range(4))

        def waiting(begins: threading.Event, ends: threading.Event) -> bool:
            begins.set()
            return ends.wait(30)

        awake = pool.submit(partial(waiting, begun, end))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        short, last = pool.submit(lambda: 1), pool.submit(partial(waiting, taken, end_long))
        end.set()
        assert taken.wait(30)  # the loop had no turn in which jobs waited
        assert await asyncio.wait_for(asyncio.gather(awake, short), 30) == [True, 1]
        assert not last.done()
        end_long.set()
        assert await last
        pool.close()

    asyncio.run(run())


def test_as_many_long_jobs_run_at_once_as_there_are_threads() -> None:
    async def run() -> None:
        pool = BoundedPool("long", THREADS, 100, patience_s=0.001)
        together = threading.Barrier(THREADS)
        jobs = [pool.submit(lambda: together.wait(30)) for _ in range(THREADS)]
        assert sorted(await asyncio.gather(*jobs)) == list(range(THREADS))
        pool.close()

    asyncio.run(run())


@pytest.mark.parametrize("patience_s", [0.0, 0.001])
def test_every_job_of_many_turns_ends_once(patience_s: float) -> None:
    async def run() -> None:
        pool = BoundedPool("many", 3, 10_000, patience_s)
        ran: list[int] = []

        def job(number: int) -> int:
            if number % 97 == 0:
                time.sleep(0.003)
            ran.append(number)
            return number

        async def client(first: int) -> list[int]:
            return [await pool.submit(partial(job, first + n)) for n in range(200)]

        answers = await asyncio.gather(*(client(1_000 * n) for n in range(16)))
        assert [each for some in answers for each in some] == [
            1_000 * n + m for n in range(16) for m in range(200)
        ]
        assert len(ran) == len(set(ran)) == 3_200
        assert pool.inside == 0
        pool.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("patience_s", [0.0, 0.001])
def test_jobs_wait_until_the_system_has_a_thread(
    patience_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refused = threading.Thread.start, []

    def lacking(thread: threading.Thread) -> None:
        if len(refused) < 3 and thread.name.startswith("omnigraph-scarce"):
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    async def run() -> None:
        pool = BoundedPool("scarce", 2, 100, patience_s)
        jobs = [pool.submit(partial(str, n)) for n in range(5)]
        assert await asyncio.wait_for(asyncio.gather(*jobs), 30) == [str(n) for n in range(5)]
        assert refused
        pool.close()

    monkeypatch.setattr(threading.Thread, "start", lacking)
    asyncio.run(run())


def test_many_jobs_ask_for_a_missing_thread_with_one_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, refused, is_lacking = threading.Thread.start, [], True

    def lacking(thread: threading.Thread) -> None:
        if is_lacking and thread.name.startswith("omnigraph-scarce"):
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    async def run() -> None:
        nonlocal is_lacking
        pool = BoundedPool("scarce", 2, 100)
        jobs = [pool.submit(partial(str, n)) for n in range(50)]
        await asyncio.sleep(0.35)
        assert 50 < len(refused) < 60, "each job tries again for itself"
        is_lacking = False
        assert await asyncio.wait_for(asyncio.gather(*jobs), 30) == [str(n) for n in range(50)]
        pool.close()

    monkeypatch.setattr(threading.Thread, "start", lacking)
    asyncio.run(run())
