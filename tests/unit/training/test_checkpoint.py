"""Checkpoints survive kills, truncation and full disks; trees come back as they were."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gumption.training import checkpoint
from gumption.training.checkpoint import check_checkpoint, latest_checkpoint, load_tree, save_tree, write_checkpoint

TREE: dict[str, Any] = {
    "none": None, "yes": True, "int": 2**70, "float": 0.1, "nan": math.nan, "inf": -math.inf, "text": "ü\n",
    "list": [1, [2.5, {"deep": "x"}], []], "empty": {},
    "i32": np.arange(6, dtype=np.int32).reshape(2, 3), "bool": np.array([True, False]), "zero": np.zeros((0, 3)),
    "scalar": np.array(3.5, np.float32), "strided": np.arange(10)[::2], "u64": np.array([2**64 - 1], np.uint64),
    "f32": torch.arange(4.0), "bf16": torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
    "f64": torch.tensor([1 / 3], dtype=torch.float64), "view": torch.arange(6)[::2], "0d": torch.tensor(7),
}  # fmt: skip


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for k in a:
            same(a[k], b[k])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    else:
        assert a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    save_tree(tmp_path, TREE)
    loaded = load_tree(tmp_path)
    same(TREE, loaded)
    loaded["i32"][0, 0] = 9  # writable
    json.loads((tmp_path / "tree.json").read_text(), parse_constant=lambda c: pytest.fail(f"{c} is not JSON"))


def test_numpy_scalars_and_tuples_become_plain(tmp_path: Path) -> None:
    save_tree(tmp_path, {"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True), "d": (1, 2)})
    same(load_tree(tmp_path), {"a": 3, "b": 0.5, "c": True, "d": [1, 2]})


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": {3: 1}}, r"tree\.a: keys"),
        ({"a": [object()]}, r"tree\.a\[0\]: a state tree cannot hold object"),
        ({"a": np.array(["x"])}, r"tree\.a: arrays of a state tree hold numbers"),
        ({"a": {"__array__": 1}}, "keys of a state tree"),
    ],
)
def test_what_cannot_be_saved_is_named(tmp_path: Path, tree: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_checkpoint(tmp_path, 1, tree)
    assert list(tmp_path.iterdir()) == []


def test_the_newest_is_used_and_old_ones_go(tmp_path: Path) -> None:
    for step in (1, 2, 10, 9):
        write_checkpoint(tmp_path, step, {"step": step}, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00000009", "00000010"]
    latest = latest_checkpoint(tmp_path)
    assert latest is not None and load_tree(latest) == {"step": 10}


def test_the_same_step_again_is_newer(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 3, {"try": 0})
    write_checkpoint(tmp_path, 3, {"try": 1})
    latest = latest_checkpoint(tmp_path)
    assert latest is not None and load_tree(latest) == {"try": 1}
    again = write_checkpoint(tmp_path, 3, {"try": 2})
    assert latest_checkpoint(tmp_path) == again and load_tree(again) == {"try": 2}


def test_nothing_there(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "none") is None and latest_checkpoint(tmp_path) is None
    with pytest.raises(ValueError, match="holds no readable state"):
        load_tree(tmp_path)


@pytest.mark.parametrize("damage", ["truncate", "flip", "missing", "manifest", "empty_manifest"])
def test_a_broken_checkpoint_is_skipped_with_a_warning(tmp_path: Path, damage: str) -> None:
    good = write_checkpoint(tmp_path, 1, TREE)
    broken = write_checkpoint(tmp_path, 2, TREE)
    arrays = broken / "arrays.safetensors"
    data = arrays.read_bytes()
    if damage == "truncate":
        arrays.write_bytes(data[:-1])
    elif damage == "flip":
        arrays.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "missing":
        (broken / "tree.json").unlink()
    elif damage == "manifest":
        (broken / "manifest.json").unlink()
    else:
        (broken / "manifest.json").write_text('{"files": {}}')
    with pytest.warns(UserWarning, match="00000002 is broken"):
        assert latest_checkpoint(tmp_path) == good
    assert check_checkpoint(good) is None


@pytest.mark.parametrize("point", ["_save_arrays", "_write_manifest", "_free_name", "rename"])
def test_a_kill_at_any_point_leaves_the_previous_one(tmp_path: Path, point: str) -> None:
    """A child process dies by SIGKILL in the middle of its second checkpoint."""
    script = f"""
        import os, signal
        from pathlib import Path
        from gumption.training import checkpoint
        import numpy as np
        tree = {{"a": np.arange(1000)}}
        checkpoint.write_checkpoint({str(tmp_path)!r}, 1, tree)
        def die(*a, **k): os.kill(os.getpid(), signal.SIGKILL)
        setattr(Path if {point!r} == "rename" else checkpoint, {point!r}, die)
        checkpoint.write_checkpoint({str(tmp_path)!r}, 2, tree)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)])
    assert done.returncode == -9
    latest = latest_checkpoint(tmp_path)
    assert latest is not None and latest.name == "00000001"
    write_checkpoint(tmp_path, 3, {"a": 1})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00000001", "00000003"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    good = write_checkpoint(tmp_path, 1, {"a": np.arange(3)})

    def full(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(OSError, match=r"no space for a checkpoint in .* MB free.*keep_checkpoints") as caught:
        write_checkpoint(tmp_path, 2, {"a": np.arange(3)})
    assert caught.value.errno == code
    assert list(tmp_path.iterdir()) == [good] and latest_checkpoint(tmp_path) == good


def test_a_real_limit_on_the_file_size(tmp_path: Path) -> None:
    """The arrays are written by a library that hides the error number: found again through a real failing write."""
    script = f"""
        import resource, signal
        import numpy as np
        from gumption.training.checkpoint import write_checkpoint
        write_checkpoint({str(tmp_path)!r}, 1, {{"a": np.arange(10)}})
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try: write_checkpoint({str(tmp_path)!r}, 2, {{"a": np.arange(1_000_000)}})
        except OSError as error: print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert "no space for a checkpoint" in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["00000001"]
