"""`lemming trust`: what an organisation runs and reaches outside its folder, and agreeing to it, once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from operator import is_
from pathlib import Path
from typing import Annotated

import typer

from lemming.commands.options import Here, option
from lemming.commands.screen import one_line, show, show_json, tell
from lemming.facts.reach import reaches
from lemming.kernel.access.code_guard import allow_code
from lemming.kernel.access.trust import Consent, Reach
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.errors import DiskError, NotTrusted
from lemming.kernel.files.documents import once_saved
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.shipped import PREFIXES
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tools import server_sources
from lemming.service.agreement import Agreement, Missing

_SENTENCE_WIDTH = 400


def trust(here: Here, yes: Annotated[bool, option("--yes -y", "Agree to all of it.")] = False) -> None:
    """Show what the organisation runs and reaches outside its folder; with --yes, agree to it.

    `run-once`, `run-forever` and all that run turns, tools or channels say it before they do any of this for
    the first time. On a terminal they ask. Where nobody can be asked, code of the organisation's own (tools,
    plugins, programs), writing to folders elsewhere and the folder of another user wait for
    `lemming trust --yes`.

    What was agreed to is kept outside the organisation, for this user and this folder, and holds for what was
    there then: a file of code or a command that has changed is asked about again. One that was made here with
    `lemming init` is asked about only once git fetches something into it.

    \b
    Examples:
      lemming trust
      lemming trust --yes
    """
    base = here.org
    found, agreement = _reaches(base), Agreement(Path(base))
    if yes and found:
        agreement.add(found)
    missing = {it.reach.does: it for it in agreement.lacks(found)}
    for reach in found:
        lack = missing.get(reach.does)
        if here.as_json:
            facts = {"does": reach.does, "is_agreed": lack is None, "needs_agreement": reach.needs_agreement}
            show_json("reach", {**facts, "changed": list(lack.changed) if lack else []})
        else:
            word = "agreed" if lack is None else "not agreed"
            show(f"{word:<10}  {one_line(str(lack or reach.does), _SENTENCE_WIDTH)}")
    if here.as_json:
        return
    if not found:
        tell("it runs and reaches nothing outside its folder")
    elif yes:
        tell(f"kept in {agreement.file}")
    elif missing:
        tell("`lemming trust --yes` agrees to it")


def require_agreement(
    base: OrgPath, *, trusts: bool = False, can_ask: bool = True, servers: Collection[str] = ()
) -> None:
    """Say what running the organisation does outside its folder, the first time that it does that.

    On a terminal a person is asked and may refuse. A service or a script is told and goes on, unless code
    would run or files elsewhere be written: that waits until somebody has agreed, also in the ticks to come,
    which look again at what is to run. `servers`: MCP servers that a person asks for. `trusts`: this one said
    `--trust` and is asked nothing in this run. Raises `NotTrusted`.
    """
    if trusts:
        allow_code(base)
        return
    agreement, found = Agreement(Path(base)), _reaches(base, servers)
    if missing := agreement.lacks(found):
        _agree(base, agreement, missing, can_ask=can_ask and sys.stdin.isatty() and sys.stderr.isatty())
    else:
        with contextlib.suppress(DiskError):
            agreement.note_ours(found)
    if isinstance(base, Organisation):
        base.own(Consent).require = _Again(base)


def require_agreement_to_copy(
    base: OrgPath, copy: OrgPath, *, further: Iterable[Reach], asks_models: bool, can_ask: bool
) -> None:
    """Do the same for a copy of the organisation that was changed, by what was agreed to for the original.

    `further`: what is run besides. Where no models are asked, only what needs an agreement counts. Raises
    `NotTrusted`.
    """
    agreement = Agreement(Path(base))
    lacking = agreement.lacks([*_reaches(copy), *further])
    if missing := [it for it in lacking if it.reach.needs_agreement or asks_models]:
        _agree(base, agreement, missing, can_ask=can_ask and sys.stdin.isatty() and sys.stderr.isatty())


def _agree(base: OrgPath, agreement: Agreement, missing: list[Missing], *, can_ask: bool) -> None:
    is_free = not any(it.reach.needs_agreement for it in missing)
    if can_ask or is_free:
        tell(f"{base} was not made by you here. Running it for the first time")
        for it in missing:
            tell(f"  - {one_line(str(it), _SENTENCE_WIDTH)}")
    if typer.confirm("Agree, and run it?", err=True) if can_ask else is_free:
        with contextlib.suppress(DiskError):  # a user without a home is told again
            agreement.add(it.reach for it in missing)
        return
    raise _not_trusted(base, missing)


def _not_trusted(base: OrgPath, missing: list[Missing]) -> NotTrusted:
    what = "; ".join(one_line(str(it), _SENTENCE_WIDTH) for it in missing)
    hint = "`lemming trust` shows it, `lemming trust --yes` agrees to it; `--trust` does for one run"
    shown = [*_reaches(base)]
    if not any(it.reach in shown for it in missing):  # a server of which no agent may call a tool
        hint = "`--trust` agrees to it for this run; `lemming trust` names only what agents may use"
    return NotTrusted(f"nobody here has agreed to what running this does: {what}", where=str(base), hint=hint)


class _Again:
    """Looks again, in the ticks of one run, whether what is to run is still what somebody has agreed to."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._agents: Mapping[str, Agent] = survey_agents(org).agents
        self._looked_at: tuple[object, ...] = ()
        self._reaches: list[Reach] = []

    def __call__(self, config: Config, agents: Mapping[str, Agent] | None) -> None:
        self._agents = self._agents if agents is None else agents
        tools = (name for agent in self._agents.values() for name in agent.permissions.tools)
        names_servers = any(name.startswith(PREFIXES) for name in tools)
        sources = server_sources(self._org).values() if names_servers else ()
        now = (config, self._agents, *(source.known for source in sources))
        is_as_before = len(self._looked_at) == len(now) and all(map(is_, self._looked_at, now))
        if is_as_before and not any(reach.bound_to for reach in self._reaches):
            return
        found = reaches(self._org, config, self._agents.values())
        if is_as_before and found == self._reaches:
            return
        agreement = Agreement(self._org.base)
        if missing := [it for it in agreement.lacks(found) if it.reach.needs_agreement]:
            raise _not_trusted(self._org, missing)
        with contextlib.suppress(DiskError):
            agreement.note_ours(found)
        files = {file: digest for reach in found for file, digest in reach.bound_to.items()}
        self._org.own(Consent).files = None if agreement.is_ours else files
        self._looked_at, self._reaches = now, found


def require_code_agreed(org: Organisation) -> None:
    """Raise `NotTrusted` where code of the organisation's own would be loaded that nobody has agreed to."""
    _Again(org)(load_config(org), None)


def is_agreed(base: OrgPath) -> bool:
    """Return whether plugins and everything else that the organisation names may be used in looking at it."""
    return not Agreement(Path(base)).lacks(_reaches(base))


def load_settings(base: OrgPath) -> Config:
    """Return the organisation's settings, its plugins imported if a person has agreed to running it.

    Else its settings name no files of tools. Raises `ConfigError`.
    """
    config = load_config(base)
    code = [*config.org.plugins, *config.org.tool_files]
    if not code or is_agreed(base):
        return Runtime(Organisation.at(base)).load_config()
    names = ", ".join(code)
    tell(f"not imported: {one_line(names)}, as nobody here has agreed to running this (`lemming trust`)")
    return replace(config, org=replace(config.org, tool_files=[]))


def _reaches(base: OrgPath, servers: Collection[str] = ()) -> list[Reach]:
    return reaches(base, _settings(base), survey_agents(base).agents.values(), servers=servers)


def _settings(base: OrgPath) -> Config:
    return once_saved(base, lambda: load_config(base), lambda _: ())
