"""Signatures of webhooks: Standard Webhooks (standardwebhooks.com, specification 1.0) and GitHub's. Pure."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256

from lemming.kernel.base.errors import PermissionDenied
from lemming.kernel.base.integers import read_int

TOLERANCE_S = 300
_PREFIX = "whsec_"


def verified_id(headers: Mapping[str, str], body: bytes, secret: str, now_s: float) -> str:
    """Return the id of a webhook whose signature is right; raise `PermissionDenied` that says why it is not.

    `headers` have their names in lower case. A Standard Webhook must be sent at most five minutes from now.
    """
    if "webhook-signature" in headers:
        return _standard(headers, body, secret, now_s)
    if "x-hub-signature-256" in headers:
        return _github(headers, body, secret)
    hint = "send webhook-id, webhook-timestamp and webhook-signature, or X-Hub-Signature-256"
    raise PermissionDenied("the request is not signed", hint=hint)


def _standard(headers: Mapping[str, str], body: bytes, secret: str, now_s: float) -> str:
    ident, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    seconds = read_int(at)
    if not ident or seconds is None:
        raise PermissionDenied("webhook-id or webhook-timestamp is missing, or no number of seconds")
    if abs(now_s - seconds) > TOLERANCE_S:
        raise PermissionDenied(f"webhook-timestamp is more than {TOLERANCE_S} seconds from now")
    given = [word.removeprefix("v1,") for word in headers["webhook-signature"].split(" ") if "v1," in word]
    wanted = [signature(key, ident, at, body) for key in _keys(secret)]
    if not any(_same(one, other) for one in given for other in wanted):
        raise PermissionDenied("the signature is wrong")
    return ident


def _github(headers: Mapping[str, str], body: bytes, secret: str) -> str:
    wanted = "sha256=" + hmac.new(secret.encode(), body, sha256).hexdigest()
    if not _same(headers["x-hub-signature-256"], wanted):
        raise PermissionDenied("the signature is wrong")
    if not headers.get("x-github-delivery"):
        raise PermissionDenied("X-GitHub-Delivery is missing")
    return f"github-{sha256(body).hexdigest()}"  # the header is not signed: the same body is the same message


def signature(key: bytes, ident: str, at: str, body: bytes) -> str:
    """Return the signature of a Standard Webhook, without its `v1,`."""
    signed = f"{ident}.{at}.".encode() + body
    return b64encode(hmac.new(key, signed, sha256).digest()).decode()


def signing_key(secret: str) -> bytes:
    """Return the key that a secret stands for: base64 after `whsec_`, else its own bytes.

    >>> signing_key("whsec_bWF5ZmFpcg=="), signing_key("mayfair")
    (b'mayfair', b'mayfair')
    """
    return next(_keys(secret))


def _keys(secret: str) -> Iterator[bytes]:
    """Yield what a secret may stand for; other programs take one without a prefix as base64 too."""
    plain = secret.removeprefix(_PREFIX)
    # Senders that leave the prefix out mean either: the text itself, or what it is in base64.
    if plain == secret:
        yield secret.encode()
    try:
        yield b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        if plain != secret:
            yield plain.encode()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
