"""Who judges: what is wrong with `verify` in resumes and plans, and which programs judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lemming.access import bound
from lemming.access.grants import kept_at, resolve
from lemming.access.open import read_text
from lemming.access.trust import Reach
from lemming.agents import Agent, survey_agents
from lemming.base import paths
from lemming.base.errors import DiskError, LemmingError, PermissionDenied, Problem
from lemming.base.jsontext import nearest
from lemming.org.config import Config
from lemming.org.models import ModelEntry
from lemming.org.organisation import OrgPath
from lemming.org.uses import habits_of, named_by
from lemming.org.verification import JudgedBy, judge_named
from lemming.plugins.capabilities import capability_here
from lemming.plugins.shipped import SHIPPED
from lemming.providers import is_channel, is_person
from lemming.turn.moments import Judging

if TYPE_CHECKING:
    from lemming.capabilities.gates.gate import Gate


def problems_of_judges(base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield what keeps those from judging whom an agent's resume names; nothing where it names none."""
    file, agents = paths.resume_file(agent.name), survey_agents(base).agents
    if agent.verify:
        yield from _about(base, agent.verify, file, "/verify", config)
        yield from _about_author(agent, file, "/verify", config)
        yield from _about_policy(base, agent, agent, agent.verify, file, "/verify")
    for index, member in enumerate(agent.team.members if agent.team else ()):
        if member.verify is None:
            continue
        pointer, asked = f"/team/ask/{index}/verify", agents.get(member.agent)
        yield from _about(base, member.verify, file, pointer, config)
        if asked:
            yield from _about_author(asked, file, pointer, config)
            yield from _about_policy(base, agent, asked, member.verify, file, pointer)
            if asked.turn.take == "all":
                message = f"{asked.name} takes all requests in one turn: no answer of its is judged"
                hint = f'"take": "one" in turn of {paths.resume_file(asked.name)}'
                yield Problem(message, file, pointer=pointer, hint=hint)


def problems_of_judges_in_files(base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield what keeps those from judging whom files of capabilities name, of an agent that goes by them."""
    agents = survey_agents(base).agents
    for said, asked, file, pointer in _in_files(base, agent, config):
        yield from _about(base, said, file, pointer, config, is_new=True)
        if asked in agents:
            yield from _about_author(agents[asked], file, pointer, config)
            yield from _about_policy(base, agent, agents[asked], said, file, pointer)


def problems_of_gates_judges(
    base: OrgPath, gates: Iterable[Gate], file: str, config: Config
) -> Iterator[Problem]:
    """Yield what keeps those from judging whom the gates of a file name."""
    for index, gate in enumerate(gates):
        if not gate.by:
            continue
        said = JudgedBy(by=gate.by, policy=gate.policy)
        yield from _about(base, said, file, f"/gates/{index}", config)
        if said.policy_file:
            try:
                read_text(kept_at(Path(base), said.policy_file.removeprefix("./"), caller="policy"), {})
            except LemmingError as error:
                hint = error.hint or "name a file of the organisation"
                yield Problem(error.message, file, pointer=f"/gates/{index}/policy", hint=hint)


def programs_that_judge(base: OrgPath, config: Config, agents: Iterable[Agent]) -> Iterator[Reach]:
    """Yield the programs that judge what agents write."""
    yield from _at_gates(base, config.org.further.get("gates", ()), paths.ORG_FILE)
    for agent in agents:
        file = paths.resume_file(agent.name)
        yield from _at_gates(base, agent.further.get("gates", ()), file)
        said = [(agent.verify, agent.name, f"{file}#/verify")] if agent.verify else []
        for index, member in enumerate(agent.team.members if agent.team else ()):
            said += (
                [(member.verify, member.agent, f"{file}#/team/ask/{index}/verify")] if member.verify else []
            )
        for it in _in_files(base, agent, config):
            said.append((it.by, it.asked, f"{it.file}#{it.pointer}"))
        for judged_by, author, place in said:
            if judged_by.who.kind == "command":
                words = [*judged_by.who.command]
                does = f"runs the program: {' '.join(words)}, which judges what {author} writes"
                bound_to = bound.of_command(base, f"{place}/by", judged_by.by, words, ".")
                yield Reach(does, bound_to, needs_leave=True)


def _at_gates(base: OrgPath, gates: Iterable[Gate], file: str) -> Iterator[Reach]:
    for index, gate in enumerate(gates):
        if gate.by and (by := judge_named(gate.by)).kind == "command":
            words = [*by.command]
            does = f"runs the program: {' '.join(words)}, which judges at a gate of {file}"
            bound_to = bound.of_command(base, f"{file}#/gates/{index}/by", gate.by, words, ".")
            yield Reach(does, bound_to, needs_leave=True)


def _in_files(base: OrgPath, agent: Agent, config: Config) -> Iterator[Judging]:
    """Yield who judges by what files of capabilities say."""
    for name in sorted(named_by(agent, config) & SHIPPED.keys()):
        if (asked := capability_here(name)) is not None:
            yield from asked.judges(base, agent)


def _about(
    base: OrgPath, said: JudgedBy, file: str, pointer: str, config: Config, *, is_new: bool = False
) -> Iterator[Problem]:
    """Yield a problem where nobody of that name can judge; `soundness` tells most, but of plans."""
    by, survey = judge_named(said.by), survey_agents(base)
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
    entry = config.models.get(key)
    if entry and (entry.prompt == "values" or _speaks_for_others(entry, config)):
        hint = "name a model that answers in a turn; a person is asked by a step of a plan, or by a request"
        yield Problem(f'{who}"{key}" gives no verdict: {entry.provider}', file, pointer=where, hint=hint)


def _speaks_for_others(entry: ModelEntry, config: Config) -> bool:
    """Return whether a model key stands for a person or a channel."""
    plugins = config.org.plugins
    return is_person(entry.provider, plugins) or is_channel(entry.provider, plugins)


def _about_author(author: Agent, file: str, pointer: str, config: Config) -> Iterator[Problem]:
    """Yield a problem where nothing is judged, because no model writes."""
    entry = config.models.get(author.model.key)
    if (entry and _speaks_for_others(entry, config)) or not habits_of(author, config).is_asked:
        hint = "take it out; what a person or a channel says is not judged"
        yield Problem(f"{author.name} takes no turns: nothing is judged", file, pointer=pointer, hint=hint)
    elif habits_of(author, config).is_written:
        message = f"{author.name} follows a plan, which writes no other draft: the first one is judged alone"
        hint = "have the steps' answers judged"
        yield Problem(message, file, pointer=pointer, hint=hint, severity="warning")


def _about_policy(
    base: OrgPath, owner: Agent, author: Agent, said: JudgedBy, file: str, pointer: str
) -> Iterator[Problem]:
    """Yield what is wrong with the file that a policy is in: it must be there, and not be the author's."""
    if not said.policy_file:
        return
    where = f"{pointer}/policy"
    try:
        place = resolve(owner, Path(base), said.policy_file, "read", caller="verify.policy")
        read_text(place, {})
    except DiskError:
        raise
    except LemmingError as error:
        yield Problem(error.message, file, pointer=where, hint=error.hint or "name a file it may read")
        return
    try:
        written = resolve(author, Path(base), str(Path(base) / place.key), "write", caller="verify.policy")
    except (PermissionDenied, LemmingError):
        return
    if written.key == place.key:
        message = f"{author.name} may write {said.policy_file}, by which it is judged"
        hint = "keep it where its permissions.file_access.allow_write does not reach"
        yield Problem(message, file, pointer=where, hint=hint, severity="warning")
