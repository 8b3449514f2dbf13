"""The path on one CUDA device: `make test-gpu`."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_on_cuda_learns_and_stays_on_policy(tmp_path, dtype):
    import gumption
    from gumption.ledger import Ledger

    result = gumption.train(
        {
            "model": {"device": "cuda", "dtype": dtype},
            "training": {"max_staleness": 0},
            "eval": {"samples": 16},
            "budget": {"updates": 40},
        },
        out=tmp_path / "run",
    )
    assert result.summary["updates"] == 40
    steps = Ledger(result.folder).steps()
    tolerance = 1e-3 if dtype == "float32" else 0.1
    assert abs(steps["importance_ratio/mean"].mean() - 1) < tolerance
    rates = result.summary["pass_rate"]
    assert rates["after"]["all"] > rates["before"]["all"] - 0.02
