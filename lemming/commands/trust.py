"""`lemming trust`: required permissions outside the folder, and the grant of workspace trust."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from operator import is_
from pathlib import Path
from typing import Annotated

import typer

from lemming.commands.command_context import CommandContext, option
from lemming.commands.terminal import one_line, print_notice, print_warning
from lemming.kernel.access.workspace_trust import RequiredPermission, WorkspaceTrust, allow_code
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.errors import DiskError, NotTrusted
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_table import PREFIXES
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tools import get_server_sources
from lemming.operations.permission_grants import MissingPermission, PermissionGrants
from lemming.queries.permissions_required import list_required_permissions
from lemming.queries.screens.screen import ScreenResult
from lemming.queries.screens.trust_screen import TRUST, find_permissions, list_permissions

_SENTENCE_WIDTH = 400


def trust(context: CommandContext, yes: Annotated[bool, option("--yes -y", "Grant all of them.")] = False) -> None:
    """Show and grant the permissions this organisation needs outside its folder.

    `run-once`, `run-forever` and all commands that run turns, tools or channels list new permissions before
    their first use. On a terminal they ask for confirmation. Without a terminal, code of the organisation
    (tools, plugins, programs), writes to other folders, and a folder of another user need `lemming trust
    --yes` first.

    Grants are stored outside the organisation, per user and folder, and cover the current content: a changed
    code file or command needs a new grant. An organisation made here with `lemming init` needs a grant only
    after git fetches files into its folder.

    \b
    Examples:
      lemming trust
      lemming trust --yes
    """
    rows, grants = list_permissions(context.org), PermissionGrants(Path(context.org))
    if yes and rows:
        grants.grant(row.permission for row in rows)
        rows = list_permissions(context.org)
        print_notice(f"recorded in {grants.file}")
    context.print_screen(TRUST, ScreenResult(rows))
    if any(row.missing for row in rows):
        print_notice("`lemming trust --yes` grants them")


def require_workspace_trust(
    base: OrgPath, *, is_trusted: bool = False, can_ask: bool = True, servers: Collection[str] = ()
) -> None:
    """Ask for workspace trust before the organisation first uses permissions outside its folder.

    On a terminal, the user is asked and may refuse. A service or a script prints a notice and continues,
    unless code would run or files elsewhere would be written. Code and writes need a grant first, and are
    checked again in later ticks. `servers`: MCP servers requested by the user. `is_trusted`: the user gave
    `--trust`, so this run asks nothing. Raises `NotTrusted`.
    """
    if is_trusted:
        allow_code(base)
        return
    grants, permissions = PermissionGrants(Path(base)), find_permissions(base, servers)
    if missing := grants.find_missing(permissions):
        _confirm_trust(base, grants, missing, can_ask=can_ask)
    else:
        with contextlib.suppress(DiskError):
            grants.record_own_permissions(permissions)
    if isinstance(base, Organisation):
        base.get_cache(WorkspaceTrust).require = _TrustRecheck(base)
        base.get_cache(WorkspaceTrust).is_granted = lambda permission: not grants.find_missing([permission])


def require_trust_for_copy(
    base: OrgPath, copy: OrgPath, *, case_permissions: Iterable[RequiredPermission], calls_models: bool, can_ask: bool
) -> None:
    """Ask for workspace trust for a changed copy of the organisation, based on the grants of the original.

    `case_permissions`: additional permissions of the cases. If no models are called, only permissions that need a grant
    count. Raises `NotTrusted`.
    """
    grants = PermissionGrants(Path(base))
    missing_grants = grants.find_missing([*find_permissions(copy), *case_permissions])
    if missing := [grant for grant in missing_grants if grant.permission.needs_agreement or calls_models]:
        _confirm_trust(base, grants, missing, can_ask=can_ask)


def _confirm_trust(base: OrgPath, grants: PermissionGrants, missing: list[MissingPermission], *, can_ask: bool) -> None:
    can_ask = can_ask and sys.stdin.isatty() and sys.stderr.isatty()
    is_optional = not any(grant.permission.needs_agreement for grant in missing)
    if can_ask or is_optional:
        print_warning(f"{base} was not created by you on this machine. Running it", style="plain")
        for grant in missing:
            print_warning(f"  - {one_line(str(grant), _SENTENCE_WIDTH)}", style="plain")
    if typer.confirm("Grant this and run it?", err=True) if can_ask else is_optional:
        with contextlib.suppress(DiskError):  # a user without a home is asked again
            grants.grant(grant.permission for grant in missing)
        return
    raise _build_not_trusted_error(base, missing)


def _build_not_trusted_error(base: OrgPath, missing: list[MissingPermission]) -> NotTrusted:
    summary = "; ".join(one_line(str(grant), _SENTENCE_WIDTH) for grant in missing)
    hint = "see it with `lemming trust`, grant it with `lemming trust --yes`, or for one run with `--trust`"
    listed_permissions = find_permissions(base)
    if not any(grant.permission in listed_permissions for grant in missing):  # a server that no agent may use
        hint = "grant it for this run with `--trust`; `lemming trust` lists only permissions that agents use"
    return NotTrusted(f"the workspace is not trusted: {summary}", where=str(base), hint=hint)


class _TrustRecheck:
    """Checks the grants of the required permissions again in each tick of a run."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._agents: Mapping[str, Agent] = survey_agents(org).agents
        self._checked_values: tuple[object, ...] = ()
        self._permissions: list[RequiredPermission] = []

    def __call__(self, config: Config, agents: Mapping[str, Agent] | None) -> None:
        self._agents = self._agents if agents is None else agents
        tools = (name for agent in self._agents.values() for name in agent.permissions.tools)
        names_servers = any(name.startswith(PREFIXES) for name in tools)
        sources = get_server_sources(self._org).values() if names_servers else ()
        values = (config, self._agents, *(source.catalogue for source in sources))
        is_unchanged = len(self._checked_values) == len(values) and all(map(is_, self._checked_values, values))
        if is_unchanged and not any(permission.bound_to for permission in self._permissions):
            return
        permissions = list_required_permissions(self._org, config, self._agents.values())
        if is_unchanged and permissions == self._permissions:
            return
        grants = PermissionGrants(self._org.base)
        if missing := [grant for grant in grants.find_missing(permissions) if grant.permission.needs_agreement]:
            raise _build_not_trusted_error(self._org, missing)
        with contextlib.suppress(DiskError):
            grants.record_own_permissions(permissions)
        files = {file: digest for permission in permissions for file, digest in permission.bound_to.items()}
        self._org.get_cache(WorkspaceTrust).files = None if grants.is_ours else files
        self._checked_values, self._permissions = values, permissions


def require_code_trust(org: Organisation) -> None:
    """Raise `NotTrusted` if code of the organisation would be loaded without a grant."""
    _TrustRecheck(org)(load_config(org), None)


def has_workspace_trust(base: OrgPath) -> bool:
    """Return True if all required permissions are granted, so that read-only commands may load plugins."""
    return not PermissionGrants(Path(base)).find_missing(find_permissions(base))


def load_settings(base: OrgPath) -> Config:
    """Return the settings; without trust, no plugin is imported and no tool file named. Raises `ConfigError`."""
    config = load_config(base)
    code_names = [*config.org.plugins, *config.org.tool_files]
    if not code_names or has_workspace_trust(base):
        return Runtime(Organisation.from_path(base)).load_config()
    reason = "because the workspace is not trusted (`lemming trust`)"
    print_warning(f"not imported: {one_line(', '.join(code_names))}, {reason}", style="plain")
    return replace(config, org=replace(config.org, tool_files=[]))
