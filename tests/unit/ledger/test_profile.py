import polars as pl
import pytest

from gumption.ledger.profile import BUCKETS, bucket, bucket_expr, read_profile, write_profile


@pytest.mark.parametrize(
    ("rate", "name"),
    [
        (0.0, "unsolved"),
        (1e-9, "extra_hard"),
        (0.0199, "extra_hard"),
        (0.02, "hard"),
        (0.0999, "hard"),
        (0.1, "medium"),
        (0.4999, "medium"),
        (0.5, "easy"),
        (0.9599, "easy"),
        (0.96, "saturated"),
        (1.0, "saturated"),
    ],
)
def test_bucket_edges(rate, name):
    assert bucket(rate, 128) == name
    assert pl.DataFrame({"p": [rate]}).select(bucket_expr(pl.col("p"))).item() == name
    assert name in BUCKETS


@pytest.mark.parametrize(("rate", "n"), [(1.1, 4), (-0.1, 4), (float("nan"), 4), (0.5, 0)])
def test_bucket_refuses_nonsense(rate, n):
    with pytest.raises(ValueError, match=r"not in \[0, 1\]|at least one sample"):
        bucket(rate, n)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_round_trip(tmp_path, suffix):
    profile = pl.DataFrame(
        {"problem_id": ["a-0", "b-0"], "n": [128, 64], "successes": [0, 64], "mean_reward": [0.0, 1.0]}
    )
    path = write_profile(tmp_path / "deep" / f"profile{suffix}", profile)
    back = read_profile(path)
    assert back.columns == ["problem_id", "n", "successes", "version", "mean_reward"]
    assert back.rows() == [("a-0", 128, 0, 0, 0.0), ("b-0", 64, 64, 0, 1.0)]


def test_mistakes_are_named(tmp_path):
    good = pl.DataFrame({"problem_id": ["a-0"], "n": [4], "successes": [1]})
    with pytest.raises(ValueError, match=r"ends in \.parquet or \.jsonl"):
        write_profile(tmp_path / "profile.csv", good)
    with pytest.raises(ValueError, match="no pass-rate profile at"):
        read_profile(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match=r"row 1: n = 4, successes = 5, problem_id = 'a-0' cannot be"):
        write_profile(tmp_path / "p.jsonl", good.with_columns(successes=5))
    with pytest.raises(ValueError, match=r"needs the columns problem_id, n and successes; no \['n'\]"):
        write_profile(tmp_path / "p.jsonl", good.drop("n"))
    (tmp_path / "p.jsonl").write_text('{"problem_id": "a-0", "n": 4, "successes": 1}\n{"problem_id"\n')
    with pytest.raises(ValueError, match=r"p\.jsonl, line 2: not JSON"):
        read_profile(tmp_path / "p.jsonl")
    (tmp_path / "p.jsonl").write_text("[1, 2]\n")
    with pytest.raises(ValueError, match="line 1: expected an object"):
        read_profile(tmp_path / "p.jsonl")
    (tmp_path / "p.jsonl").write_text('{"problem_id": "a-0", "n": "many", "successes": 1}\n')
    with pytest.raises(ValueError, match=r"p\.jsonl"):
        read_profile(tmp_path / "p.jsonl")
    (tmp_path / "p.parquet").write_bytes(b"no")
    with pytest.raises(ValueError, match="is not a parquet file"):
        read_profile(tmp_path / "p.parquet")
