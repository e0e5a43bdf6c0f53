"""Files of weights that are damaged, or that say more than is true, are refused."""

import dataclasses
import gc
import json
import math

import jax
import numpy as np
import pytest

from gopt.learning.settings import check_types
from gopt.learning.weights import load_weights, one_op, save_weights
from gopt.systems import go, hdp, local_advantage, placeto, regal, xrlflow

SYSTEMS = (go, hdp, local_advantage, placeto, regal, xrlflow)
SETTINGS = placeto.Settings(groups=4, rounds=1)


@pytest.fixture(scope="module")
def params():
    inputs = placeto.inputs(*one_op(2), settings=SETTINGS)
    return placeto.init(jax.random.key(0), inputs, settings=SETTINGS)


@pytest.fixture
def path(tmp_path, params):
    placeto.save(tmp_path / "policy.npz", params, SETTINGS, {"steps": 3})
    return tmp_path / "policy.npz"


def first_leaf(params, change):
    """Return parameters whose first array is changed, and the path of the array."""
    leaves, tree = jax.tree.flatten(params)
    return jax.tree.unflatten(tree, [change(np.array(leaves[0])), *leaves[1:]])


def test_weights_come_back(path, params):
    again, settings = placeto.load(path)
    assert settings == SETTINGS
    jax.tree.map(np.testing.assert_array_equal, again, jax.tree.map(np.asarray, params))
    assert load_weights(path)[1]["origin"] == {"steps": 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.astype(np.float64), "and dtype float64, expected shape .* and dtype float32"),
        (lambda x: x.astype(np.int32), "and dtype int32, expected"),
        (lambda x: x.astype(">f4"), "dtype >f4, expected"),
        (lambda x: x[None], "other shapes than its settings say: params/"),
        (lambda x: np.where(x == x.flat[-1], np.nan, x), "is nan: expected a finite number"),
        (lambda x: x * np.inf, r"\] is (-inf|inf|nan): expected a finite number"),
        (lambda x: x.astype(complex), "has dtype complex128: expected numbers"),
        (lambda x: x.astype(str), "has dtype <U32: expected numbers"),
    ],
)
def test_arrays_of_other_types_and_values_are_refused(path, params, change, message):
    _, record = load_weights(path)
    with np.errstate(invalid="ignore"):
        save_weights(path, first_leaf(params, change), record)
    with pytest.raises(ValueError, match=f"policy.npz .*{message}"):
        placeto.load(path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 10**9}, "rounds is 1000000000: expected 1 at least and 100 at most"),
        ({"groups": 10**9}, "groups is 1000000000: expected 1 at least and 65536 at most"),
        ({"rounds": 10**400}, "rounds is 1000.*: expected a whole number"),
        ({"rounds": True}, "rounds is True: expected a whole number"),
        ({"rounds": 1.0}, "rounds is 1.0: expected a whole number"),
        ({"rounds": "1"}, "rounds is '1': expected a whole number"),
        ({"rounds": None}, "rounds is None: expected a whole number"),
        ({"rounds": [1]}, r"rounds is \(1,\): expected a whole number"),
        ({"entropy": 10**400}, "entropy is 1000.*: expected a finite number"),
        ({"entropy": {}}, r"entropy is {}: expected a finite number"),
        ({"banana": 3}, "banana"),
    ],
)
def test_settings_out_of_range_are_refused(path, params, settings, message):
    _, record = load_weights(path)
    record["settings"] |= settings
    save_weights(path, params, record)
    with pytest.raises(ValueError, match=f"policy.npz holds no settings of placeto: .*{message}"):
        placeto.load(path)


@pytest.mark.parametrize("kind", [s.Settings for s in SYSTEMS])
def test_every_field_has_its_type(kind):
    check_types(kind, dataclasses.asdict(kind()))
    for field in dataclasses.fields(kind):
        wrong = {bool: 1, str: 3}.get(type(field.default), "word")
        with pytest.raises(ValueError, match=f"{field.name} is {wrong!r}: expected "):
            check_types(kind, {field.name: wrong})
        if isinstance(field.default, float):
            with pytest.raises(ValueError, match=f"{field.name} is nan: expected "):
                check_types(kind, {field.name: math.nan})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "a JSON list: expected an object"),
        ("3", "a JSON int"),
        ("{", "Expecting"),
        ('{"a": NaN}', "NaN is in it"),
        ('{"a": ' + "[" * 50_000, "nested too deeply"),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", "nested too deeply"),
    ],
)
def test_records_that_are_no_objects_are_refused(path, text, message):
    arrays = dict(np.load(path))
    np.savez(path, **{**arrays, "gopt.weights": np.str_(text)})
    with pytest.raises(ValueError, match=f"does not hold weights that gopt saved: .*{message}"):
        placeto.load(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"gopt.weights": np.zeros(3)}, "is no text"),
        ({"gopt.weights": np.array(["{}", "{}"])}, "is no text"),
        ({"params": np.zeros(3, np.float32)}, "'params' is in others"),
        ({"params/more": np.zeros(3, np.float32)}, "params/more has shape .*, expected nothing"),
        ({"params/MLP_9/Dense_0/bias": np.zeros((10**9, 0), np.float32)}, "1000000000 devices"),
        ({"params/MLP_x/Dense_0/bias": np.zeros(3, np.float32)}, "of another network"),
    ],
)
def test_other_arrays_are_refused(path, arrays, message):
    np.savez(path, **{**np.load(path), **arrays})
    with pytest.raises(ValueError, match=message):
        placeto.load(path)


def test_an_origin_that_is_no_object_is_refused(path, params):
    _, record = load_weights(path)
    save_weights(path, params, record | {"origin": [1]})
    with pytest.raises(ValueError, match=r"has origin \[1\]: expected an object"):
        placeto.weights.FORMAT.origin(path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_weights(path, params, record | {"origin": {"loss": math.nan}})


@pytest.mark.filterwarnings("error")
def test_truncated_files_are_refused_and_closed(path):
    whole = path.read_bytes()
    for length in range(0, len(whole), 199):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="does not hold weights that gopt saved"):
            placeto.load(path)
    gc.collect()


@pytest.mark.parametrize("system", [go, local_advantage, regal, xrlflow])
def test_shipped_weights_of_other_types_are_refused(tmp_path, system):
    own = system.weights.FORMAT
    shipped = own.shipped.get("makespan", own.find(None))
    arrays = dict(np.load(shipped))
    name = next(key for key in sorted(arrays) if key != "gopt.weights")
    path = tmp_path / "policy.npz"
    system.load(shipped)
    for changed, message in (
        (arrays[name].astype(np.float64), f"{name} has shape .* and dtype float64"),
        (np.full_like(arrays[name], np.nan), "expected a finite number"),
    ):
        np.savez(path, **{**arrays, name: changed})
        with pytest.raises(ValueError, match=message):
            system.load(path)
    record = json.loads(str(arrays["gopt.weights"]))
    field = "layers" if "layers" in record["settings"] else "rounds"
    record["settings"][field] = 10**9
    np.savez(path, **{**arrays, "gopt.weights": np.str_(json.dumps(record))})
    with pytest.raises(ValueError, match=f"{field} is 1000000000: expected 1 at least|0 at least"):
        system.load(path)
