import itertools

import numpy as np
import pytest

from gopt.graph.graph import check, is_input
from gopt.graph.kinds import INPUT, UNKNOWN
from gopt.sources import cost_graph, text_format
from gopt.sources.text_format import INT32, Kind

DIAMOND = """
# Four ops; the first has neither id nor explicit ports.
node { name: "a" output_info { size: 100 } output_info { size: 7 } compute_cost: 3 }
node {
  name: "b" id: 1
  input_info { preceding_node: 0 }
  output_info { size: 20 }
  compute_cost: 5
}
node { name: "c" id: 2 input_info { preceding_port: 1 } output_info { size: 30 } }
node {
  name: "d" id: 3 device: "/cpu:0"
  input_info { preceding_node: 1 } input_info { preceding_node: 2 }
  output_info { size: 4 } temporary_memory_size: 9 compute_cost: 1000000 is_final: true
}
"""


def edges(graph):
    """(producer, consumer, bytes) of each use, as a set."""
    return {
        (int(graph.producer[t]), int(c), float(graph.size[t]))
        for t, c in zip(graph.tensor, graph.consumer, strict=True)
    }


def test_diamond():
    graph, seconds = cost_graph.parse(DIAMOND)
    check(graph)
    assert edges(graph) == {(0, 1, 100), (0, 2, 7), (1, 3, 20), (2, 3, 30)}
    np.testing.assert_allclose(seconds, [3e-6, 5e-6, 0, 1.0], rtol=1e-15)
    assert graph.workspace.tolist() == [0, 0, 0, 9]
    assert graph.pinned.tolist() == [False, False, False, False, True]
    assert (graph.kind == UNKNOWN).all()
    assert (graph.flops == 0).all()


def test_times_follow_the_ops_when_nodes_are_not_in_topological_order():
    nodes = DIAMOND.replace("}\nnode", "}@node").split("@")
    expected = cost_graph.parse(DIAMOND)
    for order in itertools.permutations(nodes):
        graph, seconds = cost_graph.parse("\n".join(order))
        check(graph)
        # The last node of the diamond runs for a second; the first is the one with two outputs.
        assert seconds[-1] == 1.0
        assert seconds[0] == 3e-6
        assert sorted(seconds) == sorted(expected.seconds)
        assert sorted(graph.size) == sorted(expected.graph.size)


def test_load(tmp_path):
    path = tmp_path / "graph.pbtxt"
    path.write_text(DIAMOND)
    assert edges(cost_graph.load(path).graph) == edges(cost_graph.parse(DIAMOND).graph)


@pytest.mark.parametrize("controls", ["control_input: 0 control_input: 1", "control_input: [0, 1]"])
def test_control_inputs_are_uses_of_empty_tensors(controls):
    graph, _ = cost_graph.parse(
        'node { name: "a" output_info { size: 8 } } node { name: "b" id: 1 }'
        f'node {{ name: "c" id: 2 input_info {{ }} {controls} }}'
    )
    check(graph)
    assert edges(graph) == {(0, 2, 8), (0, 2, 0), (1, 2, 0)}


def test_sources_and_placeholders_are_inputs_that_nobody_waits_for():
    graph, _ = cost_graph.parse(
        """
        node { name: "_SOURCE" }
        node { name: "net/Placeholder_1" id: 1 control_input: 0 output_info { size: 8 } }
        node { name: "net/Placeholder_2" id: 2 compute_cost: 1 output_info { size: 8 } }
        node { name: "Placeholders/add" id: 3 control_input: 0 output_info { size: 8 }
               input_info { preceding_node: 1 } input_info { preceding_node: 2 } }
        """
    )
    check(graph)
    assert is_input(graph).tolist() == [True, True, False, False]
    assert graph.kind[0] == INPUT
    assert edges(graph) == {(1, 3, 8), (2, 3, 8)}


ALIAS = """
node { name: "a" output_info { size: 64 alias_input_port: -1 } }
node { name: "view" id: 1 input_info { } output_info { size: 64 } }
node { name: "again" id: 2 input_info { preceding_node: 1 } output_info { size: 64 }
       is_final: true }
node { name: "c" id: 3 input_info { preceding_node: 2 }
       output_info { size: 1 alias_input_port: -1 } }
"""


