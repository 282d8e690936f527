"""Produce and fetch over TLS, on Apache Kafka and on Kohort, in one run: `python -m benchmarks.tls [--quick]`.

Both brokers have the same certificate, and take turns under the same load, which runs on the same cores. A Kohort
without TLS takes turns with them under the same load without TLS, to show what TLS costs.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.certificates import Certificates, make_certificates

from benchmarks import load, outside, report, rows, targets
from benchmarks.targets import Target

HEAD = ["load", "unit", "Apache Kafka", "Kohort", "Kohort/Kafka", "goal", "", "Kohort without TLS"]
_LOADS = ("produce", "fetch")
_LABELS = {"produce": "produce 128 KB", "fetch": "fetch"}
_WHO = ("kafka", "kohort", "plain")
Figures = dict[tuple[str, str, str], list[float]]
"""MB/s and CPU s/GB by load, broker and unit, in each round."""


def settings(made: Certificates) -> tuple[str, ...]:
    """Of both brokers: the listener that is called PLAINTEXT speaks TLS."""
    return (
        "listener.security.protocol.map=PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={made.broker.store}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={made.authority.certificate}",
    )


def negotiated(target: Target, made: Certificates) -> str:
    """The version of TLS and the cipher suite that a broker and the load agree on."""
    host, _, port = target.address.rpartition(":")
    context = ssl.create_default_context(cafile=made.authority.certificate)
    deadline = time.monotonic() + 60
    while True:
        try:
            with (
                socket.create_connection((host, int(port)), 30) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as sock,
            ):
                cipher = sock.cipher()
                assert cipher is not None
                return f"{sock.version()} {cipher[0]}"
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def measure(
    work: Path, rounds: int, seconds: float, warm_up_s: float, say: Callable[[str], None]
) -> tuple[Figures, dict[str, str]]:
    made, found = make_certificates(work / "certificates"), Figures()
    with ExitStack() as stack:
        brokers = {
            "kafka": targets.apache_kafka(work / "kafka", "log.segment.delete.delay.ms=500", *settings(made)),
            "kohort": targets.kohort(work / "kohort", "durability=os", *settings(made)),
            "plain": targets.kohort(work / "plain", "durability=os", name="plain"),
        }
        for target in brokers.values():
            stack.enter_context(rows.running(target))
        suites = {name: negotiated(brokers[name], made) for name in ("kafka", "kohort")}
        for number in range(rounds + 1):
            for mode in _LOADS:
                for name in _WHO if number % 2 else reversed(_WHO):
                    lasts_s = seconds if number or name != "kafka" else warm_up_s
                    figures = _driven(
                        mode, brokers[name], f"t{number}", lasts_s, made, is_plain=name == "plain"
                    )
                    if not number:  # a JVM compiles for a while
                        continue
                    for unit in ("mb_per_s", "cpu_s_per_gb"):
                        found.setdefault((mode, name, unit), []).append(figures[unit])
                    text = f"{figures['mb_per_s']:.0f} MB/s, {figures['cpu_s_per_gb']:.2f} CPU s/GB"
                    say(f"round {number}/{rounds} {mode} {name}: {text}")
    return found, suites


def _driven(
    mode: str, target: Target, topic: str, seconds: float, made: Certificates, *, is_plain: bool
) -> dict[str, float]:
    words = ["--topic", topic, "--seconds", str(seconds), "--batch-records", "128", "--limit-mb", "1000"]
    if is_plain:
        return rows.loaded("benchmarks.load", mode, target, words, seconds + 90)
    words += ["--authority", made.authority.certificate]
    return rows.loaded("benchmarks.tls_load", mode, target, words, seconds + 90)


def table(found: Figures) -> list[list[str]]:
    lines = []
    for mode in _LOADS:
        for unit, word, goal in (("mb_per_s", "MB/s", 1.0), ("cpu_s_per_gb", "CPU s/GB", None)):
            kafka, kohort, plain = (statistics.median(found[mode, name, unit]) for name in _WHO)
            ratio = kohort / kafka
            verdict = "" if goal is None else "met" if ratio >= goal else "MISSED"
            digits = 0 if unit == "mb_per_s" else 2
            lines.append(
                [_LABELS[mode], word, f"{kafka:.{digits}f}", f"{kohort:.{digits}f}", f"{ratio:.2f}×"]
                + ["" if goal is None else "≥ 1×", verdict, f"{plain:.{digits}f}"]
            )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; writes nothing")
    parser.add_argument(
        "--rounds", type=int, default=5, help="every figure is a median of so many (default 5)"
    )
    options = parser.parse_args()
    begun, busy = time.monotonic(), os.getloadavg()[0]

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:4.0f} s] {text}", file=sys.stderr, flush=True)

    rounds, seconds, warm_up_s = (1, 1.0, 2.0) if options.quick else (options.rounds, 3.0, 10.0)
    try:
        with targets.workshop() as work:
            found, suites = measure(work, rounds, seconds, warm_up_s, say)
    except (outside.Missing, targets.DidNotStart, load.Refused) as trouble:
        print(f"benchmarks.tls: {trouble}", file=sys.stderr)
        return 2
    lines = table(found)
    widths = [max(len(row[i]) for row in [HEAD, *lines]) for i in range(len(HEAD))]
    for row in [HEAD, *lines]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if not options.quick:
        _write(lines, rounds, suites, busy)
    return 0


def _write(lines: list[list[str]], rounds: int, suites: dict[str, str], busy: float) -> None:
    command = " ".join(["python -m benchmarks.tls", *sys.argv[1:]])
    body = [
        "## TLS",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, medians of {rounds} rounds in turns. "
        f"Machine: {report.machine()}; load average before the run {busy:.1f}.",
        "",
        *("| " + " | ".join(row) + " |" for row in [HEAD, ["---"] * len(HEAD), *lines]),
        "",
        "- produce: Produce v7 with acks=all, 8 connections, 8 partitions, 5 in flight, batches of 128 KB; both "
        "brokers answer when the bytes are with the kernel. fetch: Fetch v11, 8 connections, 1 MB a partition.",
        f"- Apache Kafka speaks {suites['kafka']}, Kohort {suites['kohort']}. The load decrypts and encrypts on the "
        "same cores; CPU is the broker's own.",
        "- without TLS: the same Kohort under the load of the other tables. Its fetches use `sendfile`, which TLS "
        "cannot: this kernel has no TLS of its own.",
    ]
    report.replace_section("tls", body)
    print(f"written: {report.HERE}/RESULTS.md")


if __name__ == "__main__":
    sys.exit(main())
