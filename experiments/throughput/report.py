"""Tables and plots of the throughput experiment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness import store, tables
from experiments.harness.plots import save_figure

WIDTH, HEIGHT = 3.3, 2.6  # inches of a column
Record = dict[str, Any]  # one cost of one population of one graph


def rate(record: Record, who: str, clock: str = "wall") -> float:
    """Return candidates/s of "gopt", "compiled" (the faster queue) or "obvious"."""
    return record["per_second"][record["queue"] if who == "compiled" else who][clock]


def exponent(records: Sequence[Record], who: str) -> float:
    """Return the exponent of the time per candidate in ops + uses, from 1 000 ops on."""
    large = [record for record in records if record["ops"] >= 1000]
    if len(large) < 2:
        return float("nan")
    size = np.log([record["ops"] + record["uses"] for record in large])
    return float(np.polyfit(size, -np.log([rate(record, who) for record in large]), 1)[0])


def exponents(records: Sequence[Record]) -> list[Record]:
    """Return the exponents of gopt and of the compiled decoder, for each graph and cost."""
    return [
        {
            "graph": graph,
            "cost": cost,
            **{who: exponent(chosen, who) for who in ("gopt", "compiled")},
        }
        for (graph, cost), chosen in _lines(records).items()
    ]


def _lines(records: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    lines: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        lines.setdefault((record["graph"], record["cost"]), []).append(record)
    return lines


def plot(records: Sequence[Record], across: str, label: str) -> Any:
    """Return a figure of candidates/s of gopt and of the compiled decoder, on log axes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.size": 8, "axes.linewidth": 0.6, "legend.fontsize": 6.5}):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        for index, ((graph, cost), chosen) in enumerate(_lines(records).items()):
            for who, style in (("gopt", "o-"), ("compiled", "s--")):
                axes.loglog(
                    [record[across] for record in chosen],
                    [rate(record, who) for record in chosen],
                    style,
                    color=f"C{index}",
                    markersize=2.5,
                    linewidth=0.9,
                    label=f"{graph}, {cost}" if who == "gopt" else None,
                )
        axes.loglog([], [], "ks--", markersize=2.5, linewidth=0.9, label="compiled decoder")
        axes.set_xlabel(label)
        axes.set_ylabel("candidates/s")
        axes.grid(linewidth=0.3, alpha=0.5)
        axes.margins(x=0.02)
        axes.legend(frameon=False)
    return figure


def _figure(value: float | None, form: str) -> str:
    return "" if value is None or np.isnan(value) else format(value, form)


def _rows(records: Sequence[Record], fields: Sequence[str]) -> list[tuple[Any, ...]]:
    rows = []
    for record in records:
        ours, theirs = (rate(record, who) for who in ("gopt", "compiled"))
        of_cpu = rate(record, "gopt", "cpu") / rate(record, "compiled", "cpu")
        row = [
            *(record[field] for field in fields),
            f"{ours:,.0f}",
            f"{theirs:,.0f}",
            record["queue"],
            f"{ours / theirs:.2f}",
            f"{of_cpu:.2f}",
        ]
        if "obvious" in record["per_second"]:
            loop = rate(record, "obvious")
            row += [f"{loop:,.0f}", f"{ours / loop:.0f}"]
        rows.append(tuple(row))
    return rows


def _search_rows(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    ours = {r["population"]: r["seconds"]["wall"] for r in records if r["search"] == "gopt"}
    return [
        (
            record["search"],
            record["population"],
            record["evaluations"],
            "" if record["best"] is None else f"{record['best'] / 2**20:.1f}",
            f"{record['seconds']['wall']:.2f}",
            f"{record['seconds']['cpu']:.2f}",
            f"{record['seconds']['wall'] / ours[record['population']]:.1f}",
        )
        for record in records
    ]


def report(found: dict[str, Any], folder: Path) -> None:
    """Save the figures, print and save the tables, and save the plots."""
    slopes = exponents(found["sizes"])
    store.save_json(folder / "throughput.json", {**found, "exponents": slopes})

    def show(name: str, title: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        tables.show(title, columns, rows, folder / f"{name}.md")

    fields: tuple[str, ...] = ("graph", "ops", "uses", "readers")
    graphs = dict.fromkeys(tuple(r[field] for field in fields) for r in found["graphs"])
    show("workloads", "Graphs", (*fields[:3], "most readers of a tensor"), list(graphs))
    columns: tuple[str, ...] = ("gopt, 1/s", "compiled, 1/s", "queue", "ratio", "of CPU time")
    loop = ("obvious, 1/s", "ratio")
    for name, fields, more in (
        ("graphs", ("graph", "cost"), loop),
        ("sizes", ("graph", "ops", "population", "cost"), ()),
        ("populations", ("graph", "population", "cost"), ()),
    ):
        title = f"Candidates/s: {name}; {found['machine']}"
        show(name, title, (*fields, *columns, *more), _rows(found[name], fields))
    for name, across, label in (
        ("sizes", "ops", "ops"),
        ("populations", "population", "candidates in a call"),
    ):
        save_figure(folder / f"{name}.png", plot(found[name], across, label))

    title = "Exponent of time in ops + uses, from 1 000 ops on"
    columns = ("graph", "cost", "gopt", "compiled")
    rows: list[tuple[Any, ...]] = [
        (r["graph"], r["cost"], _figure(r["gopt"], ".2f"), _figure(r["compiled"], ".2f"))
        for r in slopes
    ]
    show("exponents", title, columns, rows)
    columns = ("search", "population", "evaluations", "best peak, MiB", "s", "CPU s")
    columns += ("s / s of gopt",)
    show("searches", "BRKGA, peak memory, one run each", columns, _search_rows(found["searches"]))
    programs = found["programs"]
    title = "{graphs} graphs of {buckets} buckets take {programs} programs".format(**programs)
    title += "; the first compilation for 1 000 ops, nothing cached"
    rows = [(cost, f"{seconds:.1f}") for cost, seconds in found["seconds_to_compile"].items()]
    show("compilation", title, ("cost", "s"), rows)
