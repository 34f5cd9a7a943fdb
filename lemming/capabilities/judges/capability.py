"""What judges do in a turn: they pass what it would publish, or have it written again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from lemming.capabilities.judges.judge import entry_of_command, files_of_judges, judges_of
from lemming.capabilities.judges.problems import (
    judges_named_by,
    problems_of_judges,
    program_reach,
    why_no_judge,
)
from lemming.capabilities.judges.verified import cut_shown, verified
from lemming.capabilities.judges.withdrawing import Own
from lemming.capabilities.requests.request_turn import NOT_ANSWERED
from lemming.capabilities.requests.team import team_tools
from lemming.kernel.access.trust import Reach
from lemming.kernel.base.contract import ToolCall, TurnReply
from lemming.kernel.base.errors import ContractError, NotVerified, Problem
from lemming.kernel.base.paths import resume_file
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.report import End
from lemming.kernel.mail.task import Task
from lemming.kernel.org.config import Config
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.shipped import JUDGES
from lemming.kernel.tick.soundness.inventory import Inventory
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.forms.task_words import describe_task
from lemming.kernel.turn.seams import Capability, Drive, Moment, No, Preparation, Showing, TurnPart
from lemming.kernel.turn.seen import Seen
from lemming.kernel.turn.strategy import Turn
from lemming.kernel.turn.values import Steps


class Judges(Capability):
    """Judges of drafts, which the key `verify` asks for: of a resume, of one of a team, of a plan's step."""

    name = JUDGES

    def prepare(self, moment: Moment) -> Preparation:
        """Return what it has of what a turn starts from."""
        return JudgesPreparation(moment)

    def model_of(self, given: Json, key: str) -> ModelEntry | None:
        """Return the line that a judging program would have."""
        return entry_of_command(given["by"], key)

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return its part in a turn that is judged."""
        return JudgesPart(self.name, draft, given)

    def wrong_with(self, agent: Agent | None, known: Inventory) -> Iterator[tuple[str, str, str]]:
        """Yield those who can never judge, as there is nobody of that name."""
        for pointer, _, said in judges_named_by(agent) if agent else ():
            if why := why_no_judge(known, said.by):
                yield f"{pointer}/by", *why

    def problems_of_key(self, base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
        """Yield what keeps those from judging whom a resume names."""
        if agent is not None:
            yield from problems_of_judges(base, agent, config)

    def reaches(
        self, org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
    ) -> Iterator[Reach]:
        """Yield the programs that judge what agents write."""
        for agent in agents:
            for pointer, author, said in judges_named_by(agent):
                place = f"{resume_file(agent.name)}#{pointer}"
                yield from program_reach(org.base, said.by, f"what {author} writes", place)


class JudgesPreparation(Preparation):
    """Looks up who judges a turn, and by what."""

    def __init__(self, moment: Moment) -> None:
        super().__init__(moment)
        self._task: Task | None = None

    def shows(self, shown: Showing) -> Showing:
        """Take note of what the turn is for."""
        self._task = shown.task
        return shown

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Look up who must pass what the turn would publish; raise `ConfigError` for who cannot be found."""
        about = self.moment.now, self.moment.agent, self._task
        self._judges, self._seen, self._to_come = judges_of(*about, self.moment.held), seen, shown.to_come
        seen.told_by = [*seen.told_by, *files_of_judges(*about)]

    def given(self) -> Json:
        """Return who must pass what the turn would publish, and what it is held against."""
        if not self._judges:
            return {}
        rules = [text for judge in self._judges for text in (judge.get("policy"), judge.get("instructions"))]
        shown = describe_task(self._seen, filter(None, rules), self._to_come)
        return {"by": self._judges, **({"shown": cut_shown(shown)} if shown else {})}


class JudgesPart(TurnPart):
    """The judging of one turn. `given`: who judges it, each as a `Judge`, in their order."""

    def __init__(self, name: str, draft: Draft, given: Json) -> None:
        super().__init__(name, draft, given)
        self._own = Own()

    def drives(self, turn: Turn, drive: Drive, steps: Steps) -> End:
        """Have judged what the turn would publish, and written again what does not pass."""
        try:
            return verified(self.draft, self._own, self.given, turn, drive, steps)
        except NotVerified as error:
            return self.draft.stop(error)

    def reads(self, reply: TurnReply) -> None:
        """Refuse a reply that says nothing, where an answer is to be written again."""
        task, says_anything = self.draft.task, reply.outbox_entries or reply.tool_calls
        if self._own.is_sent_back and task and task.request and not says_anything:
            raise ContractError(NOT_ANSWERED)

    def replied(self, first: int, written: int, before: Mapping[str, FileEffect], *, has_seen: bool) -> None:
        """Note what may have to be taken back: not what a strategy does for itself."""
        if has_seen:
            self._own.note(self.draft, self.draft.entries[first : first + written], before)

    def before_call(self, call: ToolCall) -> ToolCall | No:
        """Keep a request from being handed on whose answer is judged for who asked."""
        tool = team_tools(self.draft.inputs.agent).get(call.tool)
        asker = next((judge["asker"] for judge in self.given["by"] if "asker" in judge), "")
        if tool is None or not tool.hands_on or not asker:
            return call
        return No(f"refused: {asker} has your answer judged; answer it yourself")
