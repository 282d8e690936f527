"""The checks of `kohort doctor cluster`: from the address that was given to the groups."""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from collections.abc import Iterator, Mapping

import click

from kohort.cli.doctor.findings import NOTE, RIGHT, WRONG, Finding, report
from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.output import json_option, short_ids
from kohort.client.admin import Admin
from kohort.client.admin_types import ClusterDescription
from kohort.client.consumer import Consumer
from kohort.client.errors import AuthenticationFailed, AuthorizationFailed
from kohort.client.types import TopicPartition
from kohort.coordinator.settings import partition_for
from kohort.errors import KohortError
from kohort.insight.diagnosis import ADVICE, RebalanceCause, cause_of, repeated_rebalances
from kohort.insight.health import BAD, Health
from kohort.insight.offsets_log import OFFSETS_TOPIC
from kohort.insight.past import HOUR_MS, past_lag
from kohort.insight.rebalances import rebalances_of
from kohort.insight.samples import ClusterSample, sample_cluster
from kohort.insight.trends import Trends
from kohort.wire.errors import ErrorCode, KafkaError

TIMEOUT_S = 5.0
MOST_GROUPS = 50
"""So many groups are looked at one by one."""
MOST_NAMES = 5
SLOW_POLL = RebalanceCause.SLOW_POLL
FUTURE_MS = 5_000
"""A clock that differs by less is as good as right."""
_ADVERTISED = (
    "Clients connect to the address that the broker tells them, not to the one in bootstrap.servers. Set"
    " advertised.listeners of the broker (Kohort: serve --advertise HOST:PORT) to an address that clients reach; the"
    " name of a container is known only within its network."
)
_WRONG_LOGIN = (
    "Check sasl.mechanism, the user and the password. An administrator sees by `kohort users list NAME` whether the"
    " user is there, and for which mechanism; `kohort users add NAME` gives it a new password."
)
_WRONG_PROTOCOL = "Check security.protocol and ssl.… of the settings against the listener of this port."
_LOOKING_ON = "kohort acls add --allow NAME --operation describe --cluster --topic '*' --group '*'"


@click.command(epilog="Example: kohort doctor cluster --bootstrap 127.0.0.1:9092")
@cluster_options
@click.option(
    "--measure-clock",
    is_flag=True,
    help="Measure the clock of a coordinator: commits an offset in a new group, and deletes the group.",
)
@json_option
def command(cluster: ClusterOptions, measure_clock: bool, as_json: bool) -> int:
    """Check a cluster as this machine sees it, and its groups."""
    return report(check_cluster(cluster.settings(), measure_clock=measure_clock), as_json=as_json)


def check_cluster(settings: Mapping[str, str], *, measure_clock: bool = False) -> Iterator[Finding]:
    """All checks, one after the other; the later ones only if the cluster answers."""
    reached = False
    for server in settings["bootstrap.servers"].split(","):
        finding = _bootstrap(server.strip(), settings)
        reached = reached or finding.verdict != WRONG
        yield finding
    if not reached:
        yield Finding("cluster", WRONG, "not checked, because no server answers")
        return
    with Admin(dict(settings)) as admin:
        described = admin.describe_cluster(timeout=TIMEOUT_S)
        nodes = _advertised(described)
        yield from nodes
        if any(finding.verdict == WRONG for finding in nodes):
            yield Finding("groups and topics", WRONG, "not checked, because of the addresses above")
            return
        yield _controller(described)
        yield from _authority(admin, described, settings)
        now_ms = int(time.time() * 1000)
        sample = sample_cluster(admin, now_ms, timeout=TIMEOUT_S)
        yield from _topics(sample)
        yield from _clocks(admin, settings, sample, measure_clock)
        yield from _groups(admin, settings, sample)


# --- reachable ------------------------------------------------------------------------------------------


def _address(server: str) -> tuple[str, int] | None:
    """Splits host:port; None if it is something else."""
    host, _, port = server.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isascii() and port.isdigit() else None


