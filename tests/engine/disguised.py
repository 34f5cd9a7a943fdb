"""Secrets in every form in which a text can hold them, and where they are found."""

from __future__ import annotations

import base64
import json
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

from lemming.testing import tree

PEM = "\n".join(["-----BEGIN PRIVATE KEY-----", *["MIIEvQIBADANBgkqhkiG9w0B" * 2] * 3, "-----END PRIVATE KEY-----"])
VALUES = {
    "FOO_AUTHENTICATION_TOKEN": "p4t-hush/hush+42",
    "BAR_PASSWORD": 'grün "käse" 7!',
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzzz",
    "DEPLOY_KEY": PEM,
    "ANTHROPIC_API_KEY": "sk-ant-api03-Zx9" + "hT4-bQ_w" * 11 + "AA",
    "DATABASE_URL": "postgres://app:h7nter2-in-an-address@db/main",
}
LOOKS = {
    "openai": "sk-proj-Ab12" + "cD3_fG-h" * 12,
    "github": "github_pat_11ABCDEFG0" + "a1B2c3D4" * 8,
    "gitlab": "glpat-aB3dE6gH9jK2mN5pQ8sT",
    "slack": "xoxb-123456789012-1234567890123-aB3dE6gH9jK2mN5pQ8sT1vW4",
}
SECRETS = {**VALUES, "DATABASE_URL": "h7nter2-in-an-address", **LOOKS}


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(letter):04x}" for letter in text)


def percent(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


DISGUISES: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": lambda text: json.dumps(text)[1:-1],
    "json in json": lambda text: json.dumps(json.dumps(text))[3:-3],
    "escapes": escaped,
    "percent": lambda text: quote(text, safe=""),
    "percent of all": percent,
    "plus": quote_plus,
    "base64": in_base64,
    "base64 after x": lambda text: in_base64(f"x{text}"),
    "base64 after xy": lambda text: in_base64(f"xy{text}"),
    "urlsafe": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "lines of base64": lambda text: base64.encodebytes(("a" * 50 + text).encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
}
ALL = [disguise(secret) for secret in SECRETS.values() for disguise in DISGUISES.values()]
TEXT = "\n".join(f"{number}: {written}" for number, written in enumerate(ALL))


def forms() -> Iterator[bytes]:
    """Yield what may stand in no file: each form, and each again as JSON writes it."""
    for secret in SECRETS.values():
        for disguise in DISGUISES.values():
            form = disguise(secret).removesuffix("\n")
            for written in (form, json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1]):
                yield written.encode()
        raw = secret.encode()
        for before in range(3):  # what base64 looks like inside a longer text
            middle = base64.b64encode(bytes(before) + raw)[4 : (before + len(raw)) // 3 * 4]
            yield from (middle, middle.replace(b"+", b"-").replace(b"/", b"_"))


FORMS = sorted(set(forms()))


def held_by(base: Path) -> dict[str, list[bytes]]:
    """Return the files below a folder that hold a secret, and which forms of it."""
    found: dict[str, list[bytes]] = {}
    for name, raw in tree(base, without=()).items():
        for inner, content in contents(base / name, raw):
            if forms := [form for form in FORMS if form in content]:
                found[f"{name}{inner}"] = forms
    return found


def contents(file: Path, raw: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what is in a file: itself, and what is packed in it."""
    yield "", raw
    if "objects" in file.parts and raw[:1] == b"\x78":
        yield " (object)", zlib.decompress(raw)
    if file.suffix == ".xz":
        yield " (unpacked)", lzma.decompress(raw)
    if file.name.endswith((".tar.gz", ".tgz", ".tar")):
        with tarfile.open(file) as archive:
            for member in archive:
                if inner := archive.extractfile(member):
                    content = inner.read()
                    yield f" ({member.name})", content
                    if member.name.endswith(".xz"):
                        yield f" ({member.name}, unpacked)", lzma.decompress(content)
