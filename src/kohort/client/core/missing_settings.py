"""Settings of Apache Kafka 4.3's clients that Kohort's clients lack: which are refused, and which have no effect.

A setting that changes what a program does, or whom it trusts, is refused: a producer that ignored `partitioner.class`
would write records to other partitions. A setting that only tunes Kafka's own code causes a warning and has no effect.
No setting is ignored in silence. The names of librdkafka's settings are refused with Kafka's name for the same.
"""

from __future__ import annotations

import logging

from kohort.settings import SettingError

log = logging.getLogger("kohort.client.config")

_JMX = "Kohort has no JMX"
_LATER = "does not have yet"
_NEVER = "does not have"
_CLASS = "it names a Java class"
_KERBEROS = "GSSAPI (Kerberos) is not supported yet; PLAIN, SCRAM and OAUTHBEARER are"
_TOKENS = "set sasl.oauthbearer.token to a function that returns a token"
_CONTEXT = "set ssl.context to an ssl.SSLContext with what you need"

# name -> whether it may come one day, and what to do instead
REFUSED: dict[str, tuple[str, str]] = {
    # The group and the consumer.
    "internal.leave.group.on.close": (_NEVER, "a member with a group.instance.id does not leave on close"),
    "internal.throw.on.fetch.stable.offset.unsupported": (_NEVER, "it is internal to Kafka Streams"),
    # The producer.
    "transaction.two.phase.commit.enable": (_LATER, "a transaction ends by transaction.timeout.ms at the latest"),
    "partitioner.class": (_NEVER, f"{_CLASS}; set partitioner to a name or a function"),
    # Admin.
    "bootstrap.controllers": (_LATER, "brokers are asked, and pass on what is for the controller"),
    # All clients.
    "interceptor.classes": (_NEVER, f"{_CLASS}; set interceptors to a list of objects"),
    "config.providers": (_NEVER, f"{_CLASS}; put the values themselves into the settings"),
    "sasl.client.callback.handler.class": (_NEVER, f"{_CLASS}; {_TOKENS}"),
    "sasl.login.class": (_NEVER, f"{_CLASS}; {_TOKENS}"),
    "sasl.oauthbearer.jwt.validator.class": (_NEVER, f"{_CLASS}; {_TOKENS}"),
    **{
        f"sasl.oauthbearer.{name}": (_LATER, _TOKENS)
        for name in (
            "assertion.algorithm", "assertion.claim.aud", "assertion.claim.exp.seconds", "assertion.claim.iss",
            "assertion.claim.jti.include", "assertion.claim.nbf.seconds", "assertion.claim.sub", "assertion.file",
            "assertion.private.key.file", "assertion.private.key.passphrase", "assertion.template.file",
            "clock.skew.seconds", "expected.audience", "expected.issuer", "jwks.endpoint.refresh.ms",
            "jwks.endpoint.retry.backoff.max.ms", "jwks.endpoint.retry.backoff.ms", "jwks.endpoint.url",
            "scope.claim.name", "sub.claim.name",
        )
    },
    **{
        f"sasl.kerberos.{name}": (_LATER, _KERBEROS)
        for name in (
            "kinit.cmd", "min.time.before.relogin", "service.name", "ticket.renew.jitter",
            "ticket.renew.window.factor",
        )
    },
    "security.providers": (_NEVER, f"{_CLASS}; {_CONTEXT}"),
    "ssl.engine.factory.class": (_NEVER, f"{_CLASS}; {_CONTEXT}"),
}  # fmt: skip

# name -> why it has no effect
NO_EFFECT: dict[str, str] = {
    "auto.include.jmx.reporter": _JMX,
    "enable.metrics.push": "metrics are not pushed to the broker",
    "metric.reporters": _JMX,
    "metrics.recording.level": "all metrics are recorded",
    "partitioner.adaptive.partitioning.enable": "records without a key are not spread by the load of brokers",
    "partitioner.availability.timeout.ms": "records without a key are not spread by the load of brokers",
    **{
        f"sasl.login.{name}": "a token is renewed when a connection needs one, by sasl.login.refresh.window.factor"
        for name in ("refresh.buffer.seconds", "refresh.min.period.seconds", "refresh.window.jitter")
    },
    "ssl.keymanager.algorithm": "it chooses among Java classes",
    "ssl.provider": "it chooses among Java classes",
    "ssl.secure.random.implementation": "it chooses among Java classes",
    "ssl.trustmanager.algorithm": "it chooses among Java classes",
}  # fmt: skip
_NO_EFFECT_PREFIX = "metrics.context."

_OF_GROUP = (
    "it is a setting of the group, not of its members: use `kohort groups settings GROUP --set {0}=…` or "
    "Admin.alter_group_configs"
)
_NO_OFFSETS = (
    "a share group commits no offsets, its members acknowledge records; see share.acknowledgement.mode"
)
_ASSIGNED = "the broker alone assigns the partitions of a share group"

