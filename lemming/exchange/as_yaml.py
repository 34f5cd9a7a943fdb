"""A document as YAML that a person reads: texts of several lines as blocks, keys in their order."""

from __future__ import annotations

from typing import Any

_WIDTH = 100
_TEXT, _LIST = "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq"


def yaml_of(document: dict[str, Any]) -> str:
    """Return a document of JSON values as YAML, as `load_yaml` reads it back."""
    import yaml  # only where there is any

    dumper: Any = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda *_: True})
    dumper.add_representer(str, _text)
    dumper.add_representer(list, _list)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text


def _text(dumper: Any, text: str) -> Any:
    is_block = "\n" in text and not text.startswith((" ", "\n"))
    return dumper.represent_scalar(_TEXT, text, style="|" if is_block else None)


def _list(dumper: Any, items: list[Any]) -> Any:
    is_short = all(isinstance(item, str | int | float) for item in items) and len(str(items)) < _WIDTH
    return dumper.represent_sequence(_LIST, items, flow_style=is_short)
