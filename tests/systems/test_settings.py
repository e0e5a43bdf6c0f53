"""Settings of the learned systems: errors name the field, its value, and valid values."""

import dataclasses
import math
import re

import pytest

from gopt.learning.settings import check_choice, check_numbers
from gopt.systems import go, hdp, local_advantage, placeto, regal, xrlflow

# The first field of each row is wrong.
WRONG = {
    go.Settings: (
        *(dict(tasks=("placement", "tiling")), dict(tasks=("fusion", "fusion")), dict(width=1)),
        *(dict(heads=5), dict(levels=()), dict(samples=1), dict(layers=-1), dict(explore=0.0)),
        *(dict(epochs=0), dict(learning_rate=-1.0)),
    ),
    hdp.Settings: (
        *(dict(groups=0), dict(placements=0), dict(width=7), dict(noise=-0.1), dict(decay=1.0)),
        *(dict(temperature=0.0), dict(learning_rate=-1.0)),
    ),
    placeto.Settings: (*(dict(groups=0), dict(memory=0), dict(entropy=-1.0), dict(last_rate=0.0)),),
    regal.Settings: (
        *(dict(parts=()), dict(parts=("places",)), dict(network="mlp"), dict(head="mlp")),
        *(dict(bins=0), dict(steps=0), dict(width=-1), dict(rounds=0), dict(trust=1.5)),
        *(dict(heavy_share=0.0), dict(exploration=0.0)),
    ),
    xrlflow.Settings: (
        *(dict(width=0), dict(every=2.5), dict(entropy=math.nan), dict(bonus=-0.1)),
        *(dict(hidden=()), dict(discount=1.5), dict(learning_rate=math.inf), dict(head="round")),
    ),
    local_advantage.Sampling: (
        *(dict(chains=3), dict(records=0), dict(sweep=0.0), dict(coldest=2.0, hottest=1.0)),
    ),
    local_advantage.Settings: (
        *(dict(width=0), dict(values=1), dict(learning_rate=0.0), dict(learning_rate=math.inf)),
        *(dict(learning_rate=math.nan), dict(target="no"), dict(largest=1.5)),
    ),
}


@pytest.mark.parametrize(("kind", "wrong"), [(kind, row) for kind in WRONG for row in WRONG[kind]])
def test_settings_that_mean_nothing_raise(kind, wrong):
    field, value = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=re.escape(f"{field} is {value!r}: expected ")):
        kind(**wrong)


@dataclasses.dataclass
class Example:
    """Settings with a field of each kind."""

    count: int = 3
    share: float = 0.5
    method: str = "one"


@pytest.mark.parametrize(
    ("bounds", "value", "expected"),
    [
        (dict(at_least=4), 3, "4 at least"),
        (dict(above=3), 3, "more than 3"),
        (dict(at_least=0, below=3), 3, "0 at least and less than 3"),
        (dict(above=0, at_most=2), 3, "more than 0 and 2 at most"),
        (dict(above=0), math.inf, "a whole number, more than 0"),
        (dict(at_least=1), 2.5, "a whole number, 1 at least"),
    ],
)
def test_numbers_out_of_bounds_raise(bounds, value, expected):
    with pytest.raises(ValueError, match=f"^count is {value}: expected {expected}$"):
        check_numbers(Example(count=value), "count", **bounds)


def test_numbers_within_bounds_and_known_choices_pass():
    check_numbers(Example(), "count", "share", above=0, at_most=3)
    check_choice(Example(), "method", ("one", "other"))
    with pytest.raises(ValueError, match=r"^method is 'one': expected one of other, third$"):
        check_choice(Example(), "method", ("other", "third"))
