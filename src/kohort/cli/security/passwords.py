"""Takes a new password from a person or a script, but not from the command line, which everybody can read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from kohort.settings import SettingError


def password_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--password-stdin` and `--password-file`; the command takes `read_password`, a function of a user's name."""

    @click.option("--password-stdin", is_flag=True, help="Take the password from the first line of stdin.")
    @click.option(
        "--password-file",
        metavar="FILE",
        type=click.Path(),
        help="Take the password from the first line of a file. Without these two it is asked for.",
    )
    @wraps(command)
    def with_password(
        *arguments: Any, password_stdin: bool, password_file: str | None, **keywords: Any
    ) -> Any:
        if password_stdin and password_file is not None:
            raise click.UsageError("--password-stdin and --password-file: say one of them")

        def read_password(user: str) -> str:
            if password_file is not None:
                return _of_file(Path(password_file))
            if password_stdin:
                return _first_line(sys.stdin.readline(), "stdin")
            return _asked(user)

        return command(*arguments, read_password=read_password, **keywords)

    return with_password


def _of_file(path: Path) -> str:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingError(f"cannot read {path}: it is not a text in UTF-8") from None
    return _first_line(text, str(path))


def _first_line(text: str, where: str) -> str:
    lines = text.splitlines()
    if not lines or not lines[0]:
        raise SettingError(f"the first line of {where} is empty: write the password there")
    return lines[0]


def _asked(user: str) -> str:
    """Asks twice, without an echo."""
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"the password of {user}: nobody can be asked here. Say --password-stdin or --password-file FILE"
        )
    answer: str = click.prompt(
        f"Password of {user}", hide_input=True, confirmation_prompt="The same again", err=True
    )
    return answer