def test_alias_holds_the_aliased_tensor():
    graph, _ = cost_graph.parse(ALIAS)
    check(graph)
    assert graph.size.tolist() == [64, 0, 0, 1]
    assert edges(graph) == {(0, 1, 64), (0, 2, 64), (1, 2, 0), (0, 3, 64), (2, 3, 0)}
    assert graph.pinned.tolist() == [True, False, True, False]


def test_long_chains_of_aliases_are_read_in_linear_time():
    count = 4000
    text = 'node { name: "a" output_info { size: 8 alias_input_port: -1 } }'
    for k in range(1, count):
        text += f"node {{ id: {k} input_info {{ preceding_node: {k - 1} }} output_info {{ }} }}\n"
    graph, _ = cost_graph.parse(text)
    assert graph.size.sum() == 8
    assert int(graph.num_uses) == 2 * (count - 1) - 1


def test_no_aliases_where_no_output_states_one():
    graph, _ = cost_graph.parse(ALIAS.replace("alias_input_port: -1", ""))
    assert graph.size.tolist() == [64, 64, 64, 1]
    assert edges(graph) == {(0, 1, 64), (1, 2, 64), (2, 3, 64)}


def test_persistent_memory_shape_and_dtype():
    graph, _ = cost_graph.parse(
        """node { name: "v" persistent_memory_size: 40 host_temp_memory_size: 5 output_info {
             size: 24 dtype: DT_FLOAT_REF shape { dim { size: 2 } dim { size: 3 } } } }"""
    )
    assert graph.size.tolist() == [24, 40]
    assert graph.pinned.tolist() == [False, True]
    assert graph.shape[0].tolist() == [2, 3, -1, -1, -1, -1]
    assert graph.rank.tolist() == [2, 0]
    assert graph.dtype[0] == 1


A = 'node { name: "a" output_info { size: 1 } }\n'


