"""The threads that turns run on, and which of them works."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from lemming.tick.executors.pool import Crew
from lemming.tick.executors.turn_lock import Baton


def test_a_thread_that_is_done_is_used_again() -> None:
    crew, seen, threads = Crew(), SimpleQueue[threading.Thread](), set[threading.Thread]()
    for _ in range(10_000):
        crew.start(lambda: seen.put(threading.current_thread()))
        thread = seen.get(timeout=10)
        if thread in threads:
            return
        threads.add(thread)
    raise AssertionError("ten thousand threads")


def test_a_thread_that_nobody_needs_ends() -> None:
    crew, seen = Crew(kept_s=0.01), SimpleQueue[threading.Thread]()
    crew.start(lambda: seen.put(threading.current_thread()))
    thread = seen.get(timeout=10)
    thread.join(10)
    assert not thread.is_alive()


def test_work_that_comes_when_a_thread_is_about_to_end_is_done() -> None:
    crew, seen = Crew(kept_s=0.0001), SimpleQueue[int]()
    for number in range(500):
        crew.start(partial(seen.put, number))
    assert sorted(seen.get(timeout=10) for _ in range(500)) == list(range(500))


def test_one_thread_works_at_a_time(tmp_path: Path) -> None:
    baton, over, count = Baton(), SimpleQueue[bool](), 0

    def work() -> None:
        nonlocal count
        for _ in range(200):
            with baton:
                before = count
                os.stat(tmp_path)  # lets go of the interpreter
                count = before + 1
                with baton.waiting:
                    os.stat(tmp_path)
        over.put(True)

    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    for _ in range(4):
        over.get(timeout=30)
    assert count == 800


def test_the_baton_goes_on_in_the_order_in_which_they_came() -> None:
    baton, begun = Baton(), list[str]()

    def begin(name: str, *, can: bool) -> bool:
        begun.append(name)
        return can

    baton.take()
    baton.promise(partial(begin, "first", can=True))
    baton.promise(partial(begin, "without a thread", can=False))
    baton.promise(partial(begin, "third", can=True))
    baton.pass_on()
    assert begun == ["first"]
    baton.pass_on()
    assert begun == ["first", "without a thread", "third"]
