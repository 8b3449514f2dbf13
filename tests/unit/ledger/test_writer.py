import errno
import json
import os
import resource
import zlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gumption.ledger import Ledger, LedgerError, LedgerWriter
from gumption.ledger import segments as segments_module
from gumption.ledger.schema import TABLES
from gumption.types import FATES


def members(folder: Path) -> list[int]:
    return Ledger(folder).rollouts()["member"].to_list()


def test_every_table_comes_back_with_the_values_that_went_in(tmp_path, row):
    step = {"version": 1, "wall": 2.0, "skipped": False, "rollouts": 2, "flops/total": 10**25, "reward/mean": 0.5}
    problem = {"problem_id": "p-0", "set": "train", "prompt": "2+2=", "verifier": "math", "meta": "{}"}
    rows = {
        "problems": problem,
        "rollouts": row("rollouts", reward=None, parts=(0.5, 1.0)),
        "verdicts": row("verdicts", reward_max=None),
        "groups": row("groups", update=None),
        "evals": row("evals", run_flops=3 * 10**20),
        "steps": step,
    }
    with LedgerWriter(tmp_path / "ledger", text="all") as writer:
        for table, values in rows.items():
            writer.append(table, values)
    ledger = Ledger(tmp_path)
    for table, values in rows.items():
        (got,) = ledger.read(table).to_dicts()
        assert {k: v for k, v in got.items() if v is not None} == {
            k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if v is not None
        }
    assert set(ledger.rollouts().columns) == {c.name for c in TABLES["rollouts"]}


def test_metrics_may_differ_between_steps_and_segments(tmp_path):
    with LedgerWriter(tmp_path) as writer:
        writer.append("steps", {"version": 1, "wall": 1.0, "entropy": 2.0})
        writer.append("steps", {"version": 2, "wall": 2.0})
        writer.flush()
        writer.append("steps", {"version": 3, "wall": 3.0, "grad_norm": float("nan")})
    steps = Ledger(tmp_path).steps()
    assert steps["entropy"].to_list() == [2.0, None, None]
    assert steps["grad_norm"].to_list()[:2] == [None, None]
    assert steps["grad_norm"].is_nan().to_list()[2]


def test_segments_are_numbered_and_flush_rows_is_per_table(tmp_path, row):
    writer = LedgerWriter(tmp_path, flush_rows=3, flush_seconds=1e9)
    for i in range(7):
        writer.append("rollouts", row("rollouts", i))
    assert sorted(p.name for p in (tmp_path / "rollouts").iterdir()) == ["000001.parquet", "000002.parquet"]
    assert pq.read_metadata(tmp_path / "rollouts" / "000001.parquet").num_rows == 3
    assert writer.position()["rows"]["rollouts"] == 7
    assert members(tmp_path) == list(range(7))


def test_old_rows_are_flushed_by_age(tmp_path, row):
    writer = LedgerWriter(tmp_path, flush_seconds=0.0)
    writer.append("rollouts", row("rollouts"))
    assert members(tmp_path) == [0]


