"""Capability of judges: a turn's draft is checked before publication, and rewritten if rejected."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from lemming.capabilities.judges.judge_prompts import (
    iter_program_entries,
    resolve_judges,
)
from lemming.capabilities.judges.judged_turn import DraftWrites, VerificationLoop, truncate_for_judge
from lemming.capabilities.judges.judges_validation import (
    iter_named_judges,
    program_permission,
)
from lemming.capabilities.requests.team_tools import build_team_tools
from lemming.ext import (
    Allowed,
    BuildPrompt,
    CallTool,
    Capability,
    CarryOut,
    DescribeQuery,
    Effect,
    Interception,
    Interceptor,
    ModelEntry,
    Preparation,
    Rejected,
    RunTurn,
    StateQuery,
    TakeReply,
    TurnView,
    describe_task,
    resume_file,
)
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.base.errors import NotVerified
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.obligations.current_request import NOT_ANSWERED
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.capability_table import JUDGES


class JudgesCapability(Capability):
    """Judges of drafts, set by the key `verify` of a resume, of a team member, or of a plan's step."""

    name = JUDGES
    describes = (ModelEntry,)
    handles = (CallTool, TakeReply, CarryOut)

    def preparer(self, turn: Preparation) -> Interceptor:
        """Return the interceptor that resolves the judges of a turn."""
        return Interceptor(self.name, (BuildPrompt,), self.facts, turn.get_cache(TurnJudges).intercept)

    def prepare(self, turn: Preparation) -> Json | None:
        """Return the judges of the turn, and the task as shown to them."""
        return turn.get_cache(TurnJudges).to_snapshot()

    def interceptor(self, turn: TurnView) -> Interceptor:
        """Return the interceptor of a judged turn."""
        return Interceptor(self.name, self.handles, self.facts, turn.get_cache(JudgedDraft).intercept)

    def wrap_turn(self, turn: TurnView, run: RunTurn) -> End:
        """Have the draft judged, and rewritten if rejected."""
        try:
            return VerificationLoop(turn, turn.get_cache(JudgedDraft).writes, run).run()
        except NotVerified as error:
            return turn.fail(error)

    def describe(self, query: DescribeQuery) -> Iterator[ModelEntry]:
        """Yield the programs of recorded judges."""
        assert isinstance(query, StateQuery), "a judge's program is of a snapshot"
        yield from iter_program_entries(query.state["by"])


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield the permissions for programs that judge agents' drafts."""
    for agent in agents:
        for pointer, author, settings in iter_named_judges(agent):
            location = f"{resume_file(agent.name)}#{pointer}"
            yield from program_permission(org.base, settings.by, f"what {author} writes", location)


class TurnJudges:
    """The judges of a turn, and their policies."""

    def __init__(self, turn: Preparation) -> None:
        self._turn = turn
        self._judges: list[dict[str, Any]] = []
        self._pending_indexes: Collection[int] = ()

    def intercept(self, effect: BuildPrompt) -> Interception:
        """Resolve the judges of the turn, and add their policy files to the files read by the turn.

        Raises: ConfigError for a missing judge.
        """
        context = self._turn.context
        self._judges, files = resolve_judges(
            context.tick_context, context.agent, effect.selected.task, context.unwritten_files
        )
        self._pending_indexes = effect.selected.pending_indexes
        return (yield effect.change(source_paths=[*effect.prompt.source_paths, *files]))

    def to_snapshot(self) -> Json | None:
        """Return the judges, and the task as shown to them, or None without judges."""
        prompt = self._turn.context.prompt
        if not self._judges or prompt is None:
            return None
        rules = [text for judge in self._judges for text in (judge.get("policy"), judge.get("instructions"))]
        task_text = describe_task(prompt, filter(None, rules), self._pending_indexes)
        return {"by": self._judges, **({"shown": truncate_for_judge(task_text)} if task_text else {})}


class JudgedDraft:
    """The draft of a judged turn. The snapshot holds the judges in order, each as a `ResolvedJudge`."""

    def __init__(self, turn: TurnView) -> None:
        self._turn, self.writes = turn, DraftWrites()

    def intercept(self, effect: Effect) -> Interception:
        """Block handing off a judged request, refuse an empty rewrite, and note a draft's writes."""
        match effect:
            case CallTool():
                return self._block_handoff(effect)
            case TakeReply():
                task, says_anything = self._turn.request, effect.reply.outbox_entries or effect.reply.tool_calls
                if self.writes.is_sent_back and task and task.request and not says_anything:
                    return Rejected(NOT_ANSWERED)
            case CarryOut():
                outcome = yield effect
                if effect.has_seen and isinstance(outcome, Allowed):  # writes of a strategy itself are excluded
                    self.writes.record(outcome.answer)
                return outcome
        return None

    def _block_handoff(self, effect: CallTool) -> Interception:
        """Block handing off a request whose asker has the answer judged."""
        tool = build_team_tools(self._turn.agent).get(effect.tool)
        asker = next((judge["asker"] for judge in self._turn.snapshot["by"] if "asker" in judge), "")
        if tool is None or not tool.is_handoff or not asker:
            return None
        return Rejected(f"refused: {asker} has your answer judged; answer it yourself")
