"""What all commands share: which cluster they speak to, what they print, how they end."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.cli.frame.cluster import ClusterOptions, read_profiles
from kohort.cli.frame.exit_codes import ExitCode, code_of
from kohort.cli.frame.output import print_json, print_table, short_ids
from kohort.cli.main import main
from kohort.client.errors import PartlyFailed, TimedOut
from kohort.settings import SettingError
from kohort.testing import Kafka
from kohort.wire.errors import ErrorCode, KafkaError

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
PROFILES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]
BOOTSTRAP = "bootstrap.servers"


@pytest.fixture(autouse=True)
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the docs, and an environment that says nothing else."""
    for name in ("KOHORT_BOOTSTRAP", "KOHORT_CONFIG", "KOHORT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "profiles.toml"
    file.write_text(PROFILES, "utf-8")
    monkeypatch.setenv("KOHORT_PROFILES", str(file))
    return file


# --- which cluster ------------------------------------------------------------------------------------------


def test_the_profile_default_counts_when_nothing_else_is_said(profiles: Path) -> None:
    assert ClusterOptions().settings()[BOOTSTRAP] == "127.0.0.1:9092"
    profiles.write_text(f'[default]\n"{BOOTSTRAP}" = "d:1"\n"ssl.ca.location" = "ca"\n')
    settings = ClusterOptions().settings()
    assert (settings[BOOTSTRAP], settings["ssl.ca.location"]) == ("d:1", "ca")
    profiles.unlink()
    assert ClusterOptions().settings()[BOOTSTRAP] == "127.0.0.1:9092"


def test_a_profile_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = "kafka-1:9093,kafka-2:9093"
    assert ClusterOptions(profile="production").settings()["sasl.username"] == "alice"
    assert ClusterOptions("x:1", profile="production").settings() == {
        **ClusterOptions(profile="production").settings(),
        BOOTSTRAP: "x:1",
    }
    monkeypatch.setenv("KOHORT_PROFILE", "production")
    assert ClusterOptions().settings()[BOOTSTRAP] == wanted
    monkeypatch.setenv("KOHORT_PROFILE", "prod")
    with pytest.raises(SettingError, match=r"no profile prod in .*: it has default, production"):
        ClusterOptions().settings()


def test_the_command_line_is_not_mixed_with_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password that is meant for one cluster does not go to another one."""
    secret = tmp_path / "secret.properties"
    secret.write_text("security.protocol=SASL_SSL\nsasl.username=alice\nsasl.password=secret\n")
    monkeypatch.setenv("KOHORT_CONFIG", str(secret))
    monkeypatch.setenv("KOHORT_BOOTSTRAP", "e:1")
    assert ClusterOptions().settings()["sasl.password"] == "secret"
    assert "sasl.password" not in ClusterOptions("localhost:1").settings()
    assert ClusterOptions(config=str(secret)).settings()[BOOTSTRAP] == "e:1", "the file names no brokers"
    assert ClusterOptions(profile="default").settings() == ClusterOptions("127.0.0.1:9092").settings()


def test_settings_of_consumers_stay_out_unless_they_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("group.id=orders\nacks=all\nclient.id=me\n")
    assert ClusterOptions(config=str(file)).settings()["client.id"] == "me"
    assert "group.id" not in ClusterOptions(config=str(file)).settings()
    assert ClusterOptions(config=str(file)).settings("group.id")["group.id"] == "orders"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[default\n", "profiles.toml"),
        ("bootstrap = 'a:1'\n", r"write each profile as a table, \[bootstrap\]"),
        ("[default]\nbootstrap.servers = 'a:1'\n", 'each setting in quotes: "bootstrap.servers"'),
    ],
)
def test_a_wrong_file_of_profiles_says_what_is_right(profiles: Path, text: str, says: str) -> None:
    profiles.write_text(text)
    with pytest.raises(SettingError, match=says):
        read_profiles()


def test_numbers_and_booleans_in_a_profile_are_settings(profiles: Path) -> None:
    profiles.write_text('[a]\n"request.timeout.ms" = 500\n"allow.auto.create.topics" = true\n')
    assert read_profiles() == {"a": {"request.timeout.ms": "500", "allow.auto.create.topics": "true"}}


# --- what is printed ----------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A standard output that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_table_fits_and_elsewhere_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows = [("orders", "x" * 60, None), ("a", "y", "")]
    for out, widest in ((Terminal(), 40), (io.StringIO(), 80)):
        monkeypatch.setattr(sys, "stdout", out)
        print_table(("GROUP", "CONSUMER-ID", "HOST"), rows)
        lines = out.getvalue().splitlines()
        assert max(map(len, lines)) <= widest
        assert ("…" in lines[1]) == (widest == 40)
        assert lines[2].split() == ["a", "y", "-"]
        assert "\x1b" not in out.getvalue()


def test_ids_are_short_for_people_and_json_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    member = "me-8102620c-57a4-457a-b2aa-5fad74f0c773"
    assert short_ids(f"went: {member}") == "went: me-8102620c…"
    print_json({"größe": member})
    assert capsys.readouterr().out == f'{{\n  "größe": "{member}"\n}}\n'


# --- how it ends --------------------------------------------------------------------------------------------


def test_exit_codes_say_what_went_wrong() -> None:
    gone = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "no")
    assert code_of(gone) is ExitCode.NOT_FOUND
    assert code_of(TimedOut("late")) is ExitCode.NO_ANSWER
    assert code_of(SettingError("wrong")) is ExitCode.FAILED
    assert code_of(PartlyFailed({"a": gone, "b": gone}, {})) is ExitCode.NOT_FOUND
    other = KafkaError(ErrorCode.NON_EMPTY_GROUP, "no")
    assert code_of(PartlyFailed({"a": gone, "b": other}, {})) is ExitCode.FAILED


def test_the_table_of_exit_codes_is_that_of_the_code() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert documented == {*map(int, ExitCode), 75, 141}


def test_the_script_of_the_docs_waits_for_a_group(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create_topic("orders", partitions=1)
    (script,) = re.findall(r"^```bash\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert main(["groups", "reset", "billing", "--topic", "orders", "--to-earliest", "--execute", "--bootstrap",
                 kafka.bootstrap_servers]) == 0  # fmt: skip
    kohort = tmp_path / "kohort"
    kohort.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kohort.cli.main "$@"\n')
    kohort.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for address, code in ((kafka.bootstrap_servers, 0), ("nowhere", 1)):
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, timeout=60, capture_output=True, check=False,
            env={**environment, "KOHORT_BOOTSTRAP": address},
        )  # fmt: skip
        assert done.returncode == code, done.stderr


# --- the table of options -----------------------------------------------------------------------------------


def test_every_option_beside_kafkas_is_one() -> None:
    """The second column names commands and options of `kohort groups`, which its help has."""
    from tests.cli.commands import commands

    groups = {
        words.removeprefix("groups "): each for words, each in commands() if words.startswith("groups ")
    }
    options = {name for each in groups.values() for parameter in each.params for name in parameter.opts}
    table = PAGE.split("## From kafka-consumer-groups")[1]
    for line in table.splitlines()[5:]:
        if line.startswith("| "):
            cell = line.split("|")[2]
            named = set(re.findall(r"--[a-z-]+", cell)) - {"--version", "--help"}
            assert named <= options, line
            for words in re.findall(r"`([a-z][a-z-]*)(?: [^`]*)?`", cell):
                assert words in groups or words == "kohort", line
