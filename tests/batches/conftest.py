"""Fixtures for the tests of batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from batch_desk import APIS, Desk, make_desk
from batch_server import BatchServer
from loopback import one_certificate


@pytest.fixture(scope="session", autouse=True)
def _one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_certificate(tmp_path_factory.mktemp("certificates")):
        yield


@pytest.fixture
def server() -> Iterator[BatchServer]:
    """A server of its own for each test."""
    server = BatchServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=list(APIS))
def desk(request: pytest.FixtureRequest, server: BatchServer) -> Desk:
    """A desk for each of the APIs."""
    return make_desk(request.param, server)


@pytest.fixture
def one_desk(server: BatchServer) -> Desk:
    """A desk for what does not depend on the API."""
    return make_desk("chat", server)
