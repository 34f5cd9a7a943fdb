"""`lemming gates`: list gates, and print the recommended ones: limits on a turn after untrusted text. See docs/gates.md."""

from __future__ import annotations

from typing import Annotated, Any

from lemming.capabilities.gates.gate_settings import get_gates
from lemming.capabilities.gates.gates_screen import GATES
from lemming.commands.command_context import CommandContext, make_command_group, make_screen_command, option
from lemming.commands.terminal import print_json, print_notice, print_pretty_json
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.org.config import load_config
from lemming.libraries.settings_edits import edit_file

app = make_command_group("List gates, and print the recommended ones.", default=make_screen_command(GATES))
app.add_screen("list", GATES)

Json = dict[str, Any]
_FROM_OUTSIDE: Json = {"field": "trust", "op": "is", "value": "outside"}
_ARGUMENT_FROM_OUTSIDE: Json = {"field": "args_lowest", "op": "is", "value": "outside"}
_READ_BY_A_MODEL = "this turn was shown words from outside"


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
        if get_gates(load_config(context.org).org):
            hint = "print the table with `lemming gates defaults` and copy the gates you need"
            raise UsageError(f"{paths.ORG_FILE} already has gates", hint=hint)
        with edit_file(context.org, paths.ORG_FILE) as edit:
            document: Json = parse(edit.raw, allow_bom=True)
            table = standard_gates()
            trust = document.get("trust")
            edit.publish(dump_pretty({**document, **table, "trust": table["trust"] if trust is None else trust}))
        print_notice(f"{paths.ORG_FILE} has these gates now; next: `lemming gates list`, then `lemming validate`")
    print_json("standard_gates", standard_gates())
    print_pretty_json(standard_gates())


def standard_gates() -> Json:
    """Return the standard settings: trust tracking, and approval of risky actions after untrusted text.

    Writes to the agent's own workspace and memories need no approval. A tool without declared writes asks.
    """
    from_a_channel: Json = {"field": "channel", "op": "is", "value": True}
    outside_own_files: Json = {"field": "own", "op": "is_not", "value": True}
    return {
        "trust": {},
        "gates": [
            {
                "at": "in",
                "when": {"all": [from_a_channel, _FROM_OUTSIDE]},
                "then": "ask",
                "because": "a stranger wrote it: a person reads it first",
            },
            {
                "at": "call",
                "class": ["send", "execute", "administer"],
                "when": {"any": [_FROM_OUTSIDE, _ARGUMENT_FROM_OUTSIDE]},
                "then": "ask",
                "because": f"{_READ_BY_A_MODEL}, or an argument is a value of such an answer",
            },
            {
                "at": "call",
                "class": "write",
                "when": {"all": [_FROM_OUTSIDE, outside_own_files]},
                "then": "ask",
                "because": f"{_READ_BY_A_MODEL}, and it writes beyond its own workspace",
            },
            {
                "at": "out",
                "when": {"all": [_FROM_OUTSIDE, {"field": "leaves", "op": "is", "value": True}]},
                "then": "ask",
                "because": f"{_READ_BY_A_MODEL}, and a channel would take this out of the organisation",
            },
        ],
    }
