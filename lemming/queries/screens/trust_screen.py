"""The screen of permissions outside the folder: those that an organisation needs, and those that you have granted."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import survey_agents
from lemming.kernel.files.json_documents import retry_while_saving
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_loader import find_fact
from lemming.operations.permission_grants import MissingPermission, PermissionGrants
from lemming.queries.permissions_required import list_required_permissions
from lemming.queries.screens.screen import Column, Screen


class PermissionRow(NamedTuple):
    """A permission, and what its grant lacks, or None if you have granted it."""

    permission: RequiredPermission
    missing: MissingPermission | None


def list_permissions(org: OrgPath) -> list[PermissionRow]:
    """Show the permissions this organisation needs outside its folder."""
    permissions = find_permissions(org)
    if list_check_permissions := find_fact("goals.permissions"):
        permissions += list_check_permissions(org)
    missing = {grant.permission.does: grant for grant in PermissionGrants(Path(org)).find_missing(permissions)}
    return [PermissionRow(permission, missing.get(permission.does)) for permission in permissions]


def find_permissions(org: OrgPath, servers: Collection[str] = ()) -> list[RequiredPermission]:
    """Return the permissions of the settings on disk. `servers`: MCP servers requested by the user."""
    config = retry_while_saving(org, lambda: load_config(org), lambda _: ())
    return list_required_permissions(org, config, survey_agents(org).agents.values(), servers=servers)


TRUST = Screen(
    "trust",
    kind="reach",
    title="Permissions",
    query=list_permissions,
    is_local=True,
    empty="no permissions needed: nothing runs or connects outside its folder",
    columns=(
        Column(
            "is_agreed", "STATE", "True if you have granted it.", bool, value=lambda row: row.missing is None,
            text=lambda row: "not granted" if row.missing else "granted",
        ),
        Column(
            "does", "PERMISSION", "What the organisation does outside its folder.",
            path="permission.does", text=lambda row: str(row.missing or row.permission.does), width=400,
        ),
        Column(
            "needs_agreement", about="True if nothing runs before you grant it.", type=bool, path="permission.needs_agreement"
        ),
        Column(
            "changed", about="Files that have changed since your grant.", type=list[str],
            value=lambda row: list(row.missing.changed) if row.missing else [],
        ),
    ),
)  # fmt: skip
