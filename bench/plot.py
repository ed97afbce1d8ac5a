"""Draws the figures in bench/results as SVG files in bench/plots. The same results give the same
bytes."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "outbox", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
                            "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left"})

import matplotlib.pyplot as plt  # noqa: E402, the backend comes first
from matplotlib.ticker import FuncFormatter  # noqa: E402

HERE = Path(__file__).parent
PLOTS = HERE / "plots"
OURS, REFERENCE, OTHERS, TARGET = "#1f6feb", "#9aa4b0", ("#d97706", "#7c3aed"), "#c1121f"

THROUGHPUT = {
    "enqueue_sync": "outbox_enqueue, one event per transaction, 8 clients",
    "enqueue_async": "… with synchronous_commit = off",
    "enqueue_many": "outbox_enqueue_many, 1,000 events a call",
    "enqueue_many_recordset": "… against another INSERT",
    "relay_throughput": "HTTP relay, one event per request",
    "relay_batch": "HTTP relay, 100 events a request",
    "kafka_drain": "Kafka relay, a backlog",
    "kafka_drain_debezium": "… against Debezium",
}
WAL = {
    "enqueue_wal": "outbox_enqueue",
    "enqueue_many_wal": "outbox_enqueue_many, 1,000 events a call",
    "life_wal": "whole life of an event: enqueue, claim, ack, 100 at a time",
    "life_wal_pgq": "… against PgQ",
    "idempotency_wal": "idempotency key: begin and finish",
}
LATENCY = {
    "relay_latency": ("HTTP relay", {"limit": "the limit: the client posts after its commit",
                                     "notify": "a relay woken by NOTIFY", "polling": "a relay that polls every 500 ms"}),
    "kafka_latency": ("Kafka relay", {"limit": "the limit: the client produces after its commit",
                                      "debezium": "Debezium, poll.interval.ms = 1", "debezium_default": "Debezium as it comes"}),
}


def result(name: str) -> dict | None:
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def left_out(what: str, name: str) -> None:
    print(f"{what} is left out: there is no bench/results/{name}.json; make bench makes one")


def save(figure: plt.Figure, name: str) -> None:
    PLOTS.mkdir(exist_ok=True)
    figure.savefig(PLOTS / f"{name}.svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    plt.close(figure)
    print(f"bench/plots/{name}.svg")


def number(value: float) -> str:
    """Three significant digits."""
    if value >= 1000:
        return f"{round(value, 2 - len(str(int(value))) + 1):,.0f}"
    return f"{value:.3g}"


def verdict(row: dict, bound: str) -> str:
    """Ratio and target, and whether the target is met."""
    ratio = f"ratio {row['ratio']:{'.2f' if row['ratio'] >= 0.1 else '.2g'}}"
    if row["target"] is None:
        return ratio
    return f"{ratio}, target {bound} {row['target']}" + ("" if row["met"] else ", missed")


def pairs(name: str, title: str, unit: str, bound: str, measures: dict[str, str]) -> None:
    """Bars of outbox above those of the reference, with a scale for each measure."""
    rows = []
    for measure, label in measures.items():
        if row := result(measure):
            rows.append((label, row))
        else:
            left_out(f"a pair of plot {name}", measure)
    if not rows:
        print(f"plot {name} is left out: it would be empty")
        return
    figure, axes = plt.subplots(figsize=(9, 0.75 * len(rows) + 0.8), layout="constrained")
    for place, (label, row) in enumerate(rows):
        widest = max(row["ours"], row["reference"])
        target = (row["target"] or 0) * row["reference"] / widest
        axes.text(0, place - 0.36, label, va="center", fontweight="bold")
        for offset, value, colour, beside, who in (
                (-0.1, row["ours"], OURS, target, "outbox"),
                (0.18, row["reference"], REFERENCE, 0, row["reference_name"].removeprefix("the seed: "))):
            axes.barh(place + offset, value / widest, height=0.24, color=colour)
            axes.text(max(value / widest, beside) + 0.012, place + offset, f"{number(value)}{unit}  {who}", va="center")
        if target:
            axes.plot([target] * 2, [place - 0.24, place + 0.04], color=TARGET, linewidth=2)
        axes.text(1.95, place - 0.36, verdict(row, bound), va="center", ha="right", color="black" if row["met"] is not False else TARGET)
    axes.set(xlim=(0, 1.95), ylim=(len(rows) - 0.5, -0.6), title=title)
    axes.axis("off")
    figure.text(0.995, 0.005, "each pair has a scale of its own; red: where the target is", ha="right", va="bottom", fontsize=8, color="#57606a")
    save(figure, name)


def latency(name: str) -> None:
    sink, labels = LATENCY[name]
    measured = result(f"{name}_histogram")
    if measured is None:
        left_out(f"plot {name}", f"{name}_histogram")
        return
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    colours = {"ours": OURS, "limit": REFERENCE, **dict(zip(list(labels)[1:], OTHERS))}
    for who, label in {"ours": "outbox", **labels}.items():
        if (contestant := measured["contestants"].get(who)) is None:
            continue
        classes = contestant["histogram"]
        total = sum(one["events"] for one in classes)
        axes.stairs([100 * one["events"] / total for one in classes],
                    [one["from_ms"] for one in classes] + [classes[-1]["to_ms"]],
                    fill=who == "ours", alpha=0.5 if who == "ours" else 1, color=colours[who], linewidth=1.6,
                    label=f"{label}: p50 {number(contestant['p50'])} ms, p99 {number(contestant['p99'])} ms")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set(xlabel="ms, four classes for each doubling", ylabel="% of events in a class",
             title=f"{sink}: {measured['from']} to {measured['to']}, {measured['offered_per_second']:,} events/s")
    axes.legend(loc="upper right", frameon=False)
    against = [f"{what} {number(row['ours'])} against {number(row['reference'])} ms ({label.split(':')[0]}): {verdict(row, '≤')}"
               for who, label in labels.items() for what in ("p50", "p99")
               if (row := result(f"{name}_{what}" + ("" if who == "limit" else f"_{who}")))]
    axes.text(0.99, 0.66, "\n".join(["medians of the rounds:", *against]), transform=axes.transAxes, ha="right", va="top", fontsize=8)
    save(figure, name)


def long_life() -> None:
    measured = result("long_life")
    if measured is None or "enqueue_rates" not in measured:
        left_out("plot long_life", "long_life")
        return
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    tenth = measured["events"] / 1e7
    for key, label, colour in (("enqueue_rates", "outbox_enqueue", OURS), ("plain_insert_rates", "plain INSERT, before", REFERENCE),
                               ("consume_rates", "claim and ack", OTHERS[0])):
        rates = measured[key]
        axes.plot([tenth * (place + 0.5) for place in range(len(rates))], rates, marker="o", color=colour,
                  label=f"{label}: last tenth {rates[-1] / rates[0]:.2f} of the first")
    target = measured["last_tenth_target"]
    axes.axhline(target * measured["enqueue_rates"][0], color=TARGET, linestyle="--", linewidth=1.2,
                 label=f"target: outbox_enqueue ≥ {target} of its first tenth")
    axes.set(xlabel="million events so far", ylabel="events/s, mean of a tenth", ylim=(0, None), xlim=(0, measured["events"] / 1e6),
             title=f"A life of {measured['events']:,} events, default settings, 100 at a time")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.legend(loc="lower right", frameon=False)
    save(figure, "long_life")


pairs("throughput", "Throughput, events/s (more is better)", "/s", "≥", THROUGHPUT)
pairs("wal", "WAL per event or key, bytes (less is better)", " B", "≤", WAL)
for plot in LATENCY:
    latency(plot)
long_life()
