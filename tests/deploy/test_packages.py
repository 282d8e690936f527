"""`make dist`, and the Dockerfile's commands outside of Docker: installed into fresh environments, and started."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import kohort
from kohort import Admin
from tests.cli.test_serve import READY
from tests.test_readme import blocks
from tests.web import visit

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1"}
WITHOUT_OURS = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def ran(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=cwd,
        env=WITHOUT_OURS | OFFLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fresh_environment(place: Path) -> Path:
    """Makes an environment without Kohort, which has our dependencies at hand; returns its directory of programs."""
    ran(sys.executable, "-m", "venv", "--without-pip", place)
    (site,) = place.glob("lib/python*/site-packages")
    # It is appended to the path: what is installed here comes first. Its own .pth files, ours among them, do not count.
    (site / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n", "utf-8")
    return place / "bin"


def install(programs: Path, what: object) -> None:
    pip = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet"]
    ran(*pip, "--no-deps", "--no-build-isolation", what)


class Started:
    """A broker as a real process, from an environment of its own."""

    def __init__(self, *command: object) -> None:
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=WITHOUT_OURS,
        )

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=90)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(90)


# --- make dist ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` makes, in another place."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    found = re.search(r"^dist: .*\n\t\$\(BIN\)/python (.*)$", makefile, re.M)
    assert found
    place = tmp_path_factory.mktemp("dist")
    words = [str(place) if word == "dist" else word for word in found[1].split()]
    ran(sys.executable, *words, cwd=ROOT)
    return place


def test_the_wheel_holds_all_that_runs(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    assert wheel.name == f"kohort-{kohort.__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert wanted <= names
    assert "kohort/py.typed" in names
    assert "kohort/wire/schema/produce.txt" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


def test_the_page_shows_what_is_made(dist: Path) -> None:
    (shown,) = [
        text
        for text in blocks((ROOT / "docs" / "deploy.md").read_text("utf-8"), "console")
        if "make dist" in text
    ]
    made = sorted(path.name for path in dist.iterdir() if path.name != ".gitignore")
    assert shown.replace("VERSION", kohort.__version__).splitlines()[2:] == made


def test_the_sdist_holds_what_the_wheel_is_made_of(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/kohort/py.typed", "deploy/Dockerfile"} <= names
    assert not [name for name in names if name.startswith((".venv", ".cache", "dist/"))]


def test_the_wheel_runs_in_a_fresh_environment(dist: Path, tmp_path: Path) -> None:
    programs = fresh_environment(tmp_path / "venv")
    (wheel,) = dist.glob("*.whl")
    install(programs, wheel)
    assert kohort.__version__ in ran(programs / "kohort", "--version", cwd=tmp_path)
    where = ran(programs / "python", "-c", "import kohort; print(kohort.__file__)", cwd=tmp_path)
    assert where.startswith(str(tmp_path))
    with Started(programs / "kohort", "serve", tmp_path / "data", "--listen", "127.0.0.1:0") as broker:
        ready = READY.match(broker.line())
        assert ready
        with Admin(bootstrap_servers=ready[1]) as admin:
            admin.create_topic("orders", 1)
            assert "orders" in admin.list_topics()
        assert broker.stop() == 0


# --- Docker -------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with their lines joined."""
    lines = [line for line in DOCKERFILE.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined)]


def only(word: str) -> str:
    (found,) = [rest for name, rest in instructions() if name == word]
    return found


def test_what_the_image_copies_exists_and_is_in_the_context() -> None:
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = [
        source
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    assert set(copied) == allowed
    for source in copied:
        assert (ROOT / source).exists(), source


def test_the_image_ends_as_a_user_who_is_not_root() -> None:
    words = [word for word, _ in instructions()]
    assert words.count("FROM") == 2
    assert only("USER").isdigit()
    assert int(only("USER")) > 0
    assert f"--uid {only('USER')}" in " ".join(rest for name, rest in instructions() if name == "RUN")
    assert words.index("USER") < words.index("ENTRYPOINT")


def test_the_commands_of_the_image_work_outside_of_docker(tmp_path: Path) -> None:
    """The same sources are installed into a fresh environment; start and health check are those of the image."""
    context = tmp_path / "context"
    context.mkdir()
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                found = ROOT / source
                if found.is_dir():
                    shutil.copytree(found, context / source, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(found, context / source)
    (extras,) = re.findall(r'pip install --no-cache-dir "\.\[(\w+)\]"', DOCKERFILE.read_text("utf-8"))
    project = tomllib.loads((context / "pyproject.toml").read_text("utf-8"))["project"]
    assert extras in project["optional-dependencies"]
    programs = fresh_environment(tmp_path / "venv")
    install(programs, context)
    command = [*json.loads(only("ENTRYPOINT")), *json.loads(only("CMD"))]
    places = {"kohort": programs / "kohort", "/data": tmp_path / "data"}
    ports = {"0.0.0.0:9092": "127.0.0.1:0", "0.0.0.0:9464": "127.0.0.1:0"}
    with Started(*((places | ports).get(word, word) for word in command)) as broker:
        assert "bootstrap.servers=localhost:9092" in broker.line()
        metrics = broker.line().split()[1]
        with visit(metrics) as answer:
            assert b"kohort_up" in answer.read()
        check = json.loads(only("HEALTHCHECK").partition("CMD")[2])
        port = metrics.split(":")[2].split("/")[0]
        assert "127.0.0.1:9464/readyz" in check[-1]
        healthy = [programs / "python", *check[1:-1], check[-1].replace("9464", port)]
        no_proxy = {"no_proxy": "*", **dict.fromkeys(("http_proxy", "HTTP_PROXY"), "")}
        assert subprocess.run(healthy, timeout=120, env=WITHOUT_OURS | no_proxy, check=False).returncode == 0
        assert broker.stop() == 0
    assert subprocess.run(
        healthy, timeout=120, env=WITHOUT_OURS | no_proxy, capture_output=True, check=False
    ).returncode


def test_the_compose_file_builds_this_image_and_publishes_its_ports_on_loopback() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
    (service,) = compose["services"].values()
    build = service["build"]
    context = (ROOT / "deploy" / build["context"]).resolve()
    assert (context / build["dockerfile"]).resolve() == DOCKERFILE
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert {port.rpartition(":")[2] for port in service["ports"]} == set(only("EXPOSE").split())
    volume, _, inside = service["volumes"][0].partition(":")
    assert volume in compose["volumes"]
    assert inside == only("VOLUME")


def test_the_docs_start_the_image_with_options_that_kohort_has() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    (run,) = re.findall(r"^\$ docker run (.*)$", page, re.M)
    arguments = shlex.split(run.partition(" kohort ")[2])
    shown = ran(sys.executable, "-m", "kohort.cli.main", "serve", "--help", cwd=ROOT / "src")
    assert [word for word in arguments if word.startswith("--")]
    for word in arguments:
        if word.startswith("--"):
            assert word in shown
