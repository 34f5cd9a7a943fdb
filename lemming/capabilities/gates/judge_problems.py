"""Validation of the judges at gates, and the programs among them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lemming.capabilities.gates.gate_judges import get_judge
from lemming.capabilities.gates.gate_settings import get_gates
from lemming.capabilities.judges.judges_validation import program_permission, validate_judge_name
from lemming.ext import LemmingError, Problem
from lemming.kernel.access.agent_files import read_text
from lemming.kernel.access.allowed_paths import resolve_org_path
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.org.config import Config, OrgSettings
from lemming.kernel.org.organisation import OrgPath


def validate_gate_judges(base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
    """Yield problems of the judges at the gates of an agent's resume, or of the settings if `agent` is None."""
    file = paths.resume_file(agent.name) if agent else paths.ORG_FILE
    for index, gate in enumerate(get_gates(agent or config.org)):
        if not gate.by:
            continue
        judge_settings = get_judge(gate)
        yield from validate_judge_name(base, judge_settings.by, file, f"/gates/{index}", config)
        if judge_settings.policy_file:
            try:
                read_text(
                    resolve_org_path(Path(base), judge_settings.policy_file.removeprefix("./"), caller="policy"), {}
                )
            except LemmingError as error:
                hint = error.hint or "name a file of the organisation"
                yield Problem(error.message, file, pointer=f"/gates/{index}/policy", hint=hint)


def gate_judge_programs(base: OrgPath, owner: OrgSettings | Agent) -> Iterator[RequiredPermission]:
    """Yield the permissions for judge programs at gates of the settings or of a resume."""
    file = paths.resume_file(owner.name) if isinstance(owner, Agent) else paths.ORG_FILE
    for index, gate in enumerate(get_gates(owner)):
        if gate.by:
            yield from program_permission(base, gate.by, f"at a gate of {file}", f"{file}#/gates/{index}")
