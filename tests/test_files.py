import os
import signal
import stat
import subprocess
import sys

import pytest

from gopt.files import write_whole


def test_a_file_is_there_only_after_the_block(tmp_path):
    path = tmp_path / "figures.json"
    with write_whole(path) as temporary:
        assert temporary != path and temporary.parent == path.parent
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["figures.json"]


def test_an_old_file_is_replaced_and_readable_by_others(tmp_path):
    path = tmp_path / "table.md"
    path.write_text("a long old text")
    with write_whole(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "a long old text"
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("old", [True, False])
def test_an_exception_leaves_what_was_there(tmp_path, error, old):
    path = tmp_path / "weights.npz"
    if old:
        path.write_text("old")
    with pytest.raises(error), write_whole(path) as temporary:
        temporary.write_text("half")
        raise error
    assert os.listdir(tmp_path) == (["weights.npz"] if old else [])
    assert not old or path.read_text() == "old"


def test_a_target_that_cannot_be_replaced_leaves_nothing_else(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(OSError), write_whole(path) as temporary:
        temporary.write_text("new")
    assert os.listdir(tmp_path) == ["folder"] and path.is_dir()


def test_parent_folders_are_made(tmp_path):
    path = tmp_path / "runs" / "regal" / "table.md"
    with write_whole(str(path)) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"


@pytest.mark.parametrize("name", ["plot.png", "a.tar.gz", "none"])
def test_the_temporary_name_keeps_the_suffix(tmp_path, name):
    with write_whole(tmp_path / name) as temporary:
        assert temporary.suffix == (tmp_path / name).suffix
        temporary.write_text("new")
    assert os.listdir(tmp_path) == [name]


def test_two_writers_do_not_share_a_temporary_file(tmp_path):
    path = tmp_path / "runs.json"
    with write_whole(path) as one, write_whole(path) as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one"  # the outer block ends last


@pytest.mark.slow
def test_a_killed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "value.bin"
    path.write_bytes(b"old")
    script = (
        "import sys, time\n"
        "from gopt.files import write_whole\n"
        "with write_whole(sys.argv[1]) as temporary:\n"
        "    temporary.write_bytes(b'half')\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
    assert path.read_bytes() == b"old"
