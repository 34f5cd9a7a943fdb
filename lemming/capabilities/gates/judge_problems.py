"""Judges that gates ask: what keeps them from judging, and which of them are programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lemming.capabilities.gates.judging import judge_of
from lemming.capabilities.gates.keys import gates_in
from lemming.capabilities.judges.problems import judge_problems, program_reach
from lemming.kernel.access.allowed_paths import kept_at
from lemming.kernel.access.open import read_text
from lemming.kernel.access.trust import Reach
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, Problem
from lemming.kernel.org.config import Config, Org
from lemming.kernel.org.organisation import OrgPath


def problems_of_gate_judges(base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
    """Yield what keeps those from judging whom the gates of a resume (None: of the settings) name."""
    file = paths.resume_file(agent.name) if agent else paths.ORG_FILE
    for index, gate in enumerate(gates_in(agent or config.org)):
        if not gate.by:
            continue
        said = judge_of(gate)
        yield from judge_problems(base, said.by, file, f"/gates/{index}", config)
        if said.policy_file:
            try:
                read_text(kept_at(Path(base), said.policy_file.removeprefix("./"), caller="policy"), {})
            except LemmingError as error:
                hint = error.hint or "name a file of the organisation"
                yield Problem(error.message, file, pointer=f"/gates/{index}/policy", hint=hint)


def programs_at_gates(base: OrgPath, said: Org | Agent) -> Iterator[Reach]:
    """Yield the programs that judge at the gates of the settings, or of a resume."""
    file = paths.resume_file(said.name) if isinstance(said, Agent) else paths.ORG_FILE
    for index, gate in enumerate(gates_in(said)):
        if gate.by:
            yield from program_reach(base, gate.by, f"at a gate of {file}", f"{file}#/gates/{index}")
