"""What a login and an authorizer cost a broker at full load: `python -m benchmarks.authorizer [--quick]`.

Two brokers take turns under the same load, and their CPU for each request is compared: an open one, and one with
SASL_PLAINTEXT and an authorizer with 1,000 ACLs. On a machine that does other work too, that differs by some percent
from round to round. So the questions alone are measured as well: requests are put into a connection of a broker within
a process of its own, its answers go nowhere, and the shortest of many runs is compared with that of the open broker.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import load, metrics, report, rows, targets
from benchmarks.group_frames import TOPIC, commit_frame, find_coordinator, heartbeat_frame, join_alone
from benchmarks.targets import Target
from kohort.broker.net.outbox import Outbox
from kohort.broker.node import start
from kohort.broker.running import new_event_loop
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.security.acls import CLUSTER_NAME, AclOperation, AclResource, PatternType, Permission
from kohort.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest

GOAL = 0.95
HEAD = [
    "load",
    "unit",
    "open",
    "SASL, 1,000 ACLs",
    "open / with",
    "questions alone",
    "of a request",
    "goal",
    "",
]
USER, ADMIN = "bench", "admin"
ACLS = 1_000
_OPEN = ("durability=os", "group.initial.rebalance.delay.ms=0")
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SECURED = (
    "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN",
    f'listener.name.plaintext.plain.sasl.jaas.config={_PLAIN} user_{USER}="{USER}" user_{ADMIN}="{ADMIN}";',
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    f"super.users=User:{ADMIN}",
)
LOADS = (
    ("Heartbeat", metrics.heartbeats, "heartbeat"),
    ("OffsetCommit of 10 partitions", metrics.commits, "commit"),
    ("Produce of 16 KB", metrics.produce, "produce"),
    ("Fetch of 1 MB", metrics.fetch, "fetch"),
)
_PARTITIONS, _BATCH, _IN_FLIGHT = list(range(10)), 50, 5


@contextmanager
def logged_in(user: str | None) -> Iterator[None]:
    """Loads that are started within it authenticate as this user."""
    if user is None:
        yield
        return
    os.environ[load.LOGIN] = user
    try:
        yield
    finally:
        del os.environ[load.LOGIN]


def make_acls(address: str) -> None:
    """Makes what the load needs, and other ACLs, of all kinds, up to 1,000."""
    allow = Permission.ALLOW

    def acl(
        kind: AclResource,
        name: str,
        pattern: PatternType,
        who: str,
        operation: AclOperation,
        permission: Permission = allow,
    ) -> AclCreation:
        return AclCreation(kind, name, pattern, f"User:{who}", "*", operation, permission)

    literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
    made = [
        acl(AclResource.TOPIC, "*", literal, USER, AclOperation.ALL),
        acl(AclResource.GROUP, "*", literal, USER, AclOperation.ALL),
        acl(AclResource.CLUSTER, CLUSTER_NAME, literal, USER, AclOperation.ALL),
    ]
    for number in range(ACLS - len(made)):
        kind = (AclResource.TOPIC, AclResource.GROUP)[number % 2]
        pattern = prefixed if number % 3 == 0 else literal
        who = USER if number % 5 == 0 else f"user-{number % 50}"
        permission = Permission.DENY if number % 7 == 0 else allow
        made.append(acl(kind, f"team-{number}", pattern, who, AclOperation.READ, permission))
    with BlockingConnection(address) as admin:
        assert admin.call(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
        token = f"\0{ADMIN}\0{ADMIN}".encode()
        assert admin.call(SaslAuthenticateRequest(token)).error_code == 0
        assert not any(result.error_code for result in admin.call(CreateAclsRequest(made)).results)


# --- the whole broker ---------------------------------------------------------------------------------


def in_turns(rounds: int, seconds: float, say: Callable[[str], None]) -> metrics.Costs:
    """Returns the CPU of a request of both brokers, by load and round."""
    found: metrics.Costs = {name: [] for name, *_ in LOADS}
    with targets.workshop() as work, ExitStack() as stack:
        anybody = stack.enter_context(rows.running(targets.kohort(work / "open", *_OPEN, name="open")))
        secured = stack.enter_context(
            rows.running(targets.kohort(work / "secured", *_OPEN, *_SECURED, name="secured"))
        )
        make_acls(secured.address)
        for number in range(rounds + 1):
            for name, make, _ in LOADS:
                pair = (anybody, secured) if number % 2 else (secured, anybody)
                cost = {target.name: _cost(make, target, seconds) for target in pair}
                if number:  # the first round warms up
                    found[name].append((cost["open"], cost["secured"]))
                    say(f"round {number}/{rounds} {name}: {cost['open']:.2f} µs, {cost['secured']:.2f} µs")
    return found


def _cost(make: metrics.Load, target: Target, seconds: float) -> float:
    with logged_in(USER if target.name == "secured" else None):
        return make(target, seconds)


# --- the questions alone ------------------------------------------------------------------------------


async def _alone(mode: str, is_secured: bool, rounds: int) -> float:
    """Nanoseconds of one request that is handled in memory, the least of many."""
    settings = {"durability": "memory", "group.initial.rebalance.delay.ms": "0"}
    if is_secured:
        settings |= dict(setting.split("=", 1) for setting in _SECURED)
    server = await start(settings, directory=None, listen="127.0.0.1:0", on_fatal=sys.exit)
    address = str(server.listeners[0].told)
    loop = asyncio.get_running_loop()
    if is_secured:
        await loop.run_in_executor(None, make_acls, address)
    with logged_in(USER if is_secured else None):
        client, frame, count = await loop.run_in_executor(None, _prepared, mode, address)
    port = client.sock.getsockname()[1]
    (connection,) = (each for each in server.admission.connections if each.peer.endswith(f":{port}"))
    Outbox._send = metrics._go_nowhere  # type: ignore[method-assign, assignment]
    size, arrive, least = len(frame), connection.buffer_updated, float("inf")
    buffer = server.scratch[:size]
    for _ in range(rounds):
        begun = time.perf_counter_ns()
        for _ in range(_BATCH):
            buffer[:] = frame  # the broker writes offsets into it
            arrive(size)
        least = min(least, (time.perf_counter_ns() - begun) / _BATCH)
    return least / count


def _prepared(mode: str, address: str) -> tuple[load.Connection, bytes, int]:
    """Returns a connection, what arrives by it again and again, and how many requests that is."""
    client = load.Connection(address)
    find_coordinator(client, "alone")
    if mode == "heartbeat":
        return client, heartbeat_frame("alone", *join_alone(client, "alone")), 1
    load.create_topics(client, {TOPIC: len(_PARTITIONS)})
    if mode == "produce":
        return client, load.produce_frame(TOPIC, 0, load.record_batch(1, 100)) * _IN_FLIGHT, _IN_FLIGHT
    if mode == "fetch":
        load.produce_once(client, TOPIC, 0, load.record_batch(1, 100))
        return client, bytes(load.fetch_frame(TOPIC, 0)), 1
    frame = commit_frame("alone", _PARTITIONS, 5)
    for _ in range(4):  # then it is recognized
        client.call(frame)
    return client, frame, 1


def alone(mode: str, is_secured: bool, rounds: int) -> float:
    """Measures in this process, which is for nothing else."""
    return new_event_loop().run_until_complete(_alone(mode, is_secured, rounds))


def questions_ns(mode: str, tries: int, rounds: int) -> float:
    """What the login and the questions add to one request: each try is a pair of new processes; the median counts."""
    differences = []
    for _ in range(tries):
        least = [_in_a_process(mode, word, rounds) for word in ("open", "secured")]
        differences.append(least[1] - least[0])
    return statistics.median(differences)


def _in_a_process(mode: str, word: str, rounds: int) -> float:
    command = [sys.executable, "-m", "benchmarks.authorizer", "--alone", mode, word, str(rounds)]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, cwd=root)
    return float(done.stdout)


# --- the report ---------------------------------------------------------------------------------------


def table(found: metrics.Costs, questions: dict[str, float]) -> list[list[str]]:
    lines = []
    for name, _, mode in LOADS:
        without, with_acls = (min(each) for each in zip(*found[name], strict=True))
        extra_us = questions[mode] / 1000
        share = without / (without + extra_us)
        verdict = "met" if share >= GOAL else "MISSED"
        lines.append(
            [name, "CPU µs", f"{without:.1f}", f"{with_acls:.1f}", f"{without / with_acls:.3f}×"]
            + [f"{questions[mode]:.0f} ns", f"{share:.3f}×", f"≥ {GOAL}×", verdict]
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.authorizer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; writes nothing")
    parser.add_argument("--rounds", type=int, default=9, help="how often the brokers take turns (default 9)")
    parser.add_argument("--alone", nargs=3, metavar=("MODE", "WHAT", "ROUNDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        mode, word, count = options.alone
        print(alone(mode, word == "secured", int(count)))
        return 0
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:4.0f} s] {text}", file=sys.stderr, flush=True)

    rounds, seconds = (1, 0.5) if options.quick else (options.rounds, 1.5)
    found = in_turns(rounds, seconds, say)
    tries, count = (1, 200) if options.quick else (5, 2000)
    questions = {mode: questions_ns(mode, tries, count) for _, _, mode in LOADS}
    lines = table(found, questions)
    widths = [max(len(row[i]) for row in [HEAD, *lines]) for i in range(len(HEAD))]
    for row in [HEAD, *lines]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if not options.quick:
        _write(lines, rounds)
    return 0


def _write(lines: list[list[str]], rounds: int) -> None:
    command = " ".join(["python -m benchmarks.authorizer", *sys.argv[1:]])
    body = [
        "## What a login and an authorizer cost",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, the least of "
        f"{rounds} rounds in turns. Machine: {report.machine()}.",
        "",
        *("| " + " | ".join(row) + " |" for row in [HEAD, ["---"] * len(HEAD), *lines]),
        "",
        "- open / with: of the whole broker's CPU for a request, as the kernel counts it; it varies by some percent "
        "from run to run, because the machine does other work too.",
        "- questions alone: what SASL_PLAINTEXT and the authorizer add to a request that is handled in memory (least "
        "of many runs, in new processes); of a request: the CPU without, divided by the CPU without plus that.",
        "- Produce is measured alone with five requests in one read, as producers send them.",
    ]
    report.replace_section("authorizer", body)
    print(f"written: {report.HERE}/RESULTS.md")


if __name__ == "__main__":
    sys.exit(main())
