"""DBOS: a turn is a workflow, the call of the model a step in it; both are kept in SQLite, its default.

A workflow is known by its agent and number, so that one that was begun is never begun twice. Its message and
its memory are its result: so nothing is written twice.
"""

from __future__ import annotations

from typing import Any

from dbos import DBOS, SetWorkflowID

from benchmarks.peers.work import SHOWN, Kept, Model, Task, Turns, main, parsed, prompt_of

UNFINISHED = ["PENDING", "ENQUEUED"]
_model: list[Model] = []  # steps are functions of a module: what they need is there before they run


@DBOS.step()
def ask(agent: str, number: int, prompt: str) -> str:
    """Ask the model; an answer that came is not asked for again."""
    return _model[0](agent, number, prompt)


@DBOS.workflow()
def turn(agent: str, number: int, inbox: list[str]) -> dict[str, Any]:
    """Take a turn."""
    text, memory = parsed(ask(agent, number, prompt_of(agent, number, inbox)))
    return {"message": text, "memory": memory}


class Dbos(Turns):
    """Agents are known by the names of their workflows."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        _model.append(self.model)
        DBOS(
            config={
                "name": "peers",
                "system_database_url": f"sqlite:///{self.folder / 'dbos.sqlite'}",
                "log_level": "ERROR",
            }
        )
        DBOS.launch()  # takes up the workflows that were under way
        for found in DBOS.list_workflows(status=UNFINISHED):
            DBOS.retrieve_workflow(found.workflow_id).get_result()
        self.open()

    def kept(self, agent: str) -> Kept:
        found = DBOS.list_workflows(
            workflow_id_prefix=f"{agent}-", status="SUCCESS", sort_desc=True, limit=SHOWN
        )
        results = [workflow.output for workflow in reversed(found)]
        turns = results[-1]["memory"]["n"] if results else 0
        return Kept(turns, [result["message"] for result in results])

    def turn(self, agent: str, number: int, inbox: list[str]) -> str:
        with SetWorkflowID(f"{agent}-{number}"):
            message: str = turn(agent, number, inbox)["message"]
        return message


if __name__ == "__main__":
    main(Dbos)
