import itertools

import numpy as np
import pytest

from gopt.graph.graph import check, is_input
from gopt.graph.kinds import INPUT, UNKNOWN
from gopt.sources import cost_graph, text_format

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
    assert {(0, 3, 64), (1, 3, 0), (2, 3, 0)} <= edges(graph)
    assert graph.pinned.tolist() == [True, True, True, False]


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
        (
            A + 'node { name: "b" id: 1 input_info { preceding_node: 7 } }',
            "line 2: node 'b': it reads from node 7",
        ),
        (
            A + 'node { name: "b" id: 1 input_info { preceding_port: 1 } }',
            "line 1: node 'a': there is no output_info for port 1, which 'b' reads",
        ),
        (
            A.replace("1", "-1") + 'node { name: "b" id: 1 input_info { } }',
            "line 1: node 'a': the size of port 0, which 'b' reads, is not known",
        ),
        (A + 'node { id: 1 name: "b" compute_cost: -2 }', "line 2: node 'b': compute_cost is -2"),
        (A + 'node { id: "x" }', "line 2: id is 'x': expected a whole number"),
        (A + 'node { id: 1 name: "b" input_info { preceding_node: 1 } output_info { } }', "cycle"),
        ("node { ] }", "line 1: ']': expected the name of a field"),
        ("node { id 3 }", "line 1: '3' in id: expected a colon"),
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


def test_text_format():
    message = text_format.parse(
        r"""
        s: "a\n\"\x41\101\\" 'b'  # two strings are one
        m { x: 1, x: 2; } m: < x: 0x10 > m: { x: -017 }
        l: [ENUM, -1.5e3, "s"] n: [{x: 1}, <x: 2>] e: []
        u: "\303\251é"
        """
    )
    assert message.strings("s") == ['a\n"AA\\b']
    assert [m.integers("x") for m in message.messages("m")] == [[1, 2], [16], [-15]]
    assert message.strings("l") == ["ENUM", "-1.5e3", "s"]
    assert [m.integer("x", 0) for m in message.messages("n")] == [1, 2]
    assert message.strings("e") == [] == message.strings("absent")
    assert message.strings("u") == ["éé"]
    assert message.integer("absent", 4) == 4
    assert message.messages("m")[1].line == 3
    with pytest.raises(ValueError, match="line 3: m is a message"):
        message.strings("m")
