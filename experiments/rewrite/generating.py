"""Rules that a generator finds, after TASO's, beside those written by hand.

    python -m experiments.rewrite.generating
    python -m experiments.rewrite.generating --domains matrices --operators 4

All expressions of a few operators are compared. Equalities from which all others follow are
verified; of both directions of each, rules are new that do not follow from those written by hand,
by saturation, nor from other new ones. They are written to `generated.txt`, which is copied to
`gopt/rewriting` by hand. Needs the extra `rewriting`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.progress import track

from experiments import common
from experiments.cases import check_names
from gopt.files import write_whole
from gopt.rewriting import RULES, Rule
from gopt.rewriting.generate_rules import (
    DOMAINS,
    Expressions,
    Generator,
    RuleCandidate,
    independent,
    is_derivable,
    is_same,
    is_useless,
)
from gopt.rewriting.rules.generated import write_rules


@dataclass(frozen=True)
class Settings:
    """What is generated.

    Attributes:
      domains: of `gopt.rewriting.generate_rules.DOMAINS`; by default all.
      operators: how many an expression has at most.
      seed: of the numbers by which expressions are compared.
      times: how often an equality is verified.
      folder: where the table, the figures and the rules are saved.

    Raises:
      ValueError: there is no operator.
    """

    domains: tuple[str, ...] = ()
    operators: int = 3
    seed: int = 0
    times: int = 3
    folder: Path = Path("runs/rewrite/generating")

    def __post_init__(self) -> None:
        check_names("domains", self.domains, DOMAINS)
        if self.operators < 1:
            raise ValueError(f"operators is {self.operators}: expected 1 at least")


def run(name: str, settings: Settings, known: Sequence[Rule]) -> tuple[dict[str, Any], list[Rule]]:
    """Returns what became of the expressions of a domain, and the rules that are new.

    Args:
      name: of the domain.
      settings: see there.
      known: rules that were found before, in other domains.
    """
    begin = time.perf_counter()
    expressions = Expressions(DOMAINS[name], settings.seed)
    for level in track(range(settings.operators), f"{name}: expressions"):
        expressions.grow(last=level == settings.operators - 1)
    generator = Generator(expressions, times=settings.times)
    for group in track(generator.groups(), f"{name}: equalities"):
        generator.choose(group)
    different = [each for each in generator.chosen if not is_same(each)]
    stated = [RuleCandidate(each, rule) for each in different for rule in each.rules()]
    useful = [each for each in stated if not is_useless(each.rule)]
    found = [each for each in track(useful, f"{name}: rules") if not is_derivable(each, RULES)]
    new = independent(found, [*RULES, *known])
    row = {
        "domain": name,
        "expressions": len(expressions),
        **generator.counts,
        "chosen": len(generator.chosen),
        "different": len(different),
        "rules": len(stated),
        "useful": len(useful),
        "unknown": len(found),
        "new": len(new),
        "s": time.perf_counter() - begin,
    }
    return row, new


def show(rows: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Prints the table, and saves it."""
    columns = {
        "domain": "domain",
        "expressions": "expressions",
        "pairs": "equal pairs",
        "with the first": "with the first",
        "not renamed": "not renamed",
        "wrong": "wrong",
        "chosen": "from which all follow",
        "different": "not one term",
        "rules": "rules",
        "useful": "that do not repeat",
        "unknown": "not by hand",
        "new": "not by others",
        "s": "s",
    }
    common.show(
        f"Equal expressions of {settings.operators} operators at most, and the rules they make",
        tuple(columns.values()),
        [[f"{row[key]:.0f}" if key == "s" else row[key] for key in columns] for row in rows],
        settings.folder / "table.md",
    )


def main(settings: Settings) -> list[Rule]:
    """Returns the rules that are new; saves them, and the table, which it prints, with figures."""
    rows, new = list[dict[str, Any]](), list[Rule]()
    for name in settings.domains or DOMAINS:
        row, found = run(name, settings, new)
        rows.append(row)
        new.extend(found)
        common.save_json(settings.folder / "generating.json", rows)
    with write_whole(settings.folder / "generated.txt") as temporary:
        temporary.write_text(write_rules(new))
    common.save_settings(settings.folder, settings)
    show(rows, settings)
    return new


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
