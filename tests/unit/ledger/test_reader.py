import json
import shutil

import polars as pl
import pytest

from gumption.ledger import Ledger, LedgerWriter, reader
from gumption.ledger.schema import TABLES, columns


def write(folder, row):
    """A tiny finished run: one group of two, one retried attempt that was given up."""
    with LedgerWriter(folder / "ledger", flush_seconds=1e9) as writer:
        writer.append("problems", {"problem_id": "p-0", "set": "train", "verifier": "math"})
        writer.append("evals", row("evals"))
        untrained = {"trained_tokens": 0, "flops_train": 0, "flops_score": 0, "weight": None, "reward": 0.0}
        writer.append("rollouts", row("rollouts", 0, update=0))
        writer.append("rollouts", row("rollouts", 1, update=0, fate="not_selected", **untrained))
        writer.flush()
        for i in (0, 1):
            failed = {"attempt": 1, "visit": 1, "fate": "gave_up", "update": None}
            writer.append("rollouts", row("rollouts", i, **untrained, **failed))
        writer.append("verdicts", row("verdicts"))
        writer.append("verdicts", row("verdicts", visit=1, attempt=1, kind="give_up", reason="coin", successes=0))
        writer.append("groups", row("groups", update=0))
        writer.append("groups", row("groups", visit=1, kind="give_up", update=None, kept=0, bits=0.0))
        writer.append("steps", {"version": 1, "wall": 1.0, "skipped": False, "flops/train": 1000, "flops/score": 1,
                                "tokens/trained": 7})  # fmt: skip
    summary = {
        "reason": "updates", "rollouts": 4, "rollouts_by_fate": {"trained": 1, "not_selected": 1, "gave_up": 2},
        "rollouts_lost": 0, "updates": 1, "skipped_updates": 0,
        "flops": {"prefill": 200, "decode": 40, "score": 1, "train": 1000, "lost": 0, "total": 1241, "wasted": 120,
                  "eval": 500},
        "tokens": {"generated": 28, "trained": 7}, "bits": {"cum": 2.0}, "staleness": {"mean": 0.0, "max": 0},
    }  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "config.toml").write_text('seed = 3\n[ledger]\ntext = "all"\n')
    return summary


def test_missing_tables_are_empty_frames_with_the_right_columns(tmp_path):
    LedgerWriter(tmp_path / "ledger").close()
    shutil.rmtree(tmp_path / "ledger" / "groups")
    ledger = Ledger(tmp_path)
    for table in [*TABLES, "lost"]:
        frame = ledger.read(table)
        assert (frame.height, frame.columns) == (0, [c.name for c in columns(table)])
    assert (ledger.config, ledger.summary, ledger.damaged) == ({}, {}, [])
    assert ledger.counters().height == 0
    assert ledger.check() == []


def test_run_folder_or_ledger_folder(tmp_path, row):
    write(tmp_path, row)
    for folder in (tmp_path, tmp_path / "ledger", str(tmp_path)):
        ledger = Ledger(folder)
        assert (ledger.rollouts().height, ledger.config["seed"], ledger.summary["rollouts"]) == (4, 3, 4)


def test_no_ledger_is_an_error_with_the_way_out(tmp_path):
    with pytest.raises(ValueError, match=r"holds no ledger.*give the folder that `gumption train` printed"):
        Ledger(tmp_path)
    (tmp_path / "ledger.json").write_text('{"schema": 99}')
    with pytest.raises(ValueError, match="has ledger schema 99, this gumption knows 1: upgrade"):
        Ledger(tmp_path)


def test_counters_sum_rows_by_fate(tmp_path, row):
    write(tmp_path, row)
    assert Ledger(tmp_path).counters().select("fate", "rollouts", "completion_tokens", "flops").rows() == [
        ("trained", 1, 7, 1111),
        ("not_selected", 1, 7, 10),
        ("gave_up", 2, 14, 120),
    ]


def test_counters_do_not_overflow(tmp_path, row):
    with LedgerWriter(tmp_path) as writer:
        for i in range(4):
            writer.append("rollouts", row("rollouts", i, flops_train=2**62))
    assert Ledger(tmp_path).counters()["flops_train"].to_list() == [2**64]


