"""Steps of a worker's turn: run the harness, merge its patch, answer.

    ask  ->  checks  ->  merge (gates, judges and persons decide)  ->  answer
         <-  a check fails: go on in the same clone
                     <-  a conflict: again, on the branch as it is now

A call that waits for a person ends the turn. The turn after the decision has its result before anything is asked, and
answers without another run if the patch was merged.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lemming.capabilities.workers.attempts import (
    JOB,
    WorkerJob,
    get_attempt,
    note_ended,
    note_running,
    remove_stale_attempts,
)
from lemming.capabilities.workers.merge_tool import MERGE, load_patch, make_merge_arguments, store_patch
from lemming.capabilities.workers.repositories.engine_repository import make_bundle
from lemming.capabilities.workers.repositories.user_repository import open_repository
from lemming.capabilities.workers.repositories.work_tree import ChangedFile, TakenTree
from lemming.capabilities.workers.worker_provider import HARNESSES
from lemming.capabilities.workers.worker_tools import CHECK, PERMIT
from lemming.capabilities.workers.workspace_settings import WorkspaceSettings, get_workspace, locate_repository
from lemming.ext import (
    Allowed,
    Effect,
    Interception,
    LivePhase,
    ModelEntry,
    NewEntry,
    Outcome,
    SendRequest,
    Steps,
    ToolCall,
    TurnReply,
    TurnView,
)
from lemming.kernel.base.errors import ProviderError
from lemming.kernel.base.redaction.secrets import find_redactions, redact_bytes
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.llm.call_cost import Tokens
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import load_pricing
from lemming.kernel.plugins.capability_table import provided
from lemming.kernel.providers import Message
from lemming.kernel.turn.strategy import Turn as StrategyTurn
from lemming.kernel.turn.turn_values import Act, Step
from lemming.libraries.lenient_json import parse_object_or_empty
from lemming.libraries.wording import format_count

MAX_RUNS = 20
"""Runs of a turn: a harness that asks for a permit again and again would never end."""
QUOTED_CHARS = 6_000


def take_worker_turn(view: TurnView) -> Steps:
    """Run the harness until its patch is merged, waits for a person, or cannot be merged."""
    turn, settings = view.strategy_turn, get_workspace(view.agent)
    assert settings, "only an agent with a workspace takes such a turn"
    messages, conflicts, corrections = turn.prompt, 0, 0
    earlier_merges = [item for item in view.results if item["tool"] == MERGE]  # of calls that a person has approved
    if earlier_merges:
        merged = parse_object_or_empty(earlier_merges[-1]["output"])
        if earlier_merges[-1]["success"]:
            view.mark_results_shown()
            texts = [str(message["content"]) for message in messages if message["role"] == "assistant"]
            _answer(view, texts[-1] if texts else "", merged)  # of the turn whose call waited for a person
            return "done"
        if "conflict" not in merged:
            return _fail(view, _describe_refusal(settings, view, earlier_merges[-1]))
    messages += _describe_permits(view.results)
    for _ in range(MAX_RUNS):
        answer = yield from turn.ask_harness(messages)
        outcome = answer.kept[JOB]
        if outcome["error"]:
            return _fail(view, f"{outcome['harness']}: {outcome['message'] or outcome['error']}")
        for path, reason in outcome["left_out"].items():
            view.remark(f"not in the patch: {path}: {reason}")
        if outcome["questions"]:  # gates and persons decide about calls
            run = {name: outcome[name] for name in ("key", "run", "base")}
            yield Act(
                TurnReply(tool_calls=tuple(ToolCall(PERMIT, {**item, "run": run}) for item in outcome["questions"]))
            )
            if turn.has_asked:
                return "waits"
            messages += _describe_permits(turn.results)
            view.mark_results_shown()
            continue
        if not answer.calls:
            _answer(view, answer.text, {})
            return "done"
        call = answer.calls[0]
        receipts = yield from _run_checks(turn, settings, call["args"])
        if failures := [receipt for receipt in receipts if receipt.get("status") != 0 or "ended_by" in receipt]:
            if corrections == settings.max_corrections or "status" not in failures[0]:
                return _fail(view, f"a check fails, and the patch is not merged: {describe_receipt(failures[0])}")
            corrections += 1
            text = "A check of your changes fails. Correct them in this folder."
            messages.append({"role": "user", "content": "\n".join([text, *map(describe_receipt, failures)])})
            continue
        yield Act(TurnReply(tool_calls=(ToolCall(call["tool"], call["args"], call["id"]),)))
        if turn.has_asked:
            return "waits"
        result = turn.results[-1]
        merged = parse_object_or_empty(result["output"])
        view.mark_results_shown()
        if result["success"]:
            _answer(view, answer.text, {**merged, **({"checks": receipts} if receipts else {})})
            return "done"
        if "conflict" not in merged or conflicts == settings.max_conflicts:
            return _fail(view, _describe_refusal(settings, view, result))
        conflicts += 1
        view.remark(f"conflict {conflicts} of {settings.max_conflicts} with {call['args']['branch']}")
        messages = [*turn.prompt, _describe_conflict(merged, answer.text)]
    return _fail(view, f"the harness was run {MAX_RUNS} times in one turn and has not finished")


def _describe_refusal(settings: WorkspaceSettings, view: TurnView, result: Mapping[str, Any]) -> str:
    return f"the patch was not merged into {settings.branch_name(view.agent.name)}: {result['output'][:QUOTED_CHARS]}"


def _run_checks(turn: StrategyTurn, settings: WorkspaceSettings, args: Json) -> Generator[Step, Any, list[Json]]:
    """Run the workspace's checks on a patch, up to the first that fails, and return their receipts."""
    receipts: list[Json] = []
    for check in settings.checks:
        call = {"base": args["base"], "patch": args["patch"], "command": check.command, "timeout_s": check.timeout_s}
        result = yield from turn.call(CHECK, call)
        receipt = parse_object_or_empty(result.output)
        receipts.append(receipt or {"command": check.command, "tail": result.output})  # no worker can correct that
        if not result.success:
            break
    return receipts


