"""The experiment of X-RLflow, on small models."""

import dataclasses
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.rewrite.models import EVERY
from experiments.xrlflow import __main__ as table
from experiments.xrlflow import ablation, games, methods, pretraining, shapes, speed, training
from experiments.xrlflow.comparing import compare, of_read
from gopt.rewriting import roofline
from gopt.rewriting.cost.pricing import TermCosts
from gopt.systems import xrlflow
from gopt.workloads.cases import Case, floats
from tests.measure.row_files import remove_row, stored_rows

pytestmark = pytest.mark.slow

AGENT = xrlflow.Settings(width=8, layers=2, summary=4, hidden=(8,), every=2, horizon=6, episodes=3)


def attention(rows=8):
    def model(w, x):
        q, k, v = (x @ each for each in w)
        return jax.nn.softmax(q @ k.T) @ v

    return Case(model, ([floats(16, width) for width in (16, 16, 24)], floats(rows, 16)))


def layers():
    def model(w, x):
        for a, b in zip(w[::2], w[1::2], strict=True):
            x = jnp.tanh(x @ a + x @ b) * 2 + x
        return x

    return Case(model, ([floats(16, 16)] * 4, floats(8, 16)))


@pytest.fixture
def models(monkeypatch):
    known = {"attention": attention, "layers": layers}
    for name, make in known.items():
        monkeypatch.setitem(EVERY, name, make)
    monkeypatch.setitem(shapes.SHAPES, "attention", ("rows", (4,)))
    monkeypatch.setattr(jax, "clear_caches", lambda: None)
    return known


def playing(agent=AGENT, **changes):
    return training.Settings(
        **{"reward": "analytic", "measurements": 10**9, "agent": agent} | changes
    )


def seat(made=layers, agent=AGENT, measurements=10**9):
    played = games.game(made.__name__, made())
    return training.Seat(
        played, games.Clocks(None, None), playing(agent, measurements=measurements)
    )


def begin(settings=AGENT):
    return xrlflow.init(jax.random.key(0), xrlflow.smallest(), settings=settings)


def test_an_agent_learns_from_several_games_and_plays_alike_again():
    player, settings, made = training.Player(going_on=0.5), playing(updates=3), (attention, layers)
    seats, others = ([seat(one) for one in made] for _ in range(2))
    params, history = training.play(seats, begin(), player, settings)
    again, _ = training.play(others, begin(), player, settings)
    jax.tree.map(np.testing.assert_array_equal, params, again)
    for ours, theirs in zip(seats, others, strict=True):
        assert ours.best == theirs.best and ours.returns == theirs.returns
    assert len(history) >= 3 and all(row["learning s"] > 0 for row in history)
    both = map(jax.tree.leaves, (params, begin()))
    moved = [np.abs(a - b).max() for a, b in zip(*both, strict=True)]
    assert max(moved) > 1e-5


