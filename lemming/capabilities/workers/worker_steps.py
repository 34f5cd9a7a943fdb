"""Steps of a worker's turn: run the harness, merge its patch, answer.

    ask  ->  checks  ->  merge (gates, judges and persons decide)  ->  answer
         <-  a check fails: go on in the same clone
                     <-  a conflict: again, on the branch as it is now

A call that waits for a person ends the turn. The turn after the decision has its result before anything is asked, and
answers without another run if the patch was merged.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from lemming.capabilities.workers.evidence_tools import CHECK, PERMIT
from lemming.capabilities.workers.merge_tool import MERGE
from lemming.capabilities.workers.worker_job import JOB
from lemming.capabilities.workers.workspace_settings import WorkspaceSettings, get_workspace
from lemming.ext import NewEntry, Steps, ToolCall, TurnReply, TurnView
from lemming.kernel.base.errors import ProviderError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.providers import Message
from lemming.kernel.turn.strategy import Turn as StrategyTurn
from lemming.kernel.turn.turn_values import Act, Step

MAX_RUNS = 20
"""Runs of a turn: a harness that asks for a permit again and again would never end."""
QUOTED_CHARS = 6_000


def take_worker_turn(view: TurnView) -> Steps:
    """Run the harness until its patch is merged, waits for a person, or cannot be merged."""
    turn, settings = view.strategy_turn, get_workspace(view.agent)
    assert settings, "its record says so"
    messages, conflicts, corrections = turn.prompt, 0, 0
    earlier_merges = [item for item in view.results if item["tool"] == MERGE]  # of calls that a person has approved
    if earlier_merges:
        merged = parse_output(earlier_merges[-1])
        if earlier_merges[-1]["success"]:
            view.mark_results_shown()
            _answer(view, _find_last_answer(messages), merged)
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
        if outcome["questions"]:
            yield from _request_permits(outcome)
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
            messages.append(_describe_failures(failures))
            continue
        yield Act(TurnReply(tool_calls=(ToolCall(call["tool"], call["args"], call["id"]),)))
        if turn.has_asked:
            return "waits"
        result = turn.results[-1]
        merged = parse_output(result)
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


def _request_permits(outcome: Mapping[str, Any]) -> Generator[Step, Any, None]:
    """Make a call for each question of the harness that waits for a decision: gates and persons decide about calls."""
    run = {name: outcome[name] for name in ("key", "run", "base")}
    calls = [
        ToolCall(PERMIT, {"tool": question["tool"], "input": question["input"], "run": run})
        for question in outcome["questions"]
    ]
    yield Act(TurnReply(tool_calls=tuple(calls)))


def _run_checks(turn: StrategyTurn, settings: WorkspaceSettings, args: Json) -> Generator[Step, Any, list[Json]]:
    """Run the workspace's checks on a patch, up to the first that fails, and return their receipts."""
    receipts: list[Json] = []
    for check in settings.checks:
        call = {"base": args["base"], "patch": args["patch"], "command": check.command, "timeout_s": check.timeout_s}
        result = yield from turn.call(CHECK, call)
        receipt = parse_output({"output": result.output})
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


def _describe_failures(failures: Sequence[Mapping[str, Any]]) -> Message:
    texts = ["A check of your changes fails. Correct them in this folder.", *map(describe_receipt, failures)]
    return {"role": "user", "content": "\n".join(texts)}


def _find_last_answer(messages: list[Message]) -> str:
    """Return the harness's text from the turn whose call waited for a person."""
    texts = [message["content"] for message in messages if message["role"] == "assistant"]
    return str(texts[-1]) if texts else ""


def parse_output(result: Mapping[str, Any]) -> Json:
    """Return the JSON object in a call's output, such as `merged` or `conflict`; {} for a refused call."""
    try:
        value = parse(result["output"])
    except JsonProblem:
        return {}
    return value if isinstance(value, dict) else {}


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
