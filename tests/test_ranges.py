"""NaN is in no range: each setting and each argument with a range refuses it by name.

`x < 0` is false for NaN, so a check that is written like this lets it pass.
"""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.cost.fusion.rules import RULES
from gopt.fusion import KernelTimes
from gopt.learning import train
from gopt.measure.timing import check_repeats
from gopt.program.program import trace_program, unroll
from gopt.rewriting.cost.program_times import ProgramTimes
from gopt.rewriting.search.pet import partial_equivalence
from gopt.rewriting.search.taso import backtracking
from gopt.scheduling import best
from gopt.search import annealing, brkga, gibbs, guided, proposals, random
from gopt.search.population import coins
from gopt.sources import synthetic
from gopt.systems import go, hdp, local_advantage, placeto, regal, xrlflow
from tests.search.watched import TEMPLATE, cost

pytestmark = pytest.mark.small

NAN, KEY = math.nan, jax.random.key(0)
SETTINGS = (
    *(brkga.Settings(), annealing.Settings(), guided.Settings(), RULES["cpu"]),
    *(go.Settings(), hdp.Settings(), placeto.Settings(), regal.Settings(), xrlflow.Settings()),
    *(local_advantage.Settings(), local_advantage.Sampling()),
)
NUMBERS = [
    (settings, field.name)
    for settings in SETTINGS
    for field in dataclasses.fields(settings)
    if type(getattr(settings, field.name)) in (int, float)
]
ZEROS, NODES = jnp.zeros(3, jnp.int32), jnp.arange(3, dtype=jnp.int32)


def of_decisions(decisions):
    return jnp.sum(decisions, -1).astype(jnp.float32)


def sampled(num_nodes=3, evaluations=5, temperature=1.0, values=2):
    how = {"evaluations": evaluations, "temperature": temperature, "values": values}
    return gibbs.minimize(KEY, of_decisions, ZEROS, NODES, num_nodes, **how)


def minimized(module, **how):
    return module.minimize(KEY, cost, TEMPLATE, **{"evaluations": 5, **how})


def told(temperature):
    state = annealing.State(ZEROS, jnp.ones(3), ZEROS, jnp.ones(3))
    return annealing.tell(KEY, state, ZEROS, jnp.ones(3), temperature=temperature)


def no_call(*_):
    pytest.fail("the function was traced")


CALLS = {
    "evaluations of annealing": lambda x: minimized(annealing, evaluations=x),
    "evaluations of brkga": lambda x: minimized(brkga, evaluations=x),
    "evaluations of random": lambda x: minimized(random, evaluations=x),
    "block of random": lambda x: minimized(random, block=x),
    "evaluations of guided": lambda x: guided.check_budget(x, (guided.flip,)),
    "evaluations of gibbs": lambda x: sampled(evaluations=x),
    "num_nodes of gibbs": lambda x: sampled(num_nodes=x),
    "temperature of gibbs": lambda x: sampled(temperature=x),
    "values of gibbs": lambda x: sampled(values=x),
    "temperature of annealing": told,
    "bias of brkga": lambda x: minimized(brkga, bias=x),
    "bias of coins": lambda x: coins(KEY, TEMPLATE, 2, x),
    "points of proposals": lambda x: proposals.beta_quantiles(0.5, 0.1, points=x),
    "mean of proposals": lambda x: proposals.beta_quantiles(x, 0.1),
    "deviation of proposals": lambda x: proposals.beta_quantiles(0.5, x),
    "evaluations of schedule": lambda x: gopt.schedule(no_call, 1.0, evaluations=x),
    "confirm of schedule": lambda x: gopt.schedule(no_call, 1.0, confirm=x),
    "evaluations of fuse": lambda x: gopt.fuse(no_call, 1.0, evaluations=x),
    "repeats of fuse": lambda x: gopt.fuse(no_call, 1.0, repeats=x),
    "repeats of rewrite": lambda x: gopt.rewrite(no_call, 1.0, repeats=x),
    "repeats of timing": check_repeats,
    "evaluations of best": lambda x: best.improve(
        KEY, None, None, objective="makespan", evaluations=x, settings=None
    ),
    "max_trips of unroll": lambda x: unroll(trace_program(jnp.sin, 1.0), max_trips=x),
    "alpha of taso": lambda x: backtracking(None, (), None, (), alpha=x),
    "budget of taso": lambda x: backtracking(None, (), None, (), budget=x),
    "rounds of pet": lambda x: partial_equivalence(None, (), None, (), rounds=x),
    "rounds of ProgramTimes": lambda x: ProgramTimes(rounds=x),
    "patience of ProgramTimes": lambda x: ProgramTimes(patience=x),
    "rounds of KernelTimes": lambda x: KernelTimes(rounds=x),
    "longest of KernelTimes": lambda x: KernelTimes(longest=x),
    "checkpoint_every of train": lambda x: train.run(0, no_call, steps=1, checkpoint_every=x),
    "num_devices of devices": gopt.unit_rate_devices,
    "flop_rate of devices": lambda x: gopt.unit_rate_devices(1, flop_rate=x),
    "launch of devices": lambda x: gopt.unit_rate_devices(1, launch=x),
    "capacity of devices": lambda x: gopt.unit_rate_devices(1, capacity=x),
    "latency of devices": lambda x: gopt.unit_rate_devices(2, latency=x),
    "overlap of devices": lambda x: gopt.unit_rate_devices(1, overlap=x),
    "num_ops of layered": lambda x: synthetic.layered(0, x),
    "reads of layered": lambda x: synthetic.layered(0, 9, reads=x),
    "density of erdos_renyi": lambda x: synthetic.erdos_renyi(0, 9, density=x),
    "flops of layered": lambda x: synthetic.layered(0, 9, costs=synthetic.Costs(flops=x)),
    "spread of layered": lambda x: synthetic.layered(0, 9, costs=synthetic.Costs(spread=x)),
    "num_ops of graphs": lambda x: gopt.from_arrays([], [], [], [], num_ops=x),
}


