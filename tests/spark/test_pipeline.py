"""`kohort pipeline` as people run it, and the examples: a real Spark, a real broker."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin, Consumer, Producer, TopicPartition
from kohort.spark.driver.process_identity import is_below, process_of
from kohort.spark.pipelines.definition import Pipeline, PipelineError, from_sql, load_file
from kohort.spark.pipelines.progress import Terminal
from kohort.spark.pipelines.run import GroupWatch, Run, run_pipeline, stream_options
from kohort.spark.pipelines.state import FAILED, RUNNING, STOPPED, PipelineState, PipelineStatus
from kohort.spark.pyspark_api import HAS_ADMISSION_CONTROL as HAS_LAG
from tests.clients.process import KOHORT, BrokerProcess, eventually
from tests.web import visit

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
NewTopic = Callable[..., str]
MINUTE_MS = 60_000
NOON_MS = 1_700_000_040_000  # a whole minute


# --- the command ----------------------------------------------------------------------------------------

NUMBERS = """
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf
from pyspark.sql.streaming import DataStreamWriter

topics = ["{topic}"]
group = "{group}"
options = {{"startingOffsets": "earliest"}}
parameters = {{"out": "{out}"}}


def doubled(value: bytes) -> int:
    return 2 * int(value)  # a function of this file, which no executor could import


def pipeline(stream: DataFrame) -> DataStreamWriter:
    rows = stream.select(udf(doubled, "long", useArrow=False)("value").alias("number"))
    return rows.writeStream.format("parquet").option("path", parameters["out"])
"""


class Command:
    """`kohort pipeline …` with a state directory of its own."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder, self.state = folder, folder / "state"
        self._bootstrap = bootstrap
        self._started: list[subprocess.Popen[str]] = []

    def arguments(self, *words: str) -> list[str]:
        return [str(KOHORT), "pipeline", *words, "--state", str(self.state)]

    def start(self, file: Path, *words: str) -> subprocess.Popen[str]:
        arguments = self.arguments(
            "run", str(file), "--bootstrap", self._bootstrap, "--master", "local[2]", *words
        )
        with (self.folder / "run.log").open("a") as log:
            process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT, text=True)
        self._started.append(process)
        return process

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.arguments(*words), capture_output=True, text=True, timeout=120, check=False
        )

    def status(self, name: str) -> PipelineStatus:
        status = PipelineState(self.state, name).read()
        assert status is not None, (self.folder / "run.log").read_text()
        return status

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait(60)


@pytest.fixture
def command(tmp_path: Path, broker: BrokerProcess) -> Iterator[Command]:
    made = Command(tmp_path, broker.bootstrap_servers)
    yield made
    made.close()


@pytest.mark.jvm
@pytest.mark.parametrize("runs", [1, pytest.param(5, marks=pytest.mark.chaos)])
def test_pipelines_that_end_well_print_no_traceback(
    command: Command, new_topic: NewTopic, new_name: Callable[[str], str], produce: Callable[..., None], runs: int
) -> None:  # fmt: skip
    """Spark ends its idle workers by closing their sockets, of which they must not complain on the terminal."""
    topic = new_topic(partitions=2)
    produce(topic, range(100))
    for number in range(runs):
        file = command.folder / f"once{number}.py"
        out = command.folder / f"out{number}"
        file.write_text(NUMBERS.format(topic=topic, group=new_name("group"), out=out))
        assert command.start(file, "--once").wait(300) == 0, (command.folder / "run.log").read_text()
    log = (command.folder / "run.log").read_text()
    assert log.count("done, 100 rows") == runs
    assert "Traceback" not in log
    assert "Error" not in log


