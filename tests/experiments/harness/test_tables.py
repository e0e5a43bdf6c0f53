"""Tables: what is printed and written."""

from experiments.harness import tables


def test_heads_are_wrapped_to_the_width_of_their_cells(tmp_path, capsys):
    columns, rows = ("graph", "REGAL from heuristics", "a-b"), [("t5 step, 586 ops", "+8.4", "x|y")]
    tables.show(
        "A title that is much longer than the table below it is", columns, rows, tmp_path / "t.md"
    )
    title, _, *heads, _, row, _ = capsys.readouterr().out.splitlines()
    assert title == "A title that is much longer than the table below it is"
    cells = [[cell.strip() for cell in head.strip("┃").split("┃")] for head in heads]
    assert cells == [["", "REGAL from", ""], ["graph", "heuristics", "a-b"]]
    assert row == "│ t5 step, 586 ops │       +8.4 │ x|y │"
    written = (tmp_path / "t.md").read_text().splitlines()
    assert written[2] == "| graph | REGAL from heuristics | a-b |"
    assert written[-1] == r"| t5 step, 586 ops | +8.4 | x\|y |"
