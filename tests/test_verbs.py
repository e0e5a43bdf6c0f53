"""The arguments and docstrings that `schedule`, `fuse` and `rewrite` share."""

import inspect
import pydoc
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.fusion import FusionSearchResult
from gopt.heuristics.schedule.encode import keys_in_order
from gopt.rewriting import RewriteSearchResult
from gopt.search_argument import load_policy
from gopt.systems import go, local_advantage, regal, xrlflow

pytestmark = pytest.mark.small

VERBS = (gopt.schedule, gopt.fuse, gopt.rewrite)
QUICK = {gopt.schedule: {"evaluations": 5, "confirm": 1}, gopt.fuse: {"evaluations": 3}}
ROUNDS = {gopt.fuse: {"repeats": 1}, gopt.rewrite: {"repeats": 1}}
X = jnp.linspace(-1, 1, 64).reshape(8, 8)


def model(w, x):
    return jnp.tanh(x @ w) * jnp.exp(-x) @ w


def run(verb, fn=model, args=(X, X), **options):
    return verb(fn, *args, **{**QUICK.get(verb, {}), **ROUNDS.get(verb, {}), **options})


def keywords(verb):
    parameters = inspect.signature(verb).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]


@pytest.mark.parametrize("verb", VERBS)
def test_the_first_arguments_are_the_function_and_its_own(verb):
    names = list(inspect.signature(verb).parameters)
    assert names[:2] == ["fn", "args"] and names[2:] == keywords(verb)
    assert keywords(verb)[:2] == ["search", "weights"]


def test_shared_arguments_have_one_order():
    for one in VERBS:
        for other in VERBS:
            shared = set(keywords(one)) & set(keywords(other))
            ordered = [[n for n in keywords(verb) if n in shared] for verb in (one, other)]
            assert ordered[0] == ordered[1]


@pytest.mark.parametrize(
    ("verb", "names"),
    [
        (gopt.schedule, "best, regal, go, brkga, heft"),
        (gopt.fuse, "local_advantage, random"),
        (gopt.rewrite, "taso, pet, tensat, xrlflow"),
    ],
)
@pytest.mark.parametrize("search", ["magic", None])
def test_an_unknown_search_is_refused(verb, names, search):
    with pytest.raises(ValueError, match=f"search is {search!r}: expected one of {names}.*, or a "):
        run(verb, lambda *_: pytest.fail("it was traced"), search=search)


@pytest.mark.parametrize("verb", [*VERBS, gopt.trace])
@pytest.mark.parametrize("value", [-1, 1.5, "2", None, True, 2**63])
def test_options_that_are_whole_numbers(verb, value):
    for name in ("evaluations", "repeats", "confirm", "seed", "max_trips"):
        if name in keywords(verb):
            with pytest.raises(ValueError, match=f"^{name} is {value!r}: expected "):
                run(verb, lambda *_: pytest.fail("it was traced"), **{name: value})


@pytest.mark.parametrize(
    ("verb", "search", "learned"),
    [
        (gopt.schedule, "brkga", "regal, go"),
        (gopt.fuse, "random", "local_advantage"),
        (gopt.rewrite, "taso", "xrlflow"),
    ],
)
def test_weights_are_for_learned_searches(verb, search, learned):
    message = f"weights are given for search '{search}', which has no learned .* {learned}$"
    with pytest.raises(ValueError, match=message):
        run(verb, search=search, weights="policy.npz")
    with pytest.raises(ValueError, match=f"weights are given for a callable search.* {learned}$"):
        run(verb, search=lambda *args, **options: None, weights="policy.npz")


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        (gopt.schedule, {"search": "go", "hardware": "2xh100"}),
        (gopt.fuse, {"search": "local_advantage"}),
        (gopt.rewrite, {"search": "xrlflow"}),
    ],
)
def test_weights_are_a_file_or_a_loaded_policy(verb, options, tmp_path):
    with pytest.raises(FileNotFoundError):
        run(verb, weights=tmp_path / "nowhere.npz", **options)
    for wrong in ({}, (1, 2, 3)):
        with pytest.raises(ValueError, match="expected a path, or the pair of parameters and"):
            run(verb, weights=wrong, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "search", "load", "options"),
    [
        (gopt.schedule, "go", go.load, {"hardware": "2xh100", "evaluations": 70}),
        (gopt.schedule, "regal", regal.load, {"hardware": "2xh100", "evaluations": 70}),
        (gopt.fuse, "local_advantage", local_advantage.load, {}),
        (gopt.rewrite, "xrlflow", xrlflow.load, {}),
    ],
)
def test_a_loaded_policy_acts_like_its_file(verb, search, load, options):
    file, loaded = (run(verb, search=search, weights=w, **options) for w in (None, load()))
    assert [c.name for c in file.candidates][:2] == [c.name for c in loaded.candidates][:2]
    if verb is gopt.schedule:
        assert file.after.predicted == loaded.after.predicted
    if verb is gopt.rewrite:
        assert file.report.rules == loaded.report.rules