@pytest.mark.parametrize(("learning", "at_random"), [(True, False), (False, True)])
def test_no_more_is_measured_than_there_is_to_spend(learning, at_random):
    one = seat(measurements=7)
    player = training.Player(learning, 0.5, at_random)
    params, history = training.play([one], begin(), player, playing(updates=50, measurements=7))
    assert len(one.known) == 7 and one.is_spent
    assert len(history) < 50
    best, *others = one.best
    assert [one.share for one in (best, *others)] == sorted(one.share for one in (best, *others))
    for reached in others:
        roots, _ = one.program(reached.actions)
        assert one.name(roots) == reached.name
    roots, rules = one.program(best.actions)
    share = TermCosts(one.game.terms, roofline()).program(roots) / one.env.first
    np.testing.assert_allclose(share, best.share)
    assert len(rules) == sum(action != 0 for action in best.actions)
    if not learning:
        for ours, theirs in zip(*map(jax.tree.leaves, (params, begin())), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_games_that_are_spent_make_room_for_others():
    seats = [seat(attention, measurements=2), seat(layers, measurements=9)]
    few = dataclasses.replace(AGENT, episodes=1)
    settings = playing(few, updates=60, measurements=9)
    _, history = training.play(seats, begin(), training.Player(), settings)
    assert [len(each.known) for each in seats] == [2, 9]
    assert {row["game"] for row in history[-2:]} == {"layers"}


def test_games_count_alike_whatever_they_gain():
    one = xrlflow.play(seat().env, xrlflow.uniform, None, np.random.default_rng(0))
    rewards = np.array([30.0, 0.1, 50.0], np.float32)
    many = training.scaled(one._replace(reward=rewards), [80.0, -80.0])
    np.testing.assert_allclose(many.reward, rewards / 80)
    little = training.scaled(one._replace(reward=rewards / 100), [0.3])  # noise stays small
    np.testing.assert_allclose(little.reward, rewards / 100)


def test_what_an_agent_makes_of_a_program_at_once_is_measured_once():
    one, params = seat(measurements=3), begin()
    found = one.likeliest(params)
    assert found.share < 1 and len(one.known) == 2 and one.best[0] == found
    roots, _ = one.program(found.actions)
    assert one.name(roots) == found.name
    np.testing.assert_allclose(one.seconds(roots) / one.env.first, found.share)
    assert seat(measurements=1).likeliest(params) == one.start()


def test_what_an_agent_would_do_at_once_is_a_finalist_however_it_was_measured(monkeypatch):
    monkeypatch.setattr(training, "play", lambda *_: (begin(), []))
    monkeypatch.setattr(
        methods.comparing,
        "compare",
        lambda played, programs, *, seed, **_: {
            name: {
                "ratio": (0.9 if name == "0" else 1.0,),
                "equal": seed == 0,
            }
            for name in programs
        },
    )
    settings = methods.Settings("analytic", 9, updates=1, repeats=1, agent=AGENT)
    played, clocks, one = games.game("layers", layers()), games.Clocks(None, None), seat()
    expected, _ = one.program(one.likeliest(begin()).actions)

    def found(name, settings=settings):
        return methods.player(name, played, clocks, begin(), settings)

    assert one.name(found("X-RLflow").roots) == one.name(expected)
    assert found("random").roots == played.roots
    # Values that tell nothing are not those of the model.
    untold = found("X-RLflow", dataclasses.replace(settings, seed=1))
    assert untold.roots == played.roots


def test_episodes_go_on_where_the_fastest_program_was_measured_before(monkeypatch):
    one, taken = seat(measurements=12), []
    original = xrlflow.play

    def play(env, choose, params, rng, *, begin):
        taken.append(list(begin))
        return original(env, choose, params, rng, begin=begin)

    actions = one.likeliest(begin()).actions
    monkeypatch.setattr(xrlflow, "play", play)
    player, settings = training.Player(False, 1.0), playing(updates=1, measurements=12)
    training.play([one], begin(), player, settings)
    assert taken[0] == actions[: len(taken[0])] and 0 < len(actions) - len(taken[0]) <= 2
    assert len(taken[0]) % AGENT.every == 0 and len(taken) == AGENT.episodes


def test_rewards_of_a_round_are_those_of_all_models():
    history = [
        {"update": update, "reward": reward}
        for update in range(12)
        for reward in (update, 3.0 * update)
    ]
    assert pretraining.gained(history) == [("1 to 10", "9.0"), ("11 to 12", "21.0")]


def test_rewrites_at_random_are_drawn_by_no_agent(monkeypatch):
    drawn, original = [], xrlflow.play

    def play(env, choose, *args, **settings):
        drawn.append(choose is xrlflow.uniform)
        return original(env, choose, *args, **settings)

    monkeypatch.setattr(xrlflow, "play", play)
    for at_random in (True, False):
        player = training.Player(learning=False, at_random=at_random)
        training.play([seat()], begin(), player, playing(updates=1))
    assert drawn == [True] * AGENT.episodes + [False] * AGENT.episodes


def test_programs_of_a_model_are_compared_in_rounds():
    played = games.game("layers", layers())
    one = seat()
    _, _, _, _, info = one.env.step(1)
    after = one.game.terms.replace(one.game.roots, dict(xrlflow_first(one)))
    assert after == info["roots"]
    programs = {"same": one.game.roots, "again": one.game.roots, "other": after}
    found = compare(one.game, programs, repeats=6, seed=0)
    assert found["again"]["same as"] == "same" and found["other"]["same as"] == "other"
    for row in found.values():
        assert row["difference"] <= row["tolerance"] and row["equal"]
        assert len(row["times"]["process"]) == 6
    wrong = played.terms.add("mul", [played.roots[0], played.roots[0]])
    found = compare(played, {"wrong": (wrong,)}, repeats=1, seed=0)
    assert (
        found["wrong"]["difference"] > found["wrong"]["tolerance"] and not found["wrong"]["equal"]
    )


def xrlflow_first(one):
    one.env.reset()
    return one.env.view.found[0].by


def test_the_experiment_runs_and_resumes(tmp_path, models, capsys, monkeypatch):
    monkeypatch.setattr(training, "FINALISTS", 1)  # each is compiled
    monkeypatch.setattr("gopt.measure.timing._ROUND", 1e-3)  # s
    players = ("X-RLflow", "random")
    settings = table.Settings(
        models=("attention",),
        baselines=("TASO",),
        players=players,
        measurements=3,
        updates=2,
        repeats=6,
        weights="random",
        seeds=2,
        folder=tmp_path,
        agent=AGENT,
    )
    table.main(settings)
    assert "attention" in capsys.readouterr().out
    rows = json.loads((tmp_path / "xrlflow.json").read_text())
    assert [(row["model"], row["seed"]) for row in rows] == [("attention", 0), ("attention", 1)]
    assert set(rows[0]["found"]) == {"as read", "TASO", *players}
    for row in rows:
        for one in row["found"].values():
            assert one["difference"] <= one["tolerance"] and one["equal"]
            assert one["cost"] > 0
        for name in players:
            measured, rounds = (row["found"][name][key] for key in ("measured", "history"))
            assert measured[0] == 1.0 and len(measured) <= settings.measurements
            # Fewer only if all rounds have come to the same programs.
            is_spent = len(measured) == settings.measurements
            assert is_spent or len(rounds) == settings.updates
    names = "models.md", "taso.md", "searches.md", "settings.json"
    for name in (*names, "programs.sqlite", "ops.sqlite"):
        assert (tmp_path / name).exists()
    (tmp_path / "xrlflow.json").unlink()
    remove_row(tmp_path / "rows.sqlite", "attention, seed 1")
    measured = stored_rows(tmp_path / "programs.sqlite")
    table.main(settings)
    assert stored_rows(tmp_path / "programs.sqlite") == measured  # no program was measured again
    again = json.loads((tmp_path / "xrlflow.json").read_text())
    assert again[0] == rows[0] and again[1]["seed"] == 1
    assert again[1]["found"]["TASO"]["times"] != rows[1]["found"]["TASO"]["times"]
    with pytest.raises(ValueError, match=r"rows\.sqlite has rows with measurements = 3"):
        table.main(dataclasses.replace(settings, measurements=4))
    # The agent plays on another shape; an agent that is missing is missed at once.
    with pytest.raises(FileNotFoundError, match=r"attention\.npz"):
        shapes.main(shapes.Settings(models=("attention",), agents=tmp_path, folder=tmp_path / "no"))
    assert not (tmp_path / "no").exists()
    shapes.main(
        shapes.Settings(
            models=("attention",),
            baselines=(),
            few=2,
            measurements=3,
            updates=2,
            repeats=6,
            weights="random",
            agents=tmp_path / "agents",
            folder=tmp_path / "shapes",
            agent=AGENT,
        )
    )
    assert "rows 4" in (tmp_path / "shapes" / "shapes.md").read_text()


def test_what_is_kept_of_a_gain_is_told_turn_by_turn():
    drift = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.1])  # of the machine, from round to round
    takes = {
        "as read": 1.0,
        "trained there": np.array([0.8, 0.8, 0.8, 0.8, 0.4, 0.4]),
        "trained elsewhere": 0.85,
    }
    found = {
        name: {"same as": name, "equal": True, "times": {"process": share * drift}}
        for name, share in takes.items()
    }
    assert shapes.kept(found) == pytest.approx(0.75)
    assert of_read(found, "trained elsewhere").startswith("0.850")
    wrong = {**found, "as read": {**found["as read"], "equal": False}}
    assert shapes.kept(wrong) is None
    assert of_read(wrong, "trained elsewhere") == "wrong values"
    found["trained there"]["times"]["process"] = 0.99 * drift
    assert shapes.kept(found) is None


