"""The screen of model keys and their readiness on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.operations.model_prices import ModelPrice, find_price, find_shutdown_date
from lemming.queries.model_readiness import check_readiness, check_served_model
from lemming.queries.screens.screen import Column, Screen
from lemming.queries.tick_preview import load_inspection_settings

if TYPE_CHECKING:
    from lemming.operations.model_detection import KeylessServer, ServedModels

_READINESS_TEXT = {True: "ready", False: "not ready", None: "unchecked"}
Json = dict[str, Any]


def list_models(org: Organisation) -> list[Json]:
    """List model keys and their readiness on this machine. No model is called, and no server is asked."""
    return list_model_rows(org, load_inspection_settings(org), {})


def list_model_rows(
    org: Organisation, config: Config, answers: Mapping[str, tuple[KeylessServer, ServedModels]]
) -> list[Json]:
    """Return a row for each model key. `answers`: the models of servers without a key, by model key."""
    rows = list[Json]()
    for key, entry in sorted(config.models.items()):
        readiness, price = check_readiness(entry, Path(org), config.org.plugins), find_price(entry)
        if key in answers and readiness.is_ready is None:
            readiness = check_served_model(*answers[key], entry.model)
        identity = {"key": key, "provider": entry.provider, "model": entry.model}
        details = {"shutdown": find_shutdown_date(entry) or None, "price": price._asdict() if price else None}
        rows.append({**identity, **vars(readiness), **details})
    return rows


def _format_remark(row: dict[str, Any]) -> str:
    price = ModelPrice(**row["price"]) if row["price"] else None
    remark = f"{row['remark']}: {row['fix']}" if row["fix"] and not row["is_ready"] else row["remark"]
    remark += f"; shut down on {row['shutdown']}" if row["shutdown"] else ""
    return remark + (f"; {price}" if price and (price.input or price.output) else "")


MODELS = Screen(
    "models",
    kind="model",
    title="Models",
    command="models list --no-servers",
    query=list_models,
    columns=(
        Column("key", "KEY", "Model key in config/models.json."),
        Column("provider", "PROVIDER", "Provider of the model."),
        Column("model", "MODEL", "Name of the model.", text=lambda row: row["model"] or "-"),
        Column(
            "is_ready", "STATUS", "True if it can be called, or null if only a call can tell.", bool | None,
            text=lambda row: _READINESS_TEXT[row["is_ready"]],
        ),
        Column("remark", "", "Reason for the status.", text=_format_remark),
        Column("fix", about="What makes the model ready, or empty."),
        Column("shutdown", about="Day on which the provider shuts it down, or null.", type=str | None),
        Column("price", about="Dollars per million tokens, or null.", type=dict[str, Any] | None),
    ),
)  # fmt: skip
