"""Makes a SparkSession in which `format("kohort")` works and is fast: `kohort.spark.session()` and `builder()`.

Spark takes its Java and the Python of its workers from the environment, and by default it takes `python3` from PATH,
which in an environment that is not activated is another Python, one without Kohort. What is set here is what a user
would set by hand. Whatever the user has set already (PYSPARK_PYTHON, JAVA_HOME, any setting of Spark) is kept.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
import warnings
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.spark import advice
from kohort.spark.java import use_java
from kohort.spark.versions import check_pyspark
from kohort.spark.worker_python import as_command, temporary_folder, use_python
from kohort.wire.errors import KohortError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
REDACTION = "spark.sql.redaction.options.regex"
HIDDEN = "jaas[.]config|oauthbearer[.]config|PRIVATE KEY"
"""Names and values of options that Spark must not show in plans and event logs, besides those with passwords."""
_OF_SQL = {PUSHDOWN: "true", REDACTION: f"(?i)url|{HIDDEN}"}
"""What every session gets; `url` is Spark's own default."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
WORKER_PYTHON, DRIVER_PYTHON = "spark.pyspark.python", "spark.pyspark.driver.python"
_WHY = {UNIX_SOCKETS: "each task starts about 40 ms later over TCP"}
"""Settings of ours that are fixed when Spark starts, and what is different without them."""
_DEFAULTS = {UNIX_SOCKETS: "false"}


class SessionError(KohortError, ValueError):
    """The arguments of `session` or `builder` cannot be used; the text says what to write."""

    what_to_do = "Write the argument as the text says."


def session(
    app_name: str | None = None, master: str | None = None, *, remote: str | None = None, **settings: object
) -> SparkSession:
    """Returns a SparkSession that is set up for `format("kohort")`: a new one, or the one that runs.

        spark = kohort.spark.session("orders", spark_sql_shuffle_partitions=4)

    `master` is `local[*]` unless spark-submit has chosen one, which stays. `remote` is the address of a Spark Connect
    server (`sc://HOST`); then nothing of Java is needed here. Settings of Spark are given with underscores for dots, or
    by their names: `**{"spark.executor.memory": "4g"}`. Of a session that runs already, what was fixed at its start
    cannot be changed: one warning for each setting that differs says so.
    """
    given = _settings(settings)
    there = None if _is_remote(remote, os.environ) else _running_session()
    if there is not None:
        _adopt(there, master, given)
        return there
    made = builder(app_name, master, remote=remote, **given).getOrCreate()
    _register_if_unknown(made)
    return made


def builder(
    app_name: str | None = None, master: str | None = None, *, remote: str | None = None, **settings: object
) -> SparkSession.Builder:
    """Returns PySpark's `SparkSession.builder`, set up as `session` does it, to go on configuring.

    It also sets the variables of this process that Spark reads when it starts: JAVA_HOME, PYSPARK_PYTHON,
    PYSPARK_DRIVER_PYTHON and, for local masters, SPARK_LOCAL_IP. Those that are set stay as they are.
    """
    check_pyspark()
    from pyspark.sql import SparkSession

    given = _settings(settings)
    if master is not None and remote is not None:
        raise SessionError("give a master or a remote, not both: a Spark Connect server has its own master")
    advice.session_is_ours()
    made = SparkSession.Builder()
    if app_name is not None:
        made = made.appName(app_name)
    if _is_remote(remote, os.environ):
        chosen = {**_OF_SQL, **given}
        made = made.remote(remote) if remote is not None else made
    else:
        master = _master(remote or master, os.environ)
        chosen = prepare(master, given, os.environ)
        if remote is not None:
            made = made.remote(remote)
        elif submitted_master(os.environ) is None:
            made = made.master(master)
    for name, value in chosen.items():
        made = made.config(name, value)
    return made


def prepare(master: str, given: Mapping[str, str], environ: MutableMapping[str, str]) -> dict[str, str]:
    """Sets the variables that a Spark of this master reads when it starts; returns the settings of its session."""
    from kohort.spark.pyspark_api import session_settings

    if "PYSPARK_GATEWAY_PORT" not in environ:  # else spark-submit has started Java already
        use_java(environ)
    is_local = master.startswith("local")
    _choose_python(is_local, given, environ)
    settings = {**_OF_SQL, **session_settings()}
    if not hasattr(socket, "AF_UNIX"):
        settings.pop(UNIX_SOCKETS, None)
    if is_local:
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.showConsoleProgress": "false",
            # Spark's default of 200 is for clusters: with state, each partition is a file or more in every batch.
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        }
    if master.startswith("local-cluster"):
        import pyspark

        # Spark's own scripts would set these; without them its workers do not find their classes.
        environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
        environ.setdefault("SPARK_SCALA_VERSION", "2.13")
    settings |= given
    if is_local and not _has_log_settings(settings, environ):
        settings[JAVA_OPTIONS] = f"{_quiet_log()} {settings.get(JAVA_OPTIONS, '')}".strip()
    return settings


def submitted_master(environ: Mapping[str, str]) -> str | None:
    """The master that spark-submit has chosen, or that PYSPARK_SUBMIT_ARGS names; None if it is ours to choose."""
    if "PYSPARK_GATEWAY_PORT" in environ:
        return environ.get("MASTER", "local[*]")
    words = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for number, word in enumerate(words):
        if word == "--master" and number + 1 < len(words):
            return words[number + 1]
        if word.startswith("--master="):
            return word.partition("=")[2]
    return None


# --- arguments ----------------------------------------------------------------------------------------


