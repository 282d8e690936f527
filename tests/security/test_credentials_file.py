"""The file of PLAIN's users: what is written is read again, and what is wrong is said."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.security.password_file import PasswordFile
from kohort.security.credentials_file import PasswordHash, format_credentials, parse_credentials
from kohort.settings import SettingError

QUICK = 10  # iterations


def quick(password: str) -> PasswordHash:
    return PasswordHash.of(password, b"0123456789abcdef", QUICK)


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1)))
def test_what_is_written_is_read_again(passwords):
    hashes = {user: quick(password) for user, password in passwords.items()}
    read = parse_credentials(format_credentials(hashes))
    assert read == hashes
    assert all(read[user].matches(password) for user, password in passwords.items())


def test_another_password_does_not_match():
    assert quick("secret").matches("secret")
    assert not quick("secret").matches("Secret")


@pytest.mark.parametrize(
    "line",
    [
        "alice secret",
        "alice",
        "alice $pbkdf2-sha512$0$AAAA$AAAA",
        "alice $scrypt$1$AAAA$AAAA",
        "%ff $pbkdf2-sha512$1$A$A",
    ],
)
def test_a_wrong_line_is_named_and_not_shown(line):
    with pytest.raises(SettingError, match=r"users\.txt, line 2") as raised:
        parse_credentials(f"# users\n{line}\n", "users.txt")
    assert "secret" not in str(raised.value)


def test_a_user_who_is_there_twice_is_refused():
    text = format_credentials({"alice": quick("a")})
    with pytest.raises(SettingError, match="alice is there twice"):
        parse_credentials(text + text)


def test_a_hash_shows_nothing_of_itself():
    assert repr(quick("secret")) == "PasswordHash(iterations=10)"


def test_users_are_set_and_removed_on_disk(tmp_path: Path):
    path = tmp_path / "with blank" / "users"
    path.parent.mkdir()
    PasswordFile(path).set("al,i=ce", "a secret")
    PasswordFile(path).set("bob", "another")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in path.read_text()
    assert PasswordFile(path).load()["al,i=ce"].matches("a secret")
    assert PasswordFile(path).remove("bob")
    assert not PasswordFile(path).remove("bob")
    assert list(PasswordFile(path).load()) == ["al,i=ce"]
    assert os.listdir(path.parent) == ["users"]


def test_a_changed_file_is_read_again_and_a_wrong_one_is_not_taken(tmp_path: Path, caplog):
    path = tmp_path / "users"
    path.write_text(format_credentials({"alice": quick("a")}))
    users = PasswordFile(path)
    users.load()
    path.write_text(format_credentials({"alice": quick("a"), "bob": quick("b")}))
    assert list(users.users()) == ["alice", "bob"]
    path.write_text("nonsense")
    assert list(users.users()) == ["alice", "bob"]
    assert list(users.users()) == ["alice", "bob"]
    assert caplog.text.count("The users that were read before stay") == 1


def test_a_missing_file_says_what_to_do(tmp_path: Path):
    with pytest.raises(SettingError, match="kohort users add"):
        PasswordFile(tmp_path / "none").load()
