"""Capability of goals: the key `until` of a request holds its answer back until the goal is reached."""

from __future__ import annotations

from dataclasses import replace

from lemming.capabilities.goals.goal_checks import make_permission
from lemming.capabilities.goals.goal_loop import GoalLoop
from lemming.capabilities.goals.goal_settings import GOAL_POLICY, UNTIL, format_command, parse_goal, require_judge
from lemming.capabilities.judges.judge_prompts import iter_judge_files, resolve_judge
from lemming.capabilities.requests.team_tools import build_team_tools
from lemming.ext import (
    BuildPrompt,
    CallTool,
    Capability,
    ConfigError,
    Effect,
    EffectPerformed,
    EndTurn,
    Event,
    Interception,
    Interceptor,
    LemmingError,
    Preparation,
    Rejected,
    RunTurn,
    ShowEntry,
    TurnView,
    describe_task,
)
from lemming.kernel.access.workspace_trust import WorkspaceTrust
from lemming.kernel.files.fast_decoder import TypeMismatch
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.messages import OutboxEntry, parse_identities


class GoalsCapability(Capability):
    """Goals of requests: the asker's key `until`, and nothing else, says what must hold."""

    name = "goals"
    handles = (CallTool, EndTurn)

    def preparer(self, turn: Preparation) -> Interceptor:
        """Return the interceptor that resolves the goal of the turn's request."""
        return Interceptor(self.name, (ShowEntry, BuildPrompt), self.facts, turn.get_cache(TurnGoal).intercept)

    def prepare(self, turn: Preparation) -> Json:
        """Return the goal of the turn's request with the number of the turn, or why the request must fail."""
        return turn.get_cache(TurnGoal).snapshot

    def intercept(self, effect: Effect, turn: TurnView) -> Interception:
        """Refuse to hand the request on: the next holder would answer unchecked."""
        if isinstance(effect, CallTool) and "turn" in turn.snapshot:
            tool = build_team_tools(turn.agent).get(effect.tool)
            if tool is not None and tool.is_handoff:
                return Rejected("refused: your answer is checked; answer it yourself")
        return None

    def wrap_turn(self, turn: TurnView, run: RunTurn) -> End:
        """Hold the answer back until the goal is reached."""
        return run() if "ended" in turn.snapshot else turn.get_cache(GoalLoop).run(run)

    def reduce(self, state: Json, event: Event, turn: TurnView) -> Json:
        """Return the number of checked turns of each open request, by its identity."""
        if not (isinstance(event, EffectPerformed) and isinstance(event.effect, EndTurn)):
            return state
        current, loop = turn.request.request if turn.request else "", turn.get_cache(GoalLoop)
        open_requests = {current, *(item.request for item in turn.inputs.state.requests)}
        counts = {identity: count for identity, count in state.items() if identity in open_requests}
        if loop.is_over:
            counts.pop(current, None)
        return {**counts, current: loop.turns} if loop.turns else counts


class TurnGoal:
    """The goal of one turn's request, as the asker's entry has it."""

    def __init__(self, turn: Preparation) -> None:
        self._turn = turn
        self.snapshot: Json = {}

    def intercept(self, effect: Effect) -> Interception:
        """Resolve the goal. In an inbox, where no answer is checked, leave out a request with one."""
        match effect:
            case ShowEntry(part="unread" | "inbox-request", entry=OutboxEntry(kind="request") as entry):
                if UNTIL in entry.payload and self._turn.agent.name in entry.targets:
                    return Rejected("until: requests that are taken with the inbox are not checked")
            case BuildPrompt():
                return self._resolve(effect)
        return None

    def _resolve(self, effect: BuildPrompt) -> Interception:
        turn, task = self._turn, effect.selected.task
        identity = task.open_request.request if task else ""
        request = self._read_request(identity)
        if request is None or task is None:
            is_stale = turn.state.keys() - {item.request for item in turn.context.state.requests}
            self.snapshot = {"ended": True} if is_stale else {}
            return None
        try:
            self.snapshot, files = self._make_snapshot(effect, request, turn.state.get(identity, 0) + 1)
        except (LemmingError, TypeMismatch) as error:
            hint = getattr(error, "hint", "")
            self.snapshot, files = {"blocked": f"{error}{f' ({hint})' if hint and hint not in str(error) else ''}"}, []
        return (yield effect.change(source_paths=[*effect.prompt.source_paths, *files]))

    def _read_request(self, identity: str) -> OutboxEntry | None:
        """Return the entry of a request with a goal: as it was written, whatever gates show of it."""
        name = next(iter(parse_identities([identity])), None) if identity else None
        entry = self._turn.context.tick_context.mail.read(name) if name else None
        if not isinstance(entry, OutboxEntry):
            return None
        original = entry.payload.get("asked") if "hands_on" in entry.payload else entry.payload
        return replace(entry, payload=original) if isinstance(original, dict) and UNTIL in original else None

    def _make_snapshot(self, effect: BuildPrompt, request: OutboxEntry, number: int) -> tuple[Json, list[str]]:
        """Return the record of the goal, and the files of its judge.

        Raises: TypeMismatch for an invalid goal, LemmingError for a missing judge or agreement.
        """
        turn, goal, context = self._turn, parse_goal(request.payload[UNTIL]), self._turn.context
        tick_context, is_person = context.tick_context, request.agent in context.tick_context.mail.persons
        if goal.checks and not is_person:
            raise ConfigError(f"until.checks: only a person's request may name programs, not one of {request.agent}")
        for command in goal.checks:
            if not turn.org.get_cache(WorkspaceTrust).is_granted(make_permission(command, tick_context.config.org)):
                hint = "agree with `lemming trust --yes`, and ask again"
                raise ConfigError(f"until.checks: nobody has agreed to run {format_command(command)}", hint=hint)
        require_judge(goal, tick_context.mail.resumes, tick_context.config.models)
        record: Json = {"turn": number, "max_turns": goal.max_turns, "checks": goal.checks}
        if (settings := goal.judge_settings) is None:
            return record, []
        owner = None if is_person else tick_context.mail.resumes.get(request.agent)
        judge = resolve_judge(tick_context, context.agent, settings, owner, context.unwritten_files, location=UNTIL)
        if not (judge.get("policy") or judge.get("instructions")):
            judge["policy"] = GOAL_POLICY
        rules = filter(None, (judge.get("policy"), judge.get("instructions")))
        shown = describe_task(effect.prompt, rules, effect.selected.pending_indexes)
        return {**record, "judge": judge, "shown": shown[:40_000]}, [*iter_judge_files(tick_context, settings, owner)]
