"""An Apache Kafka whose listeners speak all that our client can: plain, TLS, mutual TLS, SASL, SASL over TLS."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks import outside, targets

USER, PASSWORD = "alice", "alice's secret, with = and ,"
SCRAM_PASSWORD = "scrammed"  # the tool that formats takes no commas
GUEST = "carol"
"""A user of SCRAM, with the same password, who may do only what an ACL allows her; all others are super users."""
REAUTH_MS = 2_000
"""How long a session of SCRAM-SHA-256 on the listener SASL lasts."""
PROTOCOLS = {"TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_MODULE = "org.apache.kafka.common.security"
_JAAS = {
    "plain": f'{_MODULE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "scram-sha-256": f"{_MODULE}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{_MODULE}.scram.ScramLoginModule required;",
    "oauthbearer": f'{_MODULE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";',
}


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: an authority, and what it signed for the broker and for a client."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    def of(self, who: str) -> Path:
        """Private key and certificate in one file."""
        return self.folder / f"{who}.pem"


@dataclass(frozen=True, slots=True)
class ApacheKafka:
    target: targets.Target
    certificates: Certificates
    ports: dict[str, int]

    @property
    def bootstrap_servers(self) -> str:
        """Of the listener without TLS and SASL."""
        return self.target.address

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"


def start(directory: Path, *more: str) -> ApacheKafka:
    """Starts one; `more` are lines of its server.properties."""
    directory.mkdir(parents=True, exist_ok=True)
    certificates = make_certificates(directory / "certificates")
    ports = {name: targets.free_port() for name in ("PLAINTEXT", "CONTROLLER", *PROTOCOLS)}
    file = directory / "server.properties"
    file.write_text("\n".join([*_properties(directory, certificates, ports), *more]) + "\n")
    passwords = [
        word
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for name in (USER, GUEST)
        for word in ("--add-scram", f"{mechanism}=[name={name},password={SCRAM_PASSWORD}]")
    ]
    format_it = outside.java(
        "kafka.tools.StorageTool", "format", "-t", "kohort-interop-aaaaaaa", "-c", str(file), *passwords
    )
    _run(format_it)
    return ApacheKafka(targets.apache_kafka(directory), certificates, ports)


CONSUMER_GROUPS = (
    "group.consumer.min.heartbeat.interval.ms=200",
    "group.consumer.heartbeat.interval.ms=500",
    "group.consumer.min.session.timeout.ms=3000",
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.assignment.interval.ms=0",
)
"""Groups of the consumer protocol settle with heartbeats: tests should not wait 5 s for each."""


def _properties(directory: Path, certificates: Certificates, ports: dict[str, int]) -> list[str]:
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    advertised = ",".join(
        f"{name}://127.0.0.1:{port}" for name, port in ports.items() if name != "CONTROLLER"
    )
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | PROTOCOLS
    single = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    return [
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.voters=1@127.0.0.1:{ports['CONTROLLER']}",
        f"listeners={listeners}",
        f"advertised.listeners={advertised}",
        "listener.security.protocol.map=" + ",".join(f"{name}:{how}" for name, how in protocols.items()),
        "controller.listener.names=CONTROLLER",
        "inter.broker.listener.name=PLAINTEXT",
        f"log.dirs={directory / 'data'}",
        *(f"{topic}.replication.factor=1" for topic in single),
        *(f"{topic}.min.isr=1" for topic in single[1:]),
        "group.initial.rebalance.delay.ms=0",
        "num.partitions=3",
        "group.min.session.timeout.ms=1000",
        *CONSUMER_GROUPS,
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificates.of('broker')}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={certificates.authority}",
        "listener.name.mutual.ssl.client.auth=required",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"super.users=User:ANONYMOUS;User:{USER};User:CN=client",
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        f"listener.name.sasl.scram-sha-256.connections.max.reauth.ms={REAUTH_MS}",
        *(
            f"listener.name.{listener}.{mechanism}.sasl.jaas.config={jaas}"
            for listener in ("sasl", "sasltls")
            for mechanism, jaas in _JAAS.items()
        ),
    ]


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """Several nodes with a listener PLAINTEXT and a listener SASL each; the first is the controller too."""

    targets: list[targets.Target]
    ports: list[dict[str, int]]

    @property
    def bootstrap_servers(self) -> str:
        return self.address("PLAINTEXT", 1)

    def address(self, listener: str, node_id: int) -> str:
        return f"127.0.0.1:{self.ports[node_id - 1][listener]}"

    def kill(self) -> None:
        for target in self.targets:
            target.kill()


def start_cluster(directory: Path, nodes: int) -> KafkaCluster:
    ports = [
        {name: targets.free_port() for name in ("PLAINTEXT", "SASL", "CONTROLLER")} for _ in range(nodes)
    ]
    started: list[targets.Target] = []
    try:
        for node_id, own in enumerate(ports, 1):
            place = directory / str(node_id)
            place.mkdir(parents=True)
            file = place / "server.properties"
            file.write_text("\n".join(_node_properties(place, node_id, own, ports[0]["CONTROLLER"])) + "\n")
            _run(
                outside.java(
                    "kafka.tools.StorageTool", "format", "-t", "kohort-interop-aaaaaaa", "-c", str(file)
                )
            )
            started.append(targets.apache_kafka(place))
    except BaseException:
        for target in started:
            target.kill()
        raise
    return KafkaCluster(started, ports)


def _node_properties(directory: Path, node_id: int, ports: dict[str, int], controller: int) -> list[str]:
    is_controller = node_id == 1
    names = ("PLAINTEXT", "SASL", "CONTROLLER") if is_controller else ("PLAINTEXT", "SASL")
    addresses = {name: f"{name}://127.0.0.1:{ports[name]}" for name in names}
    single = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    return [
        f"process.roles={'broker,controller' if is_controller else 'broker'}",
        f"node.id={node_id}",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        f"listeners={','.join(addresses.values())}",
        f"advertised.listeners={addresses['PLAINTEXT']},{addresses['SASL']}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "controller.listener.names=CONTROLLER",
        "inter.broker.listener.name=PLAINTEXT",
        f"log.dirs={directory / 'data'}",
        *(f"{topic}.replication.factor=1" for topic in single),
        *(f"{topic}.min.isr=1" for topic in single[1:]),
        "group.initial.rebalance.delay.ms=0",
        "group.min.session.timeout.ms=1000",
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl.plain.sasl.jaas.config={_JAAS['plain']}",
    ]


def make_certificates(folder: Path) -> Certificates:
    """With openssl; good for the address 127.0.0.1 and for a day."""
    folder.mkdir(parents=True, exist_ok=True)
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    _run([*new, "-x509", "-subj", "/CN=kohort test authority", "-keyout", "ca.key", "-out", "ca.pem"], folder)
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for who in ("broker", "client"):
        asked = ["-subj", f"/CN={who}", "-keyout", f"{who}.key", "-out", f"{who}.csr"]
        _run([*new[:-2], *asked], folder)
        sign = (
            f"openssl x509 -req -in {who}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -extfile names"
        )
        _run([*sign.split(), "-out", f"{who}.crt"], folder)
        both = (folder / f"{who}.key").read_text() + (folder / f"{who}.crt").read_text()
        (folder / f"{who}.pem").write_text(both)
    return Certificates(folder)


def _run(command: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {(done.stderr or done.stdout)[-800:]}"
