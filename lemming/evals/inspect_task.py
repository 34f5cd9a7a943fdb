"""Cases as a task of Inspect (https://inspect.aisi.org.uk): `inspect eval FILE.py --model none/none`.

The organisation's models answer as each case says. Inspect runs, counts, logs and displays the cases.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lemming.evals.case_responder import AnswerCache
from lemming.evals.suite import RunOptions, run_case_in_copy
from lemming.kernel.org.organisation import Organisation
from lemming.queries.case_format import select_cases
from lemming.queries.case_validation import load_case

if TYPE_CHECKING:
    from inspect_ai import Task

DEFAULT_OPTIONS = RunOptions()


def cases_as_task(
    base_path: str | os.PathLike[str], *names: str, epochs: int | None = None, manner: RunOptions = DEFAULT_OPTIONS
) -> Task:
    """Return cases of an organisation (without names: all cases) as an Inspect task with a sample for each case.

    An epoch is a repeat; the default is the largest repeat count of the cases. Raises: ConfigError and UsageError as
    `lemming eval` does.
    """
    from inspect_ai import Task
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import Score, accuracy, scorer, stderr
    from inspect_ai.solver import solver

    base = Organisation.from_path(base_path)
    cases = {name: load_case(base, name).value for name in select_cases(base, [*names])}
    caches = {name: AnswerCache(base, name) for name in cases}

    def solve_in_copy() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            name = str(state.sample_id)
            run = partial(
                run_case_in_copy, base, name, cases[name], caches[name], repeat=state.epoch - 1, options=manner
            )
            result = await asyncio.to_thread(run)
            state.store.set("result", result.as_json())
            state.output.completion = "\n".join(_format_failures(result.as_json())) or "all that is expected came"
            return state

        return solve

    def score_expectations() -> Any:
        async def score(state: Any, target: Any) -> Any:
            result = state.store.get("result")
            return Score(value=result["passed"], explanation=state.output.completion, metadata=result)

        return score

    samples = [Sample(id=name, input=case.description or name) for name, case in cases.items()]
    repeats = epochs or max(case.repeat for case in cases.values())
    run, judge = solver(solve_in_copy), scorer(metrics=[accuracy(), stderr()])(score_expectations)
    return Task(dataset=samples, solver=run(), scorer=judge(), epochs=repeats)


def _format_failures(result: dict[str, Any]) -> Sequence[str]:
    failures = [f"{failure['name'] or failure['kind']}: {failure['said']}" for failure in result["failures"]]
    return [*filter(None, [result["error"]]), *failures]
