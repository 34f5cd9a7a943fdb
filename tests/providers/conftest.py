"""Fixtures for the tests of the providers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fault_server import FaultServer
from loopback import one_certificate
from patience import PATIENCE_S

from lemming.kernel.providers import Request


@pytest.fixture(scope="session")
def faults() -> Iterator[FaultServer]:
    """A server that misbehaves on cue."""
    server = FaultServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session", autouse=True)
def _one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_certificate(tmp_path_factory.mktemp("certificates")):
        yield


@pytest.fixture
def request_() -> Request:
    """A question with a system message, to be answered within five seconds."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]
    return Request(model_name="m", messages=messages, deadline_s=PATIENCE_S, agent="planner", tick=3)
