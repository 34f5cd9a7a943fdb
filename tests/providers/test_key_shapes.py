"""What looks like a key is taken out of what comes from outside; what only looks odd stays as it is."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import string
import time
import uuid
import zlib
from collections.abc import Callable

import pytest

from lemming.kernel.base.redaction.secrets import redact_untrusted

_chance = random.Random("keys that open nothing")
_LETTERS = string.ascii_letters + string.digits


def _random(length: int, letters: str = _LETTERS) -> str:
    """Return a text as services make them up: with a digit and a capital in it."""
    return "a7K" + "".join(_chance.choices(letters, k=length - 3))


def _base64(length: int) -> str:
    return base64.b64encode(_chance.randbytes(length)).decode()


def _pem(kind: str) -> str:
    lines = [_base64(48) for _ in range(8)]
    return "\n".join([f"-----BEGIN {kind}PRIVATE KEY-----", *lines, f"-----END {kind}PRIVATE KEY-----"])


def _token(claims: dict[str, str]) -> str:
    head, body = ({"alg": "RS256", "typ": "JWT"}, claims)
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (head, body)]
    return ".".join([*parts, _random(43)])


KEYS = {
    "openai": f"sk-{_random(20)}T3BlbkFJ{_random(20)}",
    "openai project": f"sk-proj-{_random(40, _LETTERS + '-_')}T3BlbkFJ{_random(60)}",
    "openai service": f"sk-svcacct-{_random(60)}",
    "anthropic": f"sk-ant-api03-{_random(93, _LETTERS + '-_')}AA",
    "anthropic login": f"sk-ant-oat01-{_random(80)}",
    "openrouter": f"sk-or-v1-{hashlib.sha256(b'r').hexdigest()}",
    "deepseek": f"sk-{hashlib.md5(b'd', usedforsecurity=False).hexdigest()}",
    "groq": f"gsk_{_random(52)}",
    "xai": f"xai-{_random(80)}",
    "perplexity": f"pplx-{_random(48)}",
    "hugging face": f"hf_{_random(34)}",
    "google": f"AIza{_random(35, _LETTERS + '-_')}",
    "google login": f"ya29.{_random(100)}",
    "google client": f"GOCSPX-{_random(28)}",
    "aws key id": f"AKIA{_random(16, string.ascii_uppercase + '234567').upper()}",
    "aws session id": f"ASIA{_random(16, string.ascii_uppercase + '234567').upper()}",
    "github": f"ghp_{_random(36)}",
    "github app": f"ghs_{_random(36)}",
    "github fine-grained": f"github_pat_{_random(22)}_{_random(59)}",
    "gitlab": f"glpat-{_random(20)}",
    "gitlab runner": f"glrt-{_random(20)}",
    "slack": f"xoxb-123456789012-1234567890123-{_random(24)}",
    "slack app": f"xapp-1-A0123456789-1234567890123-{hashlib.sha256(b's').hexdigest()}",
    "slack hook": f"https://hooks.slack.com/services/T01234567/B01234567/{_random(24)}",
    "stripe": f"sk_live_{_random(24)}",
    "stripe restricted": f"rk_test_{_random(99)}",
    "webhook": f"whsec_{_base64(24)}",
    "npm": f"npm_{_random(36)}",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{_random(100, _LETTERS + '-_')}",
    "sendgrid": f"SG.{_random(22)}.{_random(43)}",
    "digital ocean": f"dop_v1_{hashlib.sha256(b'o').hexdigest()}",
    "vault": f"hvs.{_random(90)}",
    "databricks": f"dapi{hashlib.md5(b'b', usedforsecurity=False).hexdigest()}",
    "azure": f"{_random(52)}JQQJ99{_random(10)}ACOG{_random(4)}",
    "json web token": _token({"sub": "1234567890", "name": "Ada"}),
    "rsa": _pem("RSA "),
    "pkcs 8": _pem(""),
    "ssh": _pem("OPENSSH "),
    "age": f"AGE-SECRET-KEY-1{_random(58, string.ascii_uppercase + string.digits).upper()}",
}
BESIDE_A_NAME = {
    "aws secret": ("aws_secret_access_key = ", _base64(30)),
    "aws secret in JSON": ('{"SecretAccessKey": "', _base64(30)),
    "aws secret in the environment": ("AWS_SECRET_ACCESS_KEY=", _base64(30)),
    "azure storage": ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=", _base64(64)),
    "azure bus": ("Endpoint=sb://a.net/;SharedAccessKeyName=all;SharedAccessKey=", _base64(32)),
    "azure signature": ("https://a.blob.core.windows.net/c?sv=2024&sig=", _random(43) + "%3D"),
    "bearer": ("Authorization: Bearer ", _random(40)),
    "basic": ("authorization: Basic ", base64.b64encode(b"ada:correct-horse").decode()),
    "header in JSON": ('{"Authorization": "token ', _random(40)),
    "bearer alone": ("curl -H 'bearer ", _random(40) + "'"),
    "header of a key": ("x-api-key: ", _random(32)),
    "key in a query": ("https://example.org/v1?api_key=", _random(32)),
    "password in an address": ("postgres://app:", "h7nter2@db:5432/main"),
    "password of a queue": ("amqp://me:", "Tr0ub4dor&3@queue/"),
    "connection": ("Server=db;User Id=app;Password=", "Tr0ub4dor&3"),
}

_ALL = [*KEYS.values(), *(key.strip("'") for _, key in BESIDE_A_NAME.values())]


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_key_of_a_known_service_is_taken_out(key: str) -> None:
    for text in (key, f'{{"text": "it is {key}."}}', f"export KEY='{key}'\nnext", f"KEY={key} other"):
        without = redact_untrusted(text)
        assert key not in without
        assert "[redacted key]" in without


@pytest.mark.parametrize(
    "disguise",
    [
        lambda key: json.dumps(json.dumps(key)),
        lambda key: "".join(f"\\u{ord(letter):04x}" for letter in key),
        lambda key: "".join(f"%{ord(letter):02X}" for letter in key),
        lambda key: "".join(f"%25{ord(letter):02x}" for letter in key),
        lambda key: "".join(f"&#{ord(letter)};" for letter in key),
        lambda key: key.encode().hex(),
        lambda key: f"a7 {key}".encode().hex().upper(),
        lambda key: base64.b64encode(f"it is {key} and so on".encode()).decode(),
        lambda key: base64.urlsafe_b64encode(f"it is\n{key} and so on".encode()).decode(),
        lambda key: base64.encodebytes(f"what you asked for: {key}, that opens all".encode()).decode(),
        lambda key: base64.b64encode(base64.b64encode(f"twice {key} here".encode())).decode(),
    ],
)  # fmt: skip
def test_a_key_in_disguise_is_taken_out(disguise: Callable[[str], str]) -> None:
    for key in KEYS.values():
        without = redact_untrusted(f"before {disguise(key)} after")
        assert "[redacted key]" in without
        assert disguise(key)[12:60] not in without
        assert without.startswith("before ")
        assert without.endswith(" after")


@pytest.mark.parametrize(("before", "key"), BESIDE_A_NAME.values(), ids=BESIDE_A_NAME)
def test_a_key_is_known_by_the_name_before_it(before: str, key: str) -> None:
    without = redact_untrusted(f"{before}{key}")
    assert without.startswith(f"{before}[redacted key]")


PLACEHOLDERS = [
    "Authorization: Bearer YOUR_API_KEY_GOES_HERE",
    "Authorization: Bearer <the token of your account>",
    "Authorization: Bearer ${GITHUB_TOKEN_OF_THE_ORGANISATION}",
    "postgres://user:password@localhost:5432/db",
    "postgres://app:${DB_PASSWORD}@db/main",
    "https://me:<password>@example.org",
    "Server=db;User Id=app;Password=<your password>;",
    "api_key: your_api_key_here",
    "sk-...",
    "AKIA followed by 16 characters",
    "-----BEGIN PRIVATE KEY----- begins a key, -----END PRIVATE KEY----- ends one",
]
HARMLESS = {
    "code": "authorization = request.headers.get(name) or self.authorization_of_the_request",
    "sha-256": hashlib.sha256(b"x").hexdigest(),
    "sha-1": hashlib.sha1(b"x", usedforsecurity=False).hexdigest(),
    "uuid": str(uuid.UUID(int=_chance.getrandbits(128))),
    "integrity": f"sha512-{_base64(64)}",
    "a commit": "commit 5ebb06f02c2d1a6dd9fbb2b0c22fe4de2e0d6b9c (HEAD -> main, origin/main)",
    "words with hyphens": "task-oriented risk-averse desk-bound sk-learn sk-circle-fade-dot",
    "a stylesheet": ".sk-cube-grid .sk-cube1 { animation: sk-cubeGridScaleDelay 1.3s infinite ease-in-out; }",
    "names": "npm_config_registry npm_lifecycle_event hf_hub_download hf_transformers_cache gh_pages glance-",
    "Python": "def access_key_of(self, api_key: str = '', *, token_env='OPENAI_API_KEY'): ...",
    "a lock file": '"resolved": "https://registry.npmjs.org/a/-/a-1.0.0.tgz", "integrity": "sha512-'
    + _base64(64)
    + '"',
    "an address": "https://example.org/a/very/long/path/with-hyphens_and_underscores/0123456789?page=2#top",
    "an address with a port": "http://localhost:8000/a@b http://host:8000/?to=me@example.org",
    "mails": "ada@example.org, grace.hopper+navy@example.org: see https://example.org",
    "ssh": "git clone git@github.com:org/repo.git ssh://git@github.com/org/repo.git",
    "a public key": f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{_random(43)} ada@example.org",
    "a certificate": f"-----BEGIN CERTIFICATE-----\n{_base64(48)}\n-----END CERTIFICATE-----",
    "prose": "The bearer of this letter asks for authorization: please grant it. The key: patience.",
    "a secret in prose": "The password is what you make of it; the api key opens the door.",
    "escapes": 'a \\u0041 \\/ b \\n "c\\\\d" %41%20%2F &#65;',
    "an address in escapes": "https%3A%2F%2Fexample.org%2Fa%20b%3Fc%3Dd",
    "a Windows path": "C:\\Users\\ada\\new\\table\\x41\\readme.txt",
    "numbers": "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899",
    "JSON": json.dumps({"outbox_entries": [{"kind": "message", "payload": {"text": "hello"}, "tags": []}]}),
    "a schema": json.dumps({"properties": {"access_token_of_the_user_account": {"type": "string"}}}),
    "a program": zlib.compress(b"a" * 5000).hex(),
    "a marker": "Authorization: Bearer [redacted API_KEY] and postgres://a:[redacted key]@b",
    "Chinese": "密钥和令牌不会写入任何文件,包括日志。" * 20,
    "a time": "2026-11-23T07:08:12.123456Z 00000042-a1b2c3 agents/ada/outbox/00000042_3f9a2b.json",
    "a table": "|---|---|\n| a | b |\n" + "-" * 80,
}


def _in_lines(text: str, of: int, end: str = "\n") -> str:
    return end.join(text[at : at + of] for at in range(0, len(text), of))


DRESSED: dict[str, Callable[[str], str]] = {
    "short lines": lambda key: _in_lines(base64.b64encode(key.encode()).decode().rstrip("="), 8),
    "shorter lines": lambda key: _in_lines(base64.b64encode(key.encode()).decode().rstrip("="), 4, "\r\n"),
    "in JSON": lambda key: _in_lines(base64.b64encode(key.encode()).decode().rstrip("="), 8, "\\n"),
    "full width": lambda key: "".join(chr(ord(it) + 0xFEE0) if it > " " else it for it in key),
    "zero width": lambda key: "\u200b".join(key),
    "zero width in JSON": lambda key: "\\u200b".join(key),
    "soft hyphens": lambda key: "\u00ad".join(key),
    "zeros": lambda key: "".join(f"&#{ord(it):05};" for it in key),
    "octal": lambda key: "".join(f"\\{ord(it):03o}" for it in key),
    "braces": lambda key: "".join(f"\\u{{{ord(it):x}}}" for it in key),
    "quoted-printable": lambda key: "".join(f"={ord(it):02X}" for it in key),
    "soft line ends": lambda key: _in_lines(key, 30, "=\n"),
}


@pytest.mark.parametrize("dress", DRESSED)
def test_a_key_in_another_dress_is_taken_out(dress: str) -> None:
    for key in KEYS.values():
        if "\n" not in key:
            dressed = DRESSED[dress](key)
            without = redact_untrusted(f"so: {dressed} !")
            assert "[redacted key]" in without, key
            assert dressed[-24:-6] not in without, without


@pytest.mark.parametrize("text", [*HARMLESS.values(), *PLACEHOLDERS], ids=[*HARMLESS, *PLACEHOLDERS])
def test_what_is_no_key_stays_as_it_is(text: str) -> None:
    assert redact_untrusted(text) == text
    assert redact_untrusted(f'{{"text": "{text}"}}') == f'{{"text": "{text}"}}'


def test_images_in_base64_stay_as_they_are() -> None:
    chance = random.Random("images")
    for size in [100, 10_000, 100_000] * 3:
        for encode in (base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes):
            image = f"data:image/png;base64,{encode(chance.randbytes(size)).decode()}"
            assert redact_untrusted(image) == image


def test_redacting_twice_changes_nothing_more() -> None:
    for key in _ALL:
        once = redact_untrusted(f"Authorization: Bearer {key} sig={key}")
        assert redact_untrusted(once) == once


def test_a_hostile_text_is_looked_at_in_time() -> None:
    parts = ("sk-proj-", "sk-ant-", "eyJ-", "eyJabcdefgh.", "://a", "://a:b", ";pwd=", "apikey:", "bearer ", "%41")
    parts += ("-----BEGIN PRIVATE KEY-----", "\\\\", "\\u0041", "&#", "&#65;", "SG.", "JQQJ99", "a", "ab\n", "0a", "; ")
    began = time.process_time()
    for part in parts:
        redact_untrusted("a" * 20 + "@=;" + part * (60_000 // len(part)))
    assert time.process_time() - began < 20
