"""Runs a script of heartbeats of a share group against a shard of the group coordinator, and writes down what it does.

`beat a join topics=t+u` is a heartbeat of member a; without a word it comes with the epoch that it was told last. What
the share coordinator is asked for is answered by `made` and `not-made`, or at once after `auto`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from kohort.coordinator import events as ev
from kohort.coordinator.effects import Append, Reply, ShareHeartbeatResponse, ShareStateWanted
from kohort.coordinator.group_config import GroupConfig
from kohort.coordinator.modern.state import (
    AssignmentChange,
    Change,
    GroupEpochChange,
    SubscriptionChange,
    TargetChange,
    TargetEpochChange,
)
from kohort.coordinator.share.records import RECORD_TYPES, change_of
from kohort.coordinator.share.state import StatePartitionsChange, StateTopics
from kohort.wire.errors import ErrorCode
from tests.coordinator.consumer_verbs import name_of, topic_id
from tests.coordinator.transcript import Stage, show, show_record


class ShareStage(Stage):
    """A shard with topics, a clock, a log, and a share coordinator that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.config = GroupConfig(share_assignment_interval_ms=0)
        self.wanted: deque[ShareStateWanted] = deque()
        self.answers_at_once = False

    def carry_out(self, effect: Any) -> None:
        match effect:
            case ShareStateWanted():
                self.say(f"state wanted at epoch {effect.state_epoch}: {listed(effect.partitions)}")
                self.wanted.append(effect)
                if self.answers_at_once:
                    self.tell(ErrorCode.NONE)
            case Append():
                self.say("append " + "; ".join(shown(r.key, r.value) for r in effect.records))
                if self.held is None:
                    self.write(effect)
                else:
                    self.held.append(effect)
            case Reply(request, ShareHeartbeatResponse() as beat):
                who = str(request).split()[-1]
                if not beat.error:
                    self.epochs[who] = beat.member_epoch
                given = None if beat.assignment is None else {t: frozenset(ps) for t, ps in beat.assignment}
                told = "" if given is None else f" assignment {listed(given)}"
                text = f"epoch {beat.member_epoch} every {beat.heartbeat_interval_ms} ms{told}"
                self.say(f"{request}: {beat.error.name} {beat.message if beat.error else text}")
            case Reply(request, response):
                self.say(f"{request}: {show(response)}")
            case _:
                super().carry_out(effect)

    def tell(self, error: ErrorCode) -> None:
        wanted = self.wanted.popleft()
        self.events.append(ev.ShareStateInitialized(wanted.group_id, wanted.partitions, error))

    # ---- the script

    def do_auto(self, names: list[str], options: dict[str, str]) -> None:
        self.answers_at_once = True

    def do_made(self, names: list[str], options: dict[str, str]) -> None:
        wanted = self.wanted.popleft()
        self.step(ev.ShareStateInitialized(wanted.group_id, wanted.partitions, ErrorCode.NONE))

    def do_not_made(self, names: list[str], options: dict[str, str]) -> None:
        wanted = self.wanted.popleft()
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.step(ev.ShareStateInitialized(wanted.group_id, wanted.partitions, error))

    def do_config(self, names: list[str], options: dict[str, str]) -> None:
        self.config = GroupConfig(share_assignment_interval_ms=int(options["interval"]))

    def do_beat(self, names: list[str], options: dict[str, str]) -> None:
        who, *how = names
        epoch = {"join": 0, "leave": -1}.get(how[0] if how else "", self.epochs.get(who, 0))
        topics = options.get("topics")
        self.step(
            ev.ShareGroupHeartbeat(
                f"beat {who}",
                options.get("group", "g"),
                who,
                int(options.get("epoch", epoch)),
                options.get("rack"),
                None if topics is None else frozenset(topics.split("+")),
                "c",
                "/h",
            )
        )

    def do_other(self, names: list[str], options: dict[str, str]) -> None:
        """A member of a consumer group with the same name."""
        topics = frozenset({"t"})
        self.step(ev.ConsumerGroupHeartbeat("other", "g", "x", 0, None, None, 1000, topics, None, None, {}))

    def do_describe_share(self, names: list[str], options: dict[str, str]) -> None:
        self.step(ev.DescribeShareGroup("describe", options.get("group", "g")))

    def do_alter(self, names: list[str], options: dict[str, str]) -> None:
        partitions = {topic_id(name): frozenset({int(index)}) for name, index in options.items()}
        self.step(ev.AlterSharePartitions("alter", "g", partitions))

    def do_forget(self, names: list[str], options: dict[str, str]) -> None:
        """Deletes the state of topics: both steps."""
        ids = frozenset(topic_id(name) for name in names)
        self.step(ev.AlterSharePartitions("delete", "g", dict.fromkeys(ids, frozenset()), is_deletion=True))
        self.step(ev.FinishShareDeletion("g", ids))


def listed(partitions: Mapping[bytes, frozenset[int]]) -> str:
    return (
        " ".join(f"{name_of(t)}/{'+'.join(map(str, sorted(ps)))}" for t, ps in sorted(partitions.items()))
        or "-"
    )


def topics_of(topics: StateTopics) -> str:
    return listed({t: topic.partitions for t, topic in topics.items()})


def shown(key: bytes, value: bytes | None) -> str:
    if int.from_bytes(key[:2], "big") not in RECORD_TYPES:
        return show_record(key, value)
    _, change = change_of(key, value)
    return show_change(change)


def show_change(change: Change) -> str:
    match change:
        case GroupEpochChange(epoch):
            return "no group" if epoch is None else f"group {epoch}"
        case TargetEpochChange(epoch):
            return "no target" if epoch is None else f"target {epoch}"
        case TargetChange(member_id, partitions):
            return f"target of {member_id} " + ("ends" if partitions is None else listed(partitions))
        case SubscriptionChange(member_id, value):
            names = "ends" if value is None else "+".join(value.subscribed_topic_names)
            return f"member {member_id} {names}"
        case AssignmentChange(member_id, value):
            if value is None:
                return f"{member_id} ends"
            assigned = {t: frozenset(ps) for t, ps in value.assigned_partitions}
            return f"{member_id} at {value.member_epoch} (was {value.previous_member_epoch}) has {listed(assigned)}"
        case StatePartitionsChange(value):
            if value is None:
                return "no states"
            deleting = " ".join(value.deleting.values()) or "-"
            return (
                f"initializing {topics_of(value.initializing)} initialized {topics_of(value.initialized)} "
                f"deleting {deleting}"
            )
    raise AssertionError(change)


def replay(text: str) -> str:
    """Runs the commands of a transcript and returns it with what follows now."""
    stage = ShareStage()
    out = []
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        out.append(line)
        if line and not line.startswith("#"):
            out += ["    " + said for said in stage.run(line)]
    return "\n".join(out) + "\n"
