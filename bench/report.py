"""Results as one JSON object per measure, and as a table."""

import json
from pathlib import Path

from lab import Run, median, spread

RESULTS = Path(__file__).parent / "results"
UNITS = {"rate": "events/s", "cpu": "us CPU/event", "wal": "bytes WAL/event"}


class Report:
    def __init__(self) -> None:
        self.rows: list[dict] = []

    def add(self, name: str, what: str, ours: list[Run], reference: list[Run], reference_name: str,
            target: float | None = None, control: list[Run] | None = None) -> None:
        """Compares medians. A rate is to be at least the target, everything else at most.
        `control` is the reference a second time: what the ratio of equals looks like here."""
        ratio = median(ours, what) / median(reference, what)
        row = {
            "name": name,
            "unit": UNITS[what],
            "ours": round(median(ours, what), 2),
            "reference": round(median(reference, what), 2),
            "reference_name": reference_name,
            "ratio": round(ratio, 3),
            "target": target,
            "met": None if target is None else (ratio >= target if what == "rate" else ratio <= target),
            "rounds": len(ours),
            "spread": round(max(spread(ours, what), spread(reference, what)), 3),
        }
        if control is not None:
            row["control_ratio"] = round(median(control, what) / median(reference, what), 3)
        self.rows.append(row)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(row, indent=2) + "\n")
        if len(self.rows) == 1:
            print(f"{'measure':30} {'ours':>11} {'reference':>11}  {'unit':16} {'ratio':>6} "
                  f"{'A/A':>6} {'target':>7}  {'met':4} {'spread':>6}  reference is", flush=True)
        bound = "" if target is None else ("≥ " if what == "rate" else "≤ ") + str(target)
        verdict = {True: "yes", False: "NO", None: ""}[row["met"]]
        print(f"{name:30} {row['ours']:11.1f} {row['reference']:11.1f}  {row['unit']:16} {ratio:6.3f} "
              f"{row.get('control_ratio', '') or '':>6} {bound:>7}  {verdict:4} {row['spread']:6.2f}  "
              f"{reference_name}", flush=True)
