import io

import jax
import numpy as np
import pytest

import gopt
from gopt import plots
from gopt.cost.hardware import bus_channels, no_channels, pair_channels, unit_rate_devices
from gopt.graph.graph import Op, Output
from gopt.heuristics import keys_from_items

MIB = 2**20


@jax.jit
def simulate(chain, keys):
    return gopt.simulate(chain, gopt.decode(chain, keys))


def problem(ops, capacity=np.inf):
    """A chain of ops of 1 s, each of which makes a tensor of 1 MiB that takes 0.5 s to send."""
    chain = [Op("input", outputs=(Output(MIB),))]
    chain += [
        Op(inputs=((i, 0),), outputs=(Output(MIB),), flops=1, bytes=0) for i in range(ops - 1)
    ]
    machine = unit_rate_devices(2, bandwidth=2 * MIB, channel=bus_channels, capacity=capacity)
    return gopt.prepare(gopt.from_ops(chain), machine)


def schedule(chain, device=None):
    """The chain on device 0, or on these devices."""
    count = int(chain.num_ops)
    device = [0] * count if device is None else device
    rows = chain.shape.ops
    sent = [
        (i, rows + i * chain.num_devices + device[i + 1])
        for i in range(count - 1)
        if device[i] != device[i + 1]
    ]
    items = [item for _, item in sorted([(i, i) for i in range(count)] + sent)]
    return simulate(chain, keys_from_items(chain, device, items))


def png(figure):
    """Size in pixels of a rendered figure, which must not be blank."""
    from matplotlib.image import imread

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    buffer.seek(0)
    pixels = imread(buffer)
    assert pixels[..., :3].std() > 0.05
    return pixels.shape[1::-1]


def bars(axes):
    """Left and right ends of the bars of each lane, by its label."""
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    extents = [
        [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in lane.get_paths()]
        for lane in axes.collections
    ]
    return dict(zip(labels, extents, strict=True))


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def legend_across(axes):
    return [text.get_text() for text in axes.figure.legends[0].get_texts()]


def test_gantt_has_every_item_where_and_when_it_runs():
    chain = problem(4)
    figure = plots.gantt(chain, schedule(chain, [0, 0, 1, 1]), names=["x", "a", "b", "c"])
    (axes,) = figure.axes
    assert bars(axes) == {
        "device 0": [(0, 1)],
        "device 1": [(1.5, 2.5), (2.5, 3.5)],
        "0 → 1": [(1, 1.5)],
    }
    assert axes.get_xlabel() == "time (s)"
    assert legend(axes) == ["compute", "transfer"]
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c"]
    assert figure.get_size_inches()[0] == 3.5
    assert png(figure)[0] == 700


@pytest.mark.parametrize(
    ("channel", "labels"),
    [
        (bus_channels, ["0 → all", "2 → all"]),
        (pair_channels, ["0 → 1", "0 → 2", "2 → 0"]),
        (no_channels, ["0 → 1", "0 → 2", "2 → 0"]),
        (lambda count: np.zeros((count, count), np.int32), ["link 0"]),
    ],
)
def test_lanes_are_the_links_in_use(channel, labels):
    # 0 sends to 1 and to 2, which sends to 0.
    fan = gopt.from_ops(
        [
            Op(outputs=(Output(MIB),)),
            Op(inputs=((0, 0),)),
            Op(inputs=((0, 0),), outputs=(Output(MIB),)),
            Op(inputs=((2, 0),)),
        ]
    )
    chain = gopt.prepare(fan, unit_rate_devices(3, bandwidth=2 * MIB, channel=channel))
    found = simulate(chain, keys_from_items(chain, [0, 1, 2, 0], range(4)))
    axes = plots.gantt(chain, found).axes[0]
    assert list(bars(axes)) == ["device 0", "device 1", "device 2", *labels]


