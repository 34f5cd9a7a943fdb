"""Vendors of models by the API of a harness: variables of the environment, address, and usual models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from lemming.capabilities.workers.harnesses.harness_types import ModelApi


class ModelVendor(NamedTuple):
    """A vendor of models.

    `key_variable`: variable with the key. `address_variable`: variable with another server's address. `model`: a model
    for coding. `hosted_provider` and `hosted_model`: a cheap model, as `config/models.json` names it.
    """

    key_variable: str
    address_variable: str
    address: str
    model: str
    hosted_provider: str
    hosted_model: str

    def find_address(self) -> str:
        """Return the address of the server: that of the environment, else the vendor's."""
        return os.environ.get(self.address_variable) or self.address


_ANTHROPIC = ModelVendor(
    "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com",
    "claude-sonnet-5-5", "anthropic", "claude-haiku-5-5",
)  # fmt: skip
_OPENAI = ModelVendor(
    "OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com", "gpt-6.1-terra", "openai", "gpt-6-luna"
)
_GOOGLE = ModelVendor(
    "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com",
    "gemini-2.5-pro", "gemini", "gemini-2.5-flash",
)  # fmt: skip
VENDORS: Mapping[ModelApi, ModelVendor] = {
    "anthropic": _ANTHROPIC,
    "openai-responses": _OPENAI._replace(
        model="gpt-5.5"
    ),  # Codex 0.171 gives newer models their tools in a form that no offline test speaks
    "openai-chat": _OPENAI,
    "gemini": _GOOGLE,
}
