"""What a task reads: a range of offsets of one partition; and the error for records that are not there any more."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.client.types import TopicPartition

LOSS = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by "
    "Kafka or the topic may have been deleted before all the data in the topic was processed. If you don't want your "
    "streaming query to fail on such cases, set the source option failOnDataLoss to false. Reason: "
)


class DataLoss(RuntimeError):
    """Records that should have been read are not there any more."""

    what_to_do = (
        "Keep records longer than a query may stand still (retention.ms, retention.bytes). To go on with what is left, "
        "set failOnDataLoss=false."
    )

    def __init__(self, reason: str) -> None:
        super().__init__(LOSS + reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from `start` to before `end` of a partition."""

    partition: TopicPartition
    start: int
    end: int
    open_start: bool = False
    """It starts at the first record that there is when it is read."""
    open_end: bool = False
    """It ends where the log ends when it is read."""

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.partition} [{self.start}, {self.end})"


def unread(partition: TopicPartition, start: int, end: int, group: str | None) -> str:
    """The reason of a loss, for a range of which nothing can be read any more."""
    return (
        f"Could not read records in offset [{start}, {end}) for topic partition {partition} "
        f"with consumer group {group}"
    )
