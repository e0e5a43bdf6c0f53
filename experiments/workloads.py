"""Print a table of the workloads and their traces: parameters, ops, tensors, uses, flop.

python -m experiments.workloads
"""

from dataclasses import dataclass
from pathlib import Path

from rich.progress import track

from experiments.harness import command_line, store, tables
from gopt.graph.kinds import INPUT
from gopt.graph.tracing import trace
from gopt.workloads import WORKLOADS


@dataclass(frozen=True)
class Settings:
    """Settings of the table.

    Attributes:
      folder: folder of the table.
    """

    folder: Path = Path("runs/workloads")


def main(settings: Settings) -> None:
    """Trace every workload at its published size and print the table."""
    rows = []
    for name, make in track(WORKLOADS.items(), "tracing"):
        workload = make()
        for mode, (fn, args), donated in (
            ("forward", workload.forward(), ()),
            ("step", workload.train_step(), (0, 1)),
        ):
            graph = trace(fn, *args, donate_argnums=donated).graph
            gigaflop = graph.flops.sum() / 1e9
            rows.append(
                (
                    f"{name} {mode}",
                    f"{workload.num_parameters() / 1e6:.2f}",
                    int(graph.num_ops),
                    int((graph.kind == INPUT).sum()),
                    int(graph.num_tensors),
                    int(graph.num_uses),
                    f"{gigaflop:.2f}" if gigaflop < 100 else f"{gigaflop:.0f}",
                )
            )
    columns = ("workload", "weights, M", "ops", "inputs", "tensors", "uses", "Gflop")
    store.save_settings(settings.folder, settings)
    tables.show("Workloads as traced", columns, rows, settings.folder / "table.md")


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
