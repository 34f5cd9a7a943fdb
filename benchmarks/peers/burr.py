"""Burr: an application for each agent, one action a turn, its state kept by the SQLite persister."""

from __future__ import annotations

from typing import Any

from burr.core import Application, ApplicationBuilder, State, action
from burr.core.persistence import SQLitePersister

from benchmarks.peers.work import SHOWN, Kept, Model, Task, Turns, main, parsed, prompt_of

EMPTY: dict[str, Any] = {"messages": [], "memory": {}}


@action(reads=["messages", "memory"], writes=["messages", "memory"])
def turn(state: State, inbox: list[str], agent: str, model: Model) -> State:
    """Take a turn: ask, add the message, change the memory."""
    number = state["memory"].get("n", 0) + 1
    text, memory = parsed(model(agent, number, prompt_of(agent, number, inbox)))
    return state.update(messages=[*state["messages"], text][-SHOWN:], memory=memory)


class Burr(Turns):
    """Agents are applications that share one persister."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._persister = SQLitePersister.from_values(str(self.folder / "burr.sqlite"))
        self._persister.initialize()
        self._agents = {name: self._application(name) for name in self.names}
        self.open()

    def _application(self, agent: str) -> Application:
        return (
            ApplicationBuilder()
            .with_actions(turn.bind(agent=agent, model=self.model))
            .with_transitions(("turn", "turn"))
            .initialize_from(
                self._persister, resume_at_next_action=True, default_state=EMPTY, default_entrypoint="turn"
            )
            .with_state_persister(self._persister)
            .with_identifiers(app_id=agent)
            .build()
        )

    def kept(self, agent: str) -> Kept:
        found = self._persister.load(None, agent)
        if found is None:
            return Kept()
        return Kept(found["state"]["memory"]["n"], found["state"]["messages"])

    def turn(self, agent: str, number: int, inbox: list[str]) -> str:
        _, _, state = self._agents[agent].run(halt_after=["turn"], inputs={"inbox": inbox})
        message: str = state["messages"][-1]
        return message


if __name__ == "__main__":
    main(Burr)
