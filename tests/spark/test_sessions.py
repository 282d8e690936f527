"""`kohort.spark.session()`: what it sets and what it leaves alone, and what the user hears without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kohort.spark
from kohort.spark import advice
from kohort.spark.advice import SparkSetupWarning, WorkerPython, objection_to, objections, worker_pythons
from kohort.spark.sessions import (
    HIDDEN,
    JAVA_OPTIONS,
    PUSHDOWN,
    REDACTION,
    UNIX_SOCKETS,
    SessionError,
    prepare,
    submitted_master,
)
from tests.clients.process import BrokerProcess

ROOT = Path(__file__).parents[2]


# --- what a new session gets ----------------------------------------------------------------------------


def test_a_local_session_gets_java_python_sockets_pushdown_and_loopback() -> None:
    environ = {"PATH": os.environ["PATH"]}
    settings = prepare("local[*]", {}, environ)
    assert (Path(environ["JAVA_HOME"]) / "bin" / "java").exists()
    assert environ["PYSPARK_PYTHON"] == environ["PYSPARK_DRIVER_PYTHON"]
    assert environ["SPARK_LOCAL_IP"] == settings["spark.driver.host"] == "127.0.0.1"
    assert settings[UNIX_SOCKETS] == settings[PUSHDOWN] == "true"
    assert "log4j2.configurationFile" in settings[JAVA_OPTIONS]


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    environ = {"PATH": os.environ["PATH"], "JAVA_HOME": str(home), "PYSPARK_PYTHON": "/opt/python"}
    given = {UNIX_SOCKETS: "false", "spark.driver.host": "10.0.0.1", JAVA_OPTIONS: "-Dlog4j2.level=info"}
    settings = prepare("local[2]", given, environ)
    assert environ["JAVA_HOME"] == str(home)
    assert environ["PYSPARK_PYTHON"] == "/opt/python"
    assert settings.items() >= given.items()


def test_the_settings_for_python_have_an_effect_which_spark_gives_them_in_spark_submit_only() -> None:
    environ = {"PATH": os.environ["PATH"]}
    prepare("local[2]", {"spark.pyspark.python": "/opt/a", "spark.pyspark.driver.python": "/opt/b"}, environ)
    assert (environ["PYSPARK_PYTHON"], environ["PYSPARK_DRIVER_PYTHON"]) == ("/opt/a", "/opt/b")


def test_java_options_of_the_user_are_kept_beside_ours() -> None:
    settings = prepare("local[2]", {JAVA_OPTIONS: "-Xss4m"}, {"PATH": os.environ["PATH"]})
    assert settings[JAVA_OPTIONS].startswith("-Dlog4j2.configurationFile=file:/")
    assert settings[JAVA_OPTIONS].endswith(" -Xss4m")


def test_a_log_configuration_of_the_user_is_used(tmp_path: Path) -> None:
    (tmp_path / "log4j2.properties").write_text("")
    environ = {"PATH": os.environ["PATH"], "SPARK_CONF_DIR": str(tmp_path)}
    assert JAVA_OPTIONS not in prepare("local[2]", {}, environ)


def test_on_a_cluster_the_workers_python_is_no_script_of_this_machine() -> None:
    folder = os.path.dirname(sys.executable)
    environ = {"PATH": folder}
    settings = prepare("spark://somewhere:7077", {}, environ)
    assert settings == {PUSHDOWN: "true", REDACTION: f"(?i)url|{HIDDEN}", UNIX_SOCKETS: "true"}
    assert "PYSPARK_PYTHON" not in environ  # the python3 of PATH is this one, as it should be on the workers
    environ = {"PATH": "/nowhere"}
    prepare("spark://somewhere:7077", {}, environ)
    assert environ["PYSPARK_PYTHON"] in (sys.executable, os.path.basename(sys.executable))


def test_a_notebook_is_no_python_to_look_for_sources_with() -> None:
    environ = {"PATH": os.environ["PATH"], "PYSPARK_DRIVER_PYTHON": "/opt/bin/jupyter"}
    prepare("local[2]", {}, environ)
    assert "jupyter" not in environ["PYSPARK_DRIVER_PYTHON"]


@pytest.mark.parametrize(
    ("environ", "master"),
    [
        ({}, None),
        ({"PYSPARK_SUBMIT_ARGS": "--packages a:b:1 pyspark-shell"}, None),
        ({"PYSPARK_SUBMIT_ARGS": "--master spark://h:1 pyspark-shell"}, "spark://h:1"),
        ({"PYSPARK_SUBMIT_ARGS": "--master=yarn pyspark-shell"}, "yarn"),
        ({"PYSPARK_GATEWAY_PORT": "4711", "MASTER": "k8s://x"}, "k8s://x"),
    ],
)
def test_the_master_of_spark_submit_is_known(environ: dict[str, str], master: str | None) -> None:
    assert submitted_master(environ) == master


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"executor_memory": "4g"}, "executor_memory is no setting of Spark"),
        ({"spark_master": "local"}, "give spark.master as the argument master"),
        ({"spark.app.name": "x"}, "give spark.app.name as the argument app_name"),
        ({"spark_executor_memory": None}, "spark.executor.memory is None"),
        ({"master": "local", "remote": "sc://h"}, "a master or a remote, not both"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(SessionError, match=said):
        kohort.spark.builder(**arguments)


def test_a_builder_goes_on_being_configured() -> None:
    environ = dict(os.environ)
    try:
        built = kohort.spark.builder(
            "mine", "local[3]", spark_sql_shuffle_partitions=7, **{"spark.ui.enabled": False}
        )
        options = built.config("spark.x", "y")._options
    finally:
        os.environ.clear()
        os.environ.update(environ)
    assert options["spark.master"] == "local[3]"
    assert options["spark.app.name"] == "mine"
    assert options["spark.sql.shuffle.partitions"] == "7"
    assert options["spark.ui.enabled"] == "false"
    assert options["spark.x"] == "y"


def test_with_spark_connect_nothing_of_java_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    options = kohort.spark.builder("mine", remote="sc://somewhere")._options
    assert options == {
        "spark.app.name": "mine",
        "spark.remote": "sc://somewhere",
        PUSHDOWN: "true",
        REDACTION: f"(?i)url|{HIDDEN}",
    }
    assert "JAVA_HOME" not in os.environ
    assert "PYSPARK_PYTHON" not in os.environ


# --- a session that runs already ------------------------------------------------------------------------


def test_of_a_running_session_what_cannot_be_changed_is_said(spark: Any) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.unset(PUSHDOWN)
    spark.conf.set(REDACTION, "(?i)mine")
    try:
        with pytest.warns(SparkSetupWarning) as told:
            found = kohort.spark.session(
                master="local[7]",
                spark_sql_shuffle_partitions=3,
                spark_executor_memory="3g",
                **{UNIX_SOCKETS: "false"},
            )
        assert found is spark or found._jsparkSession.equals(spark._jsparkSession)
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert spark.conf.get(PUSHDOWN) == "true"
        assert spark.conf.get(REDACTION) == f"(?i)mine|{HIDDEN}"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    lines = [str(each.message) for each in told]
    assert len(lines) == 3, lines
    assert "with the master local[2] and not local[7]" in lines[0]
    assert f"which has {UNIX_SOCKETS}=true: stop it" in lines[1]
    assert "which was started without spark.executor.memory=3g" in lines[2]
    assert all("spark.stop()" in line for line in lines)
    assert all(each.filename == __file__ for each in told)


def test_a_running_session_that_is_as_asked_is_returned_without_a_word(spark: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kohort.spark.session("kohort tests", "local[2]")


# --- without session() ----------------------------------------------------------------------------------


@pytest.fixture
def other_python(tmp_path: Path) -> Callable[..., Path]:
    """A folder with a python3 that says of itself what it is told to."""

    def make(version: tuple[int, int] = sys.version_info[:2], missing: tuple[str, ...] = ()) -> Path:
        folder = tmp_path / "other bin"
        folder.mkdir()
        said = json.dumps({"version": version, "executable": "x", "missing": missing})
        script = folder / "python3"
        script.write_text(f"#!/bin/sh\necho '{said}'\n")
        script.chmod(0o755)
        return folder

    return make


def test_a_python_of_path_without_kohort_is_named_with_what_to_set(other_python: Callable[..., Path]) -> None:
    environ = {"PATH": str(other_python(missing=("kohort", "pyarrow")))}
    (python,) = worker_pythons(environ)
    said = objection_to(python, environ)
    assert said is not None
    assert f"{environ['PATH']}/python3 (PATH), which has no kohort and pyarrow" in said
    assert f"kohort.spark.session(), or set PYSPARK_PYTHON={sys.executable}" in said


def test_another_minor_version_is_named(other_python: Callable[..., Path]) -> None:
    environ = {"PATH": str(other_python((3, 9)))}
    said = objection_to(worker_pythons(environ)[0], environ)
    assert said is not None
    assert f"Python 3.9, and this is {sys.version_info[0]}.{sys.version_info[1]}" in said


def test_another_python_that_has_all_will_do(other_python: Callable[..., Path]) -> None:
    environ = {"PATH": str(other_python())}
    assert objection_to(worker_pythons(environ)[0], environ) is None


def test_this_python_is_known_without_starting_it() -> None:
    environ = {"PATH": "", "PYSPARK_PYTHON": sys.executable}
    (python,) = worker_pythons(environ)
    assert advice.is_this_python(sys.executable)
    assert objection_to(python, {}) is None


@pytest.mark.parametrize(
    ("python", "said"),
    [
        (WorkerPython("python9", "PYSPARK_PYTHON", None), "python9 (PYSPARK_PYTHON), which is not there"),
        (WorkerPython("false", "PATH", "/bin/false"), "which does not run: it ended with 1"),
        (WorkerPython("jupyter", "PYSPARK_DRIVER_PYTHON", None), "which is no Python: make the session"),
    ],
)
def test_what_is_no_python_is_named(python: WorkerPython, said: str) -> None:
    line = objection_to(python, os.environ)
    assert line is not None
    assert said in line


def test_the_java_that_only_we_would_find_is_named(tmp_path: Path) -> None:
    lines = list(objections({"PATH": str(tmp_path), "PYSPARK_PYTHON": sys.executable}))
    assert len(lines) == 1
    assert "neither JAVA_HOME nor PATH has one of 17 or later. Make the session with" in lines[0]


def test_errors_of_spark_are_known() -> None:
    from pyspark.errors import AnalysisException

    assert advice.is_of_spark(AnalysisException("x"))
    assert not advice.is_of_spark(ValueError("x"))
    assert not advice.is_of_spark(None)


# --- as a user runs it: an environment that is not activated -----------------------------------------------

WITHOUT = """
import kohort.spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.read.format("kohort").load()
"""

WITH = """
import sys
import kohort.spark

