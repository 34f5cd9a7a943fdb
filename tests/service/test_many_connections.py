"""Many who only connect, at once: every server goes on answering, also where nobody reads its output."""

from __future__ import annotations

import contextlib
import fcntl
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from patience import PATIENCE_S

from lemming.testing import make_org, resume

BEGIN = """
import resource, sys, threading
from pathlib import Path
base, limit = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
"""
SERVERS = {
    "mcp": """
from lemming.capabilities.mcp.mcp_server import make_server, serve_http
serve_http(make_server(base, writes=False, person=None), 0, "token", lambda port: print(port, flush=True))
""",
    "page": """
from lemming.dashboard.page_server import serve_page
with serve_page(base, port=0, token="token") as address:
    print(address.partition("?")[0].rstrip("/").rpartition(":")[2], flush=True)
    threading.Event().wait()
""",
    "serve": """
from lemming.capabilities.channels.channel_service import run_channel_server
with run_channel_server(base, port=0, stop=threading.Event(), report=lambda _: None) as found:
    print(found.port, flush=True)
    threading.Event().wait()
""",
    "health": """
from lemming.operations.systemd_notify import Health, serve_health
with serve_health(0, lambda words: Health(True, {}), base) as port:
    print(port, flush=True)
    threading.Event().wait()
""",
}
PATHS = {"mcp": ("/mcp", 401), "page": ("/", 403), "serve": ("/nowhere", 404), "health": ("/healthz", 200)}


@contextlib.contextmanager
def running(base: Path, server: str, limit: int) -> Iterator[int]:
    """Run a server that may have so many files open, and whose output nobody reads; give its port."""
    command = [sys.executable, "-c", BEGIN + SERVERS[server], str(base), str(limit)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stderr
            if hasattr(fcntl, "F_SETPIPE_SZ"):
                fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield int(line)
            assert process.poll() is None
        finally:
            process.kill()


def answers(server: str, port: int) -> bool:
    """Ask a server something, and return whether it says what it always does.

    A caller that has connected and not yet asked is as idle as the others, and a burst may take its place: as any
    browser does, it asks again.
    """
    path, status = PATHS[server]
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
            try:
                connection.request("GET", path, headers={"Host": f"127.0.0.1:{port}"})
                return connection.getresponse().status == status
            except ConnectionError:
                if time.monotonic() > give_up_at:
                    raise


@pytest.fixture
def _many_files() -> Iterator[None]:
    """Let this process have enough files open to be many callers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1500:
        pytest.skip("this process may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1500), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.sample(3)
@pytest.mark.usefixtures("_many_files")
@pytest.mark.parametrize(
    ("server", "callers", "limit"),
    [
        ("mcp", 1200, 1024),
        pytest.param("page", 1200, 1024, marks=pytest.mark.long),  # as the burst of 400 below, with more
        pytest.param("mcp", 400, 256, marks=pytest.mark.long),  # as the burst of 1200 above, with fewer
        *((server, 400, 256) for server in SERVERS if server != "mcp"),
    ],
)
def test_a_burst_of_idle_connections_ends_no_server(base: Path, server: str, callers: int, limit: int) -> None:
    door = {"door": {"provider": "http", "options": {"deliver_to": "http://127.0.0.1:1/x"}}}
    make_org(base, resume("ada"), resume("door", model={"key": "door"}), models=door)
    with running(base, server, limit) as port, contextlib.ExitStack() as held:
        for _ in range(callers):
            caller = held.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
        assert answers(server, port)


@pytest.mark.parametrize("server", ["mcp", "page"])
def test_complaints_that_nobody_reads_stop_no_server(base: Path, server: str) -> None:
    make_org(base, resume("ada"))
    with running(base, server, 256) as port:
        for _ in range(300):  # 30 letters each, and the pipe holds 4,096
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as caller:
                caller.sendall(b"no request\r\n\r\n")
                assert caller.recv(20)
        assert answers(server, port)
