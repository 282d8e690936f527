"""What was measured: latencies as percentiles, a small picture of them in text, and how it is printed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kohort.cli.frame.output import print_json

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_BAR = "█"
_WIDTH = 40
_BARS = 10


def percentile(ordered: Sequence[float], share: float) -> float:
    """Returns the smallest value that at least `share` percent of all values do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]


def summary_of(times_ms: Sequence[float]) -> dict[str, float]:
    """Returns mean, percentiles and maximum; nothing if there is nothing."""
    if not times_ms:
        return {}
    ordered = sorted(times_ms)
    found = {"count": float(len(ordered)), "mean": sum(ordered) / len(ordered)}
    found |= {f"p{share:g}": percentile(ordered, share) for share in PERCENTILES}
    return {name: round(value, 3) for name, value in (found | {"max": ordered[-1]}).items()}


def picture(times_ms: Sequence[float]) -> list[str]:
    """Draws how the times are spread: a bar for each doubling, the shortest times first."""
    if not times_ms:
        return []
    counts: dict[int, int] = {}
    for each in times_ms:
        power = math.ceil(math.log2(max(each, 0.001)))
        counts[power] = counts.get(power, 0) + 1
    most = max(counts.values())
    first = max(min(counts), max(counts) - _BARS + 1)  # what is faster than all bars counts with the first
    counts[first] = sum(count for power, count in counts.items() if power <= first)
    most = max(most, counts[first])
    lines = []
    for power in range(first, max(counts) + 1):
        count = counts.get(power, 0)
        bar = _BAR * (math.ceil(_WIDTH * count / most) if count else 0)
        limit = f"{2**power:,}" if power >= 0 else f"{2.0**power:.3g}"
        lines.append(f"  up to {limit:>8} ms  {bar:<{_WIDTH}}  {count:,}")
    return lines


def report(
    what: str, figures: Mapping[str, object], times: Mapping[str, Sequence[float]], *, as_json: bool
) -> None:
    """Prints a measurement: figures, and for each kind of latency its percentiles and its picture."""
    if as_json:
        latencies = {f"{name}_ms": summary_of(each) for name, each in times.items()}
        print_json({"bench": what, **figures, **latencies})
        return
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):<16} {_shown(value)}")
    for name, each in times.items():
        summary = summary_of(each)
        shares = "  ".join(f"{key} {value:g}" for key, value in summary.items() if key != "count")
        print(f"\n{name.replace('_', ' ')} in ms, of {len(each):,}: {shares}")
        for line in picture(each):
            print(line)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def rates(records: int, size: int, seconds: float) -> dict[str, object]:
    """Returns the figures of a throughput."""
    lasted = max(seconds, 1e-9)
    return {
        "records": records,
        "bytes": records * size,
        "seconds": round(seconds, 3),
        "records_per_s": round(records / lasted, 1),
        "mb_per_s": round(records * size / lasted / 1e6, 3),
    }
