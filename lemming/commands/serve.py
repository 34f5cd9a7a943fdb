"""`lemming serve`: listen for http and mail channels."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Annotated

from lemming.capabilities.serving.http_server import METRICS_TOKEN_ENV, OWN_NAMES, Metrics
from lemming.capabilities.serving.serve import HOST, PORT, Served, serving
from lemming.commands.options import Here, Quiet, Trust, option, running_engine
from lemming.commands.screen import one_line, show_json, tell
from lemming.commands.stopping import stop_on_signals
from lemming.commands.trust import require_agreement
from lemming.kernel.base.errors import Problem, UsageError


def serve(
    here: Here,
    port: Annotated[int, option("--port PORT", "Where to listen; 0: any.", min=0, max=65535)] = PORT,
    host: Annotated[str, option("--host ADDRESS", "The address to listen on: this machine's own.")] = HOST,
    metrics: Annotated[
        bool, option("--metrics", "Answer GET /metrics too, as `lemming metrics` does.")
    ] = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Listen for what comes to http and mail channels, and send what is addressed to them.

    Takes no turns: an engine runs beside it (`lemming run-forever`), or does this itself with
    `lemming run-forever --serve PORT`. What arrives is an entry, on the disk before the sender is told.
    POST /hooks/AGENT takes signed webhooks, POST /ask questions with a token, GET /requests/ID tells of one.
    Ctrl-C, SIGTERM, SIGQUIT or SIGHUP ends it. It can be killed at any time.

    With --metrics it may have no channels. Where LEMMING_METRICS_TOKEN is set, Prometheus needs it; an --host
    that others can reach needs it to be set.

    \b
    Examples:
      lemming serve
      lemming serve --port 9000 --metrics
      curl -H "Authorization: Bearer $TOKEN" -d '{"text": "How is it going?"}' http://127.0.0.1:8420/ask
    """
    base = here.org
    require_agreement(base, trusts=trust, can_ask=sys.stdin.isatty())
    shown = _metrics(host) if metrics else None
    with stop_on_signals(quiet=quiet) as switch:
        with served(
            base.base, port, host=host, stop=switch.stop, quiet=quiet, as_json=here.as_json, metrics=shown
        ):
            if not quiet and running_engine(base) is None:
                tell("no engine runs here: `lemming run-forever` beside it takes turns", style="yellow")
            switch.stop.wait()
        if not quiet:
            tell("stopped")


def _metrics(host: str) -> Metrics:
    """Return what GET /metrics answers; raise `UsageError` where strangers could ask for it."""
    from lemming.telemetry.metrics import CONTENT_TYPE, metrics_of

    if host not in OWN_NAMES and not os.environ.get(METRICS_TOKEN_ENV):
        hint = f"set {METRICS_TOKEN_ENV}, or leave out --host"
        raise UsageError(f"{host} can be reached by others, and /metrics needs no token", hint=hint)
    return Metrics(CONTENT_TYPE, metrics_of)


@contextmanager
def served(
    base: Path,
    port: int,
    *,
    host: str = HOST,
    stop: Event,
    quiet: bool,
    as_json: bool = False,
    metrics: Metrics | None = None,
) -> Iterator[Served]:
    """See to http and mail channels for the length of the block, and say where."""
    told = _show_problem if as_json else _tell_problem
    with serving(base, host=host, port=port, stop=stop, tell=told, metrics=metrics) as found:
        if metrics:
            _say_where(f"http://{host}:{found.port}/metrics", quiet=quiet, as_json=as_json)
        if as_json:
            for agent, channel in found.channels:
                place = channel.place(host, found.port, agent.name)
                show_json("listening", {"agent": agent.name, "place": place})
        elif not quiet:
            _say(found, host)
        yield found


def _say_where(place: str, *, quiet: bool, as_json: bool) -> None:
    if as_json:
        show_json("listening", {"agent": None, "place": place})
    elif not quiet:
        tell(f"metrics: {place}")


def _show_problem(problem: Problem) -> None:
    show_json("problem", problem.as_json())


def _say(found: Served, host: str) -> None:
    for agent, channel in found.channels:
        tell(f"{agent.name}: {channel.place(host, found.port, agent.name)}")
    if found.port and host not in OWN_NAMES:
        tell(
            f"{host} can be reached by others, without encryption: put a proxy with TLS before it",
            style="yellow",
        )


def _tell_problem(problem: Problem) -> None:
    tell(one_line(str(problem), 600), style="yellow")
