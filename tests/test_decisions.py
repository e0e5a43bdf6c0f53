"""Plans in files: what is not a plan of gopt is refused, with the place of the fault."""

import json

import jax
import numpy as np
import pytest

import gopt
from gopt.result import save_plan
from gopt.xla.ordered import COMPILER_OPTIONS, MEMORY_SCHEDULER
from tests.plans import X, function, plans

NAMES = ("schedule", "placement", "fuse", "rewrite")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The rows of a plan of each kind, as they are in files."""
    folder = tmp_path_factory.mktemp("plans")
    for name, (verb, plan) in plans().items():
        save_plan(folder / name, verb, plan)
    return {name: (folder / name).read_text() for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_plans_come_back_and_compute_the_function(tmp_path, saved, name):
    path = tmp_path / "plan.json"
    path.write_text(saved[name])
    plan = gopt.load(path)
    assert plan == plans()[name][1]
    if name != "rewrite":  # whose plan is of another function
        np.testing.assert_allclose(plan.apply(function, X)(X), function(X), rtol=1e-5)


@pytest.mark.parametrize("name", ["schedule", "fuse"])
def test_only_compiler_options_of_gopt_come_from_a_file(tmp_path, saved, name):
    path = tmp_path / "plan.json"
    row = json.loads(saved[name])
    for options in ({}, MEMORY_SCHEDULER["cpu"], COMPILER_OPTIONS["cpu"]):
        path.write_text(json.dumps(row | {"options": options}))
        assert gopt.load(path).options == options
    for options in (
        {"xla_dump_to": str(tmp_path / "dump")},
        {**MEMORY_SCHEDULER["cpu"], "xla_dump_to": str(tmp_path / "dump")},
        {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED"},
    ):
        path.write_text(json.dumps(row | {"options": options}))
        with pytest.raises(ValueError, match=r"options is .*: expected one of"):
            gopt.load(path)
    assert not (tmp_path / "dump").exists()


def term(index, part, value):
    """Return a change of a part of a term of a rewriting."""

    def change(terms):
        changed = [list(row) for row in terms]
        changed[index][part] = value
        return changed

    return change


LITERAL = {"literal": "00000000", "dtype": "float32", "shape": []}


@pytest.mark.parametrize(
    ("name", "field", "value", "message"),
    [
        ("schedule", "merged", 1, "merged is 1: expected true or false"),
        ("schedule", "max_trips", -1, "max_trips is -1: expected a whole number in"),
        ("schedule", "max_trips", True, "max_trips is True: expected a whole number in"),
        ("schedule", "max_trips", 10**999, r"max_trips is 1000.*: expected a whole number in"),
        ("schedule", "fingerprint", None, "fingerprint is None: expected text"),
        ("schedule", "banana", 3, "banana is unknown: expected fingerprint, platform"),
        ("schedule", "peak", [1.5], r"peak\[0\] is 1.5: expected a whole number"),
        ("schedule", "workspace", 1e999, "Infinity is in it: expected a finite number"),
        ("schedule", "workspace", [-1], r"workspace\[0\] is -1: expected a finite number, not neg"),
        ("schedule", "workspace", [10**99], r"workspace\[0\] is 10000.*: expected a finite number"),
        ("schedule", "groups", [[2], 3], r"groups\[1\] is 3: expected a list"),
        ("schedule", "groups", [[2], []], r"groups\[1\] is \(\): expected equations in their"),
        ("schedule", "groups", [[2, 2]], r"groups\[0\] is \(2, 2\): expected equations in their"),
        ("schedule", "groups", [[3, 2]], r"groups\[0\] is \(3, 2\): expected equations in their"),
        (
            "schedule",
            "groups",
            [[2], [2]],
            r"groups\[1\] ends with equation 2, and so does .*\[0\]",
        ),
        ("schedule", "groups", [["2"]], r"groups\[0\]\[0\] is '2': expected a whole number"),
        (
            "schedule",
            "transfers",
            [[1, 0, 0, 0]],
            r"transfers\[0\] is \(1, 0, 0, 0\): expected the",
        ),
        ("placement", "transfers", [[1, 0, 0, 2]], r"device in 0\.\.1"),
        ("placement", "transfers", [[1, 0, 0, 1]], "to another device"),  # it is on 1
        ("placement", "transfers", [[99, 0, 0, 0]], "that has run"),
        ("placement", "transfers", [[1, 0, 0]], r"transfers\[0\] is \(1, 0, 0\): expected before"),
        ("placement", "transfers", [[1, 0, 0, 0]] * 2, r"transfers\[1\] is transfers\[0\] again"),
        ("placement", "options", {}, "options are given for several devices: expected null"),
        ("fuse", "groups", [[0], [0]], r"groups\[1\] ends with equation 0"),
        ("fuse", "groups", {}, "groups is {}: expected a list"),
        ("fuse", "simplified", "no", "simplified is 'no': expected true or false"),
        ("fuse", "options", None, "options is None: expected an object"),
        ("rewrite", "chosen", "best", "chosen is 'best': expected one of"),
        ("rewrite", "chosen_folded", "best", "chosen_folded is 'best': expected one of"),
        ("rewrite", "constant_argnums", [0.5], r"constant_argnums\[0\] is 0.5"),
        ("rewrite", "roots", [99], r"roots\[0\] is 99: expected a whole number in 0\.\.17"),
        ("rewrite", "terms", [{}], r"terms\[0\] is {}: expected a list"),
        ("rewrite", "terms", [["add", {}]], r"terms\[0\] has 2 parts"),
        ("rewrite", "terms", term(0, 0, "argument"), r"terms\[0\] has operator 'argument'"),
        ("rewrite", "terms", term(1, 2, [12]), r"terms\[1\]\[2\]\[0\] is 12: expected .* 0\.\.11"),
        ("rewrite", "terms", term(0, 1, []), r"terms\[0\]\[1\] is \[\]: expected an object"),
        ("rewrite", "terms", term(0, 1, {"a": []}), r"terms\[0\].a is a list"),
        ("rewrite", "terms", term(0, 1, {"a": {}}), r"terms\[0\].a is {}: expected one of tuple"),
        ("rewrite", "terms", term(0, 1, {"a": {"tuple": [[]]}}), r"terms\[0\].a\[0\] is a list"),
        ("rewrite", "terms", term(0, 1, {"a": {"precision": "?"}}), r"\.a is .*: expected a prec"),
        ("rewrite", "terms", term(0, 1, {"a": {"dtype": "?"}}), r"\.a is .*'\?'"),
        ("rewrite", "terms", term(0, 1, {"a": {"dtype": ","}}), r"dtype is ',': expected"),
        ("rewrite", "terms", term(0, 1, {"a": {"dtype": "object"}}), r"dtype is 'object': "),
        ("rewrite", "terms", term(0, 1, {"a": {"dtype": "float128"}}), r"dtype is 'float128': "),
        ("rewrite", "terms", term(0, 1, {"a": LITERAL | {"shape": [2]}}), r"\.a has 4 bytes: exp"),
        ("rewrite", "terms", term(0, 1, {"a": LITERAL | {"literal": "0"}}), r"\.a is .*hexadec"),
        ("rewrite", "terms", term(0, 1, {"a": LITERAL | {"more": 1}}), r"\.a\.more is unknown"),
    ],
)
def test_fields_of_other_types_and_ranges_are_refused(tmp_path, saved, name, field, value, message):
    row = json.loads(saved[name])
    row[field] = value(row[field]) if callable(value) else value
    if field == "groups" and name == "schedule":
        row["workspace"] = [0.0] * len(value)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(row))
    with pytest.raises(ValueError, match=f"plan.json is not a plan of gopt, format 2: .*{message}"):
        gopt.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "can't decode"),
        (b"3", "a JSON int: expected an object"),
        (b'{"format": 2, "verb": []}', r"verb is \[\]: expected one of schedule, fuse, rewrite"),
        (b'{"format": 2.0, "verb": "fuse"}', r"format is 2\.0: expected 2"),
        (b'{"format": 2, "verb": "fuse"}', "fingerprint is missing"),
        (b'{"a":' * 99_999, "nested too deeply"),
        (b'{"format": 2, "format": 2}', "'format' is twice"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        gopt.load(path)
    assert not isinstance(error.value, UnicodeError)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("roots", [12], "roots are .*: expected the results of fn"),
        ("roots", [17, 17], "roots are .*: expected the results of fn"),
        ("terms", term(0, 1, {"permutation": {"tuple": [1, 5]}}), r"terms\[0\] is no term of tran"),
        ("terms", term(0, 1, {"permutation": 3}), r"terms\[0\] is no term of transpose"),
        ("terms", term(0, 1, {"permutation": {"term": 9, "attribute": "?"}}), r"terms\[0\] is no"),
        ("terms", term(0, 1, {}), r"terms\[0\] is no term of transpose"),
    ],
)
def test_terms_that_do_not_fit_the_function_are_refused(tmp_path, saved, field, value, message):
    row = json.loads(saved["rewrite"])
    row[field] = value(row[field]) if callable(value) else value
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(row))
    plan = gopt.load(path)
    with pytest.raises(ValueError, match=message):
        plan.apply(function, jax.ShapeDtypeStruct(X.shape, X.dtype))


@pytest.mark.parametrize("name", ["schedule", "fuse"])
def test_groups_of_missing_equations_are_refused(tmp_path, saved, name):
    row = json.loads(saved[name])
    row["groups"][0] = [99]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(row))
    plan = gopt.load(path)
    with pytest.raises(ValueError, match=r"groups\[0\] is \(99,\): expected equations in 0\.\.7"):
        plan.apply(function, X)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ValueError, match="is a folder: expected a file"):
        gopt.load(tmp_path)
