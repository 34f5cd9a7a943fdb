"""Patches of workers by the SHA-256 of their bytes: `logs/patches/SHA256.patch`, written once and never changed."""

from __future__ import annotations

from hashlib import sha256

from lemming.ext import LemmingError
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.paths import PATCHES
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation

LIMIT_BYTES = 256 << 20


def patch_file(digest: str) -> str:
    """Return the path of a patch in the organisation."""
    return f"{PATCHES}/{digest}.patch"


def store_patch(org: Organisation, patch: bytes, *, sync: bool) -> str:
    """Write a patch durably, and return its SHA-256 in hex. Repeating this changes nothing."""
    digest = sha256(patch).hexdigest()
    if not fs.has_content(f"{org.base}/{patch_file(digest)}", patch):
        fs.write_atomic(org.base, patch_file(digest), patch, sync=sync)
    return digest


def load_patch(org: Organisation, digest: str) -> bytes:
    """Return a stored patch. Raises `ToolError` if the file is missing or does not have its digest."""
    path = f"{org.base}/{patch_file(digest)}"
    try:
        patch = fs.read_bytes(path, LIMIT_BYTES)
    except (OSError, LemmingError) as error:
        raise ToolError(f"patch {digest[:12]} must be in {PATCHES}, got {error}") from error
    if sha256(patch).hexdigest() != digest:
        raise ToolError(f"patch {patch_file(digest)} must have its digest, got {sha256(patch).hexdigest()[:12]}")
    return patch
