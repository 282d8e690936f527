"""`kohort top`: shows groups, lag and rates, again and again."""

from __future__ import annotations

import json
import sys
import time

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_group
from kohort.cli.frame.output import json_option, print_json, print_table
from kohort.cli.top.looking import LookingThread
from kohort.cli.top.rows import SORTS, TITLES, RowChoice
from kohort.client.errors import TimedOut
from kohort.insight.health import Health

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Assigning", "Reconciling")


@click.command(epilog="Example: kohort top --sort age --health stall --health stop")
@click.argument("search", metavar="[TEXT]", default="", shell_complete=complete_group)
@cluster_options
@click.option(
    "--sort",
    type=click.Choice(list(SORTS)),
    default="lag",
    show_default=True,
    help="The order of the groups.",
)
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only groups in this state; may be given several times.",
)
@click.option(
    "--health",
    "healths",
    multiple=True,
    type=click.Choice([each.value for each in Health], case_sensitive=False),
    help="Only groups of this health; may be given several times.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    help="Seconds from one look at the cluster to the next.",
)
@click.option("--seconds", type=click.FloatRange(min=0), help="End after this time.")
@click.option(
    "--once",
    is_flag=True,
    help="Look twice, --interval apart, print what is found and what it changes, and end.",
)
@json_option
def command(
    cluster: ClusterOptions,
    search: str,
    sort: str,
    reverse: bool,
    states: tuple[str, ...],
    healths: tuple[str, ...],
    interval: float,
    seconds: float | None,
    once: bool,
    as_json: bool,
) -> int:
    """Show groups with state, health, lag and rates, live; those whose names hold TEXT.

    On a terminal keys change order and search (s, r, /, n, p), and q quits. Elsewhere a table is printed now and then.
    """
    choice = RowChoice(
        search, tuple(each.lower() for each in states), tuple(each.lower() for each in healths), sort, reverse
    )
    with cluster.connect() as admin:
        looking = LookingThread(admin, interval)
        looking.start()
        try:
            if once:
                return _once(looking, choice, interval, as_json)
            if as_json or not sys.stdout.isatty():
                return _print_again_and_again(looking, choice, seconds, as_json)
            from kohort.cli.top.screen import Screen  # rich takes a while to load

            Screen(looking, choice, cluster.settings()["bootstrap.servers"]).run(seconds)
            return 0
        finally:
            looking.stop()


def _once(looking: LookingThread, choice: RowChoice, interval_s: float, as_json: bool) -> int:
    patience_s = 60 + 2 * interval_s
    is_done = looking.wait_for(2, patience_s)
    with looking.lock:
        if not is_done or looking.trends.latest is None:
            raise TimedOut(f"the cluster does not answer: {looking.trouble or 'the look takes too long'}")
        if as_json:
            print_json(_as_json(looking, choice))
        else:
            _print_rows(looking, choice)
    return 0


def _print_again_and_again(
    looking: LookingThread, choice: RowChoice, seconds: float | None, as_json: bool
) -> int:
    """Prints after each look. That the cluster is away, and that it is back, is told once, on stderr."""
    end_s = time.monotonic() + (float("inf") if seconds is None else seconds)
    attempts, told_away = 0, False
    while looking.is_alive() and (left_s := end_s - time.monotonic()) > 0:
        if not looking.wait_for(attempts + 1, min(1.0, left_s)):
            continue
        attempts = looking.attempts
        is_away = looking.away_since_s is not None
        if is_away != told_away:
            told_away = is_away
            text = f"no answer: {looking.trouble}; still trying" if is_away else "the cluster answers again"
            print(f"kohort: {_now()} {text}", file=sys.stderr, flush=True)
        if not is_away:
            with looking.lock:
                if as_json:
                    print(json.dumps(_as_json(looking, choice), ensure_ascii=False), flush=True)
                else:
                    print(f"--- {_now()}")
                    _print_rows(looking, choice)
            sys.stdout.flush()
    return 0


def _print_rows(looking: LookingThread, choice: RowChoice) -> None:
    print_table(TITLES, [row.cells() for row in choice.rows(looking.trends)])
    assert looking.trends.latest is not None
    for problem in looking.trends.latest.problems:
        print(f"kohort: {problem}", file=sys.stderr)


def _as_json(looking: LookingThread, choice: RowChoice) -> dict[str, object]:
    sample = looking.trends.latest
    assert sample is not None
    rows = [row.to_json() for row in choice.rows(looking.trends)]
    return {"at_ms": sample.at_ms, "groups": rows, "problems": list(sample.problems)}


def _now() -> str:
    return time.strftime("%H:%M:%S")