def _settings(given: Mapping[str, object]) -> dict[str, str]:
    """The settings by Spark's names, as texts. SessionError for what is no setting of Spark."""
    found: dict[str, str] = {}
    for name, value in given.items():
        spelled = name if "." in name else name.replace("_", ".")
        if not spelled.startswith("spark."):
            raise SessionError(
                f"{name} is no setting of Spark: their names begin with spark., given with underscores for dots "
                '(spark_executor_memory="4g") or as they are (**{"spark.executor.memory": "4g"})'
            )
        if spelled in ("spark.master", "spark.remote", "spark.app.name"):
            word = {"spark.master": "master", "spark.remote": "remote", "spark.app.name": "app_name"}[spelled]
            raise SessionError(f"give {spelled} as the argument {word}")
        if value is None:
            raise SessionError(f"{spelled} is None; leave it out to have Spark's default")
        found[spelled] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _is_remote(remote: str | None, environ: Mapping[str, str]) -> bool:
    """Whether the session is one of Spark Connect on a server that runs elsewhere."""
    from pyspark.util import is_remote_only

    address = remote if remote is not None else environ.get("SPARK_REMOTE")
    return is_remote_only() or (address is not None and not address.startswith("local"))


def _master(asked: str | None, environ: Mapping[str, str]) -> str:
    submitted = submitted_master(environ)
    if submitted is not None and asked is not None and asked != submitted:
        _warn(f"the master stays {submitted}, which spark-submit has chosen; {asked} is not used")
    return submitted or asked or LOCAL


# --- what a new session gets --------------------------------------------------------------------------


def _choose_python(is_local: bool, given: Mapping[str, str], environ: MutableMapping[str, str]) -> None:
    # Spark itself reads these two settings in spark-submit only.
    for setting, name in ((WORKER_PYTHON, "PYSPARK_PYTHON"), (DRIVER_PYTHON, "PYSPARK_DRIVER_PYTHON")):
        if setting in given:
            environ[name] = given[setting]
    if advice.starts_notebooks(environ.get("PYSPARK_DRIVER_PYTHON", "")):
        # It is for the command `pyspark`. Spark's JVM would look for data sources with it, and find none.
        del environ["PYSPARK_DRIVER_PYTHON"]
    if is_local:
        use_python(environ)
    elif "PYSPARK_PYTHON" not in environ and not advice.spark_starts_this_python(environ):
        environ["PYSPARK_PYTHON"] = as_command(sys.executable, environ)


def _has_log_settings(settings: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Whether the user has said where Spark's log goes."""
    if "log4j" in settings.get(JAVA_OPTIONS, "") or "log4j" in environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return True
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (str(Path(home, "conf")) if home else None)
    return folder is not None and any(Path(folder).glob("log4j2.*"))


def _quiet_log() -> str:
    """The option of Java for a log of warnings on stderr, without the lines that every start of Spark prints."""
    path = temporary_folder() / "log4j2.properties"
    path.write_text(
        "rootLogger.level = warn\nrootLogger.appenderRef.console.ref = console\n"
        "appender.console.type = Console\nappender.console.name = console\nappender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n"
        "logger.hadoop.name = org.apache.hadoop.util.NativeCodeLoader\nlogger.hadoop.level = error\n"
    )
    return f"-Dlog4j2.configurationFile={path.as_uri()}"


# --- a session that runs already ----------------------------------------------------------------------


def _running_session() -> SparkSession | None:
    """The session of this process, as PySpark's builder would return it."""
    from pyspark.core.context import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _adopt(there: SparkSession, master: str | None, given: Mapping[str, str]) -> None:
    """Sets what can still be set, and warns of the rest."""
    context = there.sparkContext
    if master is not None and master != context.master:
        _warn(f"a session runs already, with the master {context.master} and not {master}: {_STOP}")
    is_local = str(context.master).startswith("local")
    ours = {UNIX_SOCKETS: "true"} if is_local and hasattr(socket, "AF_UNIX") else {}
    redacted = _setting_of(there, REDACTION) or ""
    if HIDDEN not in redacted:
        there.conf.set(REDACTION, "|".join(filter(None, (redacted, HIDDEN))))
    for name, wanted in {PUSHDOWN: "true", **ours, **given}.items():
        now = _setting_of(there, name)
        if str(now).lower() == wanted.lower():
            continue
        if name.startswith("spark.sql.") and there.conf.isModifiable(name):
            there.conf.set(name, wanted)
            continue
        why = f", and {_WHY[name]}" if name in _WHY and name not in given else ""
        has = f"has {name}={now}" if now is not None else f"was started without {name}={wanted}"
        _warn(f"a session runs already, which {has}{why}: {_STOP}")
    advice.session_is_ours()
    for line in advice.objections_to_running(context):
        _warn(line)


def _setting_of(there: SparkSession, name: str) -> str | None:
    """What a setting is now: that of SQL with its default, any other as the session was started."""
    if name.startswith("spark.sql."):
        try:
            return there.conf.get(name)
        except Exception:  # one without a default that was not set
            return None
    return there.sparkContext.getConf().get(name, _DEFAULTS.get(name))


_STOP = "stop it (spark.stop()) before kohort.spark.session() to change that"


def _register_if_unknown(made: Any) -> None:
    """Makes the source known to a JVM that looks for sources with another Python than its workers.

    With spark-submit the JVM is there before this process, and reads its own variables.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ or not hasattr(made, "_jvm"):
        return
    looks_with = made._jvm.org.apache.spark.api.python.PythonUtils.defaultPythonExec()
    if looks_with != made.sparkContext.pythonExec:
        from kohort.spark.source import KohortDataSource

        made.dataSource.register(KohortDataSource)


def _warn(text: str) -> None:
    warnings.warn(text, advice.SparkSetupWarning, stacklevel=4)