def test_a_ledger_that_agrees(tmp_path, row):
    write(tmp_path, row)
    assert Ledger(tmp_path).check() == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rollouts", 5, "summary.json: rollouts = 5, the rows add up to 4"),
        ("updates", 2, "summary.json: updates = 2, the rows add up to 1"),
        ("flops.decode", 41, "summary.json: flops.decode = 41, the rows add up to 40"),
        ("flops.wasted", 0, "summary.json: flops.wasted = 0, the rows add up to 120"),
        ("flops.eval", 501, "summary.json: flops.eval = 501, the rows add up to 500"),
        ("tokens.generated", 27, "summary.json: tokens.generated = 27, the rows add up to 28"),
        ("bits.cum", 2.1, "summary.json: bits.cum = 2.1, the rows add up to 2.0"),
        ("rollouts_by_fate.gave_up", 1, "summary.json: rollouts_by_fate.gave_up = 1, the rows add up to 2"),
        ("staleness.max", 1, "summary.json: staleness.max = 1, the rows add up to 0"),
    ],
)
def test_a_counter_that_differs_is_named(tmp_path, row, key, value, message):
    summary = write(tmp_path, row)
    node, *rest = key.split(".")
    if rest:
        summary[node][rest[0]] = value
    else:
        summary[node] = value
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert Ledger(tmp_path).check() == [message]


def test_rows_that_differ_from_steps_groups_and_verdicts_are_named(tmp_path, row):
    write(tmp_path, row)
    (tmp_path / "summary.json").unlink()
    writer = LedgerWriter.resume(tmp_path / "ledger", _position(tmp_path))
    writer.append("rollouts", row("rollouts", 0, update=0))  # a second time
    writer.append("steps", {"version": 2, "wall": 2.0, "flops/train": 999})
    writer.append("verdicts", row("verdicts", visit=7))
    writer.close()
    (tmp_path / "summary.json").write_text('{"reason": "updates"}')
    assert Ledger(tmp_path).check() == [
        "rollouts: 1 rollouts have more than one row, the first is p-0 visit 0 attempt 0 member 0 (2 rows)",
        "steps: flops/train goes down at version 2",
        "steps: flops/train = 1000 at version 1, the rows add up to 2000 (2 steps differ)",
        "steps: flops/score = 1 at version 1, the rows add up to 2 (1 steps differ)",
        "steps: tokens/trained = 7 at version 1, the rows add up to 14 (1 steps differ)",
        "groups: 1 groups differ from their rollouts, the first is p-0 visit 0 at version 0: size 2 and 3 rows, "
        "kept 1 and 2 rows with a weight",
        "verdicts: 2 attempts differ from their rollouts, the first is p-0 visit 0 attempt 0: n = 2, 3 rows",
    ]


def _position(folder):
    ledger = Ledger(folder)
    segments = {t: len(list((ledger.folder / t).glob("*.parquet"))) for t in TABLES}
    return {"segments": segments, "rows": {t: ledger.read(t).height for t in TABLES}, "lost": 0}


def test_a_flipped_bit_is_noticed_or_harmless_wherever_it_is(tmp_path, row):
    write(tmp_path, row)
    path = tmp_path / "ledger" / "rollouts" / "000001.parquet"
    good, content = Ledger(tmp_path).rollouts(), path.read_bytes()
    pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little")  # what follows is the footer
    noticed = 0
    for place in range(4, pages, max(1, pages // 100)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        ledger = Ledger(tmp_path)
        assert ledger.rollouts().equals(good) or ledger.damaged
        noticed += len(ledger.damaged)
    assert noticed > 50


@pytest.mark.parametrize("after", TABLES)
def test_a_flush_while_we_list_the_segments_does_no_harm(tmp_path, row, monkeypatch, after):
    writer = LedgerWriter(tmp_path, flush_seconds=1e9)
    writer.append("rollouts", row("rollouts", 0, update=0))
    writer.append("groups", row("groups", update=0, size=1))
    writer.append("steps", {"version": 1, "wall": 1.0, "flops/train": 1000})
    real = reader.segments

    def segments(folder):
        listed = real(folder)
        if folder.name == after:
            writer.flush()
        return listed

    monkeypatch.setattr(reader, "segments", segments)
    assert Ledger(tmp_path).check() == []


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "not parquet"])
def test_a_damaged_segment_is_named_skipped_and_counted(tmp_path, row, damage, caplog):
    write(tmp_path, row)
    path = tmp_path / "ledger" / "rollouts" / "000001.parquet"
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 3] ^= 0x10
    path.write_bytes({"truncated": bytes(content[:-40]), "flipped": bytes(content), "empty": b"",
                      "not parquet": b"hello" * 50}[damage])  # fmt: skip
    ledger = Ledger(tmp_path)
    assert ledger.rollouts()["visit"].to_list() == [1, 1]
    assert [(d.table, d.path) for d in ledger.damaged] == [("rollouts", path)]
    assert "000001.parquet skipped, its rows are missing" in caplog.text
    assert any(str(path) in line for line in ledger.check())
    ledger.rollouts()
    assert len(ledger.damaged) == 1


