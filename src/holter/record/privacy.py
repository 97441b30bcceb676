"""What a record may hold of a command line and of the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

MASK = "***"

# The only variables whose values are recorded: they steer memory, threads and devices, and hold no secrets.
ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "KERAS_BACKEND",
    "LOCAL_RANK",
    "MALLOC_ARENA_MAX",
    "MKL_NUM_THREADS",
    "NCCL_DEBUG",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ENABLE_MPS_FALLBACK",
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
    "PYTORCH_MPS_LOW_WATERMARK_RATIO",
    "PYTHONFAULTHANDLER",
    "RANK",
    "SLURM_JOB_ID",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "WORLD_SIZE",
)

# What a name means is in its words: `--wandbApiKey` is wandb, api, key; `tokenizer` and `monkey` are other words.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# A secret wherever the word stands in a name.
_ALWAYS = frozenset(
    ("password", "passwords", "passwd", "passphrase", "pwd", "pw", "secret", "secrets", "credential", "credentials",
     "bearer", "apikey", "accesskey", "secretkey")
)  # fmt: skip
# A secret where the name ends with it: --hub-token, and not --token-dim.
_AT_THE_END = frozenset(
    ("token", "authtoken", "auth", "authorization", "signature", "sig", "sas", "cookie", "cookies", "jwt", "webhook",
     "privatekey", "pass", "passcode")
)  # fmt: skip
# --access-key; of another key, such as --sort-key, the value must look like a secret.
_OF_A_KEY = frozenset(
    ("api", "access", "private", "encryption", "account", "secret", "session", "signing", "shared", "master", "service",
     "auth", "ssh")
)  # fmt: skip
_MEANINGLESS_ENDINGS = frozenset(("value", "string", "str", "text", "header", "base", "hex"))  # --token-value
# --secrets-file: where it lies, or what it is called.
_ABOUT = frozenset(
    ("file", "path", "dir", "folder", "name", "type", "env", "var", "length", "len", "size", "dim", "count", "manager",
     "provider")
)  # fmt: skip
# A number behind these is a secret all the same; behind `token` it is a size.
_NEVER_A_SIZE = _ALWAYS | {"key", "keys", "pass", "passcode"}
_SOME_SECRET = re.compile(r"(?i)pass|pw|secret|cred|bearer|key|token|auth|sig|sas|cookie|jwt|hook")  # a quick look
_SWITCH = re.compile(r"(?i)true|false|none|null|yes|no|on|off")
_NUMBER = re.compile(r"[-+]?[\d._]+(?:e[-+]?\d+)?[kmgbKMGB]?")
_PLAIN = re.compile(r"[a-z]+(?:[._-][a-z]+)*\d{0,3}|[A-Z]+(?:_[A-Z]+)*|[A-Z][a-z]+")  # a word, or words


def _secret_name(name: str, value: str) -> bool:
    """Whether a name says that its value is a secret; a switch is none, nor is a size, nor a `key` that is a word."""
    words = [word.lower() for word in _WORDS.findall(name[-120:])]
    while words and words[-1] in _MEANINGLESS_ENDINGS:
        words.pop()
    bare = value.strip("\"'")
    if not words or not bare or _SWITCH.fullmatch(bare) or words[-1] in _ABOUT:
        return False
    if _NUMBER.fullmatch(bare) and not _NEVER_A_SIZE & set(words):
        return False
    if not _ALWAYS.isdisjoint(words) or words[-1] in _AT_THE_END:
        return True
    if words[-1] == "key":
        named = len(words) > 1 and words[-2] in _OF_A_KEY
        plain = _PLAIN.fullmatch(bare) or _NUMBER.fullmatch(bare) or re.search(r"[(){}\[\]]|^\W*/", bare)
        return named or (len(bare) >= 6 and not plain)
    return False


# --token=VALUE, HF_TOKEN=VALUE, trainer.api_key:VALUE, "password": "VALUE", environ["API_KEY"] = "VALUE",
# setenv("API_KEY", "VALUE"). A name is only tried from its first letter on and has a greatest length: an argument of
# megabytes in base64 would take minutes otherwise.
_ASSIGNED = re.compile(r"(?<![\w.-])([\w.-]{1,120})(?:[\"']?\]?\s*[=:]\s*|[\"']\s*,\s*(?=[\"']))")
_ASSIGNED_VALUE = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s&,;\"']+")
# Bearer VALUE, Authorization: Basic VALUE, Cookie: all that follows
_BEARER = re.compile(r"(?i)(\bbearer\s+|\bauthorization[\"']?\s*[:=]\s*[\"']?\w+\s+)([\w.~+/=-]{8,})")
_COOKIE = re.compile(r"(?i)(\b(?:set-)?cookie:\s*)([^\"'\n]+)")
# scheme://user:VALUE@host, scheme://VALUE@host where it is too long for a name, ?sig=VALUE, and all behind a webhook
_URL = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,20}://[^\s:/@]*:)([^\s/]+)(@)")
_URL_KEY = re.compile(r"(?i)(://)([\w-]{20,})(@)")
_SIGNED = re.compile(r"(?i)([?&]sig=)([^\s&]+)")
_HOOK = re.compile(r"(?i)(://(?:hooks\.[^\s/]+|[^\s/]+/(?:[^\s/]+/){0,3}(?:web)?hooks?)/)([^\s\"'<>]+)")
# Keys that are known by how they begin.
_SHAPES = re.compile(
    r"\b(?:(?:hf|gsk|r8|npm|gh[pousr]|github_pat|wandb_v1|[rsp]k_(?:live|test))_\w{16,}|"
    r"(?:sk|nvapi|pypi|glpat)-[\w-]{16,}|xox[abeprs]-[A-Za-z0-9-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{30,})|"
    r"(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}"
)
# And those that look made by a machine, whoever gave them out: letters and digits that change places all the time.
_LONG_WORD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{20,}(?![A-Za-z0-9])")
_RUNS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_DIGEST = re.compile(r"[0-9a-f]{32,}|[0-9A-F]{32,}")
# A digest that is called one, or that names a file: commits, images, the folders of a cache.
_CALLED_A_DIGEST = re.compile(
    r"(?i)(?:commit|revision|rev|ref|sha\d*|hash|digest|md5|git\S*@|snapshots?|blobs?)\W{0,3}$"
)


def mask_text(text: str) -> str:
    """One word of a command line, or a whole line, with what looks like a secret masked."""
    return _without_shapes(_without_assigned(_without_addresses(text), _ASSIGNED, _ASSIGNED_VALUE, lambda _value: MASK))


def _without_assigned(text: str, names: re.Pattern[str], values: re.Pattern[str], masked: Callable[[str], str]) -> str:
    """What is set to a name that says it is a secret, masked; what is set to another may hold such a name itself."""
    parts: list[str] = []
    done = 0
    for name in names.finditer(text):
        if name.start() < done or not _SOME_SECRET.search(name[1]):
            continue
        value = values.match(text, name.end())
        if value is not None and _secret_name(name[1], value[0]):
            parts += text[done : name.end()], masked(value[0])
            done = value.end()
    return "".join((*parts, text[done:]))


def _without_addresses(text: str) -> str:
    """What an address or a header carries, masked."""
    text = _URL.sub(rf"\1{MASK}\3", text)
    text = _URL_KEY.sub(rf"\1{MASK}\3", text)
    text = _SIGNED.sub(rf"\1{MASK}", text)
    text = _HOOK.sub(rf"\1{MASK}", text)
    text = _COOKIE.sub(rf"\1{MASK}", text)
    return _BEARER.sub(rf"\1{MASK}", text)


def _without_shapes(text: str) -> str:
    """Keys that are known by their looks, masked."""
    text = _SHAPES.sub(MASK, text)
    return _LONG_WORD.sub(lambda match: MASK if _made_by_a_machine(match, text) else match[0], text)


def _made_by_a_machine(match: re.Match[str], text: str) -> bool:
    found = match[0][:200]
    if found.isdigit() or found.isalpha():
        return False
    before = text[max(0, match.start() - 40) : match.start()]
    if _DIGEST.fullmatch(found):
        path = before.endswith(("/", "-", "_")) and "://" not in before
        return not (path or re.match(r"\.\w", text[match.end() :][:2]) or _CALLED_A_DIGEST.search(before))
    return len(_RUNS.findall(found)) > len(found) / 2.6


# The same in a Python source, where a secret is a text in quotes, or a number that is called one.
_ASSIGNED_IN_SOURCE = re.compile(
    r"(?<![\w.-])([\w.-]{1,120})(?:[\"']?\]?\s*(?::\s*\w+\s*)?[=:]\s*|[\"']\s*,\s*)(?:[rbfRBF]{0,2}(?=[\"']))?"
)
_LITERAL = re.compile(r"\"\"\"[^\"]*\"\"\"|'''[^']*'''|\"[^\"\n]*\"|'[^'\n]*'|-?\d[\d_.]*\b")


def mask_source(line: str) -> str:
    """A line of a Python source with its secrets masked; it parses as before, or no line could be told from it."""
    return _without_shapes(_without_assigned(_without_addresses(line), _ASSIGNED_IN_SOURCE, _LITERAL, _masked_literal))


def _masked_literal(value: str) -> str:
    if value[0] not in "\"'":
        return "..."
    quote = value[:3] if value[:3] in ('"""', "'''") else value[0]
    return f"{quote}{MASK}{quote}"