def _obstacle(host: str, port: int) -> str | None:
    """Says why there is no connection to an address; None if there is one."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return f"the name {host} cannot be resolved here ({error})"
    refusals = []
    for family, kind, protocol, _, where in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.settimeout(TIMEOUT_S)
                probe.connect(where)
                return None
        except OSError as error:
            refusals.append(f"{where[0]}: {error.strerror or error}")
    return f"no connection ({'; '.join(refusals)})"


def _bootstrap(server: str, settings: Mapping[str, str]) -> Finding:
    name = f"bootstrap {server}"
    address = _address(server)
    if address is None:
        return Finding(name, WRONG, "this is no address", "Write HOST:PORT, for example 127.0.0.1:9092.")
    obstacle = _obstacle(*address)
    if obstacle is not None:
        to_do = "Is the broker running, is the address right, does a firewall lie between?"
        return Finding(name, WRONG, obstacle, to_do)
    try:
        with Admin({**settings, "bootstrap.servers": server}) as admin:
            began_s = time.monotonic()
            patience_s = min(TIMEOUT_S, int(settings.get("default.api.timeout.ms", 30_000)) / 1000)
            nodes = admin.describe_cluster(timeout=patience_s).nodes
            took_ms = round(1000 * (time.monotonic() - began_s))
    except AuthenticationFailed as error:
        to_do = _WRONG_LOGIN if "sasl.mechanism" in str(error) else _WRONG_PROTOCOL
        return Finding(name, WRONG, f"it refuses this client: {error}", to_do)
    except KohortError as error:
        to_do = "Something listens there. Is it a Kafka broker, and is security.protocol that of this port?"
        return Finding(name, WRONG, f"connected, but it does not answer as a broker: {error}", to_do)
    return Finding(name, RIGHT, f"answers in {took_ms} ms and knows {_count(len(nodes), 'node')}")


def _advertised(described: ClusterDescription) -> list[Finding]:
    found = []
    for node in described.nodes:
        obstacle = _obstacle(node.host, node.port)
        name, where = f"node {node.node_id}", f"{node.host}:{node.port}"
        if obstacle is None:
            found.append(Finding(name, RIGHT, f"its advertised address {where} is reachable from here"))
        else:
            text = f"it tells clients to connect to {where}: {obstacle}"
            found.append(Finding(name, WRONG, text, _ADVERTISED))
    return found


def _controller(described: ClusterDescription) -> Finding:
    if described.controller is None:
        to_do = "Topics cannot be made or changed: look at the logs of the controllers."
        return Finding("controller", WRONG, "the cluster has none", to_do)
    return Finding("controller", RIGHT, str(described.controller))


# --- security -------------------------------------------------------------------------------------------


def _authority(admin: Admin, described: ClusterDescription, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Says whether the cluster asks who may do what, and whether this user sees all of it."""
    try:
        acls = admin.describe_acls(timeout=TIMEOUT_S)
    except AuthorizationFailed:
        text = "the cluster has an authorizer, and this user may not see all: topics and groups may be missing below"
        yield Finding("security", NOTE, text, f"An administrator allows it to look on: `{_LOOKING_ON}`")
    except KohortError as error:
        if not isinstance(error, KafkaError) or error.code is not ErrorCode.SECURITY_DISABLED:
            return  # too old to be asked
        text = "the cluster has no authorizer: everybody who can connect may do everything"
        if all(_is_here(node.host) for node in described.nodes):
            yield Finding("security", RIGHT, f"{text}, which is this machine alone")
        else:
            yield Finding("security", NOTE, text, "Set authorizer.class.name and super.users of the brokers.")
    else:
        how = settings.get("security.protocol", "PLAINTEXT")
        yield Finding(
            "security", RIGHT, f"{how}; the cluster has an authorizer and {_count(len(acls), 'ACL')}"
        )


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# --- topics ---------------------------------------------------------------------------------------------


def _topics(sample: ClusterSample) -> Iterator[Finding]:
    offline, short, count = [], [], 0
    for topic in sample.topics.values():
        for each in topic.partitions:
            count += 1
            if each.leader < 0:
                offline.append(f"{topic.name}-{each.partition}")
            elif len(each.isr) < len(each.replicas):
                short.append(f"{topic.name}-{each.partition}")
    if offline:
        to_do = "Start the nodes that hold their replicas: nobody can read or write these partitions."
        yield Finding(
            "partitions",
            WRONG,
            f"{_count(len(offline), 'partition')} without a leader: {_some(offline)}",
            to_do,
        )
    if short:
        to_do = "A node is down, or a disk or network too slow to follow: one more fault may lose records."
        text = f"{_count(len(short), 'partition')} with fewer replicas in sync than there should be: {_some(short)}"
        yield Finding("replicas", WRONG, text, to_do)
    if not offline and not short:
        yield Finding("partitions", RIGHT, f"all {count} have a leader and all their replicas")
    others = [problem for problem in sample.problems if "has no leader" not in problem]
    for problem in others[:MOST_NAMES]:
        yield Finding("sample", NOTE, problem)