def test_a_pipeline_runs_is_looked_at_stopped_and_goes_on_from_its_checkpoint(
    spark: Any, broker: BrokerProcess, command: Command, admin: Admin, new_topic: NewTopic,
    new_name: Callable[[str], str], produce: Callable[..., None],
) -> None:  # fmt: skip
    topic, group, out = new_topic(partitions=2), new_name("group"), command.folder / "out"
    file = command.folder / "numbers.py"
    file.write_text(NUMBERS.format(topic=topic, group=group, out=out))
    for partition in (0, 1):
        produce(topic, range(50 * partition, 50 * partition + 50), partition=partition)
    process = command.start(file, "--set", "spark.sql.shuffle.partitions=3")

    def has_read() -> bool:
        assert process.poll() is None, (command.folder / "run.log").read_text()
        state = PipelineState(command.state, "numbers").read()
        return (
            state is not None and state.rows == 100 and state.groups.get(group, {}).get("state") == "Stable"
        )

    def is_committed() -> bool:
        """With the trigger after the batch: a query that is stopped before that has read more than it has committed."""
        return {p.partition: at.offset for p, at in admin.group_offsets(group).items()} == {0: 50, 1: 50}

    # A JVM of its own, on a machine that may be busy.
    eventually(has_read, "the pipeline has read 100 rows as a member of its group", timeout_s=240)
    eventually(is_committed, "and has committed them", timeout_s=60)
    status = command.status("numbers")
    assert (status.state, status.pid, status.total_lag) == (RUNNING, process.pid, 0 if HAS_LAG else None)
    assert json.loads(command.run("status", "numbers", "--json").stdout)["rows"] == 100
    second = command.run("run", str(file))
    assert second.returncode == 75  # EX_TEMPFAIL: schedulers tell it from a failure
    assert f"numbers runs already, in process {process.pid}" in second.stderr

    stopped = command.run("stop", "numbers")
    assert (stopped.returncode, stopped.stdout) == (0, "numbers: stopped\n")
    assert process.wait(60) == 0
    assert command.status("numbers").state == STOPPED
    assert is_committed()
    shown = (command.folder / "run.log").read_text()
    assert "100 rows in" in shown or shown.count("rows in") > 1
    assert "log4j" not in shown  # that is in a file
    assert (command.state / "numbers" / "spark.log").exists()

    # The next start may be in another process, here in this one: the checkpoint is all it needs.
    produce(topic, range(100, 130), partition=0)
    run = Run(PipelineState(command.state, "numbers"), broker.bootstrap_servers, once=True)
    assert run_pipeline(load_file(file), run, Terminal(io.StringIO())) == 0
    assert command.status("numbers").rows == 30
    numbers = Counter(row.number for row in spark.read.parquet(str(out)).collect())
    assert numbers == Counter(range(0, 260, 2))


# --- the runner, in this process ------------------------------------------------------------------------