@pytest.mark.parametrize(("scale", "unit"), [(1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")])
def test_time_has_a_unit_that_suits_it(scale, unit):
    graph = gopt.from_ops([Op(flops=3, bytes=0)])
    single = gopt.prepare(graph, unit_rate_devices(1, flop_rate=1 / scale))
    (axes,) = plots.gantt(single, schedule(single)).axes
    assert axes.get_xlabel() == f"time ({unit})"
    assert axes.get_xlim()[1] == pytest.approx(3, rel=1e-6)


def test_gantt_of_three_thousand_items_is_drawn_lane_by_lane():
    chain = problem(1500)
    figure = plots.gantt(chain, schedule(chain, [i % 2 for i in range(1500)]), names=["op"] * 1500)
    (axes,) = figure.axes
    lanes = bars(axes)
    assert sum(map(len, lanes.values())) == 1499 + 1499
    assert len(lanes) == 4
    assert not axes.texts
    assert png(figure)


def test_gantt_of_inputs_alone():
    single = gopt.prepare(gopt.from_ops([Op("input", outputs=(Output(8),))]), unit_rate_devices(1))
    assert png(plots.gantt(single, schedule(single)))
    assert png(plots.memory_profile(single, {"only": schedule(single)}))


def test_memory_profile_shows_usage_by_device():
    chain = problem(4)
    schedules = {"before": schedule(chain), "after": schedule(chain, [0, 0, 1, 1])}
    figure = plots.memory_profile(chain, schedules)
    first, second = figure.axes
    assert [ax.get_ylabel() for ax in figure.axes] == [
        *("device 0\nmemory (MiB)", "device 1\nmemory (MiB)"),
    ]
    assert second.get_xlabel() == "items issued"
    assert legend(first) == ["before, peak 2 MiB", "after, peak 2 MiB"]
    assert legend(second) == ["before, peak 0 MiB", "after, peak 2 MiB"]
    before, after = first.lines
    assert before.get_ydata().tolist() == [1, 2, 2, 2]
    assert after.get_xdata().tolist() == [0, 1]
    assert after.get_ydata().tolist() == [1, 2]
    idle, after = second.lines
    assert set(idle.get_ydata()) == {0}
    # The copy, op 2 beside it, op 3 beside op 2.
    assert after.get_xdata().tolist() == [2, 3, 4]
    assert after.get_ydata().tolist() == [1, 2, 2]
    assert first.get_ylim() == second.get_ylim()
    assert png(figure)[0] == 700


@pytest.mark.parametrize(("capacity", "shown"), [(np.inf, False), (100, False), (3, True)])
def test_capacity_is_drawn_where_it_is_near(capacity, shown):
    chain = problem(4, capacity=capacity * MIB)
    axes = plots.memory_profile(chain, {"only": schedule(chain)}).axes[0]
    assert ("capacity" in legend(axes)) == shown
    if shown:
        assert set(axes.lines[-1].get_ydata()) == {capacity}


def test_overview_is_both():
    chain = problem(4)
    schedules = {"before": schedule(chain), "after": schedule(chain, [0, 0, 1, 1])}
    figure = plots.overview(chain, schedules, names=["x", "a", "b", "c"])
    assert bars(figure.axes[0]) == bars(plots.gantt(chain, schedules["after"]).axes[0])
    assert [ax.get_ylabel() for ax in figure.axes[1:]] == [
        ax.get_ylabel() for ax in plots.memory_profile(chain, schedules).axes
    ]
    assert png(figure)


def test_convergence_is_the_mean_and_its_interval():
    steps = np.array([100, 200, 400])
    runs = np.array([[5.0, 4, 3], [7, 4, 1], [6, 4, 2]])
    figure = plots.convergence(
        {"search": (steps, runs), "one run": (steps, runs[:1]), "heuristic": ([1], [[4.5]])},
        label="makespan (ms)",
    )
    (axes,) = figure.axes
    search, single, flat = axes.lines
    np.testing.assert_allclose(search.get_ydata(), [6, 4, 2])
    np.testing.assert_allclose(single.get_ydata(), runs[0])
    assert set(flat.get_ydata()) == {4.5}
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    at_first = corners[corners[:, 0] == 100, 1]
    half = 4.302653 / np.sqrt(3)  # Student's t for two degrees of freedom; the deviation is 1
    np.testing.assert_allclose([at_first.min(), at_first.max()], [6 - half, 6 + half], rtol=1e-5)
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "evaluations"
    assert axes.get_ylabel() == "makespan (ms)"
    assert legend_across(axes) == ["search", "one run", "heuristic"]
    assert png(figure)[0] == 700


def test_tradeoff_has_a_line_through_what_is_not_beaten():
    found = {
        "quick": (1.0, 5.0),
        "beaten": (2.0, 6.0),
        "slow": (10.0, 2.0),
        "as good": (3.0, 5.0),
    }
    figure = plots.tradeoff(found, x_label="core s", y_label="gap, %")
    (axes,) = figure.axes
    front, *points = axes.lines
    np.testing.assert_array_equal(front.get_xydata(), [(1, 5), (10, 2)])
    assert [tuple(point.get_xydata()[0]) for point in points] == list(found.values())
    assert legend_across(axes) == list(found)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("core s", "gap, %")
    assert png(figure)[0] == 700
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")
    assert (axes.get_xlim()[0], axes.get_ylim()[0]) == (0, 0)


def test_axes_of_a_tradeoff_are_logarithmic_where_values_differ_tenfold():
    def scales(*found):
        (axes,) = plots.tradeoff(dict(zip("xyz", found, strict=False))).axes
        return axes.get_xscale(), axes.get_yscale()

    assert scales((1.0, 5.0), (11.0, 2.0)) == ("log", "linear")
    assert scales((1.0, 5.0), (2.0, 51.0)) == ("linear", "log")
    assert scales((1.0, 50.0), (2.0, 0.0)) == ("linear", "linear")  # the best known itself


def test_large_counts_are_labelled_in_thousands_and_small_values_as_they_are():
    def labels(*costs):
        figure = plots.tradeoff({str(cost): (cost, 1.0) for cost in costs})
        figure.canvas.draw()
        return {label.get_text() for label in figure.axes[0].get_xticklabels()}

    assert {"100", "1k", "2k", "5k"} <= labels(100.0, 5000.0)
    assert {"0.05", "1", "20"} <= labels(0.03, 40.0) and "1000" in labels(0.03, 1200.0)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({}, "found"),
        ({"x": (0.0, 1.0)}, "'x'.*takes 0"),
        ({"x": (1.0, -1.0)}, "'x'.*reaches -1"),
        ({"x": (1.0, np.nan)}, "'x'.*reaches nan"),
    ],
)
def test_a_tradeoff_of_nothing(found, message):
    with pytest.raises(ValueError, match=message):
        plots.tradeoff(found)


def test_nothing_is_kept_by_pyplot():
    from matplotlib import pyplot

    plots.convergence({"search": ([1, 2], [[2.0, 1.0]])})
    assert not pyplot.get_fignums()


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (([1, 2], [1.0, 2.0]), r"histories\['bad'\] has evaluations \(2,\) and costs \(2,\)"),
        (([1, 2], [[1.0, 2.0, 3.0]]), r"expected \[K\] and \[S, K\]"),
    ],
)
def test_bad_histories(history, message):
    with pytest.raises(ValueError, match=message):
        plots.convergence({"bad": history})


def test_nothing_to_draw():
    with pytest.raises(ValueError, match="histories is empty"):
        plots.convergence({})
    for draw in (plots.memory_profile, plots.overview):
        with pytest.raises(ValueError, match="schedules is empty"):
            draw(problem(2), {})