def _describe_permits(results: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return a message about decided permits, or no message."""
    lines = []
    for result in results:
        if result["tool"] == PERMIT:
            tool = result["args"]["tool"] if isinstance(result.get("args"), dict) else PERMIT
            allowed = (
                "You may use it now, with the input that you asked for." if result["success"] else result["output"]
            )
            lines.append(f"{tool}: {allowed}")
    return [{"role": "user", "content": "\n".join([*lines, "Go on with the task."])}] if lines else []


def describe_receipt(receipt: Mapping[str, Any]) -> str:
    """Return a check's command, its exit status and the end of its output."""
    if "status" not in receipt:
        return f"{' '.join(receipt['command'])} cannot be run: {receipt['tail']}"
    ended = f" ({receipt['ended_by']})" if "ended_by" in receipt else ""
    return f"{' '.join(receipt['command'])} exited with {receipt['status']}{ended}:\n{receipt['tail']}"


def _answer(view: TurnView, text: str, merged: Json) -> None:
    """Write the answer to the turn's request, or a report."""
    payload: Json = {"text": text or "done"}
    if commit := merged.get("merged") or merged.get("already"):  # a gate may withhold a call's output
        payload |= {"branch": merged.get("branch"), "commit": commit}
    payload |= {"checks": merged["checks"]} if "checks" in merged else {}
    if view.request and view.request.request:
        view.write_entry(NewEntry("response", payload, []), view.snapshot["at"])
    elif view.remaining_entries:
        kinds = [kind for kind in view.agent.turn.kinds if kind != "response"] or ["report"]
        view.write_entry(NewEntry("report" if "report" in kinds else kinds[0], payload, []), view.snapshot["at"])


def _fail(view: TurnView, reason: str) -> End:
    """Answer the request with the reason, so that nobody waits and the harness is not run again by itself."""
    if view.request and view.request.request:
        view.fail_request(reason)
        return "done"
    return view.fail(ProviderError(reason[:QUOTED_CHARS]))


def _describe_conflict(merged: Json, text: str) -> Message:
    """Return the message that tells the harness about a conflict. Its new clone holds the branch as it is now."""
    lines = [
        "Your earlier changes conflict with changes that others made meanwhile. This folder now holds the branch with their",
        "changes and without yours. Make your changes again so that they fit. Your earlier answer was:",
        text[:QUOTED_CHARS],
    ]
    for path, sides in merged["conflict"].items():
        for side in ("base", "branch", "worker"):
            heading = {"base": "before", "branch": "on the branch now", "worker": "as you left it"}[side]
            lines += [f"--- {path}, {heading}:", str(sides.get(side, "(no file)"))[:QUOTED_CHARS]]
    return {"role": "user", "content": "\n".join(lines)}


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
    provider = HARNESSES[effect.entry.provider](**effect.entry.options, base=Path(live.base))
    running = {
        "agent": turn.agent.name, "tick": turn.tick, "call": effect.number, "harness": effect.entry.provider,
        "model": effect.entry.model, "workspace": settings.repository,
        "branch": settings.branch_name(turn.agent.name), "since": live.tick_context.at,
    }  # fmt: skip
    remove_stale_attempts(Path(live.base), turn.agent.name, job.key)
    note_running(org, attempt, running)
    deadline_s = min(provider.deadline_s, effect.request.turn_s)
    request = effect.request._replace(extra={JOB: asdict(job)}, deadline_s=deadline_s)
    try:
        outcome = yield replace(effect, request=request)
    except Exception:
        note_ended(org, attempt)
        raise
    note_ended(org, attempt)
    if not isinstance(outcome, Allowed) or JOB not in (getattr(outcome.answer, "kept", None) or {}):
        assert isinstance(outcome, Outcome), "the chain returns an outcome for each effect"
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
    # The branch's head as the tick opened, or at the last conflict.
    base = [snapshot["base"], *(output["head"] for output in _iter_outputs(live, MERGE) if "conflict" in output)][-1]
    last = _find_last_outcome(live)
    if permits and not last:  # permitted by a person since the turn that asked: that run goes on
        last = {"patch": "", **permits[-1]["run"]}
        base = last["base"]
    key, run, patch = f"{turn.tick}-{turn.agent.name}-{effect.number}", 0, ""
    if last and last["base"] == base:  # no conflict since: the run goes on in the same clone
        key, run = last["key"], last["run"] + 1
        patch = b64encode(load_patch(org, last["patch"])).decode() if last["patch"] else ""
    elsewhere = live.tick_context.config.org.executor in provided("executors")
    repository = open_repository(locate_repository(live.base, settings.repository))
    return WorkerJob(
        key=key, run=run, base=base, at=str(snapshot["at"]), agent=turn.agent.name, model=effect.entry.model,
        repository="" if elsewhere else f"{repository.git_dir}",
        bundle=b64encode(make_bundle(repository, base)).decode() if elsewhere else "", patch=patch,
        is_confined=settings.sandbox == "required", is_full_copy=settings.copy == "full",
        max_file_bytes=settings.max_file_bytes,
        max_cost_usd=effect.entry.max_cost_usd if effect.request.max_cost_usd is None else effect.request.max_cost_usd,
        prices=_get_prices(effect.entry), readable=settings.readable, grants=[permit["grant"] for permit in permits],
    )  # fmt: skip


def _iter_outputs(live: LivePhase, tool: str) -> Iterator[Json]:
    """Yield the outputs of the turn's recorded calls of a tool, in order, without outputs of refused calls."""
    for number in sorted(live.results):
        if live.results[number].tool == tool and (output := parse_object_or_empty(live.results[number].output)):
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
    files = tuple(ChangedFile(**file) for file in facts["files"])
    summary = next(filter(None, map(str.strip, text.splitlines())), f"change {format_count(len(files), 'file')}")
    changes = TakenTree(facts["tree"], patch, files, flags=facts["flags"])
    branch = settings.branch_name(turn.agent.name)
    args = make_merge_arguments(settings.repository, branch, facts["base"], changes, summary=summary)
    return {"id": "merge", "tool": MERGE, "args": args}
