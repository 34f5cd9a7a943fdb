"""Which organisation a command works on, and what is going on in it."""

from __future__ import annotations

from pathlib import Path

import typer

from lemming.agents import Agent, agent_folders, load_agent, nearest_agent
from lemming.base.errors import NotAnOrg, UsageError
from lemming.base.jsontext import nearest
from lemming.base.paths import agent_folder
from lemming.commands.session import Session
from lemming.org.format import require_known_format
from lemming.org.organisation import Organisation, OrgPath
from lemming.tick.under_way import describe_engine as describe_engine
from lemming.tick.under_way import has_been_interrupted as has_been_interrupted
from lemming.tick.under_way import running_engine as running_engine


def find_org(ctx: typer.Context) -> Organisation:
    """Return the organisation given with -C or LEMMING_ROOT, else the nearest from here upwards.

    Raises `NotAnOrg` when there is none.
    """
    given = _root(ctx)
    base = _given_org(Path(given)) if given is not None else _nearest_org(Path.cwd())
    if isinstance(ctx.obj, Session):
        ctx.obj.base = base
    require_known_format(base)
    return Organisation(base)


def find_org_if_any(ctx: typer.Context) -> Organisation | None:
    """Return the organisation, or None when there is none and none was asked for."""
    if _root(ctx) is not None:
        return find_org(ctx)
    try:
        return find_org(ctx)
    except NotAnOrg:
        return None


def _root(ctx: typer.Context) -> str | None:
    return ctx.obj.root if isinstance(ctx.obj, Session) else None


def is_org(folder: Path) -> bool:
    """Return whether a folder holds an organisation: `agents/`, and `tick.json` or `config/`."""
    return (folder / "agents").is_dir() and ((folder / "tick.json").exists() or (folder / "config").is_dir())


def find_agent(base: OrgPath, name: str) -> Agent:
    """Return an agent; raise `UsageError` for a name that is none, `ConfigError` for a broken resume."""
    require_folder(base, name)
    return load_agent(base, name)


def require_folder(base: OrgPath, name: str, *, words: tuple[str, ...] = ()) -> None:
    """Raise `UsageError` with the nearest name unless there is a folder of this name below `agents/`.

    `words` are what may stand in the name's place: they are suggested too.
    """
    known = agent_folders(base)
    if name not in known:
        hint = nearest(name, words) or nearest_agent(name, known)
        raise UsageError(f'there is no agent "{name}"', hint=hint)


def _given_org(folder: Path) -> Path:
    base = folder.expanduser().absolute()
    if base.exists() and not base.is_dir():
        raise NotAnOrg("is no folder", where=str(base), hint="name the organisation's folder")
    if not base.is_dir():
        hint = f"correct the name, or make an organisation there with `lemming init {folder}`"
        raise NotAnOrg("there is no such folder", where=str(base), hint=hint)
    if not (base / "agents").is_dir():
        if above := next(filter(is_org, base.parents), None):
            return above
        hint = f"make one there with `lemming init {folder}`"
        raise NotAnOrg("there is no agents/ folder here", where=str(base), hint=hint)
    return base


def _nearest_org(start: Path) -> Path:
    for folder in (start, *start.parents):
        if is_org(folder):
            return folder
    hint = "make one with `lemming init DIR`, or name one with `lemming -C DIR ...` or LEMMING_ROOT"
    raise NotAnOrg("no organisation in this folder or above it", where=str(start), hint=hint)


def path_of_agent(name: str) -> str:
    """Return `agents/<name>`; raise `UsageError` for a name that no agent can have."""
    try:
        return agent_folder(name)
    except ValueError as error:
        raise UsageError(str(error)) from error
