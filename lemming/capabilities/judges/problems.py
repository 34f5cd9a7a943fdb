"""Who judges: what is wrong with those whom `verify` names, and which programs judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lemming.capabilities.judges.settings import JudgedBy, WhoJudges, judge_named, verify_of
from lemming.capabilities.requests.settings import team_of
from lemming.kernel.access import bound
from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.access.open import read_text
from lemming.kernel.access.trust import Reach
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.files.refusals import OF_A_FILE
from lemming.kernel.org.config import Config
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.uses import habits_of
from lemming.kernel.providers import is_channel, is_person
from lemming.kernel.tick.soundness.inventory import Inventory


def why_no_judge(known: Inventory, by: WhoJudges) -> tuple[str, str] | None:
    """Return why nobody of that name can judge, and what to do; None when somebody may."""
    who = judge_named(by)
    there = [
        *(known.names if who.kind != "model" else ()),
        *(known.config.models if who.kind != "agent" else ()),
    ]
    if who.kind == "command" or who.name in there:
        return None
    what = {"agent": "agent", "model": "model key"}.get(who.kind, "agent and no model key")
    return f'there is no {what} "{who.name}"', nearest(who.name, there) or f"there is {', '.join(there)}"


def judges_named_by(agent: Agent) -> Iterator[tuple[str, str, JudgedBy]]:
    """Yield where an agent's resume names who judges, as a pointer, whose answers, and who does."""
    if own := verify_of(agent):
        yield "/verify", agent.name, own
    team = team_of(agent)
    for index, member in enumerate(team.members if team else ()):
        if said := verify_of(member):
            yield f"/team/ask/{index}/verify", member.agent, said


def problems_of_judges(base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield what keeps those from judging whom an agent's resume names; nothing where it names none."""
    file, agents = paths.resume_file(agent.name), survey_agents(base).agents
    for pointer, author, said in judges_named_by(agent):
        yield from judge_problems(base, said.by, file, pointer, config)
        if author not in agents:
            continue
        asked = agents[author]
        yield from _author_problems(asked, file, pointer, config)
        yield from _policy_problems(base, agent, asked, said, file, pointer)
        if asked.name != agent.name and asked.turn.take == "all":
            message = f"{asked.name} takes all requests in one turn: no answer of its is judged"
            hint = f'"take": "one" in turn of {paths.resume_file(asked.name)}'
            yield Problem(message, file, pointer=pointer, hint=hint)


def problems_of_judge_in_file(
    base: OrgPath, agent: Agent, author: str, said: JudgedBy, file: str, pointer: str, config: Config
) -> Iterator[Problem]:
    """Yield what keeps who is named from judging an author, in a file by which an agent goes."""
    agents = survey_agents(base).agents
    yield from judge_problems(base, said.by, file, pointer, config, is_new=True)
    if author in agents:
        yield from _author_problems(agents[author], file, pointer, config)
        yield from _policy_problems(base, agent, agents[author], said, file, pointer)


def program_reach(base: OrgPath, by: WhoJudges, what: str, place: str) -> Iterator[Reach]:
    """Yield a program that judges, as what running does; nothing where no program does."""
    if (who := judge_named(by)).kind == "command":
        words = [*who.command]
        does = f"runs the program: {' '.join(words)}, which judges {what}"
        yield Reach(does, bound.of_command(base, f"{place}/by", by, words, "."), needs_agreement=True)


def judge_problems(
    base: OrgPath, named: WhoJudges, file: str, pointer: str, config: Config, *, is_new: bool = False
) -> Iterator[Problem]:
    """Yield a problem where nobody of that name can judge.

    `is_new`: of a name that there is not too, which else keeps the agent from running and is told of there.
    """
    by, survey = judge_named(named), survey_agents(base)
    agents = survey.agents
    where = f"{pointer}/by"
    if by.kind == "command":
        return
    if by.kind != "model" and by.name in agents:
        key, who = agents[by.name].model.key, f"{by.name}, whose model key is "
    elif by.kind != "agent" and by.name in config.models:
        key, who = by.name, ""
    else:
        if not is_new and (by.name not in survey.broken or by.kind == "model"):
            return
        known = [*(agents if by.kind != "model" else ()), *(config.models if by.kind != "agent" else ())]
        what = {"agent": "agent", "model": "model key"}.get(by.kind, "agent and no model key")
        hint = (
            nearest(by.name, known) or "name an agent whose resume is sound, or a key of config/models.json"
        )
        yield Problem(f'there is no {what} "{by.name}"', file, pointer=where, hint=hint)
        return
    if not is_new and by.kind != "model" and by.name in agents:
        yield from _turns_of_its_own(agents[by.name], file, where, config)
    entry = config.models.get(key)
    if entry and (entry.prompt == "values" or _speaks_for_others(entry, config)):
        hint = "name a model that answers in a turn; a person is asked by a step of a plan, or by a request"
        yield Problem(f'{who}"{key}" gives no verdict: {entry.provider}', file, pointer=where, hint=hint)


def _turns_of_its_own(judge: Agent, file: str, pointer: str, config: Config) -> Iterator[Problem]:
    """Yield a warning for a judge that reads nobody, and takes turns all the same."""
    habits = habits_of(judge, config)
    if habits.is_asked and habits.wake != "addressed" and not judge.permissions.read_outboxes:
        message = f"{judge.name} judges, and takes turns of its own besides, in which it reads nobody"
        hint = f'"wake": "addressed" in schedule of {paths.resume_file(judge.name)} has it judge alone'
        yield Problem(message, file, pointer=pointer, hint=hint, severity="warning")


def _speaks_for_others(entry: ModelEntry, config: Config) -> bool:
    """Return whether a model key stands for a person or a channel."""
    plugins = config.org.plugins
    return is_person(entry.provider, plugins) or is_channel(entry.provider, plugins)


def _author_problems(author: Agent, file: str, pointer: str, config: Config) -> Iterator[Problem]:
    """Yield a problem where nothing is judged, because no model writes."""
    entry = config.models.get(author.model.key)
    if (entry and _speaks_for_others(entry, config)) or not habits_of(author, config).is_asked:
        hint = "take it out; what a person or a channel says is not judged"
        yield Problem(f"{author.name} takes no turns: nothing is judged", file, pointer=pointer, hint=hint)
    elif habits_of(author, config).is_written:
        message = f"{author.name} follows a plan, which writes no other draft: the first one is judged alone"
        hint = "have the steps' answers judged"
        yield Problem(message, file, pointer=pointer, hint=hint, severity="warning")


def _policy_problems(
    base: OrgPath, owner: Agent, author: Agent, said: JudgedBy, file: str, pointer: str
) -> Iterator[Problem]:
    """Yield what is wrong with the file that a policy is in: it must be there, and not be the author's."""
    if not said.policy_file:
        return
    where = f"{pointer}/policy"
    try:
        place = resolve(owner, Path(base), said.policy_file, "read", caller="verify.policy")
        read_text(place, {})
    except OF_A_FILE as error:
        yield Problem(error.message, file, pointer=where, hint=error.hint or "name a file it may read")
        return
    try:
        written = resolve(author, Path(base), str(Path(base) / place.key), "write", caller="verify.policy")
    except OF_A_FILE:
        return
    if written.key == place.key:
        message = f"{author.name} may write {said.policy_file}, by which it is judged"
        hint = "keep it where its permissions.file_access.allow_write does not reach"
        yield Problem(message, file, pointer=where, hint=hint, severity="warning")
