"""Cases as a task of Inspect (https://inspect.aisi.org.uk): `inspect eval FILE.py --model none/none`.

The organisation's models answer, as each case says; Inspect runs, counts, logs and shows.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lemming.evals.answering import Kept
from lemming.evals.suite import Manner, run_of
from lemming.facts.cases import chosen, load_case
from lemming.kernel.org.organisation import Organisation

if TYPE_CHECKING:
    from inspect_ai import Task

NO_MANNER = Manner()


def cases_as_task(
    base_path: str | os.PathLike[str], *names: str, epochs: int | None = None, manner: Manner = NO_MANNER
) -> Task:
    """Return cases of an organisation, all without a name, as one task: a sample each.

    An epoch is a repeat, by default as many as the case with the most has. Raises `ConfigError` and
    `UsageError` as `lemming eval` does.
    """
    from inspect_ai import Task
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import Score, accuracy, scorer, stderr
    from inspect_ai.solver import solver

    base = Organisation.at(base_path)
    cases = {name: load_case(base, name).value for name in chosen(base, [*names])}
    kept = {name: Kept(base, name) for name in cases}

    def in_a_copy() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            name = str(state.sample_id)
            run = partial(run_of, base, name, cases[name], kept[name], repeat=state.epoch - 1, manner=manner)
            result = await asyncio.to_thread(run)
            state.store.set("result", result.as_json())
            state.output.completion = "\n".join(_failures(result.as_json())) or "all that is expected came"
            return state

        return solve

    def as_expected() -> Any:
        async def score(state: Any, target: Any) -> Any:
            result = state.store.get("result")
            return Score(value=result["passed"], explanation=state.output.completion, metadata=result)

        return score

    samples = [Sample(id=name, input=case.description or name) for name, case in cases.items()]
    repeats = epochs or max(case.repeat for case in cases.values())
    run, judge = solver(in_a_copy), scorer(metrics=[accuracy(), stderr()])(as_expected)
    return Task(dataset=samples, solver=run(), scorer=judge(), epochs=repeats)


def _failures(result: dict[str, Any]) -> Sequence[str]:
    failures = [f"{each['name'] or each['kind']}: {each['said']}" for each in result["failures"]]
    return [*filter(None, [result["error"]]), *failures]
