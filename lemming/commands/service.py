"""`lemming service`: the organisation as a service that the machine starts and watches."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from lemming.commands.options import Here, duration, option
from lemming.commands.screen import show, show_text, tell
from lemming.facts.reach import reaches
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.service.agreement import Agreement
from lemming.service.unit import Form, Service, is_for, name_of_folder, text_of

_LIMIT_BYTES = 1 << 20


def service(
    here: Here,
    form: Annotated[
        Form, option("--form", "systemd: a unit of your own; launchd (macOS) and compose are printed.")
    ] = "systemd",
    only_print: Annotated[bool, option("--print", "Print it; write nothing.")] = False,
    name: Annotated[str, option("--name NAME", "The service's name. Default: from the folder's.")] = "",
    interval: Annotated[
        float | None,
        option("--interval DURATION", "As of run-forever. Default: config/org.json.", parser=duration),
    ] = None,
    wake_on_change: Annotated[bool, option("--wake-on-change", "As of run-forever.")] = False,
    health: Annotated[int | None, option("--health PORT", "As of run-forever.", min=1, max=65535)] = None,
    serve: Annotated[
        int | None,
        option(
            "--serve PORT",
            "As of run-forever: http and mail channels too, which nobody sees to without it.",
            min=1,
            max=65535,
        ),
    ] = None,
) -> None:
    """Make this organisation a service: started with the machine, watched, and started again when it dies.

    Writes a systemd unit into ~/.config/systemd/user/ and says what to type next; nothing is started or
    enabled here. systemd is told when the engine is ready, and starts it again when it hangs: when it gets no
    further for longer than the longest deadline in the settings. Exit statuses that only a person can mend
    (2, 3 and 7) end it.

    Keys go into ~/.config/lemming/NAME.env, a line NAME=VALUE each, which need not be there.

    \b
    Examples:
      lemming service
      lemming service --interval 10m --wake-on-change --health 8642
      lemming service --serve 8420
      lemming service --form compose > compose.yaml
    """
    base = here.org
    config = load_config(base)  # or it would not start
    served = _served(base, config)
    if serve is not None and not served:
        hint = "leave out --serve; docs/channels.md says what a channel is"
        raise UsageError("there is nothing to serve: no agent is an http or mail channel", hint=hint)
    folder = Path(base).resolve()
    if name and name != name_of_folder(name):
        raise UsageError(
            f'"{name}" is no name for a service', hint=f"for example {name_of_folder(name)}: a-z, 0-9 and -"
        )
    name = name or name_of_folder(folder.name)
    described = Service(
        name=name,
        folder=str(folder),
        program=_program(),
        options=_options(interval, wake_on_change=wake_on_change),
        keys_file=str(_config_home() / "lemming" / f"{name}.env"),
        log_file=str(Path.home() / "Library" / "Logs" / f"lemming-{name}.log"),
        health=health,
        serve=serve,
    )
    text = text_of(described, form)
    written = "" if only_print or form != "systemd" else _write(described, text)
    if here.shows("service", {"form": form, "file": written, "name": described.name, "text": text}):
        return
    if written:
        show(written)
    else:
        show_text(text.rstrip("\n"))
    _tell_next(described, form, written)
    _tell_of_trust(base)
    if served and serve is None:
        tell(f"nobody sees to {', '.join(served)} under it: add --serve PORT", style="yellow")


def _served(base: OrgPath, config: Config) -> list[str]:
    """Return the agents that are channels somebody has to listen for."""
    if not config.has_channels:
        return []
    from lemming.capabilities.channels.states import channel_states

    states = channel_states(base, survey_agents(base), config)
    return [it.agent for it in states if it.seen_to_by == "serve"]


def _write(described: Service, text: str) -> str:
    """Write the unit and return its path; raise `UsageError` where another organisation's stands."""
    folder = _config_home() / "systemd" / "user"
    path = folder / described.file_name
    try:
        there = fs.read_bytes(path, _LIMIT_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        there = None
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path), hint="move it away") from error
    if there is not None and not is_for(there, described.folder):
        raise UsageError(
            "there is a service of this name already, for something else",
            where=str(path),
            hint=f"lemming service --name {described.name}-2",
        )
    if there != text:
        fs.make_root(folder)
        fs.publish(folder, described.file_name, text.encode(), is_org=False)
    return str(path)


def _tell_next(described: Service, form: Form, written: str) -> None:
    keys = f"mkdir -p {_shown(Path(described.keys_file).parent)}"
    if form == "compose":
        tell("next: UID=$(id -u) GID=$(id -g) docker compose up -d --build")
    elif form == "launchd":
        place = f"~/Library/LaunchAgents/{described.label}.plist"
        tell(f"next: put this into {place}, then: launchctl bootstrap gui/$(id -u) {place}")
    else:
        if not written:
            tell(f"next: put this into ~/.config/systemd/user/{described.file_name}, then:")
        else:
            tell("next:")
        tell("  systemctl --user daemon-reload")
        tell(f"  systemctl --user enable --now {described.file_name}")
        tell("  loginctl enable-linger   # so that it runs while you are not logged in")
        tell(f"then: journalctl --user -u {described.file_name} -f")
    tell(f"keys: {keys}; then NAME=VALUE lines in {_shown(Path(described.keys_file))} (chmod 600)")


def _tell_of_trust(base: OrgPath) -> None:
    found = reaches(base, load_config(base), survey_agents(base).agents.values())
    missing = [it for it in Agreement(Path(base)).lacks(found) if it.reach.needs_agreement]
    if missing:  # what it will not do unasked
        tell(f"first: `lemming trust --yes`; nobody has agreed yet that it {missing[0]}", style="yellow")


def _options(interval: float | None, *, wake_on_change: bool) -> list[str]:
    options = [] if interval is None else ["--interval", f"{interval:g}"]
    return [*options, "--wake-on-change"] if wake_on_change else options


def _program() -> list[str]:
    """Return the words that start this very program, wherever one is then."""
    script = Path(sys.executable).with_name("lemming")
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "lemming"]


def _config_home() -> Path:
    chosen = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(chosen) if os.path.isabs(chosen) else Path.home() / ".config"


def _shown(path: Path) -> str:
    """Return a path as a person types it.

    >>> _shown(Path.home() / "a"), _shown(Path("/etc"))
    ('~/a', '/etc')
    """
    try:
        return f"~/{path.relative_to(Path.home())}"
    except ValueError:
        return str(path)
