"""What benchmarks and interop tests need from outside: Debian programs, Kafka's jars, npm packages.

Everything is fetched once into a cache ($KOHORT_CACHE, else ~/.cache/kohort). What cannot be got raises
`Missing`, which says what to install; nothing is passed over in silence.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.3.1"
_JARS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
)
CONNECTOR_VERSION = "4.2.0"
# Spark's own connector for pyspark 4.2.0; 4.0.0 is the only 4.x of its token provider, and it fits.
_CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
_AVRO = (("org.apache.spark", "spark-avro_2.13", "4.1.1"),)  # works with Spark 4.2
_PROTOBUF = (("org.apache.spark", "spark-protobuf_2.13", "4.1.1"),)
APICURIO_VERSION = "3.0.9"  # the newest that runs on Java 17; 3.3 needs 21
_DEBIAN = {
    "go": "golang-go",
    "java": "default-jre-headless",
    "javac": "default-jdk-headless",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
    "kcat": "kcat",
    "chromium": "chromium",
    "promtool": "prometheus",
}


class Missing(Exception):
    """Something from outside could not be got; the text says what, why, and how to get it by hand."""


def cache() -> Path:
    path = Path(os.environ.get("KOHORT_CACHE") or Path.home() / ".cache" / "kohort")
    path.mkdir(parents=True, exist_ok=True)
    return path


def program(name: str) -> str:
    """The path of a program; as root it is installed from Debian when it is not there."""
    found = shutil.which(name)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-qq"], capture_output=True, timeout=120, check=False)
        done = _tried(["apt-get", "install", "-y", "-qq", "--no-install-recommends", _DEBIAN[name]], 300)
        found = shutil.which(name)
        if found is None:
            raise Missing(f"{name} is missing and `apt-get install {_DEBIAN[name]}` did not bring it: {done}")
    if found is None:
        raise Missing(f"{name} is missing; install it (Debian: apt-get install {_DEBIAN[name]})")
    return found


def kafka_jars() -> Path:
    """The folder with Apache Kafka's jars and all they depend on."""
    return _maven(f"kafka-{KAFKA_VERSION}", _JARS, "kafka-clients-*.jar", f"Apache Kafka {KAFKA_VERSION}")


def connector_jars() -> list[Path]:
    """Spark's Kafka connector, for `spark.jars`. What it depends on is in pyspark, but for these few."""
    name = f"Spark's Kafka connector {CONNECTOR_VERSION}"
    folder = _maven(
        f"spark-sql-kafka-{CONNECTOR_VERSION}", _CONNECTOR, "spark-sql-kafka-*.jar", name, alone=True
    )
    return sorted(folder.glob("*.jar"))


def avro_jars() -> list[Path]:
    """Spark's from_avro, for `spark.jars`."""
    return sorted(_maven("spark-avro-4.1.1", _AVRO, "spark-avro*.jar", "from_avro", alone=True).glob("*.jar"))


def protobuf_jars() -> list[Path]:
    """Spark's from_protobuf, for `spark.jars`."""
    folder = _maven("spark-protobuf-4.1.1", _PROTOBUF, "spark-protobuf*.jar", "from_protobuf", alone=True)
    return sorted(folder.glob("*.jar"))


def _maven(
    folder_name: str, jars: tuple[tuple[str, str, str], ...], proof: str, what: str, *, alone: bool = False
) -> Path:
    """The folder in the cache with these jars; what they depend on too, unless `alone`."""
    folder = cache() / folder_name
    if folder.is_dir():
        return folder
    mvn = program("mvn")
    without = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    with tempfile.TemporaryDirectory(dir=cache()) as work:
        wanted = "".join(
            f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version>"
            f"{without if alone else ''}</dependency>"
            for g, a, v in jars
        )
        Path(work, "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>kohort</groupId><artifactId>jars</artifactId>"
            f"<version>1</version><dependencies>{wanted}</dependencies></project>"
        )
        out = Path(work, "libs")
        command = [mvn, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={out}"]
        trouble = _tried(command, 300, cwd=work)
        if trouble or not list(out.glob(proof)):
            raise Missing(f"{what} could not be got from Maven Central: {trouble or 'no jars'}")
        out.rename(folder)
    return folder


def apicurio() -> Path:
    """The jar with which `java -jar` runs Apicurio Registry, a schema registry."""
    what = f"Apicurio Registry {APICURIO_VERSION}"
    folder = cache() / f"apicurio-registry-{APICURIO_VERSION}"
    jar = f"apicurio-registry-app-{APICURIO_VERSION}-runner.jar"
    if folder.is_dir():
        return folder / jar
    mvn = program("mvn")
    artifact = f"io.apicurio:apicurio-registry-app:{APICURIO_VERSION}:tar.gz:all"
    with tempfile.TemporaryDirectory(dir=cache()) as work:
        out = Path(work, "libs")
        command = [mvn, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={out}"]
        trouble = _tried(command, 300, cwd=work)
        archives = list(out.glob("*.tar.gz"))
        if trouble or not archives:
            raise Missing(f"{what} could not be got from Maven Central: {trouble or 'no archive'}")
        inside = Path(work, "it")
        with tarfile.open(archives[0]) as archive:
            archive.extractall(inside, filter="data")
        if not (inside / jar).exists():
            raise Missing(f"{what} from Maven Central has no {jar}")
        inside.rename(folder)
    return folder / jar


def node_modules(packages: dict[str, str]) -> Path:
    """The folder to run a node script in, with these npm packages at these versions."""
    folder = cache() / ("node-" + "-".join(f"{n.replace('/', '_')}@{v}" for n, v in sorted(packages.items())))
    if folder.is_dir():
        return folder
    program("node")
    npm = program("npm")
    with tempfile.TemporaryDirectory(dir=cache()) as work:
        inside = Path(work, "it")
        inside.mkdir()
        names = [f"{name}@{version}" for name, version in packages.items()]
        trouble = _tried([npm, "install", "--no-audit", "--no-fund", "--prefix", str(inside), *names], 180)
        if trouble or not all((inside / "node_modules" / name).is_dir() for name in packages):
            raise Missing(f"npm could not install {' '.join(names)}: {trouble or 'nothing came'}")
        inside.rename(folder)
    return folder


def java(
    main_class: str, *arguments: str, options: tuple[str, ...] = (), extra: Path | None = None
) -> list[str]:
    """The command that runs a class from Kafka's jars (and from the folder `extra`)."""
    path = f"{kafka_jars()}/*" + (f":{extra}" if extra else "")
    return [program("java"), *options, "-cp", path, main_class, *arguments]


def _tried(command: list[str], timeout_s: float, cwd: str | None = None) -> str:
    """Empty when the command went well, else why it did not."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, cwd=cwd, check=False
        )
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command[:3])} …` took more than {timeout_s:.0f} s"
    if done.returncode == 0:
        return ""
    return (
        " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:]) or f"exit code {done.returncode}"
    )
