"""Runs a pipeline: starts Spark and the query, shows its progress, and stops it in order.

The runner adds nothing that a user could not write: it reads `format("kohort")`, gives the writer a checkpoint, starts
it, tells how it goes, and stops it in order on SIGTERM and Ctrl-C. The next start goes on from the checkpoint.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from kohort.client.admin import Admin
from kohort.client.admin_types import MemberDescription
from kohort.spark.driver.commit_only import STOP_TIMEOUT_S
from kohort.spark.driver.process_identity import is_below, process_of
from kohort.spark.options import read_source_options
from kohort.spark.pipelines.definition import Pipeline, PipelineError, Sink, line_in
from kohort.spark.pipelines.progress import Terminal, batch_line, idle_line, note, read_progress
from kohort.spark.pipelines.sinks import TOPICS
from kohort.spark.pipelines.state import FAILED, RUNNING, STOPPED, STOPPING, PipelineState, PipelineStatus
from kohort.wire.errors import KohortError

if TYPE_CHECKING:
    from kohort.exposition import MetricsServer

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_LOOK_S = 0.25  # between two looks at the query
_GROUP_S = 2.0  # between two looks at its groups
_ASK_S = 5.0
_LEAVING_S = 0.05
_FAREWELL_S = 6 * STOP_TIMEOUT_S  # a source's last commit and its leave have four such times of their own


@dataclass(frozen=True, slots=True)
class Run:
    """The arguments of one run of a pipeline."""

    state: PipelineState
    bootstrap: str = DEFAULT_BOOTSTRAP
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Settings of Kafka for all streams, without the prefix `kafka.`: mostly security."""
    master: str = "local[*]"
    once: bool = False
    """Whether to read what is there and end."""
    checkpoint: str | None = None
    metrics: str | None = None
    """Where they are served: a port, or HOST:PORT."""
    options: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)


# --- what is to be run --------------------------------------------------------------------------------


