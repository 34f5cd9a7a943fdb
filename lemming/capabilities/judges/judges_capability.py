"""Capability of judges: a turn's draft is checked before publication, and rewritten if rejected."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from lemming.capabilities.judges.judged_turn import DraftWrites, VerificationLoop, truncate_for_judge
from lemming.capabilities.judges.judges_settings import (
    JudgeReference,
    JudgeSettings,
    get_judge_settings,
    parse_judge_target,
)
from lemming.capabilities.judges.resolved_judges import iter_program_entries, resolve_judges
from lemming.capabilities.requests.requests_settings import get_team
from lemming.capabilities.requests.team_tools import build_team_tools
from lemming.ext import (
    AgentSubject,
    Allowed,
    BuildPrompt,
    CallTool,
    Capability,
    CarryOut,
    DescribeQuery,
    Effect,
    Interception,
    Inventory,
    ModelEntry,
    Preparation,
    Problem,
    Rejected,
    RunTurn,
    StateQuery,
    TakeReply,
    TurnView,
    describe_task,
    make_warning,
)
from lemming.kernel.access.agent_files import read_text
from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import NotVerified
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files.disk_errors import FILE_ERRORS
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.obligations.current_request import NOT_ANSWERED
from lemming.kernel.org.capability_usage import resolve_turn_policy
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_table import JUDGES
from lemming.kernel.providers import is_person
from lemming.libraries import permission_bindings


class JudgesCapability(Capability):
    """Judges of drafts, set by the key `verify` of a resume, of a team member, or of a plan's step."""

    name = JUDGES
    describes = (ModelEntry,)
    handles = (BuildPrompt, CallTool, TakeReply, CarryOut)

    def prepare(self, turn: Preparation) -> Json | None:
        """Return the judges of the turn, and the task as shown to them."""
        return turn.get_cache(TurnJudges).to_snapshot()

    def intercept(self, effect: Any, turn: Preparation | TurnView) -> Interception:
        """Resolve the judges of a turn, and note the draft that they will judge."""
        if isinstance(turn, Preparation):
            return turn.get_cache(TurnJudges).intercept(effect)
        return turn.get_cache(JudgedDraft).intercept(effect)

    def wrap_turn(self, turn: TurnView, run: RunTurn) -> End:
        """Have the draft judged, and rewritten if rejected."""
        try:
            return VerificationLoop(turn, turn.get_cache(JudgedDraft).writes, run).run()
        except NotVerified as error:
            return turn.fail(error)

    def describe(self, query: DescribeQuery) -> Iterator[ModelEntry]:
        """Yield the programs of recorded judges."""
        assert isinstance(query, StateQuery), "a judge is described by its snapshot"
        yield from iter_program_entries(query.state["by"])


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield the permissions for programs that judge agents' drafts."""
    for agent in agents:
        for pointer, author, settings in iter_named_judges(agent):
            location = f"{paths.resume_file(agent.name)}#{pointer}"
            yield from program_permission(org.base, settings.by, f"what {author} writes", location)


class TurnJudges:
    """The judges of a turn, and their policies."""

    def __init__(self, turn: Preparation) -> None:
        self._turn = turn
        self._judges: list[dict[str, Any]] = []
        self._pending_indexes: Collection[int] = ()

    def intercept(self, effect: BuildPrompt) -> Interception:
        """Resolve the judges of the turn; add their policies to the files that it reads. Raises: ConfigError."""
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
                request, says_anything = self._turn.request, effect.reply.outbox_entries or effect.reply.tool_calls
                if self.writes.is_sent_back and request and request.request and not says_anything:
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


def find_missing_judges(subject: AgentSubject) -> Iterator[Problem]:
    """Yield the names of missing judges."""
    for pointer, _, settings in iter_named_judges(subject.agent):
        if reason_and_hint := judge_error(subject.names, settings.by):
            yield Problem(reason_and_hint[0], pointer=f"{pointer}/by", hint=reason_and_hint[1])


def judge_error(inventory: Inventory, by: JudgeReference) -> tuple[str, str] | None:
    """Return the reason a named judge is missing, with a hint, or None."""
    target = parse_judge_target(by)
    candidates = target.list_candidates(inventory.agent_names, inventory.config.models)
    if target.kind == "command" or target.name in candidates:
        return None
    hint = did_you_mean(target.name, candidates) or f"there is {', '.join(candidates)}"
    return f'there is no {target.kind_text} "{target.name}"', hint


def iter_named_judges(agent: Agent) -> Iterator[tuple[str, str, JudgeSettings]]:
    """Yield the judges named in an agent's resume: pointer, author and judge settings."""
    if own_settings := get_judge_settings(agent):
        yield "/verify", agent.name, own_settings
    team = get_team(agent)
    for index, member in enumerate(team.ask_members if team else ()):
        if settings := get_judge_settings(member):
            yield f"/team/ask/{index}/verify", member.agent, settings