@pytest.fixture
def run_here(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> Callable[..., tuple[int, PipelineStatus, str]]:
    """Runs a pipeline in the session of the tests; returns the exit code, the last status and what was shown."""

    def run(pipeline: Pipeline, **keywords: Any) -> tuple[int, PipelineStatus, str]:
        state, shown = PipelineState(tmp_path / "state", "here"), io.StringIO()
        code = run_pipeline(pipeline, Run(state, broker.bootstrap_servers, **keywords), Terminal(shown))
        status = state.read()
        assert status is not None
        assert not state.is_running()
        return code, status, shown.getvalue()

    return run


def pipeline_of(topic: str, group: str | None, make: Callable[[Any], Any]) -> Pipeline:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    return Pipeline(
        "here", "a test", lambda frames, *_: make(frames["stream"]), {"stream": (topic,)}, group, options
    )


def test_sigterm_ends_a_pipeline_in_order_and_metrics_tell_meanwhile(
    new_topic: NewTopic, new_name: Callable[[str], str], produce: Callable[..., None], admin: Admin, tmp_path: Path,
    run_here: Callable[..., tuple[int, PipelineStatus, str]],
) -> None:  # fmt: skip
    topic, group, seen = new_topic(), new_name("group"), []
    produce(topic, range(25))
    has_ended = threading.Event()

    def watch() -> None:
        state = PipelineState(tmp_path / "state", "here")

        def has_read() -> bool:
            if has_ended.is_set():
                return True
            status = state.read()
            if status is None or status.rows != 25 or status.lag != ({f"{topic}-0": 0} if HAS_LAG else {}):
                return False
            # With the trigger after the last batch, which a stop may come before.
            return [at.offset for at in admin.group_offsets(group).values()] == [25]

        try:
            eventually(has_read, "25 rows are read and committed", timeout_s=240)
            status = state.read()
            assert status is not None
            with visit(status.metrics or "") as answer:
                seen.append(answer.read().decode())
        finally:
            if not has_ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        code, status, shown = run_here(
            pipeline_of(topic, group, lambda stream: stream.writeStream.format("noop")), metrics="0"
        )
    finally:
        has_ended.set()
        watcher.join()
    assert (code, status.state, status.rows, status.batches, status.metrics) == (0, STOPPED, 25, 3, None)
    assert 'kohort_pipeline_rows_total{pipeline="here"} 25.0' in seen[0]
    lag = f'kafka_consumergroup_lag{{consumergroup="{group}",partition="0",topic="{topic}"}} 0.0'
    assert (lag in seen[0]) is HAS_LAG
    assert "batch 2    5 rows in" in shown
    assert admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 25
    assert status.groups[group]["members"] == 0  # it has left


_SLOW_TO_LEAVE = """
import sys
from kohort import Consumer
from kohort.spark.driver.process_identity import this_process

bootstrap, topic, group = sys.argv[1:]
with Consumer(bootstrap_servers=bootstrap, group_id=group, client_id=f"query@{this_process()}") as consumer:
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    print("joined", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("is_gone", [False, True])
def test_the_end_waits_for_the_farewell_of_its_own_members_only(
    new_topic: NewTopic, new_name: Callable[[str], str], broker: BrokerProcess, admin: Admin, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, is_gone: bool,
) -> None:  # fmt: skip
    """Spark says that a query has ended before the process of its source has left the group. That process may also
    leave, and end, between the answer of the cluster and the look at the processes."""
    topic, group = new_topic(), new_name("group")
    status = PipelineStatus(
        "here", "a test", pid=os.getpid(), master="local", bootstrap=broker.bootstrap_servers
    )
    run = Run(PipelineState(tmp_path / "state", "here"), broker.bootstrap_servers)
    stranger = Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=new_name("other"), client_id="b@1.1.1"
    )
    with stranger, subprocess.Popen(
        [sys.executable, "-c", _SLOW_TO_LEAVE, broker.bootstrap_servers, topic, group],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as member:  # fmt: skip
        other = str(stranger.group_metadata().group_id)
        stranger.subscribe([topic])
        eventually(lambda: stranger.poll(0.1) or stranger.assignment(), "the stranger has joined")
        assert member.stdin is not None
        assert member.stdout is not None
        assert member.stdout.readline() == "joined\n"
        (described,) = admin.describe_groups(group)[group].members
        process = process_of(described.client_id)
        told: list[int] = []

        def look(name: str) -> bool:
            """The member is let go when the cluster has told of it once."""
            if name == process and not told:
                told.append(status.groups[group]["members"])
                member.stdin.write("\n")
                member.stdin.flush()
                if is_gone:
                    member.wait(60)
            return is_below(name)

        monkeypatch.setattr("kohort.spark.pipelines.run.is_below", look)
        watch = GroupWatch(run, [group, other])
        watch.wait_for_farewell(status)
        watch.close()
        assert told == [1]
        assert status.groups[group]["members"] == 0
        assert status.groups[other]["members"] == 1


def test_a_query_that_fails_is_told_with_its_reason(
    new_topic: NewTopic,
    produce: Callable[..., None],
    run_here: Callable[..., tuple[int, PipelineStatus, str]],
) -> None:
    topic = new_topic()
    produce(topic, range(3))

    def fail(frame: Any, batch_id: int) -> None:
        raise ValueError("the database is on fire")

    failing = pipeline_of(topic, None, lambda stream: stream.writeStream.foreachBatch(fail))
    code, status, shown = run_here(failing, once=True)
    assert (code, status.state) == (1, FAILED)
    assert status.error == "ValueError: the database is on fire"
    assert "here: failed: ValueError: the database is on fire" in shown


def test_an_error_in_the_function_is_told_with_its_line(
    new_topic: NewTopic, run_here: Callable[..., tuple[int, PipelineStatus, str]], tmp_path: Path
) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        f"topics = ['{new_topic()}']\n\n\ndef pipeline(stream):\n    return stream.select('no_column')\n"
    )
    with pytest.raises(PipelineError, match=r"wrong\.py line 5: AnalysisException: .*no_column"):
        run_here(load_file(file))


def test_a_function_that_returns_no_writer_is_told_what_to_return(
    new_topic: NewTopic, run_here: Callable[..., tuple[int, PipelineStatus, str]], tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match="the function returned DataFrame; it must return a writer"):
        run_here(pipeline_of(new_topic(), None, lambda stream: stream))
    status = PipelineState(tmp_path / "state", "here").read()
    assert status is not None
    assert status.state == FAILED


# --- the examples ---------------------------------------------------------------------------------------


@pytest.fixture
def run_example(
    spark: Any,
    broker: BrokerProcess,
    tmp_path: Path,
    new_topic: NewTopic,
    new_name: Callable[[str], str],
) -> Callable[..., None]:
    """Runs a file of examples/ over what is in its topics, which have other names here."""

    def run(name: str, topics: dict[str, str], **parameters: str) -> None:
        pipeline = load_file(EXAMPLES / name)
        streams = {stream: (topics[stream],) for stream in pipeline.streams}
        options = {"kafka.group.id": new_name("example")} if len(streams) == 1 else {}
        run = Run(PipelineState(tmp_path, "example"), broker.bootstrap_servers, options=options)
        for stream, topic in streams.items():
            pipeline.streams[stream] = topic
        if pipeline.module is not None:
            from pyspark import cloudpickle

            cloudpickle.register_pickle_by_value(pipeline.module)
        frames = {
            stream: spark.readStream.format("kohort").options(**given).load()
            for stream, given in stream_options(pipeline, run).items()
        }
        writer = pipeline.make(frames, {**pipeline.parameters, **parameters}, broker.bootstrap_servers)
        query = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)

    return run


@pytest.fixture
def send(broker: BrokerProcess) -> Callable[..., None]:
    """Records of JSON, each with its time."""

    def write(topic: str, *records: tuple[Any, int]) -> None:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for value, timestamp_ms in records:
                text = value if isinstance(value, str) else json.dumps(value)
                producer.send(topic, value=text, timestamp_ms=timestamp_ms)

    return write


def test_example_from_json(
    spark: Any,
    new_topic: NewTopic,
    send: Callable[..., None],
    run_example: Callable[..., None],
    tmp_path: Path,
) -> None:
    topic, out = new_topic(), str(tmp_path / "out")
    order = {"id": 1, "customer": "anna", "item": "tea", "amount": 2.5, "at": "2026-11-15T12:00:00Z"}
    send(topic, (order, NOON_MS), ("no json", NOON_MS))
    run_example("orders_json.py", {"stream": topic}, out=out)
    first, second = sorted(spark.read.parquet(out).collect(), key=lambda row: row.offset)
    assert (first.id, first.customer, first.amount, str(first.at)) == (1, "anna", 2.5, "2026-11-15 12:00:00")
    assert (second.id, second.offset) == (None, 1)


def test_example_watermark_and_window(
    spark: Any,
    new_topic: NewTopic,
    send: Callable[..., None],
    run_example: Callable[..., None],
    tmp_path: Path,
) -> None:
    topic, out = new_topic(), str(tmp_path / "out")
    orders = [({"item": "tea", "amount": number}, NOON_MS + number * 20_000) for number in range(6)]
    send(topic, *orders, ({"item": "tea", "amount": 0}, NOON_MS + 10 * MINUTE_MS))
    run_example("revenue_per_minute.py", {"stream": topic}, out=out)
    rows = sorted(spark.read.parquet(out).collect(), key=lambda row: row.start)
    # The last window is still open: the watermark has not passed it.
    assert [(row.item, row.orders, row.revenue) for row in rows] == [
        ("tea", 3, 0 + 1 + 2),
        ("tea", 3, 3 + 4 + 5),
    ]


def test_example_stream_stream_join(
    spark: Any, new_topic: NewTopic, send: Callable[..., None], run_example: Callable[..., None],
    read: Callable[..., Any], broker: BrokerProcess,
) -> None:  # fmt: skip
    orders, payments, paid = new_topic(), new_topic(), new_topic()
    send(orders, *(({"id": number, "amount": 10.0 * number}, NOON_MS) for number in (1, 2, 3)))
    send(
        payments,
        ({"order_id": 1, "paid": 10.0}, NOON_MS + MINUTE_MS),
        ({"order_id": 3, "paid": 1.0}, NOON_MS + 90 * MINUTE_MS),
    )
    run_example(
        "paid_orders.py",
        {"orders": orders, "payments": payments},
        bootstrap=broker.bootstrap_servers,
        topic=paid,
    )
    (row,) = read(subscribe=paid).collect()
    assert row.key == b"1"
    assert json.loads(row.value) | {"ordered_at": ""} == {
        "id": 1,
        "amount": 10.0,
        "paid": 10.0,
        "ordered_at": "",
    }


def test_example_sql(
    spark: Any,
    new_topic: NewTopic,
    send: Callable[..., None],
    run_example: Callable[..., None],
    tmp_path: Path,
) -> None:
    topic, out = new_topic(), str(tmp_path / "out")
    send(topic, *(({"id": number, "customer": "c", "amount": 60.0 * number}, NOON_MS) for number in range(4)))
    run_example("large_orders.sql", {"stream": topic}, out=out, least="100")
    assert sorted((row.id, row.amount) for row in spark.read.parquet(out).collect()) == [
        (2, 120.0),
        (3, 180.0),
    ]


def test_sql_to_another_topic(
    new_topic: NewTopic, produce: Callable[..., None], read: Callable[..., Any],
    run_here: Callable[..., tuple[int, PipelineStatus, str]],
) -> None:  # fmt: skip
    topic, other = new_topic(), new_topic()
    produce(topic, range(5), key=b"k")
    text = f"""
        -- topics: {topic}
        -- group:
        -- option startingOffsets: earliest
        -- sink: kohort {other}
        -- sink option kafka.linger.ms: 1
        -- mode: append
        SELECT key, concat('number ', CAST(value AS STRING)) AS value FROM stream"""
    code, status, shown = run_here(from_sql("here", "here.sql", text), once=True)
    assert code == 0, shown
    assert (code, status.rows, status.groups) == (0, 5, {})
    assert [(row.key, row.value) for row in read(subscribe=other).collect()] == [
        (b"k", b"number %d" % number) for number in range(5)
    ]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("-- sink: parquet", "-- sink: parquet needs a folder"),
        ("-- sink: kohort", "-- sink: kohort needs a topic"),
        ("-- sink: console ./folder", "-- sink: console takes no target"),
        ("-- sink: noop\n-- mode: upsert", "mode is append, update, complete, not upsert"),
        ("-- sink: parquet ${out}", "there is no parameter out"),
    ],
)
def test_a_sink_that_is_wrong_in_sql_is_told_before_the_query_is_started(
    header: str, said: str, new_topic: NewTopic, run_here: Callable[..., tuple[int, PipelineStatus, str]]
) -> None:
    pipeline = from_sql("here", "here.sql", f"-- topics: t\n{header}\nSELECT value FROM stream")
    with pytest.raises(PipelineError, match=re.escape(said)):
        run_here(pipeline)