# --- clocks ---------------------------------------------------------------------------------------------


def _clocks(
    admin: Admin, settings: Mapping[str, str], sample: ClusterSample, measure: bool
) -> Iterator[Finding]:
    """Looks for what is dated in the future.

    Kafka's protocol tells no broker's time. A coordinator stamps commits with it, so a clock that is ahead shows there.
    """
    now_ms = int(time.time() * 1000)
    ahead = {}
    for topic in sample.topics.values():
        partitions = [TopicPartition(topic.name, index) for index, end in topic.ends.items() if end > 0]
        try:
            found = admin.offsets_for_times(dict.fromkeys(partitions, now_ms + FUTURE_MS), timeout=TIMEOUT_S)
        except KohortError:
            continue
        times = [at.timestamp - now_ms for at in found.values() if at is not None]
        if times:
            ahead[topic.name] = max(times)
    commits_ms = ahead.pop(OFFSETS_TOPIC, 0)
    if commits_ms:
        text = f"a coordinator stamped commits {commits_ms / 1000:.0f} s ahead of this machine's clock"
        yield Finding(
            "clocks",
            WRONG,
            text,
            "Set both clocks by NTP: retention, offsets and session times follow the clock.",
        )
    if ahead:
        worst = max(ahead, key=ahead.__getitem__)
        by_s = ahead[worst] / 1000
        text = f"{_count(len(ahead), 'topic')} with records dated in the future: {worst}, by {by_s:.0f} s"
        yield Finding(
            "record times",
            NOTE,
            text,
            "Check the clocks of the producers: such records outlive their retention.",
        )
    if measure:
        yield _measured_clock(admin, settings, sample)
    elif not commits_ms and not ahead:
        text = (
            "nothing is dated in the future (a clock that is behind does not show; --measure-clock measures)"
        )
        yield Finding("clocks", RIGHT, text)


def _measured_clock(admin: Admin, settings: Mapping[str, str], sample: ClusterSample) -> Finding:
    """Commits an offset and reads the time at which the coordinator stamped it."""
    topic = next((each for each in sample.topics.values() if each.ends and not each.is_internal), None)
    if topic is None or OFFSETS_TOPIC not in sample.topics:
        return Finding("measured clock", NOTE, "there is no topic and no group yet to measure with")
    group_id = f"kohort-doctor-{os.getpid()}-{time.time_ns()}"
    home = TopicPartition(
        OFFSETS_TOPIC, partition_for(group_id, len(sample.topics[OFFSETS_TOPIC].partitions))
    )
    try:
        start = admin.end_offsets(home, timeout=TIMEOUT_S)[home]
        before_ms = time.time() * 1000
        admin.alter_group_offsets(group_id, {(topic.name, next(iter(topic.ends))): 0}, timeout=TIMEOUT_S)
        after_ms = time.time() * 1000
        stamped_ms = _timestamp_of_commit(settings, home, start, group_id)
        admin.delete_groups(group_id, timeout=TIMEOUT_S)
    except KohortError as error:
        return Finding("measured clock", NOTE, f"it could not be measured: {error}")
    if stamped_ms is None:
        return Finding("measured clock", NOTE, "the commit was not seen in time")
    if before_ms - FUTURE_MS <= stamped_ms <= after_ms + FUTURE_MS:
        return Finding(
            "measured clock",
            RIGHT,
            f"a coordinator's clock differs by {_off(stamped_ms, before_ms, after_ms)}",
        )
    text = f"a coordinator's clock differs from this machine's by {_off(stamped_ms, before_ms, after_ms)}"
    return Finding("measured clock", WRONG, text, "Set both clocks by NTP.")


def _off(stamped_ms: int, before_ms: float, after_ms: float) -> str:
    middle_ms = (before_ms + after_ms) / 2
    return f"{(stamped_ms - middle_ms) / 1000:+.1f} s (± {(after_ms - before_ms) / 2000:.1f} s)"


