"""Of many threads one works; who waits for an answer is woken once it may work again."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from patience import PATIENCE_S, until

from lemming.kernel.tick.turn_threads import TurnLock, get_released_turn_lock, wait_for_result
from lemming.libraries.concurrency import async_calls
from lemming.libraries.concurrency.async_calls import PoliteSelector


def begin(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_thread_that_let_nobody_work_just_waits() -> None:
    future: Future[int] = Future()
    future.set_result(7)
    assert get_released_turn_lock() is None
    assert wait_for_result(future) == 7


def test_a_result_wakes_a_thread_once_nobody_else_works() -> None:
    turn_lock, future = TurnLock(), Future[int]()
    waits, said = threading.Event(), []

    def wait() -> None:
        with turn_lock:
            with turn_lock.waiting:
                assert get_released_turn_lock() is turn_lock
                waits.set()
                said.append(wait_for_result(future))
            said.append(get_released_turn_lock())

    thread = begin(wait)
    assert waits.wait(PATIENCE_S)
    with turn_lock:
        future.set_result(7)
        thread.join(0.05)
        assert said == []  # the result is there, but another works
    thread.join(PATIENCE_S)
    assert said == [7, None]
    assert turn_lock.acquire_with_timeout(0)


@pytest.mark.parametrize("is_there_before", [True, False])
def test_an_error_comes_out_and_the_turn_lock_is_free_until_the_wait_is_over(is_there_before: bool) -> None:
    turn_lock, future = TurnLock(), Future[int]()
    if is_there_before:
        future.set_exception(ValueError("no"))
    else:
        begin(lambda: future.set_exception(ValueError("no")))
    with turn_lock, turn_lock.waiting:
        with pytest.raises(ValueError, match="no"):
            wait_for_result(future)
        assert turn_lock.acquire_with_timeout(PATIENCE_S)  # while a retry pauses, others work
        turn_lock.release()
    assert turn_lock.acquire_with_timeout(0)


def test_two_waits_in_one_block_let_others_work_in_between() -> None:
    turn_lock, second = TurnLock(), Future[int]()
    first: Future[int] = Future()
    first.set_result(1)

    def work() -> None:
        with turn_lock:
            second.set_result(2)

    with turn_lock, turn_lock.waiting:
        assert wait_for_result(first) == 1
        begin(work)
        assert wait_for_result(second) == 2
    assert turn_lock.acquire_with_timeout(0)


def test_an_interrupt_ends_a_wait_and_leaves_the_turn_lock_as_it_was() -> None:
    turn_lock, future = TurnLock(), Future[int]()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt), turn_lock, turn_lock.waiting:
            wait_for_result(future)
    finally:
        signal.signal(signal.SIGINT, before)
        timer.join()
    future.set_result(7)  # nobody waits for it any more
    assert turn_lock.acquire_with_timeout(0)
    turn_lock.release()
    assert turn_lock.acquire_with_timeout(0)


def test_who_stood_in_line_in_vain_is_passed_over() -> None:
    turn_lock = TurnLock()
    with turn_lock:
        assert not turn_lock.acquire_with_timeout(0.001)
        assert not turn_lock.acquire_with_timeout(0.001)
    assert turn_lock.acquire_with_timeout(0)


def test_who_lets_only_so_many_go_before_stands_behind_those() -> None:
    turn_lock, came = TurnLock(), list[str]()
    turn_lock.acquire()
    for name in "abc":
        turn_lock.enqueue_start(lambda name=name: bool(came.append(name)))  # type: ignore[misc]
    thread = begin(lambda: came.append("loop") if turn_lock.acquire_with_timeout(PATIENCE_S, behind=2) else None)
    until(lambda: len(turn_lock._queue) == 4)
    turn_lock.release()
    thread.join(PATIENCE_S)
    assert came == ["a", "b", "loop"]


# --- the loop of calls ---------------------------------------------------------------------------


def run_on_loop(selector: PoliteSelector) -> Future[int]:
    """Have a loop do something on a thread of its own, and end; return where its outcome will be."""
    loop = asyncio.SelectorEventLoop(selector)
    done: Future[int] = Future()

    async def work() -> None:
        await asyncio.sleep(0.001)
        done.set_result(7)

    def run() -> None:
        loop.run_until_complete(work())
        selector.release()
        loop.close()

    begin(run)
    return done


def test_a_loop_waits_while_a_turn_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_calls, "MAX_WAIT_S", PATIENCE_S)
    selector, turn_lock = PoliteSelector(), TurnLock()
    selector.turn_lock = turn_lock
    turn_lock.acquire()
    done = run_on_loop(selector)
    with pytest.raises(TimeoutError):
        done.result(0.05)
    turn_lock.release()
    assert done.result(PATIENCE_S) == 7
    assert turn_lock.acquire_with_timeout(PATIENCE_S)  # it holds nobody up afterwards


def test_a_loop_goes_on_after_a_while_when_whoever_works_waits_for_it() -> None:
    selector, turn_lock = PoliteSelector(), TurnLock()
    selector.turn_lock = turn_lock
    turn_lock.acquire()
    assert run_on_loop(selector).result(PATIENCE_S) == 7
