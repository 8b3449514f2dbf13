"""Whatever a run does and whenever it is killed: the ledger holds each committed row exactly once."""

import contextlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gumption.ledger import Ledger, LedgerError, LedgerWriter
from gumption.ledger import segments as segments_module

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 3)),  # resume from the newest checkpoint, or an older one
        st.tuples(st.just("kill_in_flush"), st.integers(0, 12)),  # … at the n-th system call of a flush
    ),
    max_size=14,
)


class Killed(BaseException):
    """The process is gone: nothing after this point ran."""


def evaluation(number: int) -> dict[str, object]:
    return {"version": number, "set": "train", "problem_id": "p-0", "n": 1, "successes": 0, "flops": 0, "wall": 0.0}


def rollout(number: int) -> dict[str, object]:
    return {
        "problem_id": "p-0", "visit": 0, "attempt": 0, "member": number, "fate": "trained", "reason": "",
        "version_start": 0, "version_end": 0, "finish": "stop", "prompt_tokens": 1, "completion_tokens": 1,
        "trained_tokens": 1, "flops_prefill": 1, "flops_decode": 0, "flops_score": 0, "flops_train": 0, "wall": 0.0,
    }  # fmt: skip


def kill_at(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise at the `call`-th fsync or rename of the writer."""
    calls = 0
    for name in ("fsync", "replace"):
        real = getattr(segments_module.os, name)

        def counted(*args: object, real: object = real) -> object:
            nonlocal calls
            if calls == call:
                raise Killed
            calls += 1
            return real(*args)  # type: ignore[operator]

        monkeypatch.setattr(segments_module.os, name, counted)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=ACTIONS, flush_rows=st.integers(1, 6))
def test_no_row_before_the_position_is_lost_and_none_is_there_twice(actions, flush_rows):
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        writer = LedgerWriter(folder, flush_rows=flush_rows, flush_seconds=1e9)
        written: list[int] = []  # numbers appended since the beginning, minus what a resume took back
        checkpoints: list[tuple[str, list[int]]] = [("null", [])]
        number = 0

        def resume(back: int) -> LedgerWriter:
            del checkpoints[max(1, len(checkpoints) - back) :]
            position, committed = checkpoints[-1]
            written[:] = committed
            again = LedgerWriter.resume(folder, json.loads(position), flush_seconds=1e9)
            assert Ledger(folder).rollouts()["member"].to_list() == committed
            assert Ledger(folder).evals()["version"].to_list() == committed
            return again

        for action, amount in actions:
            if action == "append":
                for _ in range(amount):
                    writer.append("rollouts", rollout(number))
                    writer.append("evals", evaluation(number))
                    written.append(number)
                    number += 1
            elif action == "flush":
                writer.flush()
                assert Ledger(folder).rollouts()["member"].to_list() == written
            elif action == "checkpoint":
                checkpoints.append((json.dumps(writer.position()), list(written)))
            elif action == "kill":
                writer = resume(amount)
            else:
                with pytest.MonkeyPatch.context() as patch:
                    kill_at(amount, patch)
                    with contextlib.suppress(Killed):
                        writer.flush()
                rows = Ledger(folder).rollouts()["member"].to_list()
                assert rows == written[: len(rows)], "what is on disk is a prefix"
                writer = resume(0)
        writer.close()
        ledger = Ledger(folder)
        assert ledger.rollouts()["member"].to_list() == written
        assert ledger.evals()["version"].to_list() == written
        assert not ledger.damaged
        assert not list(folder.rglob(".*"))
        seen = [*written, *ledger.lost()["member"].to_list()]
        assert len(seen) == len(set(seen)), "a lost row is lost once, and not committed as well"


@pytest.mark.parametrize("call", range(0, 9, 2))
def test_a_resume_that_is_killed_can_be_done_again(call):
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        writer = LedgerWriter(folder, flush_seconds=1e9)
        writer.append("rollouts", rollout(0))
        position = writer.position()
        for number in (1, 2, 3):
            writer.append("rollouts", rollout(number))
            writer.append("evals", evaluation(number))
            writer.flush()
        with pytest.MonkeyPatch.context() as patch:
            kill_at(call, patch)
            with contextlib.suppress(Killed):
                LedgerWriter.resume(folder, position)
        again = LedgerWriter.resume(folder, position)
        assert (again.lost_rollouts, again.lost_flops) == (3, 3)
        ledger = Ledger(folder)
        assert ledger.rollouts()["member"].to_list() == [0]
        assert ledger.evals().height == 0
        assert sorted(ledger.lost()["member"].to_list()) == [1, 2, 3]


def test_the_failure_of_a_segment_below_the_position_is_never_silent(tmp_path):
    writer = LedgerWriter(tmp_path)
    writer.append("rollouts", rollout(0))
    position = writer.position()
    (tmp_path / "rollouts" / "000001.parquet").write_bytes(b"")
    with pytest.raises(LedgerError):
        LedgerWriter.resume(tmp_path, position)
