"""What a record may hold of a command line and of the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

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

_WORD = (
    r"(?:api[-_]?key|access[-_]?key|private[-_]?key|secret|token|passw(?:or)?d|passphrase|pwd|credential|"
    r"auth|bearer|signature|session[-_]?key)"
)
# --hf-token VALUE: the option says it, the next word holds it
_OPTION = re.compile(rf"--?[\w.-]{{0,80}}{_WORD}[\w.-]{{0,40}}", re.IGNORECASE)
# --token=VALUE, HF_TOKEN=VALUE, trainer.api_key:VALUE, "password": "VALUE"
# environ["API_KEY"] = "VALUE", setenv("API_KEY", "VALUE"). A name is only tried from its first letter on and
# has a greatest length: an argument of megabytes in base64 would take minutes otherwise.
_ASSIGNED = re.compile(
    rf"(?i)(?<![\w.-])([\w.-]{{0,80}}{_WORD}[\w.-]{{0,40}}(?:[\"']?\]?\s*[=:]\s*|[\"']\s*,\s*(?=[\"'])))"
    r"(\"[^\"]*\"|'[^']*'|[^\s&,;\"']+)"
)
# login(key="VALUE"): a bare `key` is a secret only where a long text stands in quotes behind it
_KEY = re.compile(r"(?i)(?<![\w.-])(key\s*=\s*)(\"[^\"]{8,}\"|'[^']{8,}')")
# Bearer VALUE, Authorization: Basic VALUE
_BEARER = re.compile(r"(?i)(\bbearer\s+|\bauthorization[\"']?\s*[:=]\s*[\"']?\w+\s+)([\w.~+/=-]{8,})")
# scheme://user:VALUE@host, scheme://VALUE@host where it is too long for a name, ?sig=VALUE
_URL = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,20}://[^\s:/@]*:)([^\s/]+)(@)")
_URL_KEY = re.compile(r"(?i)(://)([\w-]{20,})(@)")
_SIGNED = re.compile(r"(?i)([?&]sig=)([^\s&]+)")
# shapes of well-known keys, wherever they stand
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|"
    r"xox[abprs]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|glpat-[\w-]{16,}|wandb_v1_\w{20,})|"
    r"(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}"
)
_HEX_KEY = re.compile(r"\b[0-9a-f]{40}\b", re.IGNORECASE)
# Names with such a word that hold a size or a file, such as --token-length 512 or --tokenizer bpe.
_ABOUT_TEXT = re.compile(
    r"(?i)tokeniz|token[-_]?(len|dim|size|type|drop|mix|count)|author(?!i[sz])|(?:num|max|min)[\w-]{0,40}token"
)
# A number behind these is a secret all the same; behind `token` it is a size.
_NEVER_A_SIZE = re.compile(r"(?i)pass|pwd|secret|credential|key")


def mask_text(text: str) -> str:
    """One word of a command line, or a whole line, with what looks like a secret masked."""
    text = _KEY.sub(rf"\1{MASK}", _without_addresses(text))
    text = _ASSIGNED.sub(lambda m: m.group(0) if _harmless(m.group(1), m.group(2)) else m.group(1) + MASK, text)
    return _without_shapes(text)


def _without_addresses(text: str) -> str:
    """What an address or a header carries, masked."""
    text = _URL.sub(rf"\1{MASK}\3", text)
    text = _URL_KEY.sub(rf"\1{MASK}\3", text)
    text = _SIGNED.sub(rf"\1{MASK}", text)
    return _BEARER.sub(rf"\1{MASK}", text)


def _without_shapes(text: str) -> str:
    """Keys that are known by their looks, masked."""
    return _HEX_KEY.sub(MASK, _SHAPES.sub(MASK, text))


# The same in a Python source, where a secret is a text in quotes, or a number that is called one.
_QUOTED = r"(\"\"\"[^\"]*\"\"\"|'''[^']*'''|\"[^\"\n]*\"|'[^'\n]*'|-?\d[\d_.]*\b)"
_ASSIGNED_IN_SOURCE = re.compile(
    rf"(?i)(?<![\w.-])([\w.-]{{0,80}}{_WORD}[\w.-]{{0,40}}(?:[\"']?\]?\s*(?::\s*\w+\s*)?[=:]\s*|"
    rf"[\"']\s*,\s*))(?:[rbf]{{0,2}}){_QUOTED}"
)
_KEY_IN_SOURCE = re.compile(r"(?i)(?<![\w.-])(key\s*=\s*)(\"[^\"\n]{8,}\"|'[^'\n]{8,}')")


def mask_source(line: str) -> str:
    """A line of a Python source with its secrets masked; it parses as before, or no line could be told from it."""
    line = _without_addresses(line)
    for pattern in (_KEY_IN_SOURCE, _ASSIGNED_IN_SOURCE):
        line = pattern.sub(_masked_literal, line)
    return _without_shapes(line)


def _masked_literal(match: re.Match[str]) -> str:
    name, value = match.group(1), match.group(2)
    if value[0] not in "\"'":
        return f"{name}..." if _NEVER_A_SIZE.search(name) else match.group(0)
    if _harmless(name, value):
        return match.group(0)
    quote = value[:3] if value[:3] in ('"""', "'''") else value[0]
    return f"{name}{quote}{MASK}{quote}"


def _harmless(name: str, value: str) -> bool:
    """A number or a switch is no secret, nor is an option about tokens of text."""
    bare = value.strip("\"'")
    if re.fullmatch(r"true|false|none|null", bare, re.IGNORECASE):
        return True
    if re.fullmatch(r"-?[\d.]+", bare) and not _NEVER_A_SIZE.search(name):
        return True
    return bool(_ABOUT_TEXT.search(name))


def mask_command(words: Sequence[str]) -> list[str]:
    """A command's words with the values of secret options masked."""
    masked: list[str] = []
    option = ""  # one whose value is to be hidden, when it stands right before
    for word in words:
        if option and not word.startswith("-"):
            masked.append(word if _harmless(option, word) else MASK)
            option = ""
            continue
        option = word if _OPTION.fullmatch(word) and not _ABOUT_TEXT.search(word) else ""
        masked.append(mask_text(word))
    return masked


def named_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The values of the named list, where they are set."""
    environ = os.environ if environ is None else environ
    return {name: environ[name][:500] for name in ENVIRONMENT if name in environ}
