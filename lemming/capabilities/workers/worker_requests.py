"""Jobs of workers, from the recorded inputs and answers of a turn, and the patch in a reply."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemming.capabilities.workers.attempts import (
    get_attempt,
    note_ended,
    note_running,
    remove_stale_attempts,
)
from lemming.capabilities.workers.evidence_tools import PERMIT
from lemming.capabilities.workers.merge_arguments import make_merge_arguments
from lemming.capabilities.workers.merge_tool import MERGE
from lemming.capabilities.workers.patch_store import load_patch, store_patch
from lemming.capabilities.workers.repositories.bundles import make_bundle
from lemming.capabilities.workers.repositories.user_repository import open_repository
from lemming.capabilities.workers.worker_job import JOB, WorkerJob
from lemming.capabilities.workers.worker_provider import HARNESSES
from lemming.capabilities.workers.workspace_settings import WorkspaceSettings, get_workspace, locate_repository
from lemming.ext import Allowed, Effect, Interception, LivePhase, ModelEntry, Outcome, SendRequest, TurnView
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.redaction.secrets import find_redactions, redact_bytes
from lemming.kernel.base.wording import format_count
from lemming.kernel.files.field_types import Json
from lemming.kernel.llm.token_usage import Tokens
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import load_pricing
from lemming.kernel.plugins.capability_table import EXECUTORS


def send_job(effect: SendRequest, turn: TurnView) -> Interception:
    """Send a worker its job, and store the patch of its reply before the reply is recorded."""
    settings = get_workspace(turn.agent)
    if settings is None or effect.entry.provider not in HARNESSES or not turn.snapshot:
        return None
    if turn.live.tick is None:
        return None  # the request is only shown
    return _send_job(effect, turn, settings)


def _send_job(effect: SendRequest, turn: TurnView, settings: WorkspaceSettings) -> Generator[Effect, Any, Outcome]:
    live = turn.live
    org = Organisation.from_path(live.base)
    job = _make_job(effect, turn, settings, org)
    attempt = get_attempt(Path(live.base), job.key)
    provider_options = HARNESSES[effect.entry.provider](**effect.entry.options, base=Path(live.base))
    running = {
        "agent": turn.agent.name, "tick": turn.tick, "call": effect.number, "harness": effect.entry.provider,
        "model": effect.entry.model, "workspace": settings.repository,
        "branch": settings.branch_name(turn.agent.name), "since": live.tick_context.at,
    }  # fmt: skip
    remove_stale_attempts(Path(live.base), turn.agent.name, job.key)
    note_running(org, attempt, running)
    deadline_s = min(provider_options.deadline_s, effect.request.turn_s)
    request = effect.request._replace(extra={JOB: job.to_json()}, deadline_s=deadline_s)
    try:
        outcome = yield replace(effect, request=request)
    except Exception:
        note_ended(org, attempt)
        raise
    note_ended(org, attempt)
    if not isinstance(outcome, Allowed) or JOB not in (getattr(outcome.answer, "kept", None) or {}):
        assert isinstance(outcome, Outcome), "an effect that was passed on has an outcome"
        return outcome
    reply = outcome.answer
    facts: Json = dict(reply.kept[JOB])
    if "content" not in facts:  # an answer of the record, in a rehearsal: its patch is stored
        return outcome
    patch = b64decode(facts.pop("content"))
    if (without_secrets := redact_bytes(patch)) != patch:  # nothing that holds a secret is recorded or merged
        names = find_redactions(without_secrets)
        message = f"the patch holds the secret {', '.join(names)} in plain text, and is not merged"
        facts |= {"error": facts["error"] or "secret", "message": message}
        patch = b""
    facts["patch"] = store_patch(org, patch, sync=live.tick_context.config.org.durability != "off") if patch else ""
    calls = [_make_call(facts, turn, settings, reply.text, patch)] if patch and not facts["error"] else []
    return Allowed(effect, reply._replace(kept={JOB: facts}, calls=tuple(calls)))


def _make_job(effect: SendRequest, turn: TurnView, settings: WorkspaceSettings, org: Organisation) -> WorkerJob:
    live, snapshot = turn.live, turn.snapshot
    permits = [*_iter_outputs(live, PERMIT)]
    base = _find_base(live, snapshot)
    last = _find_last_outcome(live)
    if permits and not last:  # permitted by a person since the turn that asked: that run goes on
        last = {"patch": "", **permits[-1]["run"]}
        base = last["base"]
    key, run, patch = f"{turn.tick}-{turn.agent.name}-{effect.number}", 0, ""
    if last and last["base"] == base:  # no conflict since: the run goes on in the same clone
        key, run = last["key"], last["run"] + 1
        patch = b64encode(load_patch(org, last["patch"])).decode() if last["patch"] else ""
    elsewhere = live.tick_context.config.org.executor in EXECUTORS
    repository = open_repository(locate_repository(live.base, settings.repository))
    return WorkerJob(
        key=key,
        run=run,
        base=base,
        at=str(snapshot["at"]),
        agent=turn.agent.name,
        model=effect.entry.model,
        repository="" if elsewhere else f"{repository.git_dir}",
        bundle=b64encode(make_bundle(repository, base)).decode() if elsewhere else "",
        patch=patch,
        is_confined=settings.sandbox == "required",
        is_full_copy=settings.copy == "full",
        max_file_bytes=settings.max_file_bytes,
        max_cost_usd=_find_cost_limit(effect),
        prices=_get_prices(effect.entry),
        readable=settings.readable,
        grants=[permit["grant"] for permit in permits],
    )


def _find_cost_limit(effect: SendRequest) -> float | None:
    limit = effect.request.max_cost_usd
    return effect.entry.max_cost_usd if limit is None else limit  # 0 is a limit


def _find_base(live: LivePhase, snapshot: Json) -> str:
    """Return the commit that a run starts from: the branch's head as the tick opened, or at the last conflict."""
    heads = [output["head"] for output in _iter_outputs(live, MERGE) if "conflict" in output]
    return str(heads[-1] if heads else snapshot["base"])


