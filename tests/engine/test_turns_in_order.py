"""Turns that begin in order, run at once, and make some calls one after another."""

from __future__ import annotations

import random
import threading

import pytest

from lemming.kernel.tick.turn_threads import TurnLock
from lemming.operations.turns.parallel_turns import FinishedAgents, run_turns
from lemming.operations.turns.turn_dependencies import TurnWaits

NAMES = [f"w{number}" for number in range(8)]


@pytest.mark.parametrize("lanes", [2, 3, 8])
def test_calls_follow_the_order_of_the_turns_and_every_turn_ends(lanes: int) -> None:
    for seed in range(30):
        generator, calls, ended, begun = random.Random(seed), list[str](), set[str](), list[str]()
        shared = [name for name in NAMES if generator.random() < 0.7]
        waits = {
            name: TurnWaits(begun=frozenset(shared[: shared.index(name)]) if name in shared else frozenset())
            for name in NAMES
        }
        lock, stop = TurnLock(), threading.Event()
        finished_agents = FinishedAgents({name: wait.begun for name, wait in waits.items()}, stop)
        pauses = {name: generator.choice([0, 0.0005, 0.002]) for name in NAMES}

        def work(
            name: str,
            lock: TurnLock = lock,
            finished_agents: FinishedAgents = finished_agents,
            stop: threading.Event = stop,
            calls: list[str] = calls,
            begun: list[str] = begun,
            pauses: dict[str, float] = pauses,
        ) -> None:
            begun.append(name)
            with lock.waiting:
                stop.wait(pauses[name])
                assert finished_agents.wait_for_earlier(name)
            calls.append(name)

        run_turns(NAMES, waits, work, max_parallel=lanes, turn_lock=lock, stop=stop, finished_agents=finished_agents)
        ended |= set(calls)
        assert ended == set(NAMES)
        assert [name for name in calls if name in shared] == shared
        assert [name for name in begun if name in shared] == shared


def test_a_stop_ends_the_wait_of_a_call() -> None:
    stop = threading.Event()
    finished_agents = FinishedAgents({"b": {"a"}}, stop)
    threading.Timer(0.05, stop.set).start()
    assert not finished_agents.wait_for_earlier("b")
    assert FinishedAgents({}, threading.Event()).wait_for_earlier("b")