@pytest.mark.parametrize("policy", ["none", "sample", "all"])
def test_text_policy(tmp_path, row, policy):
    given = row("rollouts")
    with LedgerWriter(tmp_path, text=policy) as writer:
        for i in range(640):
            writer.append("rollouts", given | {"member": i % 8, "attempt": i // 8, "text": f"t{i}"})
    texts = Ledger(tmp_path).rollouts()["text"].to_list()
    kept = [i for i, text in enumerate(texts) if text is not None]
    expected = {
        "none": [],
        "all": list(range(640)),
        "sample": [i for i in range(640) if zlib.crc32(f"p-0/0/{i // 8}/{i % 8}".encode()) % 16 == 0],
    }[policy]
    assert kept == expected
    assert all(texts[i] == f"t{i}" for i in kept)
    if policy == "sample":
        assert 20 <= len(kept) <= 60
    assert given["text"] == "hello", "the caller's row is left alone"


def test_rows_that_do_not_fit_are_refused_by_name(tmp_path, row):
    writer = LedgerWriter(tmp_path)
    with pytest.raises(ValueError, match="unknown ledger table 'rolouts'; known: problems"):
        writer.append("rolouts", {})
    with pytest.raises(ValueError, match="table 'evals' misses version, problem_id"):
        writer.append("evals", {k: v for k, v in row("evals").items() if k not in ("version", "problem_id")})
    with pytest.raises(ValueError, match="has unknown columns colour"):
        writer.append("rollouts", row("rollouts", colour="red"))
    writer.append("rollouts", row("rollouts", member="first"))
    with pytest.raises(ValueError, match=r"rollouts\.member \(int32\) cannot hold 'first'"):
        writer.flush()
    writer = LedgerWriter(tmp_path / "2")
    writer.append("rollouts", row("rollouts", fate=None))
    with pytest.raises(ValueError, match=r"rollouts\.fate \(string\) cannot hold None"):
        writer.close()
    with pytest.raises(ValueError, match="write none, sample or all"):
        LedgerWriter(tmp_path / "3", text="some")
    writer = LedgerWriter(tmp_path / "4")
    writer.append("steps", {"version": 1, "wall": 0.0, "entropy": "high"})
    with pytest.raises(ValueError, match=r"steps\.entropy \(float64\) cannot hold 'high'"):
        writer.flush()


def test_nullable_columns_may_be_left_out(tmp_path, row):
    short = {k: v for k, v in row("rollouts").items() if k not in ("importance_ratio", "text", "advantage")}
    with LedgerWriter(tmp_path) as writer:
        writer.append("rollouts", short)
    (got,) = Ledger(tmp_path).rollouts().to_dicts()
    assert (got["importance_ratio"], got["text"], got["advantage"], got["weight"]) == (None, None, None, 1.0)


def test_a_closed_ledger_takes_no_rows(tmp_path, row):
    writer = LedgerWriter(tmp_path)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="the ledger is closed"):
        writer.append("rollouts", row("rollouts"))


def test_an_existing_ledger_is_not_overwritten(tmp_path, row):
    with LedgerWriter(tmp_path) as writer:
        writer.append("rollouts", row("rollouts"))
    with pytest.raises(LedgerError, match="already holds a ledger; resume"):
        LedgerWriter(tmp_path)
    assert members(tmp_path) == [0]


def test_resume_moves_what_came_after_the_checkpoint_to_lost(tmp_path, row):
    writer = LedgerWriter(tmp_path, flush_seconds=1e9)
    writer.append("rollouts", row("rollouts", 0))
    writer.append("steps", {"version": 1, "wall": 1.0})
    position = json.loads(json.dumps(writer.position()))
    writer.append("rollouts", row("rollouts", 1, fate="gave_up"))
    writer.append("steps", {"version": 2, "wall": 2.0})
    writer.flush()
    writer.append("rollouts", row("rollouts", 2))  # never reaches the disk: killed here
    (tmp_path / "rollouts" / ".000003.parquet.tmp").write_bytes(b"half a segment")

    writer = LedgerWriter.resume(tmp_path, position)
    assert (writer.lost_rollouts, writer.lost_flops) == (1, 10 + 1 + 1000)
    writer.append("rollouts", row("rollouts", 1))
    writer.close()

    ledger = Ledger(tmp_path)
    assert ledger.rollouts()["member"].to_list() == [0, 1]
    assert ledger.steps()["version"].to_list() == [1]
    lost = ledger.lost()
    assert lost.select("member", "fate", "lost_fate").rows() == [(1, "lost", "gave_up")]
    assert not list(tmp_path.rglob(".*"))
    assert pq.read_table(tmp_path / "lost" / "steps" / "000001.parquet")["version"].to_pylist() == [2]


def test_what_two_crashes_lost_is_counted_once_each(tmp_path, row):
    writer = LedgerWriter(tmp_path, flush_seconds=1e9)
    first = writer.position()
    for i in range(2):
        writer.append("rollouts", row("rollouts", i))
        writer.flush()
    again = LedgerWriter.resume(tmp_path, first)
    assert (again.lost_rollouts, again.lost_flops) == (2, 1111 + 1011)
    again.append("rollouts", row("rollouts", 0))
    again.flush()
    # Killed before a new checkpoint: the old one knows nothing of either loss.
    third = LedgerWriter.resume(tmp_path, first)
    assert third.lost_rollouts == 3
    third.append("rollouts", row("rollouts", 0))
    position = third.position()
    fourth = LedgerWriter.resume(tmp_path, position)
    assert (fourth.lost_rollouts, fourth.lost_flops) == (0, 0)
    assert Ledger(tmp_path).lost().height == 3
    assert members(tmp_path) == [0]


def test_resume_can_discard_the_last_rows_of_a_finished_run(tmp_path, row):
    writer = LedgerWriter(tmp_path)
    writer.append("rollouts", row("rollouts", 0))
    position = writer.position()
    writer.append("rollouts", row("rollouts", 1, fate="unfinished"))
    writer.close()
    writer = LedgerWriter.resume(tmp_path, position, discard=True)
    assert (writer.lost_rollouts, members(tmp_path), Ledger(tmp_path).lost().height) == (0, [0], 0)


def test_resume_from_nothing_takes_everything_back(tmp_path, row):
    with LedgerWriter(tmp_path) as writer:
        writer.append("rollouts", row("rollouts"))
    LedgerWriter.resume(tmp_path, None)
    assert (members(tmp_path), Ledger(tmp_path).lost().height) == ([], 1)


def test_resume_refuses_a_ledger_that_lacks_what_the_checkpoint_counted(tmp_path, row):
    writer = LedgerWriter(tmp_path, flush_seconds=1e9)
    for i in range(2):
        writer.append("rollouts", row("rollouts", i))
        writer.flush()
    position = writer.position()
    with pytest.raises(LedgerError, match="holds 2 rows up to segment 2, the checkpoint counted 5"):
        LedgerWriter.resume(tmp_path, {**position, "rows": {**position["rows"], "rollouts": 5}})
    (tmp_path / "rollouts" / "000001.parquet").unlink()
    with pytest.raises(LedgerError, match=r"000001\.parquet is part of the checkpoint's ledger"):
        LedgerWriter.resume(tmp_path, position)
    with pytest.raises(LedgerError, match="holds no ledger"):
        LedgerWriter.resume(tmp_path / "nowhere", position)


def test_resume_keeps_the_settings_unless_told_otherwise(tmp_path, row):
    LedgerWriter(tmp_path, text="all", flush_rows=7, flush_seconds=5.0).close()
    same = LedgerWriter.resume(tmp_path, None)
    assert (same.text, same.flush_rows, same.flush_seconds) == ("all", 7, 5.0)
    other = LedgerWriter.resume(tmp_path, None, text="none", flush_rows=9)
    assert (other.text, other.flush_rows) == ("none", 9)


def test_a_full_disk_is_one_clear_error_and_no_row_is_dropped(tmp_path, row):
    writer = LedgerWriter(tmp_path, flush_seconds=1e9)
    for i in range(3000):
        writer.append("rollouts", row("rollouts", i, reason=os.urandom(8).hex()))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # a real write error: the kernel refuses larger files
    try:
        with pytest.raises(LedgerError, match=r"cannot write the ledger at .*000001\.parquet: File too large; free"):
            writer.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "rollouts").iterdir()) == []
    writer.close()
    assert members(tmp_path) == list(range(3000))


def test_a_full_disk_at_fsync_too(tmp_path, row, monkeypatch):
    writer = LedgerWriter(tmp_path)
    writer.append("rollouts", row("rollouts"))

    def no_space(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(segments_module.os, "fsync", no_space)
        with pytest.raises(LedgerError, match="No space left on device; free some space and resume"):
            writer.flush()
    writer.close()
    assert members(tmp_path) == [0]


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        LedgerError, match=r"cannot write the ledger at .*file/ledger.*: Not a directory; choose another"
    ):
        LedgerWriter(tmp_path / "file" / "ledger")

    def read_only(*args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(LedgerError, match="Read-only file system; make the folder writable or choose another one"):
        LedgerWriter(tmp_path / "ledger")


def test_every_fate_is_storable(tmp_path, row):
    with LedgerWriter(tmp_path) as writer:
        for i, fate in enumerate(FATES):
            writer.append("rollouts", row("rollouts", i, fate=fate))
    counters = Ledger(tmp_path).counters()
    assert counters["fate"].to_list() == list(FATES)
