"""Runs the measures whose name contains the first argument."""

import sys

import audit
import catalog
import consume
import counting
import enqueue
import idempotency
import kafka
import lifecycle
import relay
import upcasting
from report import Report

MEASURES = {**enqueue.MEASURES, **consume.MEASURES, **relay.MEASURES, **kafka.MEASURES,
            **idempotency.MEASURES, **lifecycle.MEASURES, **counting.MEASURES, **upcasting.MEASURES,
            **audit.MEASURES, **catalog.MEASURES}


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = {name: measure for name, measure in MEASURES.items() if wanted in name}
    if not chosen:
        sys.exit(f"no measure is called {wanted!r}; there are: {', '.join(MEASURES)}")
    report = Report()
    for measure in chosen.values():
        measure(report)
    missed = [row["name"] for row in report.rows if row["met"] is False]
    print("all targets met" if not missed else f"missed: {', '.join(missed)}")


main()
