import gc
import os
import signal
import stat
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from gopt.host.files import parse_object, read_arrays, write_whole


def test_a_file_is_there_only_after_the_block(tmp_path):
    path = tmp_path / "figures.json"
    with write_whole(path) as temporary:
        assert temporary != path and temporary.parent == path.parent
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["figures.json"]


def test_an_old_file_is_replaced(tmp_path):
    path = tmp_path / "table.md"
    path.write_text("a long old text")
    with write_whole(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "a long old text"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["table.md"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_permissions_of_the_umask_and_an_old_one_keeps_its_own(tmp_path, umask):
    old = os.umask(umask)
    try:
        for name, mode in (("new", None), ("private", 0o600), ("shared", 0o664)):
            path = tmp_path / name
            if mode is not None:
                path.touch()
                path.chmod(mode)
            with write_whole(path) as temporary:
                temporary.write_text("new")
            expected = 0o666 & ~umask if mode is None else mode
            assert stat.S_IMODE(path.stat().st_mode) == expected
    finally:
        os.umask(old)


@pytest.mark.parametrize("target", ["old", "missing"])
def test_a_link_stays_and_its_target_is_written(tmp_path, target):
    path = tmp_path / "here" / "latest.npz"
    path.parent.mkdir()
    path.symlink_to(f"../there/{target}.npz")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "old.npz").write_text("old")
    with write_whole(path) as temporary:
        temporary.write_text("new")
    assert path.is_symlink() and path.read_text() == "new"
    assert (tmp_path / "there" / f"{target}.npz").read_text() == "new"
    assert os.listdir(path.parent) == ["latest.npz"]


def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="expected a file"), write_whole(tmp_path / "pipe"):
        pass
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


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
        "from gopt.host.files import write_whole\n"
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[1]", "a JSON list: expected an object"),
        ("3", "a JSON int: expected an object"),
        ("null", "a JSON NoneType: expected an object"),
        ('{"a": 1e999}', "1e999 is in it: expected a finite number"),
        ('{"a": [NaN]}', "NaN is in it: expected a finite number"),
        ('{"a": -Infinity}', "-Infinity is in it"),
        ('{"b": {"a": 1, "a": 2}}', "'a' is twice in an object"),
        ('{"a": ' * 100_000, "values are nested too deeply"),
        ('{"a": ' + "[" * 100_000, "values are nested too deeply"),
        (f'{{"a": {"1" * 5000}}}', "digits"),
    ],
)
def test_json_that_is_no_plain_object_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_object(text)


def test_json_objects_are_read():
    assert parse_object(' {"a": [1, 2.5, {"b": null}]} ') == {"a": [1, 2.5, {"b": None}]}


def test_arrays_are_read_as_numpy_reads_them(tmp_path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "deep/name": np.asfortranarray(np.arange(6, dtype=np.int8).reshape(2, 3)),
        "text": np.str_("words"),
        "none": np.zeros((0, 3), np.float32),
        "big": np.zeros(3, ">f4"),
    }
    np.savez_compressed(tmp_path / "arrays.npz", **arrays)
    found = read_arrays(tmp_path / "arrays.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        found[name][...] = found[name]  # writable


def test_an_array_of_more_bytes_than_its_file_allocates_nothing(tmp_path):
    path = tmp_path / "arrays.npz"
    with zipfile.ZipFile(path, "w") as archive:
        header = b"\x93NUMPY\x01\x00v\x00" + (
            b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }".ljust(117)
            + b"\n"
        )
        archive.writestr("a.npy", header + bytes(64))
    with pytest.raises(ValueError, match=r"a.npy has 64 bytes, shape \(1000000000000000,\)"):
        read_arrays(path)


@pytest.mark.filterwarnings("error")
def test_damaged_archives_are_refused_and_closed(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez_compressed(path, a=np.arange(100), b=np.zeros((3, 4)))
    whole = path.read_bytes()
    objects = tmp_path / "objects.npz"
    np.savez(objects, a=np.array([object()]))
    for content in (*(whole[:end] for end in range(0, len(whole), 7)), objects.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="no archive of arrays, or truncated"):
            read_arrays(path)
    gc.collect()
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "missing.npz")


def test_long_names_of_many_bytes_are_written(tmp_path):
    path = tmp_path / ("名" * 80 + ".json")
    with write_whole(path) as temporary:
        temporary.write_text("{}")
    assert path.read_text() == "{}" and list(tmp_path.iterdir()) == [path]
