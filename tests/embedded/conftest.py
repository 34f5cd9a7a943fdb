"""Fixtures for the tests of embedded models."""

from __future__ import annotations

import os
from hashlib import file_digest
from pathlib import Path

import pytest

from lemming.capabilities.embedded_models.model_weights import verify_weights
from lemming.kernel.base.errors import UnknownModel
from lemming.kernel.org.model_entries import LOCAL_MODEL
from lemming.libraries.model_catalogue import CATALOGUE, find_weights


@pytest.fixture(scope="session")
def weights() -> Path:
    """The file of the embedded model; the test is skipped where it, or llama.cpp, is not installed."""
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    try:
        return find_weights(LOCAL_MODEL)
    except UnknownModel as error:
        pytest.skip(str(error))


QWEN = "qwen2.5-coder-0.5b-instruct"
WEIGHTS_ENV = "LEMMING_TEST_WEIGHTS"


@pytest.fixture(scope="session")
def qwen() -> dict[str, object]:
    """The line of `config/models.json` for Qwen2.5-Coder 0.5B, whose weights are known by their SHA-256.

    They are those of the models' folder, or the file that `LEMMING_TEST_WEIGHTS` names.
    """
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    line = {"provider": "local", "model": QWEN, "prompt": "brief", "max_output_tokens": 256, "deadline_s": 600}
    if named := os.environ.get(WEIGHTS_ENV):
        with open(named, "rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        assert digest == CATALOGUE[QWEN].sha256, f"{WEIGHTS_ENV} must name the weights of {QWEN}, got {digest}"
        return {**line, "options": {"path": named}}
    try:
        verify_weights(QWEN)
    except UnknownModel as error:
        pytest.skip(f"{error}; or {WEIGHTS_ENV}=FILE")
    return line
