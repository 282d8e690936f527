"""The dashboard and the alerts: Prometheus's own checker accepts them, and each metric that they name exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.metrics import METRICS
from kohort.cli.metric_tables import TABLES, filled
from kohort.exposition import MetricSpec, registry_of
from kohort.spark.pipelines.metrics import PIPELINE_METRICS
from tests.deploy.promtool import run_promtool
from tests.test_readme import blocks

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "kohort.json").read_text("utf-8"))
ALERTS = (DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8")
NAME = re.compile(r"\b(?:kohort|kafka|process|python)_\w+|\bup\b(?=\{)")


def series(spec: MetricSpec) -> set[str]:
    ends = ("_bucket", "_sum", "_count") if spec.kind == "histogram" else ("",)
    return {spec.name + end for end in ends}


def names_that_exist() -> set[str]:
    ours = {name for spec in (*METRICS, *PIPELINE_METRICS) for name in series(spec)}
    of_process = {
        sample.name for family in registry_of(dict, of_process=True).collect() for sample in family.samples
    }
    return ours | of_process | {"up"}


def queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


def test_each_query_of_the_dashboard_names_a_metric_that_exists() -> None:
    texts = [*queries(), *(v["definition"] for v in DASHBOARD["templating"]["list"] if "definition" in v)]
    assert len(texts) > 30
    for text in texts:
        named = set(NAME.findall(text))
        assert named, text
        assert named <= names_that_exist(), text


def test_each_label_of_the_dashboard_is_one_of_its_metric() -> None:
    known = {
        name: {*spec.labels, "instance", "job", "le"}
        for spec in (*METRICS, *PIPELINE_METRICS)
        for name in series(spec)
    }
    for text in queries():
        for name, selectors in re.findall(r"(\w+)\{([^}]*)\}", text):
            labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", selectors))
            assert labels <= known.get(name, labels), text


def test_prometheus_can_read_each_query_of_the_dashboard(tmp_path: Path) -> None:
    """Grafana fills in its variables; then each query is one that a rule could have."""
    rules = [
        {"record": f"query:number{number}", "expr": text.replace("$__rate_interval", "5m").replace("$", "")}
        for number, text in enumerate(queries())
    ]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")
    checked = run_promtool("check", "rules", str(path))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    covered: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & covered, panel["title"]
        assert all(x < 24 for x, _ in cells)
        covered |= cells


def test_each_alert_names_metrics_that_exist_and_is_tested_and_in_the_docs() -> None:
    named = set(
        NAME.findall(re.sub(r"^ *(?:summary|description|- alert|- name): .*$", "", ALERTS, flags=re.M))
    )
    assert named <= names_that_exist()
    alerts = set(re.findall(r"- alert: (\w+)", ALERTS))
    tests = (DEPLOY / "prometheus" / "alerts_test.yml").read_text("utf-8")
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    assert alerts == set(re.findall(r"alertname: (\w+)", tests))
    assert alerts == set(re.findall(r"^\| `(Kohort\w+)` \|", page, re.M))


def promtool_commands() -> list[str]:
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    return [
        line[2:]
        for text in blocks(page, "console")
        for line in text.splitlines()
        if line.startswith("$ promtool")
    ]


@pytest.mark.parametrize("command", promtool_commands())
def test_the_checks_of_the_page_find_nothing(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    checked = run_promtool(*command.split()[1:])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "SUCCESS" in checked.stdout


def test_a_rule_test_can_fail(tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(ALERTS.replace("[15m]) > 10", "[15m]) > 1000"), "utf-8")
    tests = tmp_path / "alerts_test.yml"
    tests.write_text((DEPLOY / "prometheus" / "alerts_test.yml").read_text("utf-8"), "utf-8")
    assert run_promtool("test", "rules", str(tests)).returncode != 0


def test_prometheus_accepts_its_settings() -> None:
    checked = run_promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_tables_of_metrics_in_the_docs_are_up_to_date() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    assert filled(page) == page, "run `make supported`"
    assert set(re.findall(r"<!-- metrics: (\w+) -->", page)) == set(TABLES)
    for spec in (*METRICS, *PIPELINE_METRICS):
        assert f"| `{spec.name}` |" in page
