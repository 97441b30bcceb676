"""Secrets in a command line are masked; what only looks like one stays readable."""

from __future__ import annotations

import ast
import time

import pytest

from holter.record.privacy import ENVIRONMENT, mask_command, mask_source, mask_text, named_environment

KEY = "s3cr3tV4lue"
HEX = "0123456789abcdef0123456789abcdef01234567"

SECRETS = [
    ["--api-key", KEY],
    ["--api_key", KEY],
    ["--apikey", KEY],
    [f"--api-key={KEY}"],
    ["--token", KEY],
    [f"--token={KEY}"],
    ["--hf-token", KEY],
    [f"--hub_token={KEY}"],
    ["-token", KEY],
    ["--trainer.api_key", KEY],
    [f"trainer.api_key={KEY}"],
    ["--password", KEY],
    ["--db-password", KEY],
    ["--passphrase", KEY],
    [f"--wandb-secret='{KEY}'"],
    [f"HF_TOKEN={KEY}"],
    ["sh", "-c", f"HF_TOKEN={KEY} python train.py"],
    ["sh", "-c", f'export WANDB_API_KEY="{KEY}"; python train.py'],
    ["sh", "-c", f"AWS_SECRET_ACCESS_KEY={KEY};x"],
    [f"--config={{'token': '{KEY}', 'lr': 1}}"],
    [f'--config={{"password": "{KEY}"}}'],
    [f"https://user:{KEY}@host/path"],
    [f"postgres://me:{KEY}@db:5432/x"],
    [f"redis://:{KEY}@cache"],
    [f"s3://b?X-Amz-Signature={KEY}&y=1"],
    [f"https://x.blob.core.windows.net/c?sv=1&sig={KEY}"],
    [f"https://h/x?access_token={KEY}"],
    ["curl", "-H", f"Authorization: Bearer {KEY}"],
    ["curl", "-H", f"Authorization: Basic {KEY}"],
    ["python", "-c", f"import wandb; wandb.login(key='{KEY}')"],
    ["python", "-c", f"login(api_key='{KEY}')"],
    ["python", "-c", f'login(token = "{KEY}")'],
    ["python", "-c", f"import os; os.environ['OPENAI_API_KEY'] = '{KEY}'"],
    ["python", "-c", f"os.environ.setdefault('HF_TOKEN', '{KEY}')"],
    [f"--key={KEY}"],
    ["--key", KEY],
    ["--wandb-key", KEY],
    [f"--wandbKey={KEY}"],
    ["--encryption-key", KEY],
    ["--pw", KEY],
    ["-p", KEY],
    [f"-p{KEY}"],
    ["-u", f"me:{KEY}"],
    [f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={KEY};EndpointSuffix=y"],
    ["curl", "-H", f"Cookie: session={KEY}; other=1"],
    ["--cookie", KEY],
    [f"https://hooks.slack.com/services/T0/B0/{KEY}"],
    [f"https://discord.com/api/webhooks/1/{KEY}"],
    [f"args: token={KEY}"],
    ["--vendor-token-value", KEY],
]


@pytest.mark.parametrize("words", SECRETS, ids=lambda words: " ".join(words).replace(KEY, "X"))
def test_a_secret_is_masked(words: list[str]) -> None:
    """The value is gone, and a mask stands in its place."""
    masked = " ".join(mask_command(["python", "train.py", *words, "--lr", "0.1"]))

    assert KEY not in masked
    assert "***" in masked
    assert masked.endswith("--lr 0.1")


@pytest.mark.parametrize("name", ["SECRETKEY", "--secretkey", "--azure-sas", "--sas"])
def test_a_short_secret_is_known_by_its_name(name: str) -> None:
    """Nothing in `q9w8e7` looks like a secret; another name with the same letters is none."""
    assert mask_command([f"{name}=q9w8e7", "--sash=q9w8e7", "--secretary=bob"]) == [
        f"{name}=***",
        "--sash=q9w8e7",
        "--secretary=bob",
    ]


@pytest.mark.parametrize(
    "key",
    [
        "hf_" + "aB3" * 10,
        "sk-" + "aB3" * 10,
        "sk-proj-" + "aB3" * 10,
        "ghp_" + "aB3" * 12,
        "github_pat_" + "aB3" * 12,
        "glpat-" + "aB3" * 8,
        "xoxb-123456789012-abcdef",
        "AKIA" + "ABCD1234" * 2,
        "AIza" + "aB3" * 12,
        "wandb_v1_" + "aB3" * 10,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghij",
        HEX,
        "nvapi-" + "aB3" * 10,
        "sk_live_" + "aB3" * 8,
        "npm_" + "aB3" * 12,
        "pypi-" + "aB3" * 12,
        "gsk_" + "aB3" * 12,
        "r8_" + "aB3" * 12,
        "nobodysprefix_q7Wf2Lz9Xc4Vb6Nm1Kj8Hg",
        "q7Wf2Lz9Xc4Vb6Nm1Kj8Hg",
    ],
    ids=lambda key: key[:8],
)
def test_a_key_is_known_by_its_shape_wherever_it_stands(key: str) -> None:
    """As a word, in a text, in a URL. Forty hex digits are masked too, though a commit looks the same: by design."""
    for text in (key, f"run({key!r})", f"https://h/{key}/x", f"a {key}, b"):
        assert key not in mask_text(text)


@pytest.mark.parametrize("value", ["12345678", "2024"])
def test_a_password_of_digits_is_a_secret(value: str) -> None:
    """A number behind `token` is a size, behind `password` it is not."""
    assert mask_command(["--password", value]) == ["--password", "***"]
    assert mask_command([f"DB_PASSWORD={value}"]) == ["DB_PASSWORD=***"]
    assert mask_command(["--tokens", value]) == ["--tokens", value]


@pytest.mark.parametrize(
    "words",
    [
        ["--max-tokens", "512"],
        ["--max_tokens=512"],
        ["--num-tokens", "1e9"],
        ["--tokens-per-batch=4096"],
        ["--tokenizer", "bpe"],
        ["--tokenizer=gpt2"],
        ["--tokenizer-path", "models/tok.json"],
        ["--token-dim", "64"],
        ["--author", "me"],
        ["--author=me"],
        ["--use-auth-token=true"],
        ["--lr", "0.1", "--batch-size", "64"],
        ["data/secretary/train.py"],
        ["/home/me/tokens/shard-000.bin"],
        ["https://host:8080/path"],
        ["git@github.com:me/x.git"],
        ["ssh://git@host/x"],
        ["sorted(x, key=len)"],
        ["sorted(x, key='name')"],
        ["--monkey=patch"],
        ["--keyboard", "qwertz"],
        ["sk-learn"],
        ["hf_cache"],
        ["v1.2.3-eyJ"],
        ["deadbeef"],
        ["model=gpt-2", "seed=1234"],
        ["--key-dim=64", "--num-keys", "5", "--key-size", "128"],
        ["--sort-key", "name"],
        ["--label-key=image_features"],
        ["--commit", HEX],
        [f"--revision={HEX}"],
        [f"git+https://github.com/me/x@{HEX}"],
        [f"/root/.cache/hub/models--gpt2/snapshots/{HEX}/config.json"],
        ["data/0123456789abcdef0123456789abcdef.jpg"],
        ["image@sha256:" + "0123456789abcdef" * 4],
        ["4c790e4", "r-0142", "run-20240102_030405-1a2b3c4d"],
        ["GPU-5b2a7f3e-1c9d-4e8f-a6b0-0123456789ab"],
        ["meta-llama/Meta-Llama-3.1-8B-Instruct-AWQ-INT4"],
        ["EfficientNetV2B0ImageNet21kPretrained"],
        ["openai/clip-vit-large-patch14-336"],
        ["--port=8080", "-p", "8080"],
        ["-p", "configs/base.yaml"],
        ["-u", "host:8080"],
        ["-u", "train.py"],
        ["--secrets-file", "vault.yaml"],
        ["--pass-through", "layers"],
        ["12345678901234567890123"],
    ],
    ids=" ".join,
)
def test_a_look_alike_stays(words: list[str]) -> None:
    """Sizes, names and paths are what a person needs to recognise a run."""
    assert mask_command(words) == words


def test_an_option_without_a_value_hides_no_other_option() -> None:
    """A switch such as --use-auth-token is followed by an option of its own."""
    assert mask_command(["--use-auth-token", "--lr", "0.1"]) == ["--use-auth-token", "--lr", "0.1"]


@pytest.mark.parametrize("piece", ["A", "a-", "a.", "eyJ-", "token", "http://a:", "'", "a=", "pwd."])
def test_a_long_argument_takes_no_time(piece: str) -> None:
    """Launchers hand over megabytes of base64 in one word: masking must not delay the start."""
    word = piece * (200_000 // len(piece))
    begun = time.process_time()

    mask_command([word, "--" + word])

    assert time.process_time() - begun < 2.0


def test_only_the_named_list_of_the_environment_is_kept() -> None:
    """Everything else is left out, whatever it is called."""
    environ = {"RANK": "3", "HF_TOKEN": KEY, "HOME": "/home/me", "OMP_NUM_THREADS": "4" * 9999}

    found = named_environment(environ)

    assert set(found) == {"RANK", "OMP_NUM_THREADS"}
    assert len(found["OMP_NUM_THREADS"]) == 500
    assert not [name for name in ENVIRONMENT if any(word in name for word in ("TOKEN", "KEY", "SECRET", "PASS"))]


IN_SOURCE = [
    f'token = "{KEY}"',
    f"HF_TOKEN: str = '{KEY}'",
    f'login(api_key=f"{KEY}")',
    f'secret = """{KEY}"""',
    f'os.environ["API_KEY"] = "{KEY}"',
    f'settings = {{"password": "{KEY}", "tokens": 5}}',
    f'os.environ.setdefault("HF_TOKEN", "{KEY}")',
    f'get("https://me:{KEY}@host/data")',
    f"wandb.login(key='{KEY}')",
]


@pytest.mark.parametrize("line", IN_SOURCE, ids=lambda line: line.replace(KEY, "X"))
def test_a_secret_in_a_source_is_masked_and_the_line_still_parses(line: str) -> None:
    """A source that no longer parses would cost every line that could be named in it."""
    masked = mask_source(line)

    assert KEY not in masked
    ast.parse(masked)


def test_a_number_that_is_a_password_is_masked_in_a_source() -> None:
    """It has no quotes to stand between."""
    assert mask_source("password = 12345678") == "password = ..."


@pytest.mark.parametrize(
    "line",
    [
        "self.tokens = rng.integers(1, vocab, size=(n, seq_len))",
        "tokens, mask = batch['tokens'], batch['mask']",
        "api_key = os.environ['API_KEY']",
        "signature = tf.TensorSpec((2,))",
        "max_tokens = 512",
        "auth = None",
        "key = jax.random.PRNGKey(0)",
        'tokenizer = AutoTokenizer.from_pretrained("gpt2")',
    ],
)
def test_code_about_tokens_stays_as_it_is_in_a_source(line: str) -> None:
    """Tokens of text are what language models are made of."""
    assert mask_source(line) == line
