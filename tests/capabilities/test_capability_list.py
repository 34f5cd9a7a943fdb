"""The list of capabilities: few columns, every path leads somewhere, no item has two owners, every kind is explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from lemming.kernel.plugins.capability_spec import PLUGIN_KINDS, CapabilitySpec, load_object
from lemming.kernel.plugins.shipped_capabilities import LISTED

PLACES = ("resume", "org", "member", "schedule", "turn", "model", "gate.then", "request")


def import_paths(spec: CapabilitySpec) -> Iterator[str]:
    yield spec.import_path
    items = (path for kind in spec.provides for path in spec.items(kind).values())
    keys = (path for place in PLACES for path in spec.keys_at(place).values())
    yield from filter(None, (*items, *keys))  # empty: the kernel reads the key, or lemming.commands has the command


def test_an_entry_has_at_most_eight_columns() -> None:
    assert len(CapabilitySpec._fields) <= 8


@pytest.mark.parametrize("name", LISTED)
def test_each_path_leads_to_an_object(name: str) -> None:
    paths = [*import_paths(LISTED[name])]
    assert [path for path in paths if load_object(path) is None] == []


def test_an_item_and_a_key_have_one_owner_each() -> None:
    items = Counter((kind, name) for spec in LISTED.values() for kind in spec.provides for name in spec.items(kind))
    items = Counter({item: count for item, count in items.items() if item[0] != "checks"})  # whose names are scopes
    keys = Counter(key for spec in LISTED.values() for key in spec.keys)
    assert [it for it, count in (items + keys).items() if count > 1] == []


def test_each_kind_and_each_place_is_explained_where_the_columns_are() -> None:
    text = CapabilitySpec.__doc__ or ""
    kinds = {kind for spec in LISTED.values() for kind in spec.provides} | {*PLUGIN_KINDS}
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in text] == []
    keys = {key for spec in LISTED.values() for key in spec.keys}
    assert [key for key in sorted(keys) if not key.startswith(tuple(f"{place}." for place in PLACES))] == []
    assert [place for place in PLACES if f"`{place}." not in text] == []


def test_a_fact_says_whose_it_is() -> None:
    facts = {name: spec.name for spec in LISTED.values() for name in spec.items("facts")}
    assert {name: owner for name, owner in facts.items() if not name.startswith(f"{owner}.")} == {}


def test_a_file_is_read_or_removed_by_its_capability_alone() -> None:
    roles = {role for spec in LISTED.values() for role in spec.files.values()}
    assert roles == {"settings", "temporary"}


def test_it_needs_and_follows_capabilities_that_are_listed() -> None:
    named = {name for spec in LISTED.values() for name in (*spec.needs, *spec.after)}
    assert named <= LISTED.keys()
