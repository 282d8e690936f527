"""README.md and CONTRIBUTING.md: their examples work, and Kohort can be installed as they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import kohort
from kohort.testing import Kafka

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
ADDRESS = "127.0.0.1:9092"


class Enough(Exception):
    """Ends an example that would go on for ever."""


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", page, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(text) for _, text in found]


def example(word: str) -> str:
    (found,) = [text for text in blocks(README, "python") if word in text]
    return found


def commands(page: str, word: str) -> list[str]:
    """Returns the commands of a page that have this word, without the comments behind them."""
    typed = [
        line[2:] for text in blocks(page, "console") for line in text.splitlines() if line.startswith("$ ")
    ]
    return [re.sub(r"\s+#.*", "", line) for line in typed if word in line]


def test_the_example_of_the_client_works(kafka: Kafka) -> None:
    printed: list[tuple[Any, ...]] = []

    def show(*things: Any) -> None:
        printed.append(things)
        raise Enough

    with pytest.raises(Enough):
        exec(example("Producer(").replace(ADDRESS, kafka.bootstrap_servers), {"print": show})
    assert printed == [(b"42", b"two apples")]


def test_the_example_of_the_testing_kit_works(kafka: Kafka) -> None:
    def run_my_consumer(bootstrap_servers: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
        }
        with kohort.Consumer(settings) as consumer:
            consumer.subscribe(["orders"])
            count = 0
            while count < 2:
                count += sum(map(len, consumer.poll(1.0).values()))
            consumer.commit(timeout=60)

    names: dict[str, Any] = {"run_my_consumer": run_my_consumer}
    exec(example("def test_my_consumer"), names)
    names["test_my_consumer_survives_a_lost_commit"](kafka)


def test_the_example_of_spark_is_that_of_its_page() -> None:
    """The example of that page is run by tests/spark."""
    lines = {line.strip() for line in example("readStream").splitlines()}
    assert lines <= {line.strip() for line in (ROOT / "docs" / "spark.md").read_text("utf-8").splitlines()}


def test_a_wheel_is_made_and_installed_as_the_readme_says(tmp_path: Path) -> None:
    make, install, from_git = commands(README, "pip ")
    environment = {
        **os.environ,
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
    }

    def as_the_shell_reads(word: str) -> list[str]:
        if "*" in word:
            return [str(path) for path in tmp_path.glob(word)]
        return [str(tmp_path / word) if word.startswith("dist") else word]

    def pip(command: str, *more: str) -> None:
        words = [word for typed in command.split() for word in as_the_shell_reads(typed)]
        ran = subprocess.run(
            [sys.executable, "-m", *words, *more],
            capture_output=True,
            text=True,
            timeout=500,
            cwd=ROOT,
            env=environment,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    pip(make, "--no-build-isolation")
    place = tmp_path / "site"
    pip(install, "--no-deps", "--target", str(place))
    codec = "from kohort.wire.compiler.compile import codec; codec(3, 1)"
    program = f"import kohort; {codec}; print(kohort.__file__, kohort.__version__)"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(place)},
    )
    assert ran.stdout.split() == [str(place / "kohort" / "__init__.py"), kohort.__version__], ran.stderr
    assert (place / f"kohort-{kohort.__version__}.dist-info").exists()
    assert (place / "kohort" / "py.typed").exists()
    assert (place / "pyspark_kohort" / "__init__.py").exists()
    requirement = Requirement(from_git.partition('"')[2].rstrip('"'))
    assert (requirement.name, requirement.extras) == ("kohort", {"spark"})
    assert requirement.url is not None
    assert requirement.url.startswith("git+")


def test_the_ways_to_run_a_test_lead_somewhere() -> None:
    lines = commands((ROOT / "CONTRIBUTING.md").read_text("utf-8"), "pytest")
    assert len(lines) == 3
    for line in lines:
        path, _, name = line.split()[3].partition("::")
        assert (ROOT / path).exists()
        assert not name or f"def {name}(" in (ROOT / path).read_text("utf-8")


def test_no_claim_is_larger_than_what_is_there() -> None:
    assert not re.search(r"every Kafka (client|cluster)|every client", README)
    assert "KIP-848" in README
    assert "PYSPARK_PYTHON" in README
