"""Credits of an agent: its resume's values, overridden by those in config/credits.json."""

from __future__ import annotations

from lemming.kernel.org.config import Config
from lemming.kernel.org.resume import AgentCredits


def has_credit_override(config: Config, agent_name: str, resume: AgentCredits) -> bool:
    """Return True if `config/credits.json` changes the credit limit in an agent's resume."""
    return resolve_credits(config, agent_name, resume).max_credits != resume.max_credits


def resolve_credits(config: Config, agent_name: str, resume: AgentCredits) -> AgentCredits:
    """Return an agent's credits: values from `config/credits.json`, and from the resume for missing values."""
    override = config.allocations.get(agent_name)
    if override is None:
        return resume
    return AgentCredits(
        max_credits=resume.max_credits if override.max_credits is None else override.max_credits,
        soft_cap=resume.soft_cap if override.soft_cap is None else override.soft_cap,
    )
