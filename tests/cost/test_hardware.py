import numpy as np
import pytest

from gopt.cost import hardware as machines
from gopt.cost.hardware import PRESETS, op_seconds, unit_rate_devices


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name):
    hardware = PRESETS[name]()
    machines.check_hardware(hardware)
    count = hardware.flop_rate.size
    assert count == (int(name[0]) if name[0].isdigit() else 2)
    assert hardware.latency.shape == (count, count)


def test_channels():
    assert machines.pair_channels(2).tolist() == [[0, 1], [2, 3]]
    assert machines.bus_channels(3).tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
    assert machines.no_channels(2).tolist() == [[-1, -1], [-1, -1]]
    for channels in (machines.pair_channels, machines.bus_channels, machines.no_channels):
        assert channels(3).dtype == np.int32


def test_an_ideal_machine_has_no_contention_and_unit_rates():
    hardware = machines.ideal(3, synchronous=True)
    assert (hardware.channel == -1).all() and (hardware.bandwidth == 1).all()
    assert not hardware.latency.any() and not hardware.launch.any()
    assert bool(hardware.synchronous) and np.isinf(hardware.capacity).all()


@pytest.mark.parametrize(
    ("overlap", "expected"), [(1.0, 0.1 + 3), (0.0, 0.1 + 5), (0.5, 0.1 + 5 - 0.5 * 2)]
)
def test_roofline(overlap, expected):
    hardware = unit_rate_devices(1, flop_rate=10, memory_bandwidth=5, launch=0.1, overlap=overlap)
    compute_bound = op_seconds([30], [10], hardware)
    memory_bound = op_seconds([20], [15], hardware)
    np.testing.assert_allclose(compute_bound, [[expected]], rtol=1e-15)
    np.testing.assert_allclose(memory_bound, [[expected]], rtol=1e-15)


def test_roofline_is_of_each_device():
    hardware = unit_rate_devices(2, launch=1)._replace(
        flop_rate=np.array([1.0, 4.0]), memory_bandwidth=np.array([2.0, np.inf])
    )
    seconds = op_seconds(np.float32([8, 0]), np.float32([2, 2]), hardware)
    assert seconds.tolist() == [[9, 3], [2, 1]] and seconds.dtype == np.float64


def test_no_devices_raise():
    for count in (0, -1):
        with pytest.raises(ValueError, match=f"num_devices is {count}: expected at least one"):
            unit_rate_devices(count)
    empty = unit_rate_devices(1)._replace(flop_rate=np.zeros(0))
    with pytest.raises(ValueError, match="flop_rate is empty: a machine needs at least one"):
        machines.check_hardware(empty)


def test_more_devices_than_a_cost_model_can_number_raise():
    machines.check_hardware(unit_rate_devices(machines.MAX_DEVICES))
    with pytest.raises(ValueError, match="181 devices: expected 180 at most"):
        machines.check_hardware(unit_rate_devices(machines.MAX_DEVICES + 1))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("flop_rate", [1.0, 0.0], r"flop_rate\[1\] is 0\.0: expected a positive number"),
        ("flop_rate", [np.nan, 1.0], r"flop_rate\[0\] is nan: expected a positive number"),
        ("memory_bandwidth", [1.0, -1.0], r"memory_bandwidth\[1\] is -1\.0: expected a positive"),
        ("memory_bandwidth", [1.0], r"memory_bandwidth has shape \(1,\): expected \(2,\)"),
        ("launch", [0.0, -1e-6], r"launch\[1\] is -1e-06: expected a finite number, not negative"),
        ("launch", [np.inf, 0.0], r"launch\[0\] is inf: expected a finite number"),
        ("capacity", [0.0, 1.0], r"capacity\[0\] is 0\.0: expected a positive number"),
        ("capacity", [1.0, np.nan], r"capacity\[1\] is nan: expected a positive number"),
        ("latency", [[0, 0], [-1, 0]], r"latency\[1, 0\] is -1: expected a finite number"),
        ("latency", [[0, np.nan], [0, 0]], r"latency\[0, 1\] is nan: expected a finite number"),
        ("latency", [[0.0]], r"latency has shape \(1, 1\): expected \(2, 2\)"),
        ("bandwidth", [[1, 1], [0, 1]], r"bandwidth\[1, 0\] is 0: expected a positive number"),
        ("bandwidth", [[1, np.nan], [1, 1]], r"bandwidth\[0, 1\] is nan: expected a positive"),
        ("channel", [[0, 4], [0, 0]], r"channel\[0, 1\] is 4: expected a link in 0\.\.3, or -1"),
        ("channel", [[0, 0], [-2, 0]], r"channel\[1, 0\] is -2: expected a link in 0\.\.3, or -1"),
        ("overlap", 1.5, r"overlap is 1\.5: expected a share in \[0, 1\]"),
        ("overlap", np.nan, r"overlap is nan: expected a share in \[0, 1\]"),
    ],
)
def test_figures_that_are_not_valid_raise(field, value, message):
    hardware = unit_rate_devices(2)._replace(**{field: np.asarray(value)})
    with pytest.raises(ValueError, match=message):
        machines.check_hardware(hardware)
