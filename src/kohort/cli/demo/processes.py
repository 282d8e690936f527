"""The processes of the demo: a producer of orders, members of a group, and a pipeline on Spark."""

from __future__ import annotations

import importlib.util
import json
import math
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kohort.client.producer import Producer

TOPIC, GROUP, PARTITIONS = "orders", "shop", 6
PIPELINE = Path(__file__).with_name("revenue.py")
ITEMS = ("apples", "bread", "cheese", "dates", "eggs", "flour", "grapes", "honey")
_STEP_S = 0.02


class OrderProducer(threading.Thread):
    """Writes orders for some seconds, at a rate that goes up and down."""

    def __init__(self, bootstrap: str, seconds: float, per_second: int) -> None:
        super().__init__(name="orders", daemon=True)
        self._address, self._seconds, self._per_second = bootstrap, seconds, per_second
        self._end = threading.Event()
        self.sent = 0
        self.orders: Counter[str] = Counter()
        self.cents: Counter[str] = Counter()
        self.failure: BaseException | None = None

    def first(self) -> None:
        """Writes one order ahead of all others, with which Spark warms up."""
        with Producer(bootstrap_servers=self._address) as producer:
            self._send(producer, random.Random(1)).result(120)

    def run(self) -> None:
        try:
            with Producer(bootstrap_servers=self._address, compression_type="lz4", linger_ms=10) as producer:
                self._write(producer)
        except BaseException as error:
            self.failure = error

    def _write(self, producer: Producer) -> None:
        chance = random.Random(7)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < self._seconds and not self._end.is_set():
            # How many there should be by now: the integral of 1 + sin/2 over three waves.
            wave = 2 * math.pi * 3 / self._seconds
            wanted = self._per_second * (passed + (1 - math.cos(wave * passed)) / (2 * wave))
            deliveries = [self._send(producer, chance) for _ in range(int(wanted) - self.sent)]
            if deliveries:
                deliveries[-1].result(120)
            self._end.wait(_STEP_S)
        producer.flush()

    def _send(self, producer: Producer, chance: random.Random) -> Any:
        customer, item, cents = chance.randrange(500), chance.choice(ITEMS), chance.randrange(100, 9900)
        order = {"order": self.sent, "customer": customer, "item": item, "cents": cents}
        self.orders[item] += 1
        self.cents[item] += cents
        self.sent += 1
        return producer.send(TOPIC, value=json.dumps(order).encode(), key=b"%d" % customer)

    def stop(self) -> None:
        self._end.set()
        if self.is_alive():
            self.join(60)


class DemoMember:
    """A consumer in a process of its own. What it reports is noted with the time since the demo began."""

    def __init__(
        self, name: str, bootstrap: str, settings: dict[str, Any], clock: Callable[[], float]
    ) -> None:
        self.name, self._clock = name, clock
        self.began_s, self.ended_s = clock(), math.inf
        self.owned: list[tuple[float, list[int]]] = []
        self.worked: list[tuple[int, int, int]] = []  # partition, first offset, the one after the last
        self.records = 0
        command = [sys.executable, "-m", "kohort.cli.demo.member", bootstrap, TOPIC, GROUP, name]
        self._process = subprocess.Popen(
            [*command, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, name=name, daemon=True)
        self._listener.start()
        self.killed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def has_partitions(self) -> bool:
        """Whether it has partitions, as far as it has reported."""
        return bool(self.owned and self.owned[-1][1])

    @property
    def failure(self) -> str | None:
        """Why it ended, unless it was told to end or was killed on purpose."""
        code = self._process.poll()
        if code in (None, 0) or self.killed:
            return None
        assert self._process.stderr is not None
        return f"{self.name} ended with {code}: {self._process.stderr.read().strip()[-400:]}"

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "owned" in told:
                self.owned.append((self._clock(), told["owned"]))
            for partition, (first, after) in told.get("worked", {}).items():
                self.worked.append((int(partition), first, after))
                self.records += after - first
        self.ended_s = min(self.ended_s, self._clock())

    def tell(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Kills it by SIGKILL: it neither commits nor leaves the group."""
        self.killed = True
        self._process.kill()
        self._end()

    def leave(self) -> None:
        if self._process.poll() is None:
            self.tell("leave")
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(90)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        self._listener.join(60)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def close(self) -> None:
        """Ends the process, whatever has happened before."""
        if self._process.poll() is None:
            self.kill()
        if self._process.stderr is not None:
            self._process.stderr.close()


class PipelineProcess:
    """The process of `kohort pipeline run` on revenue.py: one more member of the group."""

    killed = False

    def __init__(self, bootstrap: str, folder: Path, out: Path, clock: Callable[[], float]) -> None:
        from kohort.spark.pipelines.state import PipelineState

        self._clock = clock
        self.began_s, self.ended_s = 0.0, math.inf
        self.owned: list[tuple[float, list[int]]] = []
        self.worked: list[tuple[int, int, int]] = []  # partition, first offset, the one after the last
        self.records = 0
        self._state = PipelineState(folder / "pipelines", PIPELINE.stem)
        self.log = folder / "pipeline.log"
        command = [
            sys.executable, "-m", "kohort.cli.main", "pipeline", "run", str(PIPELINE),
            "--bootstrap", bootstrap, "--master", "local[2]", "--state", str(folder / "pipelines"),
            "--set", f"out={out}", "--set", "spark.sql.shuffle.partitions=2",
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def status(self) -> Any:
        """The status of the pipeline; None before there is any."""
        return self._state.read()

    @property
    def failure(self) -> str | None:
        code = self._process.poll()
        if code in (None, 0):
            return None
        return f"the pipeline ended with {code}:\n{self.log.read_text(errors='replace').strip()[-1500:]}"

    def note_owned(self, partitions: list[int]) -> None:
        """Notes the partitions that the group's description says it has."""
        if not self.owned or self.owned[-1][1] != partitions:
            self.owned.append((self._clock(), partitions))

    def stop(self) -> None:
        """Stops the pipeline as Ctrl-C does: it makes its last commit and leaves the group."""
        if self._process.poll() is None:
            self._process.terminate()
            self.ended_s = self._clock()
        try:
            self._process.wait(150)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)


def why_no_spark() -> str | None:
    """What is missing to run Spark, and how to get it; None if nothing is missing."""
    if any(importlib.util.find_spec(name) is None for name in ("pyspark", "pyarrow")):
        return 'Spark is not installed: pip install "kohort[spark]" brings it'
    import os

    from kohort.spark.java import NoJava, find_java
    from kohort.spark.versions import UnsupportedPySpark, check_pyspark

    try:
        check_pyspark()
        find_java(os.environ)
    except (NoJava, UnsupportedPySpark) as missing:
        return str(missing)
    return None
