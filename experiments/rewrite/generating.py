"""Generate rules as TASO does, and compare them with rules written by hand.

    python -m experiments.rewrite.generating
    python -m experiments.rewrite.generating --domains matrices --operators 4

All expressions of a few operators are compared. Equalities from which all others follow are
verified, and give rules in both directions. A rule is new if it does not follow by saturation from
rules written by hand or from other new rules. New rules are written to `generated.txt`, to be
copied to `gopt/rewriting` by hand. Needs the extra `rewriting`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import track

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import at_least, choice
from gopt.host.files import write_whole
from gopt.rewriting import RULES, Rule, generate_rules
from gopt.rewriting.rules.generated import write_rules


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the generator.

    Attributes:
      domains: domains from `gopt.rewriting.generate_rules.DOMAINS`; by default all.
      operators: most operators of an expression.
      seed: seed of the numbers on which expressions are compared.
      folder: folder of the table, the figures and the rules.
    """

    domains: tuple[str, ...] = choice(generate_rules.DOMAINS)
    operators: int = at_least(1, 3)
    seed: int = 0
    folder: Path = Path("runs/rewrite/generating")


def run(name: str, settings: Settings, known: Sequence[Rule]) -> tuple[dict[str, Any], list[Rule]]:
    """Return counts of the expressions of a domain, and the new rules.

    Args:
      name: name of the domain.
      settings: settings of the generator.
      known: rules that were found before, in other domains.
    """
    begin = time.perf_counter()
    expressions = generate_rules.Expressions(generate_rules.DOMAINS[name], settings.seed)
    for level in track(range(settings.operators), f"{name}: expressions"):
        expressions.grow(last=level == settings.operators - 1)
    generator = generate_rules.Generator(expressions)
    for group in track(generator.groups(), f"{name}: equalities"):
        generator.choose(group)
    different = [each for each in generator.chosen if not generate_rules.is_same(each)]
    stated = [
        generate_rules.RuleCandidate(each, rule) for each in different for rule in each.rules()
    ]
    useful = [each for each in stated if not generate_rules.is_useless(each.rule)]
    found = [
        each
        for each in track(useful, f"{name}: rules")
        if not generate_rules.is_derivable(each, RULES)
    ]
    new = generate_rules.independent(found, [*RULES, *known])
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


def main(settings: Settings) -> list[Rule]:
    """Return the new rules; save them with the figures, and print and save the table."""
    store.save_settings(settings.folder, settings)
    rows, new = list[dict[str, Any]](), list[Rule]()
    for name in settings.domains:
        row, found = run(name, settings, new)
        rows.append(row)
        new.extend(found)
        store.save_json(settings.folder / "generating.json", rows)
    with write_whole(settings.folder / "generated.txt") as temporary:
        temporary.write_text(write_rules(new))
    tables.show_rows(
        f"Equal expressions of {settings.operators} operators at most, and the rules they make",
        rows,
        (
            ("domain", "domain"),
            ("expressions", "expressions"),
            ("equal pairs", "pairs"),
            *((key, key) for key in ("with the first", "not renamed", "wrong")),
            ("from which all follow", "chosen"),
            ("not one term", "different"),
            ("rules", "rules"),
            ("that do not repeat", "useful"),
            ("not by hand", "unknown"),
            ("not by others", "new"),
            ("s", "{s:.0f}"),
        ),
        settings.folder / "table.md",
    )
    return new


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