def _iter_outputs(live: LivePhase, tool: str) -> Iterator[Json]:
    """Yield the outputs of the turn's recorded calls of a tool, in order, without those of refused calls."""
    for number in sorted(live.results):
        if live.results[number].tool == tool:
            with suppress(JsonProblem):
                output = parse(live.results[number].output)
                if isinstance(output, dict):
                    yield output


def _find_last_outcome(live: LivePhase) -> Json:
    """Return what the turn's last recorded answer says of its run, or {}."""
    for number in sorted(live.answers, reverse=True):
        values = getattr(live.answers[number], "kept", None)
        if isinstance(values, Mapping) and JOB in values:
            return dict(values[JOB])
    return {}


def _get_prices(entry: ModelEntry) -> dict[str, float]:
    """Return dollars per token by kind, or {} without a known price. Prices are linear in the tokens."""
    compute_dollars, million = load_pricing(), 1_000_000
    if compute_dollars is None:
        return {}
    usages = {
        "input": Tokens(million, 0, 0, False),
        "output": Tokens(0, million, 0, False),
        "cached": Tokens(million, 0, million, False),
        "written": Tokens(million, 0, 0, False, million),
    }
    costs = {kind: compute_dollars(entry, tokens, batched=False) for kind, tokens in usages.items()}
    return {} if None in costs.values() else {kind: cost / million for kind, cost in costs.items()}


def _make_call(facts: Json, turn: TurnView, settings: WorkspaceSettings, text: str, patch: bytes) -> Json:
    """Return the call of `merge` that a reply with a patch makes."""
    files = facts["files"]
    first_line = next(
        (line.strip() for line in text.splitlines() if line.strip()),
        f"change {format_count(len(files), 'file')}",
    )
    args = make_merge_arguments(
        workspace=settings.repository,
        branch=settings.branch_name(turn.agent.name),
        base=facts["base"],
        tree=facts["tree"],
        digest=facts["patch"],
        patch=patch,
        files=files,
        flags=facts["flags"],
        summary=first_line,
    )
    return {"id": "merge", "tool": MERGE, "args": args}