def test_what_many_models_have_trained_is_checked_on_others(tmp_path, models, monkeypatch):
    sizes = {"batch": 1, "source_length": 8, "target_length": 4, "layers": 1, "vocabulary": 16}
    monkeypatch.setitem(pretraining.MODELS, "t5", sizes | {"hidden": 16, "heads": 2})
    settings = pretraining.Settings(
        models=("t5",),
        reward="analytic",
        updates=2,
        validation=("attention", "layers"),
        folder=tmp_path,
        agent=AGENT,
    )
    pretraining.main(settings)
    assert "1 to 2" in (tmp_path / "learning.md").read_text()
    params, agent = xrlflow.load(tmp_path / "agent.npz")
    assert agent == AGENT
    moved = [
        np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (params, begin())), strict=True)
    ]
    assert max(moved) > 1e-5
    rows = (tmp_path / "validation.md").read_text().splitlines()
    assert [row.split("|")[1].strip() for row in rows[-2:]] == ["attention", "layers"]
    expected = [seat(attention).likeliest(each).share for each in (begin(), params)]
    assert rows[-2].split("|")[2:4] == [f" {share:.4f} " for share in expected]
    assert min(expected) < 1


def test_the_ablation_has_the_rewards_that_it_says(tmp_path, models, monkeypatch):
    monkeypatch.setattr(training, "FINALISTS", 1)
    monkeypatch.setattr("gopt.measure.timing._ROUND", 1e-3)  # s
    settings = ablation.Settings(
        models=("attention",),
        variants=("every rewrite", "analytic"),
        reward="summed ops",
        updates=1,
        repeats=6,
        folder=tmp_path,
        agent=AGENT,
    )
    original, taken = training.play, []

    def play(seats, params, player, own):
        taken.append((own, seats[0].env.first))
        return original(seats, params, player, own)

    monkeypatch.setattr(training, "play", play)
    ablation.main(settings)
    (row,) = json.loads((tmp_path / "ablation.json").read_text())
    told = {name: row["found"][name]["history"][0] for name in settings.variants}
    for name, one in told.items():
        assert len(row["found"][name]["measured"]) == one["measured"]
        assert one["best"] == min(row["found"][name]["measured"])
    played = games.game("attention", attention())
    analytic = TermCosts(played.terms, roofline()).program(played.roots)
    assert [(own.reward, own.agent.every) for own, _ in taken] == [
        ("summed ops", 1),
        ("analytic", AGENT.every),
    ]
    assert taken[1][1] == analytic != taken[0][1]
    rows = (tmp_path / "ablation.md").read_text().splitlines()[-2:]
    assert [row.split("|")[1].strip() for row in rows] == list(settings.variants)


