"""What `lemming validate` says of the cases in `evals/`: each file, and the names in it."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.agents import agent_folders, nearest_agent
from lemming.base.errors import ConfigError, Problem
from lemming.base.jsontext import locate
from lemming.facts.cases import HERE, Case, case_file, case_names, load_case
from lemming.org.organisation import OrgPath


def problems_of_cases(base: OrgPath) -> Iterator[Problem]:
    """Yield what is wrong with each case, and a warning for each agent it names that there is not."""
    known = agent_folders(base)
    for name in case_names(base):
        try:
            document = load_case(base, name)
        except ConfigError as error:
            yield from error.problems
            continue
        yield from document.warnings
        if document.value.start != HERE:  # its agents are those of another folder
            continue
        for pointer, agent in _agents_in(document.value):
            if agent not in known:
                line, column = locate(document.raw.decode(), pointer)
                yield Problem(
                    f'there is no agent "{agent}"',
                    case_file(name),
                    line,
                    column,
                    pointer,
                    hint=nearest_agent(agent, known),
                    severity="warning",
                    code="LMG-301",
                )


def _agents_in(case: Case) -> Iterator[tuple[str, str]]:
    """Yield each agent that a case names, with the place where it does."""
    found = [(f"/send/{index}/to", sent.to) for index, sent in enumerate(case.send)]
    found += [(f"/send/{index}/from", sent.author) for index, sent in enumerate(case.send)]
    if case.ask:
        found += [("/ask/to", case.ask.to), ("/ask/from", case.ask.author)]
    for index, wanted in enumerate(case.expect):
        place = f"/expect/{index}"
        if wanted.entry:
            found.append((f"{place}/entry/author", wanted.entry.author))
        if wanted.no_entry:
            found.append((f"{place}/no_entry/author", wanted.no_entry.author))
        if wanted.tool_called:
            found.append((f"{place}/tool_called/agent", wanted.tool_called.agent))
    yield from ((pointer, agent) for pointer, agent in found if agent)
