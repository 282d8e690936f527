"""The command `kohort`: runs a command and turns its end into an exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence

from kohort.cli.frame import COMPLETION
from kohort.cli.frame.collector import collector_off
from kohort.errors import KohortError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    _show_what_can_be_shown()
    try:
        code = _run(sys.argv[1:] if arguments is None else list(arguments))
        if sys.stdout is not None:
            sys.stdout.flush()  # here a closed pipe can still be distinguished from a fault
        return code
    except KohortError as error:
        from kohort.cli.frame.exit_codes import code_of

        print(f"kohort: {error}", file=sys.stderr)
        return code_of(error)
    except BrokenPipeError:
        return _reader_is_gone()
    except OSError as error:
        print(f"kohort: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(arguments: list[str]) -> int:
    """Runs a command. Not by click's `main`, which would turn a closed pipe into a fault."""
    with collector_off():
        import click

        from kohort.cli.commands import command

    if COMPLETION in os.environ:  # a shell asks what could come next; this ends the process
        command.main(arguments, prog_name="kohort", complete_var=COMPLETION)
    try:
        with command.make_context("kohort", arguments) as context:
            return int(command.invoke(context) or 0)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except click.Abort:
        return 130


def _show_what_can_be_shown() -> None:
    """Shows a character that the terminal's encoding does not have as ?, instead of failing. stderr never fails."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _reader_is_gone() -> int:
    """Ends silently, as a program that SIGPIPE kills: the reader of our output has closed the pipe (`| head`).

    Python writes once more at its end what stdout holds; that goes to the null device.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main())
