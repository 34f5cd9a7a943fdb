"""`lemming gates`: list gates, and print the recommended ones."""

from __future__ import annotations

from typing import Annotated, Any

from lemming.capabilities.gates.default_gates import standard_gates
from lemming.capabilities.gates.gate_settings import get_gates
from lemming.capabilities.gates.gates_screen import GATES
from lemming.commands.command_context import CommandContext, make_command_group, make_screen_command, option
from lemming.commands.terminal import print_json, print_notice, print_pretty_json
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.settings_edits import edit_file

app = make_command_group("List gates, and print the recommended ones.", default=make_screen_command(GATES))
app.add_screen("list", GATES)


@app.subcommand("defaults")
def show_standard(
    context: CommandContext, write: Annotated[bool, option("--write", "Add them to config/org.json.")] = False
) -> None:
    """Print the recommended gates. They restrict turns that have seen untrusted text.

    \b
    Examples:
      lemming gates defaults
      lemming gates defaults --write
    """
    if write:
        base = context.org
        _write_standard(base)
        print_notice(f"{paths.ORG_FILE} has these gates now; next: `lemming gates list`, then `lemming validate`")
    print_json("standard_gates", standard_gates())
    print_pretty_json(standard_gates())


def _write_standard(base: Organisation) -> None:
    """Add the recommended gates to the settings. Raises `UsageError` if the settings have gates already."""
    if get_gates(load_config(base).org):
        hint = "print the table with `lemming gates defaults` and copy the gates you need"
        raise UsageError(f"{paths.ORG_FILE} already has gates", hint=hint)
    with edit_file(base, paths.ORG_FILE) as edit:
        document: dict[str, Any] = parse(edit.raw, allow_bom=True)
        table = standard_gates()
        trust = document.get("trust")
        document["trust"] = table["trust"] if trust is None else trust
        document["gates"] = table["gates"]
        edit.publish(dump_pretty(document))
