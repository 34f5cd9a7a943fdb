"""Burr side: an application per agent, an action per turn, and the state in the SQLite persister."""

from __future__ import annotations

from typing import Any

from burr.core import Application, ApplicationBuilder, State, action
from burr.core.persistence import SQLitePersister

from benchmarks.peers.work import SHOWN, InstantModel, Progress, SequentialSide, Task, main, make_prompt, parse_answer

EMPTY: dict[str, Any] = {"messages": [], "memory": {}}


@action(reads=["messages", "memory"], writes=["messages", "memory"])
def turn(state: State, inbox: list[str], agent: str, model: InstantModel) -> State:
    """Take a turn: call the model, add the message, update the memory."""
    number = state["memory"].get("n", 0) + 1
    text, memory = parse_answer(model(agent, number, make_prompt(agent, number, inbox)))
    return state.update(messages=[*state["messages"], text][-SHOWN:], memory=memory)


class BurrSide(SequentialSide):
    """Applications with a shared persister."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._persister = SQLitePersister.from_values(str(self.folder / "burr.sqlite"))
        self._persister.initialize()
        self._agents = {name: self._make_application(name) for name in self.names}
        self.load_all_progress()

    def _make_application(self, agent: str) -> Application:
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

    def load_progress(self, agent: str) -> Progress:
        stored = self._persister.load(None, agent)
        if stored is None:
            return Progress()
        return Progress(stored["state"]["memory"]["n"], stored["state"]["messages"])

    def run_turn(self, agent: str, number: int, inbox: list[str]) -> str:
        _, _, state = self._agents[agent].run(halt_after=["turn"], inputs={"inbox": inbox})
        message: str = state["messages"][-1]
        return message


if __name__ == "__main__":
    main(BurrSide)
