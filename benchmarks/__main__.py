"""`python -m benchmarks`: an Apache Kafka and Kohort on this machine, measured in one run."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from types import FrameType

from benchmarks import group_rows, outside, report, rows, targets
from benchmarks.memory import use_once

ROWS = rows.ROWS + group_rows.ROWS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("rows", nargs="*", help=f"what to measure: {', '.join(ROWS)} (default: all)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="every figure is a median of so many (default 5)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round, to see that it works; writes nothing"
    )
    parser.add_argument("--only", choices=["kafka", "kohort"], help="one of the two; writes nothing")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit("stopped")

    signal.signal(signal.SIGTERM, stop)  # so that a stopped run still ends its brokers
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:4.0f} s] {text}", file=sys.stderr, flush=True)

    try:
        if options.only != "kohort":
            say(f"jars of Apache Kafka in {outside.kafka_jars()}")
            outside.program("java")
        with targets.workshop() as work:
            run = rows.Run(
                work=work,
                rows=tuple(options.rows) or ROWS,
                rounds=1 if options.quick else options.rounds,
                seconds=1 if options.quick else 3,
                warm_up_s=1 if options.quick else 10,
                fill_mb=200 if options.quick else 1000,
                who=(options.only,) if options.only else ("kafka", "kohort"),
                say=say,
                is_quick=options.quick,
                busy=os.getloadavg()[0],
            )
            if run.busy > 0.5:
                say(f"the machine is busy (load average {run.busy:.1f}): a broker of one thread suffers most")
            if not options.quick:
                use_once(say)
            rows.measure(run)
            group_rows.measure(run)
    except outside.Missing as missing:
        print(f"benchmarks need what is not here: {missing}", file=sys.stderr)
        return 2
    print(report.table(report.lines(run)))
    for trouble in run.trouble:
        print(f"FAILED {trouble}")
    if not options.quick and not options.only and not options.rows:
        report.write(run, " ".join(["python -m benchmarks", *sys.argv[1:]]), time.monotonic() - begun)
        print(f"written: {report.HERE}/RESULTS.md, results.png, results-groups.png")
    return 1 if run.trouble else 0


if __name__ == "__main__":
    sys.exit(main())