def sort_settings(
    pipeline: Pipeline, given: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Sorts what `--set` says into options of the source, parameters (which come first) and settings of Spark."""
    options: dict[str, str] = {}
    parameters: dict[str, str] = {}
    spark: dict[str, str] = {}
    for name, value in given.items():
        if name in pipeline.parameters:
            parameters[name] = value
        elif name.startswith("spark."):
            spark[name] = value
        else:
            options[name] = value
    return options, parameters, spark


def stream_options(pipeline: Pipeline, run: Run) -> dict[str, dict[str, str]]:
    """The options of each stream's source, checked before a JVM is started for them."""
    found: dict[str, dict[str, str]] = {}
    for stream, topics in pipeline.streams.items():
        options = {"kafka.bootstrap.servers": run.bootstrap}
        options |= {f"kafka.{name}": value for name, value in run.kafka.items()}
        group = pipeline.group_of(stream)
        if group is not None:
            options["kafka.group.id"] = group
        if topics:
            options["subscribe"] = ",".join(topics)
        spelled = {name.lower(): name for name in options}
        for name, value in [*pipeline.options.items(), *run.options.items()]:
            # Names ignore case: the later value wins, however its name is spelled.
            options.pop(spelled.pop(name.lower(), name), None)
            spelled[name.lower()] = name
            options[name] = value
        read_source_options(options, streaming=True)
        found[stream] = options
    return found


# --- running it ---------------------------------------------------------------------------------------


def run_pipeline(pipeline: Pipeline, run: Run, terminal: Terminal) -> int:
    """Runs until it ends, is stopped or fails; 0 if it ended in order. A second one of the same name is refused."""
    options = stream_options(pipeline, run)
    parameters = {**pipeline.parameters, **run.parameters}
    sink = "" if pipeline.sink is None else str(pipeline.sink.filled_in(parameters))
    run.state.acquire()
    status = PipelineStatus(
        pipeline.name, pipeline.origin, pid=os.getpid(), master=run.master, bootstrap=run.bootstrap
    )
    status.checkpoint = run.checkpoint or str(run.state.checkpoint)
    status.sink = sink
    status.started_ms = _now_ms()
    try:
        with _Runner(pipeline, run, status, terminal) as runner:
            return runner.run(options)
    except BaseException as error:
        status.state = FAILED
        status.error = str(error) or type(error).__name__
        raise
    finally:
        status.stopped_ms, status.metrics = _now_ms(), None
        _save(run.state, status)
        run.state.release()


def _serve_metrics(where: str, status: PipelineStatus) -> MetricsServer:
    # Imported here, so that a start without metrics does not wait for it.
    from kohort.exposition import MetricsServer, metrics_address, registry_of
    from kohort.spark.pipelines.metrics import pipeline_health, pipeline_samples

    registry = registry_of(lambda: pipeline_samples(status, _now_ms()))
    return MetricsServer(metrics_address(where), registry, readyz=lambda: pipeline_health(status))


class _Runner:
    """One run. Use it in a `with`, which frees what it has opened."""

    def __init__(self, pipeline: Pipeline, run: Run, status: PipelineStatus, terminal: Terminal) -> None:
        self._pipeline, self._run, self._status, self._terminal = pipeline, run, status, terminal
        self._stop = threading.Event()
        self._seen: tuple[int, str] = (-1, "")
        self._parameters = {**pipeline.parameters, **run.parameters}
        groups = {pipeline.group_of(stream) for stream in pipeline.streams}
        self._groups = GroupWatch(run, sorted(group for group in groups if group is not None))
        self._metrics: MetricsServer | None = None
        self._spark: Any = None
        self._owns_spark = True

    def __enter__(self) -> _Runner:
        return self

    def __exit__(self, *_: object) -> None:
        if self._metrics is not None:
            self._metrics.close()
        self._groups.close()
        if self._spark is not None and self._owns_spark:
            self._spark.stop()

    def run(self, options: Mapping[str, Mapping[str, str]]) -> int:
        if self._run.metrics is not None:
            self._metrics = _serve_metrics(self._run.metrics, self._status)
            self._status.metrics = self._metrics.address
            self._terminal.line(f"metrics: {self._metrics.address}")
        self._terminal.line(
            f"{self._pipeline.name}: starting Spark ({self._run.master}); checkpoint {self._status.checkpoint}"
        )
        _save(self._run.state, self._status)
        with _told_to_stop(self._stop):
            try:
                self._spark, self._owns_spark = start_spark(self._pipeline, self._run)
            except Exception as error:
                log = self._run.state.folder / "spark.log"
                raise PipelineError(
                    f"Spark did not start: {short_reason(str(error))} (its log: {log})"
                ) from error
            # Again, as Spark sets a handler of its own; within the first, so that a signal never just kills.
            with _told_to_stop(self._stop):
                query = self._start(options)
                if query is not None:
                    self._follow(query)
                    return self._end(query)
        self._status.state = STOPPED
        return 0

    def _start(self, options: Mapping[str, Mapping[str, str]]) -> Any:
        if self._stop.is_set():
            return None
        streams = {
            stream: self._spark.readStream.format("kohort").options(**given).load()
            for stream, given in options.items()
        }
        writer = self._made(streams)
        if not hasattr(writer, "start"):
            raise PipelineError(
                f"{self._pipeline.origin}: the function returned {type(writer).__name__}; it must return a writer that "
                "is not started: `return frame.writeStream.format(…)`"
            )
        writer = writer.option("checkpointLocation", self._status.checkpoint)
        for name, value in topic_settings(self._pipeline.sink, self._parameters, self._run).items():
            writer = writer.option(name, value)
        if self._run.once:
            writer = writer.trigger(availableNow=True)
        with told_of(self._pipeline):
            return writer.start()

    def _made(self, streams: dict[str, Any]) -> Any:
        with told_of(self._pipeline):
            return self._pipeline.make(streams, self._parameters, self._run.bootstrap)

    def _follow(self, query: Any) -> None:
        """Shows the progress until the query ends or is told to."""
        self._status.state = RUNNING
        self._terminal.line(f"{self._pipeline.name}: running; Ctrl-C or `kohort pipeline stop` ends it")
        saved_s = 0.0
        while query.isActive and not self._stop.is_set():
            told = self._tell(query)
            now_s = time.monotonic()
            if told or now_s - saved_s >= _GROUP_S:
                self._groups.look(self._status)
                _save(self._run.state, self._status)
                saved_s = now_s
            if not told:
                self._terminal.now(idle_line(self._status))
            self._stop.wait(_LOOK_S)

    def _tell(self, query: Any) -> bool:
        """Shows the batches that are new since the last look; returns whether there were any."""
        last = query.lastProgress
        if last is None or _mark(last) == self._seen:
            return False
        told = False
        for report in query.recentProgress:
            if _mark(report) <= self._seen:
                continue
            self._seen = _mark(report)
            batch = read_progress(report)
            if note(self._status, batch):
                self._terminal.line(batch_line(batch, self._status))
                told = True
        return told

    def _end(self, query: Any) -> int:
        if query.isActive:
            self._status.state = STOPPING
            _save(self._run.state, self._status)
            self._terminal.line(f"{self._pipeline.name}: stopping")
            query.stop()
        self._tell(query)
        failure = query.exception()
        if failure is not None:
            return self._failed(str(failure))
        if self._pipeline.finish is not None:
            self._terminal.now("writing the tables and the report")
            self._pipeline.finish(self._spark, {**self._parameters, **_connection(self._run)})
        self._groups.wait_for_farewell(self._status)
        self._status.state = STOPPED
        self._terminal.line(
            f"{self._pipeline.name}: done, {self._status.rows:,} rows; the next start goes on from the checkpoint"
        )
        return 0

    def _failed(self, text: str) -> int:
        details = self._run.state.folder / "error.txt"
        details.write_text(text, "utf-8", "backslashreplace")
        self._status.state = FAILED
        self._status.error = short_reason(text)
        self._terminal.line(f"{self._pipeline.name}: failed: {self._status.error}\n  (all of it: {details})")
        return 1


@contextmanager
def told_of(pipeline: Pipeline) -> Iterator[None]:
    """Turns an error of Spark or of the user's function into a PipelineError, with the line of the pipeline's file."""
    try:
        yield
    except KohortError:
        raise
    except Exception as error:
        origin, text = pipeline.origin, str(error)
        line = line_in(error, origin) or (sql_line(text) if pipeline.sink is not None else "")
        what = without_place(short_reason(text)) if text else ""
        raise PipelineError(f"{origin}{line}: {type(error).__name__}: {what}") from error


def sql_line(text: str) -> str:
    """Returns the line of a query that Spark complains of, as ` line 7`: it has the numbers of the pipeline's file."""
    found = re.search(r"\bline (\d+),? pos \d+", text)
    return f" line {found[1]}" if found is not None else ""


def without_place(text: str) -> str:
    """Returns a complaint of Spark without where in the query it is, and without its code of SQL."""
    return re.sub(r"\s*SQLSTATE: \w+|;? ?\(?\bline \d+,? pos \d+\)?;?", "", text).rstrip(" ;")


def topic_settings(sink: Sink | None, parameters: Mapping[str, str], run: Run) -> dict[str, str]:
    """Returns the settings of `--config` for a sink that is a topic of the same cluster and does not say its own."""
    if sink is None or sink.form not in TOPICS:
        return {}
    said = {name.lower() for name in sink.filled_in(parameters).options}
    if "kafka.bootstrap.servers" in said:
        return {}
    return {
        f"kafka.{name}": value for name, value in run.kafka.items() if f"kafka.{name}".lower() not in said
    }


def start_spark(pipeline: Pipeline, run: Run) -> tuple[Any, bool]:
    """A SparkSession, on loopback if the master is local, and whether it is new, so that the caller has to stop it."""
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    from kohort.spark.sessions import JAVA_OPTIONS, builder

    if pipeline.module is not None:
        # Executors cannot import the user's file: its functions travel with the job.
        cloudpickle.register_pickle_by_value(pipeline.module)  # type: ignore[no-untyped-call]
    there = SparkSession.getActiveSession()
    if there is not None:
        return there, False
    settings = {"spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false", **run.spark}
    settings[JAVA_OPTIONS] = f"{_log_to_file(run.state.folder)} {settings.get(JAVA_OPTIONS, '')}".strip()
    return builder(f"kohort {pipeline.name}", run.master, **settings).getOrCreate(), True


def _log_to_file(folder: Path) -> str:
    """The option of Java that sends Spark's log to STATE/NAME/spark.log: the terminal shows the progress."""
    text = (
        "rootLogger.level = warn\nrootLogger.appenderRef.file.ref = file\n"
        "appender.file.type = File\nappender.file.name = file\nappender.file.append = false\n"
        f"appender.file.fileName = {(folder / 'spark.log').resolve()}\n"
        "appender.file.layout.type = PatternLayout\n"
        "appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex\n"
    )
    path = folder / "log4j2.properties"
    path.write_text(text)
    return f"-Dlog4j2.configurationFile={path.resolve().as_uri()}"


@contextmanager
def _told_to_stop(stop: threading.Event) -> Iterator[None]:
    """Lets SIGTERM and Ctrl-C set the event. To be used again after Spark's start, which sets a handler of its own."""

    def told(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C ends it at once
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, told) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class GroupWatch:
    """Asks now and then for the state of a pipeline's groups; without an answer that is `unknown`, with the reason."""

    def __init__(self, run: Run, groups: list[str]) -> None:
        self._settings = {"bootstrap.servers": run.bootstrap, **run.kafka}
        self._groups = groups
        self._admin: Admin | None = None
        self._asked_s = 0.0

    def look(self, status: PipelineStatus) -> None:
        if time.monotonic() - self._asked_s >= _GROUP_S:
            self._ask(status)

    def wait_for_farewell(self, status: PipelineStatus) -> None:
        """Waits until the members have left: Spark does not wait for the process of a source when a query has ended."""
        give_up_s = time.monotonic() + _FAREWELL_S
        while members := self._ask(status, 2 * _ASK_S):
            if not any(is_below(process_of(member.client_id)) for member in members):
                self._ask(status, 2 * _ASK_S)  # a process that is gone by now may have left since the answer
                return
            if time.monotonic() > give_up_s:
                return
            time.sleep(_LEAVING_S)

    def _ask(self, status: PipelineStatus, timeout_s: float = _ASK_S) -> list[MemberDescription]:
        """Writes the state of the groups into the status; returns their members."""
        members: list[MemberDescription] = []
        groups: dict[str, dict[str, Any]] = {}
        if not self._groups:
            return members
        self._asked_s = time.monotonic()
        try:
            if self._admin is None:
                self._admin = Admin({"client.id": "kohort-pipeline", **self._settings})
            for group, found in self._admin.describe_groups(*self._groups, timeout=timeout_s).items():
                groups[group] = {"state": found.state, "members": len(found.members)}
                members += found.members
        except KohortError as error:
            for group in self._groups:
                groups[group] = {"state": "unknown", "members": None, "why": str(error)}
        status.groups = {**status.groups, **groups}  # one assignment: the metrics server may be reading it
        return members

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()


def short_reason(text: str) -> str:
    """The line of a long text of Spark's that says what was wrong: the end of the Python traceback, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    for line in lines[starts[0] + 1 :] if starts else ():
        if "PythonException: " not in line and re.match(r"(?:[a-z_]\w*\.)*[A-Z]\w*: ", line):
            return line.removeprefix(f"{PipelineError.__module__}.{PipelineError.__name__}: ")
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        return lines[1].removeprefix(": ")  # the first line is of Py4J, and names an object of its own
    return lines[0] if lines else "the query failed without a message"


def _connection(run: Run) -> dict[str, str]:
    return {"bootstrap": run.bootstrap, **{f"kafka.{name}": value for name, value in run.kafka.items()}}


def _mark(report: Any) -> tuple[int, str]:
    """Orders the reports of one query: an idle trigger has the number of the batch that will come."""
    return int(report["batchId"]), str(report["timestamp"])


def _save(state: PipelineState, status: PipelineStatus) -> None:
    status.updated_ms = _now_ms()
    state.write(status)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