def mask_command(words: Sequence[str]) -> list[str]:
    """A command's words with the values of secret options masked."""
    masked: list[str] = []
    option = ""  # the word right before, where it is an option
    for word in words:
        if option and not word.startswith("-"):
            masked.append(_value(option, word))
        elif word.startswith("-p") and _strange(word[2:]):
            masked.append(f"-p{MASK}")
        else:
            masked.append(mask_text(word))
        option = word if _AN_OPTION.fullmatch(word) else ""
    return masked


_AN_OPTION = re.compile(r"--?[\w.-]{1,120}")


def _value(option: str, word: str) -> str:
    """The word behind an option."""
    if _secret_name(option, word):
        return MASK
    if _DIGEST.fullmatch(word) and _CALLED_A_DIGEST.search(option):
        return word
    user, colon, rest = word.partition(":")
    # -u user:pass, and not -u host:8080
    if option in ("-u", "--user") and colon and rest and not rest.isdigit() and not re.search(r"[/\s]", user):
        return f"{user}:{MASK}"
    return MASK if option == "-p" and _strange(word) else mask_text(word)


def _strange(word: str) -> bool:
    """Whether a short word is no number, name, path or address: behind `-p` it may be a port or a password."""
    named = re.search(r"[/=:\\]|\.\w{1,5}$", word) or _NUMBER.fullmatch(word) or _PLAIN.fullmatch(word)
    return len(word) >= 6 and not named and len(_RUNS.findall(word)) > 3


def named_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The values of the named list, where they are set."""
    environ = os.environ if environ is None else environ
    return {name: environ[name][:500] for name in ENVIRONMENT if name in environ}
