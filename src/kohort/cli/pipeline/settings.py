"""What the commands of `kohort pipeline` share: `--set`, `--state`, and Spark that must be there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from kohort.settings import SettingError
from kohort.spark.pipelines.definition import PipelineError
from kohort.spark.versions import UnsupportedPySpark, check_pyspark

F = TypeVar("F", bound=Callable[..., Any])


def state_option(command: F) -> F:
    """Adds `--state`, the directory that holds what is known of pipelines."""
    return click.option(
        "--state",
        metavar="DIR",
        help="Default: the user's directory for state, ~/.local/state/kohort/pipelines on Linux.",
    )(command)


def set_option(command: F) -> F:
    """Adds `--set`, which a command takes as `settings`."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A parameter of the pipeline, an option of the source, or a setting of Spark (spark.…).",
    )(command)


@contextmanager
def spark_is_needed() -> Iterator[None]:
    """Turns a PySpark that is missing or too old into a PipelineError that says what to install."""
    try:
        check_pyspark()
        yield
    except UnsupportedPySpark as unsupported:
        raise PipelineError(str(unsupported)) from None
    except ImportError as missing:
        advice = 'pipelines run on Spark: pip install "kohort[spark]"'
        raise PipelineError(str(missing) if missing.name == "psutil" else advice) from None


def pairs(given: Iterable[str]) -> dict[str, str]:
    """Reads what `--set` was given, each as NAME=VALUE."""
    found = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"--set {pair}: write it as NAME=VALUE")
        found[name.strip()] = value
    return found
