"""A judge of an expectation: the question, the answer, the verdict. The same question is asked once only."""

from __future__ import annotations

from functools import partial

from lemming.agents import survey_agents
from lemming.base.jsontext import nearest
from lemming.capabilities.judges.judge import VERDICT_SCHEMA, Judge, question, verdict_in
from lemming.errors import ContractError, ProviderError, UsageError
from lemming.evals.run import Ran
from lemming.org.cases import JudgeWanted
from lemming.org.models import ModelEntry
from lemming.org.verification import judge_named
from lemming.providers import Request, require_reply


def judge(wanted: JudgeWanted, draft: str, ran: Ran) -> tuple[bool, str]:
    """Return whether a judge passes a text, and why not. No verdict is none that passes.

    Raises `NoAnswer` and `OverBudget`, and `UsageError` where there is no such judge.
    """
    runtime = ran.runtime
    assert runtime.answering
    key, entry, instructions = _who(wanted, ran)
    judging = Judge(
        by=str(judge_named(wanted.by)), model=key, instructions=instructions, policy=wanted.rubric
    )
    request = Request(
        model_name=entry.model,
        messages=question(judging, shown="", results="", draft=draft),
        temperature=entry.temperature,
        schema=VERDICT_SCHEMA,
        max_output_tokens=entry.max_output_tokens,
        deadline_s=entry.deadline_s,
        agent="judge",
        tick=ran.last,
    )
    try:
        reply = runtime.answering.judge(entry, request, partial(runtime.complete_live, entry))
        require_reply(reply.finish)
        return verdict_in(reply.text)
    except (ContractError, ProviderError) as error:
        return False, f"no verdict: {error}"


def _who(wanted: JudgeWanted, ran: Ran) -> tuple[str, ModelEntry, str]:
    """Return the model key of a judge, its line, and the judge's instructions if it is an agent."""
    named, agents = judge_named(wanted.by), survey_agents(ran.org).agents
    models = ran.runtime.load_config().models
    is_agent = named.kind != "model" and named.name in agents
    key = agents[named.name].model.key if is_agent else named.name
    if key not in models or (named.kind == "agent" and not is_agent):
        known = [*(agents if named.kind != "model" else ()), *(models if named.kind != "agent" else ())]
        hint = nearest(named.name, known) or f"there are: {', '.join(known)}"
        raise UsageError(f'there is no {named.kind or "agent and no model key"} "{named.name}"', hint=hint)
    return key, models[key], agents[named.name].instructions if is_agent else ""
