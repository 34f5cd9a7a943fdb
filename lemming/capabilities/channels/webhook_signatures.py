"""Signatures of webhooks: Standard Webhooks (standardwebhooks.com, specification 1.0) and GitHub's. Pure."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256

from lemming.kernel.base.errors import PermissionDenied
from lemming.kernel.base.integers import parse_int

TOLERANCE_S = 300
_PREFIX = "whsec_"


def verify_webhook(headers: Mapping[str, str], body: bytes, secret: str, now_s: float) -> str:
    """Return the id of a correctly signed webhook.

    `headers` have lower-case names. A Standard Webhook must be at most five minutes old. Raises: PermissionDenied with
    the reason.
    """
    if "webhook-signature" in headers:
        return _verify_standard_webhook(headers, body, secret, now_s)
    if "x-hub-signature-256" in headers:
        return _verify_github(headers, body, secret)
    hint = "send webhook-id, webhook-timestamp and webhook-signature, or X-Hub-Signature-256"
    raise PermissionDenied("the request is not signed", hint=hint)


def _verify_standard_webhook(headers: Mapping[str, str], body: bytes, secret: str, now_s: float) -> str:
    ident, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    seconds = parse_int(at)
    if not ident or seconds is None:
        raise PermissionDenied("webhook-id must be present, and webhook-timestamp must be a number of seconds")
    if abs(now_s - seconds) > TOLERANCE_S:
        raise PermissionDenied(f"webhook-timestamp must be within {TOLERANCE_S} seconds of the current time")
    candidates = [part.removeprefix("v1,") for part in headers["webhook-signature"].split(" ") if "v1," in part]
    expected = [sign_webhook(key, ident, at, body) for key in _candidate_keys(secret)]
    if not any(_is_equal(candidate, other) for candidate in candidates for other in expected):
        raise PermissionDenied("the signature is wrong")
    return ident


def _verify_github(headers: Mapping[str, str], body: bytes, secret: str) -> str:
    expected = "sha256=" + hmac.new(secret.encode(), body, sha256).hexdigest()
    if not _is_equal(headers["x-hub-signature-256"], expected):
        raise PermissionDenied("the signature is wrong")
    if not headers.get("x-github-delivery"):
        raise PermissionDenied("X-GitHub-Delivery is missing")
    return f"github-{sha256(body).hexdigest()}"  # the header is not signed: the same body is the same message


def sign_webhook(key: bytes, ident: str, at: str, body: bytes) -> str:
    """Return the signature of a Standard Webhook, without the prefix `v1,`."""
    signed = f"{ident}.{at}.".encode() + body
    return b64encode(hmac.new(key, signed, sha256).digest()).decode()


def decode_secret(secret: str) -> bytes:
    """Return the signing key of a secret: base64 after `whsec_`, else the bytes of the text.

    >>> decode_secret("whsec_bWF5ZmFpcg=="), decode_secret("mayfair")
    (b'mayfair', b'mayfair')
    """
    return next(_candidate_keys(secret))


def _candidate_keys(secret: str) -> Iterator[bytes]:
    """Yield the possible keys of a secret. Some programs treat a secret without a prefix as base64 too."""
    plain = secret.removeprefix(_PREFIX)
    # Senders without the prefix mean either the text itself or its base64 form.
    if plain == secret:
        yield secret.encode()
    try:
        yield b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        if plain != secret:
            yield plain.encode()


def _is_equal(candidate: str, expected: str) -> bool:
    return hmac.compare_digest(candidate.encode("utf-8", "replace"), expected.encode())
