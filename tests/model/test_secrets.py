"""What of a command line is taken for a secret."""

from __future__ import annotations

import pytest

from colane.model.secrets import HIDDEN, masked

KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        (["train", "--api-key", KEY], ["--api-key"]),
        (["train", f"--api_key={KEY}", "--lr", "0.1"], ["--api_key"]),
        (["train", "--password", "a"], ["--password"]),
        (["train", "--db-password=1234"], ["--db-password"]),
        (["train", "--hf-token", KEY], ["--hf-token"]),
        (["train", "--token", KEY], ["--token"]),
        (["train", f"wandb.api_key={KEY}"], ["wandb.api_key"]),
        (["env", f"WANDB_API_KEY={KEY}", "python", "train.py"], ["WANDB_API_KEY"]),
        (["env", f"AWS_SECRET_ACCESS_KEY={KEY}", "train"], ["AWS_SECRET_ACCESS_KEY"]),
        (["sh", "-c", f"export HF_TOKEN={KEY}; python train.py"], ["HF_TOKEN"]),
        (["sh", "-c", f"export HF_TOKEN='{KEY} x' && python train.py"], ["HF_TOKEN"]),
        (["sh", "-c", f"python train.py --api-key {KEY}"], ["--api-key"]),
        (["train", "hf_" + "a1B2" * 8], ["a key or token"]),
        (["curl", "-H", "Authorization: Bearer ghp_" + "a1B2" * 9], ["a key or token"]),
        (["mlflow", "--uri", "postgresql://ann:hunter2@db/runs"], ["a password in a URL"]),
    ],
)
def test_what_is_hidden(words: list[str], hidden: list[str]) -> None:
    found = masked(words)
    assert list(found.hidden) == hidden
    said = " ".join(found.words)
    assert HIDDEN in said
    for secret in (KEY, "hunter2", "1234", "a1B2"):
        assert secret not in said or secret not in " ".join(words)
    assert masked(found.words).words == found.words


@pytest.mark.parametrize(
    "words",
    [
        ["python", "train.py", "--lr", "0.1"],
        ["train", "--tokenizer", "bert-base-uncased-long", "--max-tokens", "4096", "--num-tokens=100000000"],
        ["train", "--pad-token", "<|endoftext|>", "--eos_token=<|endoftext|>", "--key-dim", "64"],
        ["train", "--use-auth-token", "True", "--token", "5", "token=<unk>"],
        ["train", "--password-file", "/home/ann/pw", "--token-file=/home/ann/tokens.bin"],
        ["sh", "-c", "train --token $HF_TOKEN --password=$PW"],
        ["train", "--token", "--lr", "0.000000001"],
        ["git", "clone", "https://github.com/a/b"],
        ["bypass=everything", "--compass", "northwards", "--two-pass", "yes", "env", "PWD=/home/ann/project"],
        [],
    ],
)
def test_what_is_not(words: list[str]) -> None:
    assert masked(words) == (words, ())
