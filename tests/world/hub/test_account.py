from __future__ import annotations

from pathlib import Path

import pytest

from qlock.errors import InputError
from qlock.world.hub.account import Account, account_of

HOME = {"HOME": "/home/u"}


@pytest.mark.parametrize(
    "environment, cache",
    [
        ({}, "/home/u/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HF_HOME": "~/hf", "XDG_CACHE_HOME": "/c"}, "/home/u/hf/hub"),
        ({"HF_HOME": "$SCRATCH/hf", "SCRATCH": "/scratch"}, "/scratch/hf/hub"),
        ({"HF_HOME": "/hf", "HUGGINGFACE_HUB_CACHE": "/old"}, "/old"),
        ({"HF_HOME": "/hf", "HUGGINGFACE_HUB_CACHE": "/old", "HF_HUB_CACHE": "${HOME}/new"}, "/home/u/new"),
        ({"HF_HUB_CACHE": "$UNSET/x"}, str(Path("$UNSET/x").absolute())),
    ],
)
def test_the_cache_lies_where_huggingface_hub_has_it(environment: dict[str, str], cache: str) -> None:
    assert account_of(HOME | environment).cache == cache


def test_the_endpoint_is_the_public_hub_unless_told() -> None:
    assert account_of(HOME).endpoint == "https://huggingface.co"
    assert (
        account_of(HOME | {"HF_ENDPOINT": "https://mirror.example/hf/"}).endpoint
        == "https://mirror.example/hf"
    )


@pytest.mark.parametrize("endpoint", ["mirror", "file:///etc", "https://", "https://user:secret@host"])
def test_an_endpoint_that_is_no_address_is_refused_without_showing_it(endpoint: str) -> None:
    with pytest.raises(InputError) as caught:
        account_of(HOME | {"HF_ENDPOINT": endpoint})
    assert (
        caught.value.message == "HF_ENDPOINT is no address, expected `https://HOST` without user or password"
    )


@pytest.mark.parametrize(
    "value, is_offline", [("1", True), ("yes", True), ("TRUE", True), ("0", False), ("", False)]
)
def test_offline_is_what_the_library_takes_for_it(value: str, *, is_offline: bool) -> None:
    assert account_of(HOME | {"HF_HUB_OFFLINE": value}).is_offline is is_offline


def test_a_token_comes_from_the_environment_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_stored1\n", encoding="utf-8")
    other = tmp_path / "other"
    other.write_text("hf_other22", encoding="utf-8")
    home = {"HF_HOME": str(tmp_path), "HOME": str(tmp_path)}
    assert account_of(home).token == "hf_stored1"
    assert account_of(home | {"HF_TOKEN_PATH": "~/other"}).token == "hf_other22"
    assert account_of(home | {"HF_TOKEN": " hf_given33 "}).token == "hf_given33"
    assert account_of(home | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}).token == ""
    assert account_of(home | {"HF_TOKEN_PATH": str(tmp_path / "none")}).token == ""


def test_no_token_is_shown() -> None:
    account = Account(endpoint="https://h", cache="/c", token="s3cret", is_offline=False)
    assert repr(account) == "Account(endpoint='https://h', cache='/c', is_offline=False)"
    assert account.redacted("bad s3cret and hf_abcdefgh\x1b") == "bad … and hf_…\\x1b"