def test_a_loaded_policy_is_used_as_it_is():
    policy = {"kernel": X}, regal.Settings()
    assert load_policy(policy, lambda: pytest.fail("a file was read")) is policy


@pytest.mark.parametrize("hardware", [None, "2xh100"])
def test_a_callable_schedules(hardware):
    seen = []

    def search(key, graph, problem, *, objective, evaluations):
        assert jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
        assert isinstance(graph, gopt.Graph) and isinstance(problem, gopt.Problem)
        assert graph.num_ops == problem.num_ops and problem.num_devices == (2 if hardware else 1)
        seen.append((objective, evaluations))
        return keys_in_order(problem)

    result = run(gopt.schedule, search=search, hardware=hardware)
    assert seen == [("peak_memory", 5)]
    if hardware:
        assert result.after.name == result.report.search == "searched"
        assert result.after.predicted == result.before.predicted
    else:
        assert "searched" in [c.name for c in result.candidates]


def test_keys_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"keys\.device|device"):
        keys = gopt.Keys(np.zeros((1, 2)), np.zeros(1), None)
        run(gopt.schedule, search=lambda *args, **options: keys, hardware="2xh100")


def test_a_callable_fuses():
    costs = []

    def search(key, graph, problem, *, cost, start, evaluations):
        assert isinstance(graph, gopt.Graph) and evaluations == 3
        assert start.dtype == bool and start.shape == problem.configurable.shape
        nothing = np.zeros_like(start)
        costs.extend((cost(start), cost(nothing)))
        return FusionSearchResult(nothing, np.array(costs))

    result = run(gopt.fuse, search=search)
    np.testing.assert_array_equal(result.report.searched, costs)
    found = [c for c in result.candidates if c.name == "searched"]
    assert all(not c.decision.fuse.any() and c.predicted == costs[1] for c in found)


def test_a_callable_rewrites():
    def search(terms, roots, cost, rules):
        assert len(terms) > len(roots) == 1 and len(rules) > 10
        return RewriteSearchResult(tuple(roots), 1.0, (), 7, "nothing was tried")

    result = run(gopt.rewrite, search=search)
    assert result.report.costs[1] == 1.0
    assert "nothing was tried" in str(result)


@pytest.mark.parametrize("documented", [*VERBS, gopt.Result, gopt.Candidate])
def test_help_fits_about_a_page(documented):
    limit = 6000 if documented in VERBS else 9000
    assert len(pydoc.render_doc(documented, renderer=pydoc.plaintext)) <= limit


@pytest.mark.parametrize("documented", [*VERBS, gopt.Result])
def test_every_argument_is_documented(documented):
    sections = inspect.getdoc(documented)
    names = (
        [f for f in documented.__dataclass_fields__]
        if documented is gopt.Result
        else list(inspect.signature(documented).parameters)
    )
    places = [sections.index(f"\n  {'*' * (name == 'args')}{name}: ") for name in names]
    assert places == sorted(places)


@pytest.mark.slow
@pytest.mark.parametrize("documented", [*VERBS, gopt.Result])
def test_examples_run(documented, capsys):
    example = textwrap.dedent(inspect.getdoc(documented).split("Example:\n")[1])
    exec(example, {})
    assert "chosen: " in capsys.readouterr().out