@pytest.mark.parametrize(("settings", "field"), NUMBERS)
def test_settings_refuse_nan(settings, field):
    with pytest.raises(ValueError, match=rf"{field} is nan\b.*: expected "):
        dataclasses.replace(settings, **{field: NAN})


@pytest.mark.parametrize("call", CALLS)
def test_arguments_refuse_nan(call):
    with pytest.raises(ValueError, match=rf"{call.split()[0]}(\[.*\])? (is )?nan\b"):
        CALLS[call](NAN)


@pytest.mark.parametrize("bias", [-0.1, 1.5, NAN, jnp.float32(2), np.float64(-1)])
def test_a_bias_that_is_no_probability_is_refused(bias):
    trees = (bias, {"a": jnp.zeros(3), "b": (bias,)})
    for tree in trees:
        with pytest.raises(ValueError, match=re.escape(f"bias is {bias}: expected 0..1")):
            minimized(brkga, bias=tree)
    brkga.minimize(KEY, cost, TEMPLATE, evaluations=5, bias={"a": 0.0, "b": (jnp.float32(1),)})


@pytest.mark.slow
def test_one_bias_may_be_a_scalar_array():
    settings = brkga.Settings(population=10, elites=2, mutants=1)
    how = {"evaluations": 40, "settings": settings}
    found = [
        jax.jit(lambda bias: minimized(brkga, bias=bias, **how).cost)(0.7),
        *(minimized(brkga, bias=bias, **how).cost for bias in (0.7, np.float32(0.7))),
    ]
    assert len(set(map(float, found))) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: brkga.Settings(population=1, elites=1), "population is 1: expected 2 at least"),
        (lambda: brkga.Settings(population=0), "population is 0: expected 2 at least"),
        (lambda: annealing.Settings(chains=0), "chains is 0: expected 1 at least"),
        (lambda: told(-0.1), "temperature is -0.1: expected 0 at least"),
        (lambda: told(jnp.float32(NAN)), "temperature is nan: expected 0 at least"),
        (lambda: sampled(temperature=jnp.float32(0)), "temperature is 0.0: expected more than 0"),
        (lambda: sampled(num_nodes=4), "num_nodes is 4: expected 1..3"),
        (lambda: sampled(num_nodes=0), "num_nodes is 0: expected 1..3"),
        (lambda: proposals.beta_quantiles(0.5, 0.1, points=1), "points is 1: expected 2 at least"),
        (
            lambda: minimized(annealing, initial={"a": np.zeros((0, 3)), "b": (np.zeros((0, 4)),)}),
            "initial has 0 candidates: expected 1 at least",
        ),
        (lambda: regal.Settings(width="64"), "width is 64: expected a whole number, 1 at least"),
        (lambda: go.Settings(clip="0.2"), "clip is 0.2: expected more than 0"),
        (lambda: regal.Settings(lean=math.inf), "lean is inf: expected a finite number"),
    ],
)
def test_other_values_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
