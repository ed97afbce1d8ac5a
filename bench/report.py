"""Results as one JSON object per measure, and as a table."""

import json
from pathlib import Path

from lab import Run, median, spread

RESULTS = Path(__file__).parent / "results"
UNITS = {"rate": "events/s", "cpu": "us CPU/event", "time": "us/event", "wal": "bytes WAL/event",
         "dead": "dead/event", "lock": "lock wait share"}


def figure(value: float) -> str:
    return f"{value:.1f}" if value >= 10 or value == 0 else f"{value:.4f}"


class Report:
    def __init__(self) -> None:
        self.rows: list[dict] = []

    def add(self, name: str, what: str, ours: list[Run], reference: list[Run], reference_name: str,
            target: float | None = None, control: list[Run] | None = None,
            absolute: bool = False, unit: str | None = None) -> None:
        """Compares medians. A rate must be at least the target, any other figure at most. The
        target is a ratio, or a figure of outbox if `absolute`. `control` is a second run of the
        reference, whose ratio shows the noise."""
        ratio = median(ours, what) / median(reference, what) if median(reference, what) else None
        judged = median(ours, what) if absolute else ratio
        row = {
            "name": name,
            "unit": unit or UNITS[what],
            "ours": round(median(ours, what), 4),
            "reference": round(median(reference, what), 4),
            "reference_name": reference_name,
            "ratio": None if ratio is None else round(ratio, 3),
            "target": target,
            "target_is_absolute": absolute,
            "met": None if target is None else (judged >= target if what == "rate" else judged <= target),
            "rounds": len(ours),
            "spread": round(max(spread(ours, what), spread(reference, what)), 3),
        }
        if control is not None and ratio is not None:
            row["control_ratio"] = round(median(control, what) / median(reference, what), 3)
        self.rows.append(row)
        self.save(name, row)
        if len(self.rows) == 1:
            print(f"{'measure':30} {'ours':>11} {'reference':>11}  {'unit':16} {'ratio':>6} "
                  f"{'A/A':>6} {'target':>7}  {'met':4} {'spread':>6}  reference is", flush=True)
        bound = "" if target is None else ("≥ " if what == "rate" else "≤ ") + str(target)
        verdict = {True: "yes", False: "NO", None: ""}[row["met"]]
        print(f"{name:30} {figure(row['ours']):>11} {figure(row['reference']):>11}  {row['unit']:16} "
              f"{'' if ratio is None else format(ratio, '.3f'):>6} {row.get('control_ratio', ''):>6} {bound:>7}  {verdict:4} {row['spread']:6.2f}  "
              f"{reference_name}", flush=True)

    def note(self, name: str, figures: dict) -> None:
        """Saves and prints figures without a reference."""
        self.save(name, figures)
        print(f"{name:30} " + ", ".join(f"{key} {value}" for key, value in figures.items()), flush=True)

    @staticmethod
    def save(name: str, content: dict) -> None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
