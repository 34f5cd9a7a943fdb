"""The threads that turns run on, and which of them works."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from patience import PATIENCE_S

from lemming.kernel.tick.turn_threads import Pool, TurnLock


def test_a_thread_that_is_done_is_used_again() -> None:
    pool, seen, threads = Pool(), SimpleQueue[threading.Thread](), set[threading.Thread]()
    for _ in range(10_000):
        pool.start(lambda: seen.put(threading.current_thread()))
        thread = seen.get(timeout=PATIENCE_S)
        if thread in threads:
            return
        threads.add(thread)
    raise AssertionError("ten thousand threads")


def test_a_thread_that_nobody_needs_ends() -> None:
    pool, seen = Pool(keep_alive_s=0.01), SimpleQueue[threading.Thread]()
    pool.start(lambda: seen.put(threading.current_thread()))
    thread = seen.get(timeout=PATIENCE_S)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_work_that_comes_when_a_thread_is_about_to_end_is_done() -> None:
    pool, seen = Pool(keep_alive_s=0.0001), SimpleQueue[int]()
    for number in range(500):
        pool.start(partial(seen.put, number))
    assert sorted(seen.get(timeout=PATIENCE_S) for _ in range(500)) == list(range(500))


def test_one_thread_works_at_a_time(tmp_path: Path) -> None:
    turn_lock, over, count = TurnLock(), SimpleQueue[bool](), 0

    def work() -> None:
        nonlocal count
        for _ in range(200):
            with turn_lock:
                before = count
                os.stat(tmp_path)  # lets go of the interpreter
                count = before + 1
                with turn_lock.waiting:
                    os.stat(tmp_path)
        over.put(True)

    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    for _ in range(4):
        over.get(timeout=PATIENCE_S)
    assert count == 800


def test_the_baton_goes_on_in_the_order_in_which_they_came() -> None:
    turn_lock, begun = TurnLock(), list[str]()

    def begin(name: str, *, can: bool) -> bool:
        begun.append(name)
        return can

    turn_lock.acquire()
    turn_lock.enqueue_start(partial(begin, "first", can=True))
    turn_lock.enqueue_start(partial(begin, "without a thread", can=False))
    turn_lock.enqueue_start(partial(begin, "third", can=True))
    turn_lock.release()
    assert begun == ["first"]
    turn_lock.release()
    assert begun == ["first", "without a thread", "third"]