def test_a_run_that_is_being_written_is_consistent(tmp_path, row):
    writer = LedgerWriter(tmp_path, flush_seconds=1e9)
    writer.append("rollouts", row("rollouts", 0, update=0))
    writer.append("groups", row("groups", update=0, size=1))
    writer.append("steps", {"version": 1, "wall": 1.0, "flops/train": 1000})
    writer.flush()
    ledger = Ledger(tmp_path)
    writer.append("rollouts", row("rollouts", 0, visit=1, update=1))
    writer.append("groups", row("groups", visit=1, update=1, size=1))
    writer.append("steps", {"version": 2, "wall": 1.0, "flops/train": 2000})
    writer.flush()
    assert (ledger.rollouts().height, ledger.steps().height, ledger.check()) == (1, 1, [])
    later = Ledger(tmp_path)
    assert (later.rollouts().height, later.check()) == (2, [])
    position = {"segments": {**writer.position()["segments"], "steps": 1, "rollouts": 1, "groups": 1},
                "rows": {**writer.position()["rows"], "steps": 1, "rollouts": 1, "groups": 1}, "lost": 0}  # fmt: skip
    listed = Ledger(tmp_path)
    assert listed.open
    LedgerWriter.resume(tmp_path, position)  # takes a segment away between our listing and our reading
    assert listed.rollouts().height == 1
    assert [d.error for d in listed.damaged] == ["it is gone"]


def test_an_older_summary_is_not_held_against_a_run_that_goes_on(tmp_path, row):
    summary = write(tmp_path, row)
    (tmp_path / "summary.json").write_text(json.dumps(summary | {"reason": "interrupted", "updates": 0}))
    assert Ledger(tmp_path).check() == ["summary.json: updates = 0, the rows add up to 1"]
    writer = LedgerWriter.resume(tmp_path / "ledger", _position(tmp_path))
    assert Ledger(tmp_path).check() == []
    writer.close()
    assert not Ledger(tmp_path).open


def test_columns_on_request_and_lazy_frames(tmp_path, row):
    write(tmp_path, row)
    ledger = Ledger(tmp_path)
    assert ledger.read("rollouts", ["fate", "member"]).columns == ["fate", "member"]
    assert ledger.read("lost", ["member"]).columns == ["member"]
    assert ledger.lazy("rollouts").select(pl.len()).collect().item() == 4
    assert ledger.lazy("lost").collect().columns == [c.name for c in columns("lost")]
    assert ledger.lazy("rollouts").collect().equals(ledger.rollouts())
    (tmp_path / "ledger" / "rollouts" / "000001.parquet").write_bytes(b"x")
    assert ledger.lazy("rollouts").collect().height == 2
    assert len(ledger.damaged) == 1


def test_segments_of_an_older_schema_get_nulls(tmp_path, row):
    write(tmp_path, row)
    path = tmp_path / "ledger" / "rollouts" / "000001.parquet"
    pl.read_parquet(path).drop("importance_ratio", "parts").write_parquet(path)
    frame = Ledger(tmp_path).rollouts()
    assert frame["importance_ratio"].to_list() == [None, None, 1.0, 1.0]
    assert frame["parts"].to_list()[:2] == [None, None]


def test_read_only_what_exists_with_columns_of_an_older_schema(tmp_path, row):
    write(tmp_path, row)
    path = tmp_path / "ledger" / "rollouts" / "000001.parquet"
    pl.read_parquet(path).drop("importance_ratio").write_parquet(path)
    assert Ledger(tmp_path).read("rollouts", ["importance_ratio"]).to_series().to_list() == [None, None, 1.0, 1.0]