def test_tables_are_of_all_seeds(tmp_path, capsys):
    def found(middle, equal=True):
        ratio = (middle, middle - 0.1, middle + 0.1)
        figures = {"ratio": ratio, "wall ratio": ratio, "of TASO": ratio, "equal": equal}
        more = {"cost": 0.5, "difference": 0.0, "s": 1.0, "rules": (), "history": []}
        return figures | more | {"measured": ()}

    def row(model, seed, taso=True, **by):
        others = {"as read": found(1.0), "TASO": found(0.9, taso)}
        return {"model": model, "seed": seed, "found": others | by}

    rows = [
        *(row("a", k, random=found(x)) for k, x in enumerate((0.5, 0.8, 0.6))),
        *(row("b", k, taso=k < 2, random=found(0.7, k < 2)) for k in range(3)),
    ]
    assert table.over_seeds(rows[:3], "random", "ratio") == "0.600 (0.500-0.800)"
    assert table.over_seeds(rows[:1], "random", "ratio") == "0.500 (0.400-0.600)"
    for key in ("ratio", "of TASO"):
        assert table.over_seeds(rows[3:], "random", key) == "wrong values"
    assert table.over_seeds(rows[3:], "as read", "ratio") == "1.000 (1.000-1.000)"
    assert table.over_seeds(rows[3:], "as read", "of TASO") == "wrong values"
    settings = table.Settings(baselines=("TASO",), players=("random",), folder=tmp_path)
    table.show(rows, settings)
    shown = (tmp_path / "models.md").read_text()
    assert "least to most of 3 seeds" in shown and "| a | 1.000 (1.000-1.000) | 0.600" in shown


def test_steps_are_timed_by_patches_and_by_whole_candidates(tmp_path, models):
    settings = speed.Settings(
        models=("layers",), layers=(1,), repeats=1, folder=tmp_path, agent=AGENT, largest=150
    )
    speed.main(settings)
    rows = json.loads((tmp_path / "speed.json").read_text())
    assert [row["how"] for row in rows] == ["patches", "whole"] * 2
    assert rows[0]["nodes"] < rows[3]["nodes"] < 150 < rows[1]["nodes"]
    assert ["learning s" in row for row in rows] == [True, False, True, True]
    assert all(row["seeing s"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (partial(table.Settings, models=("no such",)), "models has 'no such'"),
        (partial(table.Settings, players=("chess",)), "players has 'chess'"),
        (partial(table.Settings, seeds=0), "seeds is 0"),
        (partial(table.Settings, repeats=0), "repeats is 0"),
        (partial(ablation.Settings, reward="none"), "reward has 'none'"),
        (partial(pretraining.Settings, validation=("no such",)), "validation has 'no such'"),
        (partial(training.Settings, updates=0), "updates is 0"),
        (partial(speed.Settings, repeats=0), "repeats is 0"),
    ],
)
def test_bad_settings_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()
