"""The plugin as a user's pytest loads it, and every example of docs/testing.md, run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)  # a pytest in a process of its own, on a machine that may be slow

DOCS = Path(__file__).parents[2] / "docs" / "testing.md"


def run_pytest(directory: Path, *arguments: str) -> str:
    """A pytest of its own, without this repository's settings."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(directory),
        *arguments,
    ]
    done = subprocess.run(
        [*command, str(directory)], capture_output=True, text=True, timeout=500, cwd=directory, check=False
    )
    return done.stdout + done.stderr


def write(directory: Path, **files: str) -> None:
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", DOCS.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_every_example_of_the_docs_works(tmp_path: Path) -> None:
    found = examples()
    for number, example in enumerate(found):
        write(tmp_path, **{f"test_example_{number}": example})
    output = run_pytest(tmp_path, "-q")
    tests = sum(len(re.findall(r"^ *(?:async )?def test_", example, re.MULTILINE)) for example in found)
    assert tests >= 12
    assert f"{tests} passed" in output, output


def test_the_docs_show_each_client_library() -> None:
    text = "\n".join(examples())
    for library in ("from confluent_kafka import", "from aiokafka import", "from kafka import"):
        assert library in text


def test_each_test_has_a_broker_of_its_own(tmp_path: Path) -> None:
    source = """
def test_one(kafka):
    assert kafka.produce("orders", ["one"]) == [0]

def test_two(kafka):
    assert kafka.produce("orders", ["one"]) == [0]
"""
    write(tmp_path, test_each=source)
    assert "2 passed" in run_pytest(tmp_path, "-q")


def test_settings_of_markers_near_and_far(tmp_path: Path) -> None:
    source = """
import pytest

pytestmark = pytest.mark.kafka(num_partitions=2, auto_create_topics_enable=True)

def test_module(kafka):
    kafka.produce("orders", ["one"])
    assert len(kafka.end_offsets("orders")) == 2

@pytest.mark.kafka(num_partitions=3)
def test_nearest_wins(kafka):
    kafka.produce("orders", ["one"])
    assert len(kafka.end_offsets("orders")) == 3
"""
    conftest = """
import pytest

@pytest.fixture
def kafka_settings():
    return {"num.partitions": 7, "auto.create.topics.enable": False}
"""
    write(tmp_path, test_markers=source, conftest=conftest)
    assert "2 passed" in run_pytest(tmp_path, "-q", "--strict-markers")


def test_a_wrong_setting_is_told_by_name(tmp_path: Path) -> None:
    source = """
import pytest

@pytest.mark.kafka(num_partitons=2)
def test_wrong(kafka):
    pass

@pytest.mark.kafka(3)
def test_no_name(kafka):
    pass
"""
    write(tmp_path, test_wrong=source)
    output = run_pytest(tmp_path, "-q")
    assert "Unknown broker config name: num.partitons; did you mean num.partitions?" in output
    assert "write @pytest.mark.kafka(num_partitions=3)" in output


def test_the_marker_and_the_fixtures_explain_themselves(tmp_path: Path) -> None:
    write(tmp_path, test_nothing="def test_nothing(): pass")
    assert "@pytest.mark.kafka(**settings): settings of the broker" in run_pytest(tmp_path, "--markers")
    fixtures = run_pytest(tmp_path, "--fixtures")
    for name in ("kafka ", "kafka_factory ", "kafka_settings "):
        assert f"\n{name}" in fixtures


def test_who_does_not_use_it_does_not_pay_for_it(tmp_path: Path) -> None:
    source = """
import sys

def test_nothing_of_ours_is_loaded():
    ours = {name for name in sys.modules if name.startswith("kohort")}
    assert ours <= {"kohort", "kohort.testing", "kohort.testing.plugin"}
"""
    write(tmp_path, test_lazy=source)
    output = run_pytest(tmp_path, "-q")
    assert "1 passed" in output, output


@pytest.mark.parametrize("name", ["Fault", "GroupView", "Kafka", "MemberView", "SeenRequest", "StoredRecord"])
def test_the_package_names_what_it_has(name: str) -> None:
    import kohort.testing

    assert getattr(kohort.testing, name).__name__ == name
    assert name in kohort.testing.__all__


def test_the_package_has_nothing_else() -> None:
    import kohort.testing

    with pytest.raises(AttributeError, match="no attribute 'Kafak'"):
        assert kohort.testing.Kafak
