"""DBOS side: a turn is a workflow and the model call a step, both stored in SQLite, the default.

A workflow id consists of agent and number, so a workflow never begins twice. The workflow's result holds
message and memory, so nothing is written twice.
"""

from __future__ import annotations

from typing import Any

from dbos import DBOS, SetWorkflowID

from benchmarks.peers.work import SHOWN, InstantModel, Progress, SequentialSide, Task, main, make_prompt, parse_answer

UNFINISHED = ["PENDING", "ENQUEUED"]
_model: list[InstantModel] = []  # steps are functions of a module: what they need is there before they run


@DBOS.step()
def ask(agent: str, number: int, prompt: str) -> str:
    """Call the model. A recorded answer is not requested again."""
    return _model[0](agent, number, prompt)


@DBOS.workflow()
def turn(agent: str, number: int, inbox: list[str]) -> dict[str, Any]:
    """Take a turn."""
    text, memory = parse_answer(ask(agent, number, make_prompt(agent, number, inbox)))
    return {"message": text, "memory": memory}


class DbosSide(SequentialSide):
    """Agents identified by the ids of their workflows."""

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
        for workflow in DBOS.list_workflows(status=UNFINISHED):
            DBOS.retrieve_workflow(workflow.workflow_id).get_result()
        self.load_all_progress()

    def load_progress(self, agent: str) -> Progress:
        workflows = DBOS.list_workflows(workflow_id_prefix=f"{agent}-", status="SUCCESS", sort_desc=True, limit=SHOWN)
        results = [workflow.output for workflow in reversed(workflows)]
        turns = results[-1]["memory"]["n"] if results else 0
        return Progress(turns, [result["message"] for result in results])

    def run_turn(self, agent: str, number: int, inbox: list[str]) -> str:
        with SetWorkflowID(f"{agent}-{number}"):
            message: str = turn(agent, number, inbox)["message"]
        return message


if __name__ == "__main__":
    main(DbosSide)