def b_reads(field):
    return f'node {{ name: "b" id: 1 input_info {{ {field} }} }}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no field `node`"),
        ("node: 3", "line 1: node is '3': expected a message"),
        (DIAMOND.rstrip()[:-1], "the text ends inside the message of line 11: it is truncated"),
        (DIAMOND[: DIAMOND.index("20")], "line 7: the text ends inside size: it is truncated"),
        (A + 'node { name: "b', "line 2"),
        (A + A, "line 2: node 'a': id 0 is taken by 'a', line 1"),
        (A + 'node { name: "b" id: 1 control_input: 5 }', "line 2: node 'b': it reads from node 5"),
        (A + b_reads("preceding_node: 7"), "line 2: node 'b': it reads from node 7"),
        (A + b_reads("preceding_port: 1"), "node 'a': there is no output_info for port 1, which"),
        (A + 'node { id: 1 name: "b" compute_cost: -2 }', "line 2: compute_cost is '-2'"),
        (A + 'node { id: "x" }', "line 2: id is 'x': expected a whole number"),
        (
            A + 'node { id: 1 name: "b" input_info { preceding_node: 1 } output_info { } }',
            "line 2: node 'b': it is on a cycle: 'b' → 'b'",
        ),
        (A + 'node { id: 1 name: "b" id: 2 }', "line 2: id is given twice"),
        (A + "node { id: 1\n is_final: banana }", "line 3: is_final is 'banana': expected true"),
        (A + "node { id: 1 output_info {\n size: -7 } }", "line 3: size is '-7': expected a whole"),
        (A + "node { id: 1 output_info { shape { dim { size: -3 } } } }", "line 2: size is '-3'"),
        (A + "node { id: 1 persistent_memory_size: -3 }", "line 2: persistent_memory_size is '-3'"),
        (A + "node { id: 1 input_info { preceding_port: -1 } }", "line 2: preceding_port is '-1'"),
        (
            A + "node { id: 1_0 }",
            "line 2: id is '1_0': expected a whole number in -2147483648..2147483647",
        ),
        (A + "node { id: 0b1 }", "line 2: id is '0b1'"),
        (A + "node { id: ٣ }", "line 2: '٣ }' is no token"),
        (A + "node { id: 4294967296 }", "line 2: id is '4294967296'"),
        (
            A + f"node {{ compute_cost: {2**63} }}",
            "expected a whole number in -1..9223372036854775807",
        ),
        (A + f"node {{ id: {'1' * 5000} }}", "line 2: id is '111111"),
        (A + 'node { id: "1" }', "line 2: id is '1': expected a whole number"),
        (A + "node { id: 1 name: b }", "line 2: name is 'b': expected a string in quotes"),
        (A + r'node { id: 1 name: "\377" }', "line 2: name is '\\\\xff': expected a string"),
        (A + r'node { id: 1 name: "\777" }', r"line 2: \777 in a string: expected an escape"),
        (A + r'node { id: 1 name: "\q" }', r"line 2: \q in a string: expected an escape"),
        (A + r'node { id: 1 name: "\ud800" }', r"line 2: \ud800 in a string: expected an escape"),
        (A + "node { id: 1\n compute_cots: 3 }", "line 3: compute_cots is no known field"),
        (A + "\n" * 5 + "a {" * 100_000, "line 7: a message in 100 others: expected fewer"),
        ("cost_graph { node { id: x } }", "line 1: id is 'x'"),
        ("cost_graph { }", "no field `node`"),
        ("cost_graph { } banana: 3", "line 1: banana is no known field"),
        ("node { ] }", "line 1: ']': expected the name of a field"),
        ("node { id 3 }", "line 1: '3' in id: expected a colon"),
        ("node { control_input: [1,] }", "line 1: ']' in control_input: expected a value"),
        ("node { control_input [1] }", "line 1: '1' in control_input: expected a message, there"),
        ("node { control_input: [1 2] }", "line 1: '2' in control_input: expected a comma"),
        ("node { name: @ }", "line 1: '@ }' is no token"),
    ],
)
def test_bad_text(text, message):
    with pytest.raises(ValueError) as error:
        cost_graph.parse(text)
    assert message in str(error.value)


def test_text_that_ends_inside_a_node_raises():
    for end in range(1, len(DIAMOND)):
        head = DIAMOND[:end]
        if head.rstrip().endswith("}") and head.count("{") == head.count("}"):
            check(cost_graph.parse(head).graph)
        else:
            with pytest.raises(ValueError):
                cost_graph.parse(head)


def test_a_file_that_is_not_utf_8_is_refused_with_its_line(tmp_path):
    path = tmp_path / "graph.pbtxt"
    path.write_bytes(A.encode() + b'\nnode { name: "\xff" id: 1 }')
    with pytest.raises(ValueError, match=r"^line 3: b'\\xff': expected text in UTF-8$") as error:
        cost_graph.load(path)
    assert not isinstance(error.value, UnicodeError)


# Two partitions as TensorFlow writes them: each has a source and a sink, and a gap in its ids. The
# ids of the second begin at the number of nodes before it, and some are those of the first.
# The second branch of the Switch did not run: sizes are -1, the shape is unknown, and both of its
# ends seem to share their memory (allocation -1).
PARTITIONS = """
node { name: "_SOURCE" }
node { name: "_SINK" id: 1 control_input: 9 }
node {
  name: "x" device: "/job:localhost/replica:0/task:0/device:CPU:0" id: 4
  output_info { size: 64 alias_input_port: -1 dtype: DT_FLOAT shape { dim { size: 16 } } }
  compute_cost: 2
}
node {
  name: "cond/Switch" device: "/job:localhost/replica:0/task:0/device:CPU:0" id: 6
  input_info { preceding_node: 4 }
  output_info { size: -1 alias_input_port: -1 shape { unknown_rank: true } }
  output_info { size: 64 dtype: DT_FLOAT shape { dim { size: 16 } } }
}
node {
  name: "cond/Neg" id: 7 input_info { preceding_node: 6 }
  output_info { size: -1 shape { unknown_rank: true } } inaccurate: true
}
node {
  name: "send" id: 9 input_info { preceding_node: 6 preceding_port: 1 } compute_cost: 1
  is_final: true
}
node { name: "_SOURCE" id: 6 }
node { name: "_SINK" id: 7 control_input: 9 }
node { name: "recv" id: 8 control_input: 6 output_info { size: 64 alias_input_port: -1 } }
node {
  name: "cond/Tanh" id: 9 input_info { preceding_node: 8 }
  output_info { size: 9223372036854775807 alias_input_port: -1 } compute_cost: 5
}
"""


