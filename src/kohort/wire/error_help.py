"""What each error code means and what to do about it: `KafkaError.advice` and docs/errors.md are made of these texts.

The texts are for the person whose program got the error. Whether a client retries a code is not said here: the tables
that the clients run on say it, and docs/errors.md is written from those.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kohort.wire.errors import ErrorCode as E


class ErrorHelp(NamedTuple):
    """One error code: what happened, and what to do."""

    meaning: str
    advice: str


_LEADER_MOVES = (
    "Nothing, if it passes within seconds: the leader is moving. If it stays, look at the brokers of the "
    "partition: `kohort topics describe TOPIC` shows which are in sync."
)
_COORDINATOR = (
    "Nothing, if it passes within seconds. If it stays, look whether the broker that coordinates the "
    "group runs, and whether `__consumer_offsets` has leaders."
)
_TRANSACTION = (
    "Abort the transaction and begin it again: `with producer.transaction():` aborts by itself when an exception "
    "leaves it. If that fails too, close the producer and make a new one."
)
_TOKEN = (
    "Delegation tokens are a matter between Kafka and its Java client; Kohort's client does not use them."
)
_CLUSTER_INSIDE = (
    "The brokers of a Kafka cluster say this to each other, not to clients. If a client gets it, its "
    "request went to a wrong port: check bootstrap.servers against the listener for clients."
)
_SHARE = "Share groups (KIP-932) are not supported by Kohort's client; this error belongs to another client."
_STREAMS = (
    "Streams groups (KIP-1071) are not supported by Kohort's client; this error belongs to a Kafka "
    "Streams program."
)
HELP: Final[dict[E, ErrorHelp]] = {
    E.UNKNOWN_SERVER_ERROR: ErrorHelp(
        "The broker failed in a way that it did not expect, or answered with a code that this version of "
        "Kohort does not know.",
        "Look into the broker's log at the time of the error. If it came from a commit of very many "
        "partitions or very long metadata, commit less at once.",
    ),
    E.NONE: ErrorHelp("No error.", "Nothing."),
    E.OFFSET_OUT_OF_RANGE: ErrorHelp(
        "The offset is not in the log: it was deleted by retention or DeleteRecords, or it lies behind the "
        "end.",
        "A consumer goes where auto.offset.reset says. If that is `none`, seek to an offset between "
        "beginning_offsets() and end_offsets(). If it happens often, the consumer is slower than "
        "retention.ms or retention.bytes allows: keep records longer, or read faster.",
    ),
    E.CORRUPT_MESSAGE: ErrorHelp(
        "The checksum of a batch is wrong, or a compacted topic was sent a record without a key.",
        "For a compacted topic (cleanup.policy=compact), give every record a key. Otherwise look at the "
        "disk, the memory and the network of the broker; a consumer goes on after a seek past the offset in"
        " the error.",
    ),
    E.UNKNOWN_TOPIC_OR_PARTITION: ErrorHelp(
        "The topic or the partition does not exist, or this user may not see it.",
        "Check the spelling: `kohort topics list`. Create the topic, or let the broker do it "
        "(auto.create.topics.enable on the broker, allow.auto.create.topics at a consumer). With ACLs, "
        "allow DESCRIBE.",
    ),
    E.INVALID_FETCH_SIZE: ErrorHelp(
        "A fetch asked for a size that makes no sense.",
        "Set fetch.max.bytes and max.partition.fetch.bytes to positive numbers.",
    ),
    E.LEADER_NOT_AVAILABLE: ErrorHelp(
        "The partition has no leader now: the topic was just created, or its brokers are down.",
        _LEADER_MOVES,
    ),
    E.NOT_LEADER_OR_FOLLOWER: ErrorHelp(
        "The broker that was asked does not have this partition any more.",
        _LEADER_MOVES,
    ),
    E.REQUEST_TIMED_OUT: ErrorHelp(
        "The broker, or what it waited for, did not finish in time.",
        "Look whether the brokers are overloaded or unreachable (`kohort doctor`). For acks=all, look "
        "whether replicas are behind. On a slow network raise request.timeout.ms.",
    ),
    E.BROKER_NOT_AVAILABLE: ErrorHelp(
        "A broker is not there.",
        "Start it, or wait until the cluster has noticed that it is gone.",
    ),
    E.REPLICA_NOT_AVAILABLE: ErrorHelp(
        "A replica that should have the partition does not have it (yet).",
        _LEADER_MOVES,
    ),
    E.MESSAGE_TOO_LARGE: ErrorHelp(
        "A batch or a record is larger than the topic allows.",
        "Raise max.message.bytes of the topic (and max.request.size of the producer), compress "
        "(compression.type=zstd), or send less in one record. Batches of several records are divided by "
        "Kohort's producer by itself.",
    ),
    E.STALE_CONTROLLER_EPOCH: ErrorHelp(
        "A controller that has been replaced sent a request.",
        _CLUSTER_INSIDE,
    ),
    E.OFFSET_METADATA_TOO_LARGE: ErrorHelp(
        "The text that was committed with an offset is too long.",
        "Shorten the metadata of the commit, or raise offset.metadata.max.bytes of the broker (4096).",
    ),
    E.NETWORK_EXCEPTION: ErrorHelp(
        "The connection ended before the answer came.",
        "Look whether the broker was restarted, and whether a firewall or load balancer closes idle "
        "connections earlier than connections.max.idle.ms (9 minutes). A request larger than "
        "socket.request.max.bytes of the broker is cut off in this way too.",
    ),
    E.COORDINATOR_LOAD_IN_PROGRESS: ErrorHelp(
        "The coordinator is still reading the offsets of its groups, after a start or after it took over.",
        "Wait: it takes seconds, or minutes after millions of commits. If it is always slow, look whether "
        "`__consumer_offsets` is being compacted.",
    ),
    E.COORDINATOR_NOT_AVAILABLE: ErrorHelp("The group has no coordinator now.", _COORDINATOR),
    E.NOT_COORDINATOR: ErrorHelp(
        "The broker that was asked does not coordinate this group any more.",
        _COORDINATOR,
    ),
    E.INVALID_TOPIC_EXCEPTION: ErrorHelp(
        "The name of a topic is not allowed.",
        "Use letters, digits, `.`, `_` and `-`, at most 249 of them, and not `.` or `..` alone.",
    ),
    E.RECORD_LIST_TOO_LARGE: ErrorHelp(
        "A batch is larger than a segment of the log.",
        "Lower batch.size, or raise segment.bytes of the topic.",
    ),
    E.NOT_ENOUGH_REPLICAS: ErrorHelp(
        "Fewer replicas are in sync than min.insync.replicas asks for, so that acks=all was refused.",
        "Bring the missing brokers back. `kohort topics describe TOPIC` shows which are in sync.",
    ),
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorHelp(
        "The record was written, but then too few replicas were in sync.",
        "Bring the missing brokers back. Without enable.idempotence a retry may write the record twice.",
    ),
    E.INVALID_REQUIRED_ACKS: ErrorHelp(
        "The producer asked for a value of acks that does not exist.",
        "Set acks to 0, 1 or all.",
    ),
    E.ILLEGAL_GENERATION: ErrorHelp(
        "The group has rebalanced since, and this member's generation is an old one.",
        "Poll again: the client joins by itself. If a commit got it, the partitions may belong to another "
        "member, which works on the records again. `kohort groups why GROUP` shows why the group "
        "rebalanced.",
    ),
    E.INCONSISTENT_GROUP_PROTOCOL: ErrorHelp(
        "The member and the group have no assignor in common, or the group is not one of consumers.",
        "Give all members one partition.assignment.strategy in common, or use another group.id. `kohort "
        "groups describe GROUP --members` shows what the others have.",
    ),
    E.INVALID_GROUP_ID: ErrorHelp(
        "The name of the group is empty or not allowed.",
        "Set group.id to a name.",
    ),
    E.UNKNOWN_MEMBER_ID: ErrorHelp(
        "The coordinator does not know this member: it was removed because it sent no heartbeat or did not "
        "poll in time, or the broker lost its memory.",
        "Poll again: the client joins by itself. If it happens again and again, the work between two polls "
        "takes longer than max.poll.interval.ms: lower max.poll.records or raise that time. `kohort groups "
        "why GROUP` says which of both it was.",
    ),
    E.INVALID_SESSION_TIMEOUT: ErrorHelp(
        "session.timeout.ms is not within what the broker allows.",
        "Choose a value between group.min.session.timeout.ms (6000) and group.max.session.timeout.ms "
        "(1800000) of the broker.",
    ),
    E.REBALANCE_IN_PROGRESS: ErrorHelp(
        "The group is rebalancing.",
        "Poll: that finishes the rebalance. Commit what is still assigned afterwards.",
    ),
    E.INVALID_COMMIT_OFFSET_SIZE: ErrorHelp(
        "A commit is larger than the broker can store.",
        "Commit fewer partitions at once, or shorter metadata.",
    ),
    E.TOPIC_AUTHORIZATION_FAILED: ErrorHelp(
        "This user may not do this with the topic.",
        "Allow READ to consumers, WRITE to producers, and DESCRIBE to both, on the topic in the error; or "
        "connect as another user.",
    ),
    E.GROUP_AUTHORIZATION_FAILED: ErrorHelp(
        "This user may not use the group.",
        "Allow READ on the group in the error, or choose a group.id that this user may use.",
    ),
    E.CLUSTER_AUTHORIZATION_FAILED: ErrorHelp(
        "This user may not do this with the cluster.",
        "For a producer: allow IDEMPOTENT_WRITE on the cluster, or set enable.idempotence=false. For "
        "administration: allow ALTER or DESCRIBE on the cluster.",
    ),
    E.INVALID_TIMESTAMP: ErrorHelp(
        "The timestamp of a record is too far from the broker's clock.",
        "Check the producer's clock. If old or future times are right, raise "
        "message.timestamp.before.max.ms or message.timestamp.after.max.ms of the topic.",
    ),
    E.UNSUPPORTED_SASL_MECHANISM: ErrorHelp(
        "The broker does not offer this SASL mechanism.",
        "Set sasl.mechanism to one that the listener offers; the error names them.",
    ),
    E.ILLEGAL_SASL_STATE: ErrorHelp(
        "A request came before the log-in was finished, or a log-in came where none is expected.",
        "Compare security.protocol with the listener: a client with SASL_… on a listener without SASL, or "
        "the other way round, causes this.",
    ),
    E.UNSUPPORTED_VERSION: ErrorHelp(
        "The broker does not speak a version of the request that is needed.",
        "Update the broker, or leave out what needs the newer version; the error names the request. "
        "SUPPORTED.md lists what Kohort's broker speaks.",
    ),
    E.TOPIC_ALREADY_EXISTS: ErrorHelp(
        "There is a topic of this name.",
        "Use it, or choose another name. A program that only wants the topic to exist may ignore this error.",
    ),
    E.INVALID_PARTITIONS: ErrorHelp(
        "The number of partitions is not allowed: zero, or not more than the topic has.",
        "Give a positive number; partitions can be added, never taken away.",
    ),
    E.INVALID_REPLICATION_FACTOR: ErrorHelp(
        "There are not as many brokers as replicas were asked for.",
        "Lower the replication factor to the number of brokers (1 with Kohort), or leave it out to get the "
        "broker's default.",
    ),
    E.INVALID_REPLICA_ASSIGNMENT: ErrorHelp(
        "The brokers that were named for the partitions do not fit.",
        "Name brokers that exist, each at most once for a partition, as many for each partition, and all "
        "partitions from 0 on.",
    ),
    E.INVALID_CONFIG: ErrorHelp(
        "A setting of a topic or a broker is unknown or has a wrong value.",
        "Correct what the error names; docs/settings.md lists all settings with their defaults.",
    ),
    E.NOT_CONTROLLER: ErrorHelp(
        "The broker that was asked is not the controller of the cluster.",
        "Nothing: the client asks the controller instead.",
    ),
    E.INVALID_REQUEST: ErrorHelp(
        "The request contradicts itself, or holds what this version of it cannot.",
        "Read the text of the error. If it came from Kohort's own client, report it: that is a bug.",
    ),
    E.UNSUPPORTED_FOR_MESSAGE_FORMAT: ErrorHelp(
        "The records have an old format (before Kafka 0.11) that cannot do this, or that the broker does "
        "not store.",
        "Use a producer that writes record batches of version 2; every client since 2017 does.",
    ),
    E.POLICY_VIOLATION: ErrorHelp(
        "The request is right, but a rule of the cluster forbids it.",
        "The error names the rule. Internal topics such as `__consumer_offsets` cannot be changed in this "
        "way.",
    ),
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorHelp(
        "A batch of an idempotent producer is missing before this one.",
        "Usually a batch before it had failed for good (delivery.timeout.ms), and the producer goes on by "
        "itself. If the topic was deleted and created again, make a new producer.",
    ),
    E.DUPLICATE_SEQUENCE_NUMBER: ErrorHelp(
        "The broker has this batch already.",
        "Nothing: the record was written once. Its offset may be unknown.",
    ),
    E.INVALID_PRODUCER_EPOCH: ErrorHelp(
        "A newer producer with the same id has taken over.",
        "Close this producer. Two of them must not share one transactional.id.",
    ),
    E.INVALID_TXN_STATE: ErrorHelp("The transaction is not in a state for this request.", _TRANSACTION),
    E.INVALID_PRODUCER_ID_MAPPING: ErrorHelp(
        "The broker does not know the producer's id for this transactional.id.",
        "Close the producer and make a new one.",
    ),
    E.INVALID_TRANSACTION_TIMEOUT: ErrorHelp(
        "transaction.timeout.ms is larger than the broker allows.",
        "Lower it below transaction.max.timeout.ms of the broker.",
    ),
    E.CONCURRENT_TRANSACTIONS: ErrorHelp("The transaction before is still being ended.", _TRANSACTION),
    E.TRANSACTION_COORDINATOR_FENCED: ErrorHelp(
        "The coordinator of the transaction has been replaced.",
        _TRANSACTION,
    ),
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorHelp(
        "This user may not use the transactional.id.",
        "Allow WRITE on the transactional id: kohort acls add --allow USER --producer --transactional-id ID.",
    ),
    E.SECURITY_DISABLED: ErrorHelp(
        "The cluster has no security switched on, so there is nothing to change.",
        "Configure an authorizer on the brokers first.",
    ),
    E.OPERATION_NOT_ATTEMPTED: ErrorHelp(
        "It was not tried, because another part of the same request failed.",
        "Correct the part that failed, and send all of it again.",
    ),
    E.KAFKA_STORAGE_ERROR: ErrorHelp(
        "The broker cannot write to or read from its disk.",
        "Look into the broker's log: the disk is full, broken or read-only. Kohort's broker does not retry "
        "a failed sync; free the disk and restart it.",
    ),
    E.LOG_DIR_NOT_FOUND: ErrorHelp(
        "The broker has no such directory for logs.",
        "Name one that is in log.dirs of the broker.",
    ),
    E.SASL_AUTHENTICATION_FAILED: ErrorHelp(
        "The broker did not accept the credentials.",
        "Check sasl.username, sasl.password and sasl.mechanism; with OAUTHBEARER, the token and its end.",
    ),
    E.UNKNOWN_PRODUCER_ID: ErrorHelp(
        "The broker has forgotten the producer, because all its records were deleted.",
        "Nothing: an idempotent producer goes on with a new sequence.",
    ),
    E.REASSIGNMENT_IN_PROGRESS: ErrorHelp(
        "The partitions of the topic are being moved.",
        "Wait until the reassignment is done, or cancel it.",
    ),
    E.DELEGATION_TOKEN_AUTH_DISABLED: ErrorHelp("Delegation tokens are not switched on.", _TOKEN),
    E.DELEGATION_TOKEN_NOT_FOUND: ErrorHelp("There is no such delegation token.", _TOKEN),
    E.DELEGATION_TOKEN_OWNER_MISMATCH: ErrorHelp("The token belongs to somebody else.", _TOKEN),
    E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: ErrorHelp(
        "Tokens cannot be asked for on this listener.",
        _TOKEN,
    ),
    E.DELEGATION_TOKEN_AUTHORIZATION_FAILED: ErrorHelp("This user may not use the token.", _TOKEN),
    E.DELEGATION_TOKEN_EXPIRED: ErrorHelp("The token has expired.", _TOKEN),
    E.INVALID_PRINCIPAL_TYPE: ErrorHelp(
        "The kind of principal is not supported.",
        "Write it as `User:name`.",
    ),
    E.NON_EMPTY_GROUP: ErrorHelp(
        "The group has members, and this can be done only while it has none.",
        "Stop the consumers of the group first; `kohort groups describe GROUP --members` shows them. Those "
        "that were killed are removed after session.timeout.ms.",
    ),
    E.GROUP_ID_NOT_FOUND: ErrorHelp(
        "There is no group of this name.",
        "Check the spelling: `kohort groups list`. A group without members and offsets disappears "
        "(offsets.retention.minutes, 7 days).",
    ),
    E.FETCH_SESSION_ID_NOT_FOUND: ErrorHelp(
        "The broker has forgotten the fetch session, for example after a restart.",
        "Nothing: the client begins a new session.",
    ),
    E.INVALID_FETCH_SESSION_EPOCH: ErrorHelp(
        "Client and broker disagree about the fetch session.",
        "Nothing: the client begins a new session.",
    ),
    E.LISTENER_NOT_FOUND: ErrorHelp(
        "The leader has no listener of the name that was used.",
        "Give all brokers the same names in listeners and advertised.listeners.",
    ),
    E.TOPIC_DELETION_DISABLED: ErrorHelp(
        "The broker does not delete topics.",
        "Set delete.topic.enable=true on the broker.",
    ),
    E.FENCED_LEADER_EPOCH: ErrorHelp(
        "The client's knowledge of the leader is older than the broker's.",
        _LEADER_MOVES,
    ),
    E.UNKNOWN_LEADER_EPOCH: ErrorHelp(
        "The client's knowledge of the leader is newer than the broker's.",
        _LEADER_MOVES,
    ),
    E.UNSUPPORTED_COMPRESSION_TYPE: ErrorHelp(
        "The request's version, or the topic, does not allow this compression.",
        "Choose another compression.type.",
    ),
    E.STALE_BROKER_EPOCH: ErrorHelp(
        "The broker was restarted since the request was made.",
        _CLUSTER_INSIDE,
    ),
    E.OFFSET_NOT_AVAILABLE: ErrorHelp(
        "A new leader does not know yet up to where records are safe.",
        _LEADER_MOVES,
    ),
    E.MEMBER_ID_REQUIRED: ErrorHelp(
        "The coordinator gives a new member its id, and wants it to join again with that.",
        "Nothing: every join begins like this.",
    ),
    E.PREFERRED_LEADER_NOT_AVAILABLE: ErrorHelp(
        "The preferred leader of the partition is not there.",
        "Start that broker, then elect again.",
    ),
    E.GROUP_MAX_SIZE_REACHED: ErrorHelp(
        "The group has as many members as the broker allows.",
        "Stop members that are too many (more members than partitions do nothing), or raise group.max.size "
        "of the broker.",
    ),
    E.FENCED_INSTANCE_ID: ErrorHelp(
        "Another consumer has joined with the same group.instance.id.",
        "Give each consumer an id of its own, and close this one. If a restart caused it, the old process "
        "still ran: stop it first.",
    ),
    E.ELIGIBLE_LEADERS_NOT_AVAILABLE: ErrorHelp(
        "No replica can become the leader.",
        "Bring brokers of the partition back. unclean.leader.election.enable=true would lose records.",
    ),
    E.ELECTION_NOT_NEEDED: ErrorHelp("The preferred replica is the leader already.", "Nothing."),
    E.NO_REASSIGNMENT_IN_PROGRESS: ErrorHelp("No reassignment is under way.", "Nothing."),
    E.GROUP_SUBSCRIBED_TO_TOPIC: ErrorHelp(
        "Offsets of a topic cannot be deleted while the group reads it.",
        "Stop the consumers of the group, or let them unsubscribe from the topic.",
    ),
    E.INVALID_RECORD: ErrorHelp(
        "A record does not fit the topic or the format.",
        "For a compacted topic, give every record a key. The error says which record of the batch it was.",
    ),
    E.UNSTABLE_OFFSET_COMMIT: ErrorHelp(
        "Offsets are part of a transaction that is not ended yet.",
        "Wait until the transaction ends; at the latest transaction.timeout.ms of its producer ends it.",
    ),
    E.THROTTLING_QUOTA_EXCEEDED: ErrorHelp(
        "A quota of the broker holds this client back.",
        "Send fewer changes at once, or let the administrator raise the quota.",
    ),
    E.PRODUCER_FENCED: ErrorHelp(
        "A newer producer with the same transactional.id runs.",
        "Close this producer. Give each producer that runs at the same time a transactional.id of its own.",
    ),
    E.RESOURCE_NOT_FOUND: ErrorHelp("What was asked for does not exist.", "Check the name."),
    E.DUPLICATE_RESOURCE: ErrorHelp("A request names a thing twice.", "Name it once."),
    E.UNACCEPTABLE_CREDENTIAL: ErrorHelp(
        "The password or its iterations are not acceptable.",
        "Choose another password; SCRAM wants between 4096 and 16384 iterations.",
    ),
    E.INCONSISTENT_VOTER_SET: ErrorHelp("The controllers disagree about who may vote.", _CLUSTER_INSIDE),
    E.INVALID_UPDATE_VERSION: ErrorHelp(
        "A feature cannot be changed to this version.",
        "Read the text of the error: it names the versions that are possible.",
    ),
    E.FEATURE_UPDATE_FAILED: ErrorHelp(
        "A feature of the cluster could not be changed.",
        "Look into the controller's log.",
    ),
    E.PRINCIPAL_DESERIALIZATION_FAILURE: ErrorHelp(
        "A broker could not read who made a forwarded request.",
        _CLUSTER_INSIDE,
    ),
    E.SNAPSHOT_NOT_FOUND: ErrorHelp("A snapshot of the cluster's metadata is not there.", _CLUSTER_INSIDE),
    E.POSITION_OUT_OF_RANGE: ErrorHelp("A position in a snapshot is out of range.", _CLUSTER_INSIDE),
    E.UNKNOWN_TOPIC_ID: ErrorHelp(
        "The broker does not know the id of the topic: it was deleted, or deleted and created again.",
        "Nothing, if a new topic of that name exists: the client learns its id. If the topic was deleted, "
        "create it or stop using it.",
    ),
    E.DUPLICATE_BROKER_REGISTRATION: ErrorHelp(
        "Two brokers have one id.",
        "Give each broker a node.id of its own.",
    ),
    E.BROKER_ID_NOT_REGISTERED: ErrorHelp(
        "There is no broker of this id.",
        "`kohort doctor` shows the brokers of the cluster.",
    ),
    E.INCONSISTENT_TOPIC_ID: ErrorHelp(
        "The topic was deleted and created again while it was read or written.",
        "Nothing: the client learns the new id. Offsets that were committed belong to the old topic: look "
        "whether they still make sense.",
    ),
    E.INCONSISTENT_CLUSTER_ID: ErrorHelp(
        "The request was meant for another cluster.",
        "Check bootstrap.servers: an address may now lead to another cluster.",
    ),
    E.TRANSACTIONAL_ID_NOT_FOUND: ErrorHelp("There is no such transactional id.", "Check the name."),
    E.FETCH_SESSION_TOPIC_ID_ERROR: ErrorHelp(
        "Names and ids of topics were mixed in a fetch session.",
        "Nothing: the client begins a new session.",
    ),
    E.INELIGIBLE_REPLICA: ErrorHelp("A replica that is being fenced cannot be in sync.", _CLUSTER_INSIDE),
    E.NEW_LEADER_ELECTED: ErrorHelp(
        "The leader changed while the in-sync replicas were changed.",
        _CLUSTER_INSIDE,
    ),
    E.OFFSET_MOVED_TO_TIERED_STORAGE: ErrorHelp(
        "The records have been moved to remote storage.",
        _CLUSTER_INSIDE,
    ),
    E.FENCED_MEMBER_EPOCH: ErrorHelp(
        "A member of a KIP-848 group has an epoch that the coordinator does not know any more.",
        "Nothing: the consumer calls on_lost and joins again. If that happens often, look for long pauses in it.",
    ),
    E.UNRELEASED_INSTANCE_ID: ErrorHelp(
        "The group.instance.id of a KIP-848 group is still in use.",
        "Close the consumer that has it, or give each its own. After a crash it is free when the session is over "
        "(group.consumer.session.timeout.ms), or after `kohort groups remove-members`.",
    ),
    E.UNSUPPORTED_ASSIGNOR: ErrorHelp(
        "The broker does not have the assignor that a member of a KIP-848 group asks for.",
        "Set group.remote.assignor to one of the broker's group.consumer.assignors, or leave it out.",
    ),
    E.STALE_MEMBER_EPOCH: ErrorHelp(
        "A commit in a KIP-848 group came with an epoch of the member that is not its present one.",
        "Nothing as long as the partitions are still assigned: the consumer sends it again with the new epoch. Else "
        "another member reads them: commit in on_revoked.",
    ),
    E.MISMATCHED_ENDPOINT_TYPE: ErrorHelp(
        "A broker was asked as if it were a controller, or the other way round.",
        "Use the port of the other kind: bootstrap.servers for brokers.",
    ),
    E.UNSUPPORTED_ENDPOINT_TYPE: ErrorHelp(
        "The kind of node that was asked for does not exist.",
        "Update the client: it asks for something that this broker does not know.",
    ),
    E.UNKNOWN_CONTROLLER_ID: ErrorHelp("There is no controller of this id.", _CLUSTER_INSIDE),
    E.UNKNOWN_SUBSCRIPTION_ID: ErrorHelp(
        "The broker has changed which metrics it wants of clients.",
        "Nothing: Kohort's client pushes no metrics to brokers.",
    ),
    E.TELEMETRY_TOO_LARGE: ErrorHelp(
        "A client pushed more metrics than the broker takes.",
        "Nothing: Kohort's client pushes no metrics to brokers.",
    ),
    E.INVALID_REGISTRATION: ErrorHelp("The controller refused a broker's registration.", _CLUSTER_INSIDE),
    E.TRANSACTION_ABORTABLE: ErrorHelp(
        "The transaction must be aborted, and can be tried again.",
        _TRANSACTION,
    ),
    E.INVALID_RECORD_STATE: ErrorHelp(
        "A record of a share group is not in a state for this acknowledgement.",
        _SHARE,
    ),
    E.SHARE_SESSION_NOT_FOUND: ErrorHelp("The broker has forgotten the share session.", _SHARE),
    E.INVALID_SHARE_SESSION_EPOCH: ErrorHelp("Client and broker disagree about the share session.", _SHARE),
    E.FENCED_STATE_EPOCH: ErrorHelp("A coordinator of share groups has been replaced.", _SHARE),
    E.INVALID_VOTER_KEY: ErrorHelp("A controller's key does not fit.", _CLUSTER_INSIDE),
    E.DUPLICATE_VOTER: ErrorHelp("A controller is a voter already.", _CLUSTER_INSIDE),
    E.VOTER_NOT_FOUND: ErrorHelp("There is no such voter.", _CLUSTER_INSIDE),
    E.INVALID_REGULAR_EXPRESSION: ErrorHelp(
        "The pattern of topics is no regular expression that the broker can read.",
        "The broker reads a SubscriptionPattern with RE2: lookaheads and backreferences do not work there. A pattern "
        "of `re.compile` is matched by the client, with Python's `re`.",
    ),
    E.REBOOTSTRAP_REQUIRED: ErrorHelp(
        "The broker tells the client to begin again with bootstrap.servers.",
        "Nothing: the client does so (metadata.recovery.strategy=rebootstrap).",
    ),
    E.STREAMS_INVALID_TOPOLOGY: ErrorHelp("The topology of a Streams group is invalid.", _STREAMS),
    E.STREAMS_INVALID_TOPOLOGY_EPOCH: ErrorHelp("The epoch of a Streams topology is invalid.", _STREAMS),
    E.STREAMS_TOPOLOGY_FENCED: ErrorHelp("A member of a Streams group has an old topology.", _STREAMS),
    E.SHARE_SESSION_LIMIT_REACHED: ErrorHelp("The broker has as many share sessions as it allows.", _SHARE),
}
