"""What a pipeline file may say, how it is run and what is kept of it: without Spark."""

from __future__ import annotations

import fcntl
import os
import pwd
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kohort.cli.frame.properties import read_properties
from kohort.cli.main import main
from kohort.exposition import registry_of
from kohort.spark.built_in import find_pipeline
from kohort.spark.options import OptionError
from kohort.spark.pipelines.definition import Pipeline, PipelineError, Sink, filled_in, from_sql, load_file
from kohort.spark.pipelines.metrics import pipeline_health, pipeline_samples
from kohort.spark.pipelines.progress import Terminal, batch_line, idle_line, note, read_progress
from kohort.spark.pipelines.run import (
    Run,
    short_reason,
    sort_settings,
    sql_line,
    stream_options,
    topic_settings,
    without_place,
)
from kohort.spark.pipelines.sinks import check_sink, settings_of_spark
from kohort.spark.pipelines.state import (
    DIED,
    FAILED,
    RUNNING,
    STOPPED,
    PipelineState,
    PipelineStatus,
    known_pipelines,
    state_directory,
)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipelines"


def written(folder: Path, text: str, name: str = "one.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


# --- files ----------------------------------------------------------------------------------------------


def test_a_python_file_says_topics_group_options_and_parameters(tmp_path: Path) -> None:
    made = load_file(
        written(
            tmp_path,
            "topics = 'orders, more'\ngroup = 'g'\noptions = {'minPartitions': 4, 'failOnDataLoss': False}\n"
            "parameters = {'out': 'here'}\ndef pipeline(stream): return (stream, dict(parameters))\n",
        )
    )
    assert (made.name, made.streams, made.group) == ("one", {"stream": ("orders", "more")}, "g")
    assert made.options == {"minPartitions": "4", "failOnDataLoss": "false"}
    assert made.make({"stream": "the stream"}, {"out": "there"}, "") == ("the stream", {"out": "there"})


def test_a_python_file_is_read_anew_and_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    text = "topics = ['a']\ngroup = '{}'\n\n\ndef pipeline(stream):\n    return stream.writeStream\n"
    for group in ("first", "other"):  # of the same length, and by its time not changed
        file = written(tmp_path, text.format(group))
        os.utime(file, (1_700_000_000, 1_700_000_000))
        assert load_file(file).group == group
    assert list(tmp_path.iterdir()) == [file]


def test_the_group_is_the_files_name_unless_it_says_another_or_none(tmp_path: Path) -> None:
    text = "topics = ['t']\ndef pipeline(stream): ...\n"
    assert load_file(written(tmp_path, text)).group == "one"
    assert load_file(written(tmp_path, f"group = None\n{text}")).group is None


def test_several_streams_have_their_topics_by_name_and_groups_of_their_own(tmp_path: Path) -> None:
    made = load_file(written(tmp_path, "topics = {'b': 'B', 'a': ['A']}\ndef pipeline(a, b): return a, b\n"))
    assert list(made.streams.items()) == [("a", ("A",)), ("b", ("B",))]
    assert [made.group_of(stream) for stream in made.streams] == ["one-a", "one-b"]
    assert made.make({"b": 2, "a": 1}, {}, "") == (1, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topics = ['t']\n", "has no function pipeline: write `def pipeline(stream):`"),
        ("topics = ['t']\ndef pipeline(): ...\n", "takes no stream"),
        ("def pipeline(stream): ...\n", "names no topics"),
        ("topics = []\ndef pipeline(stream): ...\n", "topics is empty"),
        ("topics = 7\ndef pipeline(stream): ...\n", "topics is a list of names"),
        (
            "topic = 't'\ndef pipeline(stream): ...\n",
            "topic is no setting of a pipeline; did you mean topics?",
        ),
        ("topics = ['t']\noptions = 1\ndef pipeline(stream): ...\n", "options is a dict"),
        ("topics = ['t']\ndef pipeline(a, b): ...\n", "takes several streams: say which topics each has"),
        ("topics = {'a': 't'}\ndef pipeline(a, b): ...\n", "takes a, b, but topics names a"),
        ("topics = ['t']\n\n1 / 0\n", "one.py line 3: ZeroDivisionError"),
        ("topics = (\n", "one.py line 1: SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_with_what_to_write(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(PipelineError) as refused:
        load_file(written(tmp_path, text))
    assert said in str(refused.value)


def test_a_sql_file_says_the_same_in_comments() -> None:
    made = load_file(EXAMPLES / "large_orders.sql")
    assert (made.name, made.streams, made.group) == ("large_orders", {"stream": ("orders",)}, "large-orders")
    assert made.options == {"startingOffsets": "earliest"}
    assert made.parameters == {"out": "./large", "least": "100"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 1 FROM stream", "names no topics: write `-- topics: orders`"),
        ("-- topics: t\nSELECT 1 FROM stream", "does not say where the rows go"),
        ("-- topics: t\n-- sink: console\nSELECT 1", "write `SELECT … FROM stream`"),
        (
            "-- topic: t\n-- sink: console\nSELECT 1 FROM stream",
            "line 1: unknown word topic; did you mean topics?",
        ),
        ("-- topics: t\n-- option: x\n-- sink: console\nSELECT 1 FROM stream", "line 2: option needs a name"),
    ],
)
def test_a_sql_file_that_cannot_be_run_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(PipelineError) as refused:
        from_sql("one", "one.sql", text)
    assert said in str(refused.value)


def test_parameters_are_filled_in_and_unknown_ones_are_refused() -> None:
    assert filled_in("a ${x} b ${x}", {"x": "1"}) == "a 1 b 1"
    with pytest.raises(PipelineError, match="there is no parameter our; did you mean out"):
        filled_in("${our}", {"out": "1"})


def test_every_example_can_be_loaded() -> None:
    found = {path.name: load_file(path) for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sql")}
    assert len(found) >= 6
    assert all(pipeline.group for pipeline in found.values())


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(PipelineError, match="did you mean group-history"):
        find_pipeline("group-histori")
    with pytest.raises(PipelineError, match="there is no file"):
        find_pipeline("./nothing.py")


# --- options --------------------------------------------------------------------------------------------


def simple(**keywords: Any) -> Pipeline:
    return Pipeline("one", "one.py", lambda *_: None, {"stream": ("orders",)}, "one", **keywords)


def test_options_of_the_file_are_overridden_by_those_of_the_command(tmp_path: Path) -> None:
    pipeline = simple(options={"startingOffsets": "earliest", "kafka.group.id": "other"})
    run = Run(
        PipelineState(tmp_path, "one"), "h:1", {"client.id": "c"}, options={"STARTINGOFFSETS": "latest"}
    )
    assert stream_options(pipeline, run) == {
        "stream": {
            "kafka.bootstrap.servers": "h:1", "kafka.client.id": "c", "kafka.group.id": "other",
            "subscribe": "orders", "STARTINGOFFSETS": "latest",
        }
    }  # fmt: skip


def test_a_wrong_option_is_refused_before_spark_is_started(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="did you mean startingOffsets"):
        stream_options(simple(), Run(PipelineState(tmp_path, "one"), options={"startingOffset": "latest"}))


def test_set_is_for_parameters_options_and_spark() -> None:
    pipeline = simple(parameters={"out": "x"})
    given = {"out": "y", "spark.executor.memory": "1g", "minPartitions": "3"}
    assert sort_settings(pipeline, given) == (
        {"minPartitions": "3"},
        {"out": "y"},
        {"spark.executor.memory": "1g"},
    )


def test_settings_are_read_as_kafka_reads_them(tmp_path: Path) -> None:
    path = written(tmp_path, "# TLS\nsecurity.protocol = SSL\n\nssl.ca.location=/a=b\n", "client.properties")
    assert read_properties(path) == {"security.protocol": "SSL", "ssl.ca.location": "/a=b"}


# --- state ----------------------------------------------------------------------------------------------


def test_a_second_start_is_refused_with_the_process_that_runs_it(tmp_path: Path) -> None:
    state = PipelineState(tmp_path, "one")
    state.acquire()
    state.write(PipelineStatus("one", "one.py", RUNNING, os.getpid(), started_ms=1_700_000_000_000))
    with pytest.raises(
        PipelineError, match=rf"one runs already, in process {os.getpid()} since 2023"
    ) as refused:
        PipelineState(tmp_path, "one").acquire()
    assert "kohort pipeline stop one" in str(refused.value)
    state.release()
    PipelineState(tmp_path, "one").acquire()


def test_a_killed_pipeline_has_died_and_can_be_started_again(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from kohort.spark.pipelines.state import *\n"
        "s = PipelineState(Path(sys.argv[1]), 'one'); s.acquire(); s.write(PipelineStatus('one', 'f', RUNNING))\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=120)
    (status,) = known_pipelines(tmp_path)
    assert status.state == DIED
    PipelineState(tmp_path, "one").acquire()


def test_a_status_is_written_and_read_whatever_the_encoding_of_the_terminal(tmp_path: Path) -> None:
    said = "no such topic: café → 注文 \udc80"
    program = (
        "import sys; from pathlib import Path; from kohort.spark.pipelines.state import *\n"
        "state = PipelineState(Path(sys.argv[1]), 'one'); status = PipelineStatus('one', 'f', FAILED)\n"
        f"status.error = {said!a}\n"
        "state.write(status); assert state.read().error == status.error"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", program, str(tmp_path)]
    subprocess.run(command, env=os.environ | ascii_only, check=True, timeout=120)
    (status,) = known_pipelines(tmp_path)
    assert status.error == said


def test_without_a_home_the_state_needs_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)  # as for a user whom the system does not know
    with pytest.raises(PipelineError, match="name one with --state"):
        state_directory()


def test_who_looks_at_a_pipeline_does_not_keep_it_from_starting(tmp_path: Path) -> None:
    """Looking whether it runs takes its lock, for a moment."""
    state = PipelineState(tmp_path, "one")
    state.acquire()
    state.release()
    looking = os.open(state.folder / "lock", os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_SH)
    done = threading.Timer(0.3, os.close, [looking])
    done.start()
    state.acquire()
    state.release()
    done.join()
    assert not state.is_running()


def test_a_pipeline_that_ends_while_it_is_looked_at_has_not_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = PipelineState(tmp_path, "one")
    state.write(PipelineStatus("one", "one.py", RUNNING, os.getpid()))

    def ends() -> bool:
        state.write(PipelineStatus("one", "one.py", STOPPED, os.getpid()))
        return False

    monkeypatch.setattr(state, "is_running", ends)
    status = state.read()
    assert status is not None
    assert status.state == STOPPED


def test_names_that_are_no_file_names_are_refused(tmp_path: Path) -> None:
    for name in ("../x", "a b", ".hidden", ""):
        with pytest.raises(PipelineError, match="is no name for a pipeline"):
            PipelineState(tmp_path, name)


def test_list_status_and_stop_say_what_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--state", str(tmp_path)]
    assert main(["pipeline", "list", *at]) == 0
    assert "group-history" in capsys.readouterr().out
    assert main(["pipeline", "status", "one", *at]) == 1
    assert "no pipeline one was started" in capsys.readouterr().err
    failed = PipelineStatus(
        "one", "one.py", FAILED, 7, stopped_ms=5, error="it broke", lag={"orders-0": 1200}
    )
    PipelineState(tmp_path, "one").write(failed)
    assert main(["pipeline", "status", "one", *at]) == 1
    out = capsys.readouterr().out
    assert "one: failed (one.py)" in out
    assert "it broke" in out
    assert "1,200" in out
    assert main(["pipeline", "list", *at]) == 0
    assert "one       failed" in capsys.readouterr().out
    assert main(["pipeline", "stop", "one", *at]) == 1
    assert "does not run; it is failed" in capsys.readouterr().err
    assert main(["pipeline", "list", "--json", *at]) == 0
    assert '"error": "it broke"' in capsys.readouterr().out


def test_a_run_that_is_refused_because_another_is_under_way_ends_with_75(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """EX_TEMPFAIL of sysexits.h: schedulers skip it, and do not take it for a failure."""
    path = written(tmp_path, "-- topics: t\n-- sink: noop\nSELECT value FROM stream", "one.sql")
    state = PipelineState(tmp_path / "state", "one")
    state.acquire()
    try:
        assert main(["pipeline", "run", str(path), "--once", "--state", str(tmp_path / "state")]) == 75
    finally:
        state.release()
    assert "one runs already" in capsys.readouterr().err


def test_list_and_status_show_where_the_rows_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    PipelineState(tmp_path, "one").write(PipelineStatus("one", "one.sql", STOPPED, sink="postgresql orders"))
    PipelineState(tmp_path, "two").write(PipelineStatus("two", "two.py", STOPPED))
    at = ["--state", str(tmp_path)]
    assert main(["pipeline", "status", "one", *at]) == 0
    assert "  sink       postgresql orders" in capsys.readouterr().out
    assert main(["pipeline", "list", *at]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[-2:] for line in shown[-3:]] == [
        ["SINK", "ORIGIN"],
        ["orders", "one.sql"],
        ["–", "two.py"],
    ]


def test_settings_of_spark_may_be_in_the_file(tmp_path: Path) -> None:
    sql = "-- topics: t\n-- sink: delta ./x\n-- spark spark.jars.packages: a:b:1\nSELECT value FROM stream"
    assert from_sql("one", "one.sql", sql).spark_settings == {"spark.jars.packages": "a:b:1"}
    python = "topics = ['t']\nspark_settings = {'spark.x': 1}\ndef pipeline(stream): ...\n"
    assert load_file(written(tmp_path, python)).spark_settings == {"spark.x": "1"}
    with pytest.raises(PipelineError, match="jars is no setting of Spark"):
        from_sql("one", "one.sql", sql.replace("spark.jars.packages", "jars"))
    assert set(settings_of_spark(from_sql("one", "one.sql", sql).sink)) == {
        "spark.sql.extensions", "spark.sql.catalog.spark_catalog",
    }  # fmt: skip


def test_a_topic_of_the_same_cluster_is_written_with_the_settings_of_config(tmp_path: Path) -> None:
    run = Run(PipelineState(tmp_path, "one"), kafka={"security.protocol": "SSL", "ssl.ca.location": "ca"})
    mine = Sink("kohort", "t", {"kafka.SSL.ca.location": "mine"})
    assert topic_settings(mine, {}, run) == {"kafka.security.protocol": "SSL"}
    other = Sink("kohort", "t", {"kafka.bootstrap.servers": "${b}"})
    assert topic_settings(other, {"b": "h:1"}, run) == {}
    assert topic_settings(Sink("parquet", "x"), {}, run) == {}


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (Sink("parquet", "x", mode="update"), "-- sink: parquet cannot do the mode update; it does append"),
        (Sink("postgresql"), "-- sink: postgresql needs a table"),
        (Sink("postgresq", "t"), "did you mean postgresql"),
    ],
)
def test_a_sink_that_cannot_be_is_refused(sink: Sink, said: str) -> None:
    with pytest.raises(PipelineError) as refused:
        check_sink(sink)
    assert said in str(refused.value)


def test_spark_says_in_which_line_a_query_is_wrong() -> None:
    parse = "\n[PARSE_SYNTAX_ERROR] Syntax error at or near '1': extra input '1'. SQLSTATE: 42601 (line 3, pos 9)\n\n=="
    column = (
        "[UNRESOLVED_COLUMN] A column `x` cannot be resolved. SQLSTATE: 42703; line 5 pos 2;\n'Project ['x]"
    )
    assert (sql_line(parse), sql_line(column), sql_line("no place")) == (" line 3", " line 5", "")
    assert without_place(short_reason(parse)) == (
        "[PARSE_SYNTAX_ERROR] Syntax error at or near '1': extra input '1'."
    )
    assert without_place(short_reason(column)) == "[UNRESOLVED_COLUMN] A column `x` cannot be resolved."


def test_a_wrong_command_is_refused_without_a_jvm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "topics = ['t']\ndef pipeline(stream): ...\n")
    for arguments, said in (
        (["--set", "out"], "write it as NAME=VALUE"),
        (["--set", "startingOffset=latest"], "did you mean startingOffsets"),
        (["--out", "x"], "has no parameter out"),
        (["--name", "a/b"], "is no name for a pipeline"),
    ):
        assert main(["pipeline", "run", str(path), "--state", str(tmp_path / "state"), *arguments]) == 1
        assert said in capsys.readouterr().err


# --- progress -------------------------------------------------------------------------------------------

REPORT = {
    "batchId": 12,
    "timestamp": "2026-11-15T14:00:00.000Z",
    "numInputRows": 1204,
    "durationMs": {"triggerExecution": 800},
    "sources": [{"endOffset": '{"orders":{"0":10,"1":5}}', "latestOffset": '{"orders":{"0":200,"1":45}}'}],
}


def test_a_batch_is_one_line() -> None:
    status = PipelineStatus("one", "one.py", groups={"orders-etl": {"state": "Stable", "members": 1}})
    batch = read_progress(REPORT)
    assert note(status, batch)
    assert batch_line(batch, status) == (
        "batch 12    1,204 rows in 0.80 s    1,505 rows/s    lag 230    orders-etl Stable, 1 member"
    )
    assert idle_line(status).startswith("waiting for records    1,204 rows so far    lag 230")


def test_a_trigger_without_rows_is_not_counted() -> None:
    status = PipelineStatus("one", "one.py")
    assert not note(status, read_progress({**REPORT, "numInputRows": 0}))
    assert (status.batches, status.rows, status.total_lag) == (0, 0, 230)


def test_the_last_line_changes_on_a_terminal_only() -> None:
    import io

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen, file = Screen(), io.StringIO()
    for stream in (screen, file):
        terminal = Terminal(stream)
        terminal.now("waiting")
        terminal.line("batch 1")
    assert screen.getvalue() == "waiting\r\x1b[Kbatch 1\n"
    assert file.getvalue() == "batch 1\n"


def test_metrics_have_the_names_that_dashboards_know() -> None:
    status = PipelineStatus(
        "one", "one.py", RUNNING, started_ms=1000, groups={"g": {"state": "Stable", "members": 1}}
    )
    note(status, read_progress(REPORT))
    registry = registry_of(lambda: pipeline_samples(status, 3000))
    assert registry.get_sample_value("kohort_pipeline_up", {"pipeline": "one"}) == 1
    assert registry.get_sample_value("kohort_pipeline_rows_total", {"pipeline": "one"}) == 1204
    assert registry.get_sample_value("kohort_pipeline_uptime_seconds", {"pipeline": "one"}) == 2
    of = {"consumergroup": "g", "topic": "orders"}
    assert registry.get_sample_value("kafka_consumergroup_lag", {**of, "partition": "0"}) == 190
    assert registry.get_sample_value("kafka_consumergroup_lag_sum", of) == 230
    assert registry.get_sample_value("kafka_consumergroup_members", {"consumergroup": "g"}) == 1
    assert pipeline_health(status).is_good
    status.state = STOPPED
    assert pipeline_health(status).problems == ("the query does not run: its state is stopped",)


def test_the_reason_of_a_failure_is_found_in_sparks_long_texts() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\n\nJVM stacktrace:\n"
        "Traceback (most recent call last):\n  File \"x.py\", line 3, in read\n    raise X\n"
        "kohort.spark.driver.planning.DataLoss: Some data may have been lost\n\n\tat org.apache.spark.X\n"
    )  # fmt: skip
    assert short_reason(text) == "kohort.spark.driver.planning.DataLoss: Some data may have been lost"
    assert short_reason("[X] only this\nand that") == "[X] only this"
    java = "An error occurred while calling o70.toTable.\n: java.lang.LinkageError: no such class\n\tat a.b"
    assert short_reason(java) == "java.lang.LinkageError: no such class"
    ours = "Traceback (most recent call last):\nkohort.spark.pipelines.definition.PipelineError: postgresql t: no\n"
    assert short_reason(ours) == "postgresql t: no"
    worker = (
        "Traceback (most recent call last):\na.PythonException: An exception was thrown:\nValueError: it is\n"
    )
    assert short_reason(worker) == "ValueError: it is"
