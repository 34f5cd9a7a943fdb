"""`lemming service`: run the organisation as a system service."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from lemming.commands.command_context import CommandContext, option, parse_seconds
from lemming.commands.terminal import print_data, print_json, print_notice, print_text, print_warning
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.libraries.optional_packages import require_server
from lemming.operations.permission_grants import PermissionGrants
from lemming.operations.service_unit import Form, ServiceUnit, is_unit_for_folder, make_service_name, render_unit
from lemming.queries.checks.health_checks import load_channel_statuses
from lemming.queries.permissions_required import list_required_permissions

_LIMIT_BYTES = 1 << 20


def service(
    context: CommandContext,
    form: Annotated[
        Form, option("--form", "Service manager: systemd (writes a user unit) or launchd (printed).")
    ] = "systemd",
    only_print: Annotated[bool, option("--print", "Print the unit without writing it.")] = False,
    name: Annotated[str, option("--name NAME", "Name of the service. Default: the folder's name.")] = "",
    interval: Annotated[
        float | None,
        option("--interval DURATION", "Time between ticks, as for `run-forever --interval`.", parser=parse_seconds),
    ] = None,
    wake_on_change: Annotated[
        bool,
        option(
            "--wake-on-change", "Sleep until an agent is due or a file changes, as `run-forever --wake-on-change` does."
        ),
    ] = False,
    health: Annotated[
        int | None, option("--health PORT", "Serve /healthz on PORT, as `run-forever --health` does.", min=1, max=65535)
    ] = None,
    serve: Annotated[
        int | None,
        option(
            "--serve PORT",
            "Also serve http and mail channels on PORT; without it they are not served.",
            min=1,
            max=65535,
        ),
    ] = None,
) -> None:
    """Install this organisation as a system service: started at boot, supervised, and restarted after a
    failure.

    Writes a systemd unit to ~/.config/systemd/user/ and prints the next commands; nothing is started or
    enabled. systemd is notified when the engine is ready, and restarts the engine after a hang (no progress
    for longer than the longest deadline in the settings). Exit statuses 2, 3 and 7 need a person and stop the
    service.

    Keys belong in ~/.config/lemming/NAME.env, one NAME=VALUE per line. The file is optional.

    \b
    Examples:
      lemming service
      lemming service --interval 10m --wake-on-change --health 8642
      lemming service --serve 8420
    """
    base = context.org
    config = load_config(base)  # or it would not start
    channels = load_channel_statuses(base, survey_agents(base), config)
    channel_agents = [channel.agent for channel in channels if channel.seen_to_by == "serve"]
    if serve is not None and not channel_agents:
        hint = "leave out --serve; see docs/channels.md"
        raise UsageError("there is nothing to serve: no agent uses an http or mail channel", hint=hint)
    if health is not None:
        require_server("--health")
    folder = Path(base).resolve()
    if name and name != make_service_name(name):
        message = f'the name of a service must consist of a-z, 0-9 and -, got "{name}"'
        raise UsageError(message, hint=f"use {make_service_name(name)}")
    name = name or make_service_name(folder.name)
    options = [] if interval is None else ["--interval", f"{interval:g}"]
    script = Path(sys.executable).with_name("lemming")
    unit = ServiceUnit(
        name=name,
        folder=str(folder),
        program=[str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "lemming"],
        options=[*options, "--wake-on-change"] if wake_on_change else options,
        keys_file=str(_get_config_home() / "lemming" / f"{name}.env"),
        log_file=str(Path.home() / "Library" / "Logs" / f"lemming-{name}.log"),
        health=health,
        serve=serve,
    )
    text = render_unit(unit, form)
    written = "" if only_print or form != "systemd" else _write_unit(unit, text)
    print_json("service", {"form": form, "file": written, "name": unit.name, "text": text})
    if written:
        print_data(written)
    else:
        print_text(text.rstrip("\n"))
    _print_next_steps(unit, form, written)
    permissions = list_required_permissions(base, config, survey_agents(base).agents.values())
    grants = PermissionGrants(Path(base)).find_missing(permissions)
    if missing := [grant for grant in grants if grant.permission.needs_agreement]:  # never done without being asked
        print_warning(f"first: `lemming trust --yes`; it is not yet permitted to do this: it {missing[0]}")
    if channel_agents and serve is None:
        print_warning(f"channels of {', '.join(channel_agents)} are not served: add --serve PORT")


def _write_unit(unit: ServiceUnit, text: str) -> str:
    """Write the unit and return its path. Raises `UsageError` if the file belongs to another organisation."""
    folder = _get_config_home() / "systemd" / "user"
    path = folder / unit.file_name
    try:
        existing = fs.read_bytes(path, _LIMIT_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        existing = None
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path), hint="move it away") from error
    if existing is not None and not is_unit_for_folder(existing, unit.folder):
        hint = f"choose another name: lemming service --name {unit.name}-2"
        raise UsageError("a different service of this name already exists", where=str(path), hint=hint)
    if existing != text:
        fs.make_root(folder)
        fs.write_atomic(folder, unit.file_name, text.encode(), is_org=False)
    return str(path)


def _print_next_steps(unit: ServiceUnit, form: Form, written: str) -> None:
    make_folder = f"mkdir -p {_shorten_path(Path(unit.keys_file).parent)}"
    if form == "launchd":
        plist_path = f"~/Library/LaunchAgents/{unit.launchd_label}.plist"
        print_notice(f"next: put this into {plist_path}, then: launchctl bootstrap gui/$(id -u) {plist_path}")
    else:
        put = "" if written else f" put this into ~/.config/systemd/user/{unit.file_name}, then:"
        print_notice(f"next:{put}")
        print_notice("  systemctl --user daemon-reload")
        print_notice(f"  systemctl --user enable --now {unit.file_name}")
        print_notice("  loginctl enable-linger   # so that it runs while you are not logged in")
        print_notice(f"then: journalctl --user -u {unit.file_name} -f")
    print_notice(f"keys: {make_folder}; then NAME=VALUE lines in {_shorten_path(Path(unit.keys_file))} (chmod 600)")


def _get_config_home() -> Path:
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(configured) if os.path.isabs(configured) else Path.home() / ".config"


def _shorten_path(path: Path) -> str:
    """Shorten a path below the home folder to `~/...`.

    >>> _shorten_path(Path.home() / "a"), _shorten_path(Path("/etc"))
    ('~/a', '/etc')
    """
    try:
        return f"~/{path.relative_to(Path.home())}"
    except ValueError:
        return str(path)
