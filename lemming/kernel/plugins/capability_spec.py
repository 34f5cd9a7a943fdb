"""An entry of the table of capabilities, the same for shipped capabilities and plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

NOTHING: Mapping[str, Any] = {}


class CapabilitySpec(NamedTuple):
    """A capability as data. Import paths are "module:name"; ".module:name" begins in the capability's package.

    `needs`: capabilities that must be installed too. `after`: capabilities called earlier at every common hook.

    `keys` maps keys in user files, each by its place, to an import path, or to "" for a key that the kernel reads:

    - `resume.KEY`, `org.KEY`: class with the key as a field. The capability is used where the key is.
    - `member.KEY`: function that parses the value in a member of a resume's team.
    - `schedule.KEY`: function that yields problems of the value in a resume's `schedule`. The key is a use.
    - `turn.KEY`, `model.KEY`: key of a resume's `turn`, or of an entry of `config/models.json`.
    - `gate.then.VALUE`: value of a gate's `then`. A gate with the value is a use.
    - `request.KEY`: key in a request's payload, by which an asker needs the capability.

    `provides` maps kinds to items, each a name with its import path. `PLUGIN_KINDS` are open to plugins, which may give
    the object instead of the path:

    - `tools`: tool classes.
    - `model_providers`: providers that call models. `harness_providers`: those that run a coding harness for a turn.
      `channel_providers`: channels. `computed_providers`: providers that compute their answers, without costs. An agent
      with a provider of the latter two uses the capability.
    - `strategies`: ways to take a turn, by values of `turn.strategy`.
    - `commands`: commands of `lemming`, a function or a Typer application each; "" for code in `lemming.commands`.
    - `screens`: declared lists, each also a command of its name (`lemming.queries.screens`).
    - `checks`: functions that yield problems, by scope: `lemming.kernel.tick.validation.checks`.
    - `facts`: functions for commands, queries and the page, which never import a capability. `NAME.review_TOOL` is a
      `CallReview` (`lemming.obligations.pending_actions`) of the calls of a tool.
    - `tool_sources`: classes of further tools, by the prefix of the tools' names, or by the key of `config/org.json`
      that lists them. `function_tools`: class that makes a tool from a function.
    - `in_ticks`: "" for a capability with clock schedules, files that its agents read in all turns, or memories that
      expire. It is loaded for each tick with agents that use it, others only for turns.
    - `gateways`: classes that carry messages between ticks.
    - `rules`: the kernel's records that the capability decides about: "requests", with the function that makes an agent's
      agenda of them, or "decisions" of persons, with "".
    - `reply_holds`: functions that keep expired entries which await a reply.
    - `permissions`: functions that yield the side effects outside the folder that a person must agree to.
    - `pricing`: function that computes a call's cost in dollars, by providers with known prices, and "*" for entries
      with prices of their own. `server_profiles`: class of the profiles of model servers.
    - `executors`: classes that make model calls elsewhere, by values of `executor`. `call_batchers`: classes that let the
      model calls of a tick wait for each other, by the capability that a run or a tick's records name.
    - `folder_moves`: context managers in which an agent's folder is renamed: they move files about it along.
    - `formats`: classes of file formats, and of the recorded purpose of a turn. `records`: classes of journal records, by kind.

    `files` maps patterns of files to "settings" (only this capability reads the file) or "temporary" (the capability
    removes the file after its use).

    `uses` decides from a resume and its model entry (or None) if an agent uses the capability, where no key and no
    provider says so. Such a capability takes part in turns also without a recorded snapshot.
    """

    name: str
    import_path: str
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    keys: Mapping[str, str] = NOTHING
    provides: Mapping[str, Mapping[str, Any]] = NOTHING
    files: Mapping[str, str] = NOTHING
    uses: Callable[[Any, Any], Any] | None = None

    @property
    def package(self) -> str:
        """The package with the capability's code."""
        return self.import_path.rpartition(":")[0].rpartition(".")[0]

    def keys_at(self, place: str) -> dict[str, str]:
        """Return the keys that stand at a place, such as "resume", each with its full import path or ""."""
        start = f"{place}."
        return {
            key.removeprefix(start): self.full_path(path) for key, path in self.keys.items() if key.startswith(start)
        }

    def items(self, kind: str) -> dict[str, Any]:
        """Return the provided items of a kind by name, each with its full import path."""
        return {name: self.full_path(path) for name, path in self.provides.get(kind, NOTHING).items()}

    def full_path(self, path: Any) -> Any:
        """Return an import path without its relative start.

        >>> CapabilitySpec("gates", "lemming.capabilities.gates.gates_capability:Gates").full_path(".rules:find")
        'lemming.capabilities.gates.rules:find'
        """
        return self.package + path if isinstance(path, str) and path.startswith(".") else path


PLUGIN_KINDS = ("tools", "model_providers", "channel_providers", "strategies", "commands", "screens", "facts", "checks")
"""The kinds of items that a plugin's capability may provide."""
PLUGIN_SCOPES = ("agent", "organisation", "turn")
"""The scopes of checks that a plugin's capability may provide."""


def load_object(import_path: str) -> Any:
    """Return the object of an import path "module:name"."""
    module, _, name = import_path.partition(":")
    return getattr(import_module(module), name)