def find_judge_problems(subject: AgentSubject) -> Iterator[Problem]:
    """Yield problems of the judges named in an agent's resume."""
    base, agent, config, file = subject.org, subject.agent, subject.config, subject.file
    agents = survey_agents(base).agents
    for pointer, author, settings in iter_named_judges(agent):
        yield from validate_judge(base, agent, author, settings, file, pointer, config)
        if author in agents and author != agent.name and agents[author].turn.take == "all":
            message = f"{author} takes all requests in one turn: its answers are not judged"
            hint = f'set "take": "one" in turn of {paths.resume_file(author)}'
            yield Problem(message, file, pointer=pointer, hint=hint)


def validate_judge(
    base: OrgPath,
    owner: Agent,
    author: str,
    settings: JudgeSettings,
    file: str,
    pointer: str,
    config: Config,
    *,
    is_new: bool = False,
) -> Iterator[Problem]:
    """Yield problems of a judge named in a file of an agent. `is_new`: also report missing names."""
    agents = survey_agents(base).agents
    yield from validate_judge_name(base, settings.by, file, pointer, config, is_new=is_new)
    if author in agents:
        yield from _author_problems(agents[author], file, pointer, config)
        yield from _policy_problems(base, owner, agents[author], settings, file, pointer)


def program_permission(base: OrgPath, by: JudgeReference, subject: str, location: str) -> Iterator[RequiredPermission]:
    """Yield the permission for a judge program, if the judge is a program."""
    if (target := parse_judge_target(by)).kind == "command":
        command = [*target.command]
        description = f"runs the program: {' '.join(command)}, which judges {subject}"
        yield RequiredPermission(
            description,
            permission_bindings.digest_command(base, f"{location}/by", by, command, "."),
            needs_agreement=True,
        )


def validate_judge_name(
    base: OrgPath, judge_name: JudgeReference, file: str, pointer: str, config: Config, *, is_new: bool = False
) -> Iterator[Problem]:
    """Yield a problem if the named judge cannot judge.

    `is_new`: also report missing names. Otherwise a missing name excludes the agent and is reported there.
    """
    by, survey = parse_judge_target(judge_name), survey_agents(base)
    agents = survey.agents
    by_pointer = f"{pointer}/by"
    if by.kind == "command":
        return
    if by.kind != "model" and by.name in agents:
        key, prefix = agents[by.name].model.key, f"{by.name}, whose model key is "
    elif by.kind != "agent" and by.name in config.models:
        key, prefix = by.name, ""
    else:
        if not is_new and (by.name not in survey.broken or by.kind == "model"):
            return
        hint = did_you_mean(by.name, by.list_candidates(agents, config.models))
        hint = hint or "name an agent with a valid resume, or a key of config/models.json"
        yield Problem(f'there is no {by.kind_text} "{by.name}"', file, pointer=by_pointer, hint=hint)
        return
    if not is_new and by.kind != "model" and by.name in agents:
        habits = resolve_turn_policy(agents[by.name], config)
        if habits.is_asked and habits.wake != "addressed" and not agents[by.name].permissions.read_outboxes:
            message = f"{by.name} is a judge and also takes turns, in which it reads no outboxes"
            hint = f'set "wake": "addressed" in schedule of {paths.resume_file(by.name)} to let it only judge'
            yield make_warning(message, by_pointer, hint, file)
    entry = config.models.get(key)
    plugins = config.org.plugins
    if entry and (entry.prompt == "values" or is_person(entry.provider, plugins) or key in config.channel_keys):
        message = f'{prefix}"{key}" cannot judge: its provider is {entry.provider}'
        hint = "name a model that answers within a turn; ask people with a plan step or a request"
        yield Problem(message, file, pointer=by_pointer, hint=hint)


def _author_problems(author: Agent, file: str, pointer: str, config: Config) -> Iterator[Problem]:
    """Yield a problem if no model writes, so there is no draft to judge."""
    if config.is_person(author) or config.is_channel(author) or not resolve_turn_policy(author, config).is_asked:
        hint = "remove it: entries of people and channels are not judged"
        yield Problem(f"{author.name} takes no turns: verify has no effect", file, pointer=pointer, hint=hint)
    elif resolve_turn_policy(author, config).is_written:
        message = f"{author.name} follows a plan, which cannot revise its draft: only the first draft is judged"
        hint = "verify the steps of the plan"
        yield make_warning(message, pointer, hint, file)


def _policy_problems(
    base: OrgPath, owner: Agent, author: Agent, settings: JudgeSettings, file: str, pointer: str
) -> Iterator[Problem]:
    """Yield problems of a policy file: missing, or writable by the author."""
    if not settings.policy_file:
        return
    policy_pointer = f"{pointer}/policy"
    try:
        policy_path = resolve_path(owner, Path(base), settings.policy_file, "read", caller="verify.policy")
        read_text(policy_path, {})
    except FILE_ERRORS as error:
        yield Problem(error.message, file, pointer=policy_pointer, hint=error.hint or "name a file it may read")
        return
    try:
        full_path = str(Path(base) / policy_path.path_key)
        writable_path = resolve_path(author, Path(base), full_path, "write", caller="verify.policy")
    except FILE_ERRORS:
        return
    if writable_path.path_key == policy_path.path_key:
        message = f"{author.name} may write {settings.policy_file}, the policy of its own judge"
        hint = "move it out of its permissions.file_access.allow_write"
        yield make_warning(message, policy_pointer, hint, file)