def _timestamp_of_commit(
    settings: Mapping[str, str], home: TopicPartition, start: int, group_id: str
) -> int | None:
    own = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
    end_s = time.monotonic() + TIMEOUT_S
    with Consumer({**settings, **own}) as consumer:
        consumer.assign([home])
        consumer.seek(home, start)
        while time.monotonic() < end_s:
            for records in consumer.poll(0.5).values():
                for record in records:
                    if record.key is not None and group_id.encode() in record.key:
                        return record.timestamp
    return None


# --- groups ---------------------------------------------------------------------------------------------


def _groups(admin: Admin, settings: Mapping[str, str], sample: ClusterSample) -> Iterator[Finding]:
    chosen = sorted(sample.groups.values(), key=lambda group: (-len(group.members), -group.lag))[:MOST_GROUPS]
    bad = 0
    for finding in _restless(admin, settings, [group.group_id for group in chosen if group.members]):
        bad += finding.verdict == WRONG
        yield finding
    for finding in _standing(admin, settings, sample, [group.group_id for group in chosen if group.lag]):
        bad += finding.verdict == WRONG
        yield finding
    if not bad:
        text = f"{_count(len(sample.groups), 'group')}; none rebalances again and again or stands still"
        yield Finding("groups", RIGHT, text)
    if len(sample.groups) > len(chosen):
        text = f"{len(chosen)} of {len(sample.groups)} groups were looked at one by one, by members and lag"
        yield Finding("groups", NOTE, text, "`kohort top` shows the lag and the health of all.")


def _restless(admin: Admin, settings: Mapping[str, str], groups: list[str]) -> Iterator[Finding]:
    """Groups that rebalance again and again, and why."""
    for group_id in groups:
        try:
            found = rebalances_of(admin, settings, group_id)
        except KohortError as error:
            yield Finding("rebalances", NOTE, f"they could not be read: {error}")
            return
        now_ms = int(time.time() * 1000)
        trouble = repeated_rebalances(found.rebalances, now_ms)
        if trouble is not None:
            text = f"{trouble.sentence()}; the last: {short_ids(trouble.last.reason)}"
            to_do = f"{trouble.advice} See `kohort groups why {group_id}`."
            yield Finding(f"group {group_id}", WRONG, text, to_do)
            continue
        slow = [
            each
            for each in found.rebalances
            if cause_of(each) is SLOW_POLL and each.began_ms > now_ms - HOUR_MS
        ]
        if slow:
            often = _count(len(slow), "time")
            text = f"a member polled too slowly, {often} in the last hour: {short_ids(slow[-1].reason)}"
            yield Finding(f"group {group_id}", NOTE, text, ADVICE[SLOW_POLL])


def _standing(
    admin: Admin, settings: Mapping[str, str], sample: ClusterSample, groups: list[str]
) -> Iterator[Finding]:
    """Groups that stand still, or went back, by their commits of the last hour."""
    trends = Trends()
    trends.add(sample)
    for group_id in groups:
        try:
            trends.add_past(group_id, past_lag(admin, settings, group_id, sample.at_ms, points=12))
        except KohortError as error:
            text = f"their past could not be read, so whether they stand still is not known: {error}"
            yield Finding("health", NOTE, text, "`kohort top` finds it out within two minutes.")
            return
        trend = trends.group(group_id)
        assert trend is not None
        kinds = sorted({each.health for each in trend.partitions.values() if each.health in BAD})
        if kinds:
            text = f"{', '.join(kinds)}, lag {trend.lag:,}: {', '.join(_MEANINGS[kind] for kind in kinds)}"
            yield Finding(f"group {group_id}", WRONG, text, _TO_DO[kinds[0]])


_MEANINGS = {
    Health.STOP: "nobody reads",
    Health.STALL: "a member owns partitions and commits nothing new",
    Health.REWIND: "it went back to earlier offsets",
}
_TO_DO = {
    Health.STOP: "Start its consumers, or delete the group if nobody needs it any more.",
    Health.STALL: "Look at the log of the member: it may be stuck on a record, or it does not commit.",
    Health.REWIND: "Somebody has reset its offsets, or they had expired; see auto.offset.reset.",
}


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _some(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (" …" if len(names) > MOST_NAMES else "")