NOT_OF_SHARE_GROUPS: dict[str, str] = {
    "auto.offset.reset": _OF_GROUP.format("share.auto.offset.reset"),
    "isolation.level": _OF_GROUP.format("share.isolation.level"),
    "session.timeout.ms": _OF_GROUP.format("share.session.timeout.ms"),
    "heartbeat.interval.ms": _OF_GROUP.format("share.heartbeat.interval.ms"),
    "enable.auto.commit": _NO_OFFSETS,
    "auto.commit.interval.ms": _NO_OFFSETS,
    "group.instance.id": "a share group has no static members",
    "group.protocol": "a share consumer has only one protocol; for classic and consumer groups use Consumer",
    "group.remote.assignor": _ASSIGNED,
    "partition.assignment.strategy": _ASSIGNED,
    "interceptor.classes": "a share consumer has no interceptors; set an acknowledgement commit callback",
    "interceptors": "a share consumer has no interceptors; set an acknowledgement commit callback",
    "max.partition.fetch.bytes": "the broker shares fetch.max.bytes out among the partitions",
    "exclude.internal.topics": "a share consumer subscribes to topics by their names, not by a pattern",
}
"""Settings of Consumer that a share consumer refuses, and why."""

_TAKE = "Kafka's name for it is "
# names of librdkafka's, aiokafka's and kafka-python's -> what to use instead
OTHER_NAMES = {
    "enable.partition.eof": "compare position() with end_offsets(), or use lag()",
    "queue.buffering.max.ms": "Kafka's name for it is linger.ms",
    "queue.buffering.max.kbytes": "Kafka's name for it is buffer.memory",
    "message.timeout.ms": "Kafka's name for it is delivery.timeout.ms",
    "broker.address.family": "all addresses of a name are tried",
    "metadata.broker.list": _TAKE + "bootstrap.servers",
    **{
        f"sasl.oauthbearer.{name}": _TOKENS
        for name in ("assertion.jwt.template.file", "metadata.authentication.type")
    },
    **{f"sasl.kerberos.{name}": _KERBEROS for name in ("keytab", "principal")},
    **{
        f"ssl.{name}": _CONTEXT
        for name in (
            "ca.certificate.stores",
            "crl.location",
            "curves.list",
            "engine.id",
            "engine.location",
            "providers",
            "sigalgs.list",
        )
    },
    "ssl_key": _CONTEXT,
    "ssl_certificate": _CONTEXT,
    "ssl_ca": _CONTEXT,
    "socket.timeout.ms": _TAKE + "request.timeout.ms",
    "topic.metadata.refresh.interval.ms": _TAKE + "metadata.max.age.ms",
    "fetch.wait.max.ms": _TAKE + "fetch.max.wait.ms",
    "fetch.message.max.bytes": _TAKE + "max.partition.fetch.bytes",
    "queued.max.messages.kbytes": "fetch.max.bytes limits what one answer brings",
    "queued.min.messages": "fetch.max.bytes limits what one answer brings",
    "enable.auto.offset.store": "automatic commits cover what earlier polls returned; else commit the offsets yourself",
    "statistics.interval.ms": "there is no stats_cb",
    "stats_cb": "it has no statistics in the form of librdkafka",
    "error_cb": "errors are raised by the call that notices them; the logger kohort.client has the rest",
    "batch.num.messages": "batch.size limits a batch, in bytes",
    "queue.buffering.max.messages": "buffer.memory limits what waits, in bytes",
    "message.max.bytes": _TAKE + "max.request.size",
    "message.send.max.retries": _TAKE + "retries",
    "max.in.flight": _TAKE + "max.in.flight.requests.per.connection",
    "request.required.acks": _TAKE + "acks",
    "compression.codec": _TAKE + "compression.type",
    "rebalance.timeout.ms": _TAKE + "max.poll.interval.ms",
    "consumer.timeout.ms": "give poll a timeout, in seconds",
    "api.version": "versions are agreed upon with each broker",
    "max.batch.size": _TAKE + "batch.size",
    "sasl.plain.username": "use sasl.username",
    "sasl.plain.password": "use sasl.password",
    "sasl.oauth.token.provider": "use sasl.oauthbearer.token, a function that gives a token",
    "ssl.cafile": "use ssl.ca.location",
    "ssl.certfile": "use ssl.certificate.location",
    "ssl.keyfile": "use ssl.key.location",
    "ssl.password": "use ssl.key.password",
    "ssl.check.hostname": "use ssl.endpoint.identification.algorithm; none switches the check off",
}


def is_missing(name: str, what: str) -> bool:
    """Whether only Kafka's clients have this setting. Warns that it has no effect.

    Raises SettingError if the setting must not be ignored.

    `what` is the kind of client: consumer, producer or admin.
    """
    if name in REFUSED:
        when, instead = REFUSED[name]
        raise SettingError(f"{name} is a setting of Kafka's that Kohort's {what} {when}: {instead}")
    if name in OTHER_NAMES:
        raise SettingError(f"{name} is not a setting of this client: {OTHER_NAMES[name]}")
    why = _JMX if name.startswith(_NO_EFFECT_PREFIX) else NO_EFFECT.get(name)
    if why is None:
        return False
    log.warning("%s is a setting of Kafka's that has no effect in Kohort's %s: %s", name, what, why)
    return True
