"""`lemming channels serve`: serve http and mail channels."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Annotated

from lemming.capabilities.channels.channel_service import HOST, PORT, ServingStatus, run_channel_server
from lemming.capabilities.channels.http_routes import LOCAL_NAMES, METRICS_TOKEN_ENV, MetricsSource
from lemming.commands.command_context import CommandContext, Quiet, Trust, find_running_engine, option
from lemming.commands.signals import stop_on_signals
from lemming.commands.terminal import one_line, print_json, print_notice, print_warning
from lemming.commands.trust import require_workspace_trust
from lemming.ext import Problem
from lemming.kernel.base.errors import UsageError


def serve(
    context: CommandContext,
    port: Annotated[int, option("--port PORT", "Port to listen on; 0 picks a free port.", min=0, max=65535)] = PORT,
    host: Annotated[str, option("--host ADDRESS", "Address to listen on.")] = HOST,
    metrics: Annotated[bool, option("--metrics", "Also serve GET /metrics in Prometheus format.")] = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Serve http and mail channels: receive messages and deliver entries.

    The command runs no turns: run an engine as well (`lemming run-forever`), or use `lemming run-forever
    --serve PORT` for both.
    An incoming message is stored as an entry before the sender gets a reply. POST /hooks/AGENT accepts signed
    webhooks,
    POST /ask accepts questions with a token, and GET /requests/ID returns the state of a request. Ctrl-C,
    SIGTERM, SIGQUIT or
    SIGHUP stops the server. Killing the process is safe.

    With --metrics, channels are optional. If LEMMING_METRICS_TOKEN is set, Prometheus must send the token; a
    --host reachable from
    other machines requires the token.

    \b
    Examples:
      lemming channels serve
      lemming channels serve --port 9000 --metrics
      curl -H "Authorization: Bearer $TOKEN" -d '{"text": "How is it going?"}' http://127.0.0.1:8420/ask
    """
    base = context.org
    require_workspace_trust(base, is_trusted=trust, can_ask=sys.stdin.isatty())
    endpoint = _build_metrics_endpoint(host) if metrics else None
    with stop_on_signals(quiet=quiet) as switch:
        with open_channel_server(base.base, port, host=host, stop=switch.stop, metrics=endpoint):
            if find_running_engine(base) is None:
                print_notice("no engine is running: start `lemming run-forever` to run turns", style="yellow")
            switch.stop.wait()
        print_notice("stopped")


def _build_metrics_endpoint(host: str) -> MetricsSource:
    """Return the handler of GET /metrics. Raises `UsageError` if other machines could read metrics without a token."""
    from lemming.telemetry.metrics import CONTENT_TYPE, render_metrics

    if host not in LOCAL_NAMES and not os.environ.get(METRICS_TOKEN_ENV):
        hint = f"set {METRICS_TOKEN_ENV}, or leave out --host"
        raise UsageError(f"{host} is reachable by others, and /metrics is not protected by a token", hint=hint)
    return MetricsSource(CONTENT_TYPE, render_metrics)


@contextmanager
def open_channel_server(
    base: Path, port: int, *, host: str = HOST, stop: Event, metrics: MetricsSource | None = None
) -> Iterator[ServingStatus]:
    """Serve http and mail channels for the length of the block, and print their addresses."""
    with run_channel_server(base, host=host, port=port, stop=stop, report=_print_problem, metrics=metrics) as status:
        if metrics:
            _print_address(None, f"http://{host}:{status.port}/metrics")
        for agent, channel in status.channels:
            _print_address(agent.name, channel.endpoint(host, status.port, agent.name))
        if status.port and host not in LOCAL_NAMES:
            print_warning(f"{host} is reachable from other machines without encryption: use a TLS proxy")
        yield status


def _print_address(agent: str | None, address: str) -> None:
    print_json("listening", {"agent": agent, "place": address})
    print_notice(f"{agent or 'metrics'}: {address}")


def _print_problem(problem: Problem) -> None:
    print_json("problem", problem.as_json())
    print_warning(one_line(str(problem), 600))
