"""Fixtures for the tests of embedded models."""

from __future__ import annotations

from pathlib import Path

import pytest

from lemming.capabilities.embedded.weights import find_weights
from lemming.kernel.base.errors import UnknownModel
from lemming.kernel.org.models import LOCAL_MODEL


@pytest.fixture(scope="session")
def weights() -> Path:
    """The file of the embedded model; the test is skipped where it, or llama.cpp, is not installed."""
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    try:
        return find_weights(LOCAL_MODEL)
    except UnknownModel as error:
        pytest.skip(str(error))