@pytest.mark.parametrize("wrapper", ["{}", "cost_graph {{ {} }} step_stats {{ dev: 3 }}"])
def test_partitions_and_values_that_were_never_measured(wrapper):
    graph, seconds = cost_graph.parse(wrapper.format(PARTITIONS))
    check(graph)
    assert int(graph.num_ops) == 10
    # _SOURCE, x, Switch, Neg, send, _SINK; _SOURCE, recv, Tanh, _SINK
    assert edges(graph) == {
        *((1, 2, 64), (2, 3, 0), (1, 4, 64), (2, 4, 0), (4, 5, 0)),
        *((7, 8, 64), (8, 9, 0)),
    }
    assert is_input(graph).tolist() == [k in (0, 6) for k in range(10)]
    assert seconds.sum() == pytest.approx(8e-6)
    assert graph.size.max() == 2.0**63


def test_partitions_without_sources_begin_at_the_first_id():
    first = A + 'node { name: "b" id: 1 input_info { } output_info { size: 2 } }'
    other = first.replace('"a"', '"c"').replace('"b"', '"d"').replace("size: 2", "size: 3")
    graph, _ = cost_graph.parse(first + other)
    assert edges(graph) == {(0, 1, 1), (2, 3, 1)}
    assert sorted(graph.size) == [1, 1, 2, 3]
    two_runs, _ = cost_graph.parse(f"cost_graph {{ {first} }} cost_graph < {first} >")
    assert edges(two_runs) == {(0, 1, 1), (2, 3, 1)}


def test_a_size_that_was_never_measured_counts_nothing():
    graph, seconds = cost_graph.parse(
        'node { name: "a" compute_cost: -1 temporary_memory_size: -1 output_info { size: -1 } }'
        'node { name: "b" id: 1 input_info { } }'
    )
    assert edges(graph) == {(0, 1, 0)}
    assert graph.workspace.tolist() == [0, 0] == seconds.tolist()


def test_text_format():
    message = text_format.parse(
        r"""
        s: "a\n\"\x41\101\\" 'b'  # two strings are one
        m { x: 1, x: 2; } m: < x: 0x10 > m: { x: - 017 }
        l: [ENUM, -1] n: [{x: 1}, <x: 2>] e: []
        u: "\303\251é\u00e9\U0001F600" f: -1.5e3f t: t a: { b [<>, {}] }
        """
    )
    x = {"x": [INT32]}
    schema = {"s": Kind.STRING, "m": [x], "l": [Kind.ENUM], "n": [x], "e": [Kind.BOOL]}
    schema |= {"u": Kind.STRING, "f": Kind.FLOAT, "t": Kind.BOOL, "a": Kind.ANY, "z": [x]}
    values = text_format.read(message, schema).values
    assert values["s"] == 'a\n"AA\\b'
    assert [m.values["x"] for m in values["m"]] == [[1, 2], [16], [-15]]
    assert values["l"] == ["ENUM", "-1"]
    assert [m.values["x"] for m in values["n"]] == [[1], [2]]
    assert values["e"] == [] == values["z"]
    assert values["u"] == "ééé😀"
    assert (values["f"], values["t"]) == (-1500, True)
    assert "a" not in values
    assert values["m"][1].line == 3
    with pytest.raises(ValueError, match="line 3: m is a message: expected a string"):
        text_format.read(message, schema | {"m": [Kind.STRING]})
    with pytest.raises(ValueError, match=r"line 2: s is .*: expected a message"):
        text_format.read(message, schema | {"s": x})