spark = kohort.spark.session("first steps", "local[1]", spark_ui_enabled=False)
orders = (
    spark.read.format("kohort")
    .option("kafka.bootstrap.servers", sys.argv[1])
    .option("subscribe", sys.argv[2])
    .load()
)
print("rows", orders.count())
spark.stop()
"""


def run_job(
    folder: Path, program: str, python_folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """`VENV/bin/python job.py`, in a folder with a blank, where PATH has another python3 first."""
    job = folder / "a folder" / "job.py"
    job.parent.mkdir()
    job.write_text(program)
    path = os.pathsep.join([str(python_folder), "/usr/bin", "/bin"])
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK_", "SPARK_", "VIRTUAL_ENV", "JAVA_HOME"))
    }
    environ |= {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    environ["TMPDIR"] = str(job.parent)
    return subprocess.run(
        [sys.executable, str(job), *arguments],
        env=environ,
        cwd=job.parent,
        capture_output=True,
        text=True,
        timeout=450,
        check=False,
    )


@pytest.mark.jvm
def test_a_job_in_an_environment_that_is_not_activated(
    tmp_path: Path,
    broker: BrokerProcess,
    new_topic: Any,
    produce: Any,
    other_python: Callable[..., Path],
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, range(10))
    done = run_job(
        tmp_path, WITH, other_python(missing=("kohort", "pyarrow")), broker.bootstrap_servers, topic
    )
    assert "rows 10" in done.stdout, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    assert "WARN" not in done.stderr.replace("WARNING: Using incubator modules", "")
    assert not list((tmp_path / "a folder").glob("kohort-*")), "temporary folders are left"


@pytest.mark.jvm
def test_the_same_job_without_session_says_what_to_set_at_its_end(
    tmp_path: Path, other_python: Callable[..., Path]
) -> None:
    done = run_job(tmp_path, WITHOUT, other_python(missing=("kohort", "pyarrow")))
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("kohort: ")]
    assert len(lines) == 1, done.stderr[-3000:]
    assert "kohort.spark.session()" in lines[0]
