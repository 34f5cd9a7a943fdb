"""`lemming trust`: what an organisation runs and reaches outside its folder, and agreeing to it, once."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lemming.access.trust import Agreement
from lemming.agents import survey_agents
from lemming.commands.options import AsJson
from lemming.commands.org import find_org
from lemming.commands.screen import one_line, show, show_json, tell
from lemming.config import Config, load_config
from lemming.errors import DiskError, NotTrusted
from lemming.files.documents import once_saved
from lemming.inspect.reach import is_about_the_owner, reaches
from lemming.organisation import Organisation, OrgPath
from lemming.tick.runtime import Runtime

_SENTENCE_WIDTH = 400


def trust(
    ctx: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree to all of it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the organisation runs and reaches outside its folder; with --yes, agree to it.

    `run-once` and `run-forever` say it before they do any of this for the first time. On a terminal they ask;
    a folder that another user owns they run only after `lemming trust --yes`. What was agreed to is kept
    outside the organisation, for this user and this folder. Of one made here with `lemming init` nothing is
    said.

    \b
    Examples:
      lemming trust
      lemming trust --yes
    """
    base = find_org(ctx)
    sentences, agreement = _sentences(base), Agreement(Path(base))
    if yes and sentences:
        agreement.add(sentences)
    missing = agreement.lacks(sentences)
    for sentence in sentences:
        if as_json:
            show_json("reach", {"does": sentence, "is_agreed": sentence not in missing})
        else:
            word = "not agreed" if sentence in missing else "agreed"
            show(f"{word:<10}  {one_line(sentence, _SENTENCE_WIDTH)}")
    if as_json:
        return
    if not sentences:
        tell("it runs and reaches nothing outside its folder")
    elif yes:
        tell(f"kept in {agreement.file}")
    elif missing:
        tell("`lemming trust --yes` agrees to it")


def require_agreement(base: OrgPath, *, can_ask: bool = True) -> None:
    """Say what running the organisation does outside its folder, the first time that it does that.

    On a terminal a person is asked and may refuse; a service or a script is told, and goes on. The folder of
    another user is run only where somebody has agreed. Raises `NotTrusted`.
    """
    missing = Agreement(Path(base)).lacks(_sentences(base))
    if not missing:
        return
    is_own = not any(map(is_about_the_owner, missing))
    can_ask = can_ask and sys.stdin.isatty() and sys.stderr.isatty()
    if can_ask or is_own:
        tell(f"{base} was not made by you here. Running it for the first time")
        for sentence in missing:
            tell(f"  - {one_line(sentence, _SENTENCE_WIDTH)}")
    if typer.confirm("Agree, and run it?", err=True) if can_ask else is_own:
        with contextlib.suppress(DiskError):  # a user without a home is told again
            Agreement(Path(base)).add(missing)
        return
    what = "; ".join(one_line(sentence, _SENTENCE_WIDTH) for sentence in missing)
    raise NotTrusted(
        f"nobody here has agreed to what running this does: {what}",
        where=str(base),
        hint="`lemming trust --yes` agrees once; `--trust` of run-once and run-forever for this run",
    )


def is_agreed(base: OrgPath) -> bool:
    """Return whether plugins and everything else that the organisation names may be used in looking at it."""
    return not Agreement(Path(base)).lacks(_sentences(base))


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


def _sentences(base: OrgPath) -> list[str]:
    config = once_saved(base, lambda: load_config(base), lambda _: ())
    return reaches(base, config, survey_agents(base).agents.values())
