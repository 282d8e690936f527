"""The verbs of transcripts about consumer groups (KIP-848), and how their effects are shown.

Events:
    topics t=6 u=2                    makes topics, or lets them grow; `drop t` deletes one
    config session=45000 heartbeat=5000 interval=1000      settings of all groups; interval is 0 unless it is said
    beat a join topics=t+u            a heartbeat with epoch 0, a rebalance timeout and nothing owned
         regex= id= instance= rack= assignor= timeout= epoch= owned=t/0+1 group= client= host=
    beat a                            a heartbeat that changes nothing, with the epoch of the last answer
    beat a ack                        the same, which says that it owns what it was last assigned
    beat a full topics=t              a heartbeat with all fields, as after an error
    beat a leave | beat a away        epochs -1 and -2
    describe-consumer
    deny t                            from here on nobody may know of topic t
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.coordinator import events as ev
from kohort.coordinator.consumer.records import RECORD_TYPES, change_of, records_of
from kohort.coordinator.consumer.state import ConsumerMember, ConsumerState, RegexChange
from kohort.coordinator.effects import ConsumerHeartbeatResponse, DescribeConsumerResponse, DescribedConsumer
from kohort.coordinator.group_config import GroupConfig
from kohort.coordinator.modern.state import (
    AssignmentChange,
    GroupEpochChange,
    SubscriptionChange,
    TargetChange,
    TargetEpochChange,
)
from kohort.coordinator.topic_catalog import CatalogTopic
from kohort.wire.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from kohort.wire.messages import consumer_protocol_assignment as assignment
from kohort.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kohort.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition

DEFAULT_TIMEOUT_MS = 60_000


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def name_of(topic: bytes) -> str:
    return topic.rstrip(b"\0").decode()


class Topics:
    """A catalog of topics that a test makes."""

    def __init__(self, **partitions: int) -> None:
        self.partitions = dict(partitions)

    def topic(self, name: str) -> CatalogTopic | None:
        count = self.partitions.get(name)
        return None if count is None else CatalogTopic(topic_id(name), name, count)

    def topic_by_id(self, topic: bytes) -> CatalogTopic | None:
        return self.topic(name_of(topic))

    def names(self) -> Iterable[str]:
        return self.partitions


class ConsumerVerbs:
    """What a stage can do with consumer groups."""

    log: list[ev.LogRecord]

    def init_consumers(self) -> None:
        self.topics = Topics()
        self.config = GroupConfig(consumer_assignment_interval_ms=0)
        self.epochs: dict[str, int] = {}
        self.ids: dict[str, str] = {}
        self.instances: dict[str, str] = {}
        self.assigned: dict[str, dict[bytes, tuple[int, ...]]] = {}
        self.denied: set[str] = set()

    def step(self, event: ev.Event) -> None:
        raise NotImplementedError

    def do_topics(self, names: list[str], options: dict[str, str]) -> None:
        is_new = any(name not in self.topics.partitions for name in options)
        self.topics.partitions.update({name: int(count) for name, count in options.items()})
        self.step(ev.TopicsChanged(tuple(options), is_new))

    def do_drop(self, names: list[str], options: dict[str, str]) -> None:
        for name in names:
            del self.topics.partitions[name]
        self.step(ev.TopicsDeleted(tuple(names)))
        self.step(ev.TopicsChanged(tuple(names)))

    def do_damage_member(self, names: list[str], options: dict[str, str]) -> None:
        """The assignment of a member as some other version would write it, in a state of its own."""
        value = ConsumerGroupCurrentMemberAssignmentValue(self.epochs[names[0]], 1, 42)
        (record,) = records_of("g", [AssignmentChange(self.ids[names[0]], value)])
        self.log.append(ev.LogRecord(len(self.log), record.key, record.value))

    def do_deny(self, names: list[str], options: dict[str, str]) -> None:
        self.denied.update(names)

    def do_config(self, names: list[str], options: dict[str, str]) -> None:
        self.config = GroupConfig(
            int(options.get("session", 45_000)),
            int(options.get("heartbeat", 5_000)),
            int(options.get("interval", 0)),
        )

    def do_beat(self, names: list[str], options: dict[str, str]) -> None:
        who, *how = names
        joins, full = "join" in how, "full" in how or "join" in how
        epoch = {"join": 0, "leave": -1, "away": -2}.get(how[0] if how else "", self.epochs.get(who, 0))
        if "instance" in options:
            self.instances[who] = options["instance"]
        subscribed = options.get("topics")
        owned = self.assigned.get(who, {}) if "ack" in how or ("full" in how and not joins) else None
        owned = {} if joins else owned
        if "owned" in options:
            owned = parse_partitions(options["owned"])
        self.step(
            ev.ConsumerGroupHeartbeat(
                f"beat {who}",
                options.get("group", "g"),
                options.get("id", self.ids.get(who, who)),
                int(options.get("epoch", epoch)),
                self.instances.get(who),
                options.get("rack"),
                int(options.get("timeout", DEFAULT_TIMEOUT_MS if full else -1)),
                None if subscribed is None else frozenset(filter(None, subscribed.split("+"))),
                options.get("regex"),
                options.get("assignor"),
                owned,
                options.get("client", "c"),
                options.get("host", "/h"),
                f"uuid-{who}",
                (lambda name: name not in self.denied) if self.denied else None,
            )
        )

    def learn_beat(self, who: str, response: ConsumerHeartbeatResponse) -> None:
        if not response.error:
            self.epochs[who], self.ids[who] = response.member_epoch, response.member_id or ""
            if response.assignment is not None:
                self.assigned[who] = dict(response.assignment)

    def do_describe_consumer(self, names: list[str], options: dict[str, str]) -> None:
        self.step(ev.DescribeConsumerGroup("describe-consumer", options.get("group", "g")))


def subscription(text: str) -> bytes:
    """`t+u~t/0+1` stands for a subscription, version 3, to t and u that owns t/0 and t/1."""
    topics, _, owned = text.partition("~")
    parts = parse_partitions(owned) if owned else {}
    message = ConsumerProtocolSubscription(
        tuple(filter(None, topics.split("+"))),
        None,
        tuple(TopicPartition(name_of(t), tuple(partitions)) for t, partitions in parts.items()),
    )
    return encode_subscription(message, 3)


def assigned_bytes(text: str) -> bytes:
    """`~t/0+1` stands for an assignment, anything else for itself."""
    if not text.startswith("~"):
        return text.encode()
    parts = parse_partitions(text[1:])
    listed = tuple(assignment.TopicPartition(name_of(t), ps) for t, ps in parts.items())
    return encode_assignment(assignment.ConsumerProtocolAssignment(listed, None), 3)


def parse_partitions(text: str) -> dict[bytes, tuple[int, ...]]:
    """Reads `t/0+1,u/2`; `-` is nothing."""
    found = {}
    for each in text.split(",") if text != "-" else ():
        name, _, partitions = each.partition("/")
        found[topic_id(name)] = tuple(int(p) for p in partitions.split("+"))
    return found


# ---- what is shown


def show_partitions(partitions: Mapping[bytes, Iterable[int]] | Iterable[tuple[bytes, Iterable[int]]]) -> str:
    pairs = partitions.items() if isinstance(partitions, Mapping) else partitions
    shown = (f"{name_of(t)}/{'+'.join(str(p) for p in sorted(ps))}" for t, ps in sorted(pairs))
    return ",".join(shown) or "-"


def show_owned(owned: Mapping[bytes, Mapping[int, int]]) -> str:
    shown = (
        f"{name_of(t)}/{'+'.join(f'{p}@{epochs[p]}' for p in sorted(epochs))}"
        for t, epochs in sorted(owned.items())
    )
    return ",".join(shown) or "-"


def show_response(response: Any) -> str | None:
    match response:
        case ConsumerHeartbeatResponse():
            if response.error:
                return f"{response.error.name}" + (f": {response.message}" if response.message else "")
            owns = (
                "" if response.assignment is None else f" assignment {show_partitions(response.assignment)}"
            )
            return f"{response.member_id} epoch {response.member_epoch}{owns}"
        case DescribeConsumerResponse():
            if response.error:
                return f"{response.error.name}: {response.message}"
            epochs = f"epoch {response.group_epoch} assignment {response.assignment_epoch}"
            members = "; ".join(map(_described, response.members))
            return f"{response.state} {epochs} {response.assignor} [{members}]"
    return None


def _described(member: DescribedConsumer) -> str:
    kind = " classic" if member.is_classic else ""
    own = show_partitions([(t, ps) for t, _, ps in member.assignment])
    target = show_partitions([(t, ps) for t, _, ps in member.target])
    return f"{member.member_id}{kind} epoch {member.member_epoch} owns {own} target {target}"


def show_consumer_record(key: bytes, value: bytes | None) -> str | None:
    if int.from_bytes(key[:2], "big") not in RECORD_TYPES:
        return None
    _, change = change_of(key, value)
    match change:
        case GroupEpochChange(epoch):
            return "end of the group" if epoch is None else f"group epoch {epoch}"
        case TargetEpochChange(epoch, at_ms):
            return "end of the target" if epoch is None else f"target epoch {epoch} at {at_ms}"
        case TargetChange(member_id, partitions):
            return f"{member_id} " + (
                "has no target" if partitions is None else f"to own {show_partitions(partitions)}"
            )
        case SubscriptionChange(member_id, None):
            return f"{member_id} is gone"
        case SubscriptionChange(member_id):
            member = _applied(change).members[member_id]
            return f"{member_id} subscribes to {_subscription(member)}"
        case AssignmentChange(member_id, None):
            return f"{member_id} owns nothing"
        case AssignmentChange(member_id):
            member = _applied(change).members[member_id]
            pending = f" gives up {show_owned(member.pending)}" if member.pending else ""
            epochs = f"{member.previous_epoch}>{member.epoch}"
            return f"{member_id} {epochs} {member.state.name} owns {show_owned(member.assigned)}{pending}"
        case RegexChange(regex, resolved):
            return f"{regex} " + (
                "is unused" if resolved is None else f"matches [{', '.join(resolved.topics)}]"
            )
    return "end of the partition metadata"


def _applied(change: Any) -> ConsumerState:
    state = ConsumerState()
    change.apply_to(state)
    return state


def _subscription(member: ConsumerMember) -> str:
    parts = ["+".join(sorted(member.topic_names)) or "-"]
    parts += [f"and {member.topic_regex}"] if member.topic_regex else []
    parts += [f"as {member.instance_id}"] if member.instance_id else []
    parts += [f"by {member.server_assignor}"] if member.server_assignor else []
    parts += ["with the classic protocol"] if member.classic is not None else []
    return " ".join(parts)


def show_assignment(data: bytes) -> str:
    """What a classic member was assigned, for people; as it stands if it is no assignment."""
    try:
        found = decode_assignment(data)
    except ValueError:
        return repr(data)
    return ",".join(f"{t}/{'+'.join(map(str, ps))}" for t, ps in found.assigned_partitions) or "-"
