"""scripts/tiny_model.py: tokenizer round trip, padded pairs, warm start, sampler, a folder that just loads."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
SYMBOLS = ["a", "ab", "\n", "    ", " ", "(", ".*", "[0]", "é", "\\", "7"]


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"scripts_{name}", SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tiny = _script("tiny_model")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(SYMBOLS), max_size=20))
def test_tokenizer_round_trip(symbols: list[str]) -> None:
    tokenizer = _tokenizer()
    text = "".join(symbols)
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode([*ids, tokenizer.eos_token_id, tokenizer.pad_token_id], skip_special_tokens=True) == text


_CACHE: dict[str, object] = {}


def _tokenizer():  # type: ignore[no-untyped-def]
    if "tokenizer" not in _CACHE:
        _CACHE["tokenizer"] = tiny.make_tokenizer(SYMBOLS)
    return _CACHE["tokenizer"]


def test_tokenizer_ids() -> None:
    tokenizer = _tokenizer()
    assert len(tokenizer) == len(SYMBOLS) + 3
    assert tokenizer.convert_ids_to_tokens(tokenizer("aba")["input_ids"]) == ["ab", "a"]  # longest first, nothing added
    assert tokenizer("a?7")["input_ids"] == [3, tokenizer.unk_token_id, 3 + SYMBOLS.index("7")]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id) == (0, 1, None)
    padded = tokenizer(["a", "a7"], padding=True)
    assert padded["input_ids"][0] == [0, 3] and padded["attention_mask"][0] == [0, 1]  # left, as generation needs it


@pytest.mark.parametrize("symbols", [["a", "a"], ["a", ""], ["<pad>"]])
def test_tokenizer_refuses(symbols: list[str]) -> None:
    with pytest.raises(ValueError, match=r"distinct|reserved"):
        tiny.make_tokenizer(symbols)


def test_pairs_carry_loss_on_completion_and_end_only() -> None:
    ids, labels = tiny.encode_pairs(_tokenizer(), [("7(", "a"), ("a", "7aba")])
    ab, a, seven, bracket = 4, 3, 13, 8
    assert ids.tolist() == [[seven, bracket, a, 1, 0], [a, seven, ab, a, 1]]
    assert labels.tolist() == [[-100, -100, a, 1, -100], [-100, seven, ab, a, 1]]


def test_warm_start_learns_and_repeats() -> None:
    tokenizer = tiny.make_tokenizer(list("01="))

    def draw(rng: np.random.Generator, n: int) -> list[tuple[str, str]]:
        return [(f"{bit}=", f"{1 - bit}{bit}") for bit in rng.integers(0, 2, n)]

    runs = []
    seen: list[int] = []
    for _ in range(2):
        model = tiny.make_model(len(tokenizer), hidden=32, layers=1, heads=2, seed=4)
        losses = tiny.warm_start(
            model,
            tokenizer,
            draw,
            steps=60,
            batch_size=16,
            learning_rate=1e-2,
            warmup=5,
            log_every=0,
            on_step=seen.append,
        )
        runs.append((losses, model))
    assert seen == [*range(1, 61)] * 2
    assert runs[0][0] == runs[1][0] and runs[0][0][-1] < 0.05 < 1.0 < runs[0][0][0]
    texts = tiny.sample(runs[0][1], tokenizer, ["0=", "1="], n=20, max_tokens=4, seed=0)
    # Loss below .05 per token: a wrong text has a chance of about .1; 20 of 40 wrong would be p < 1e-9.
    assert texts[0].count("10") > 10 and texts[1].count("01") > 10


def test_sampling_almost_cold_is_greedy_generate(tmp_path: Path) -> None:
    """Prompts of several lengths, several copies, batches that cut through copies, rows that end early."""
    tokenizer = tiny.make_tokenizer(list("0123456789"))
    model = tiny.make_model(len(tokenizer), hidden=32, layers=2, heads=2, seed=1)
    with torch.no_grad():
        model.lm_head.weight.mul_(20)  # spreads the logits: greedy has no near ties, and some rows end early
    prompts = ["12", "777", "40", "5", "981", "32", "6", "03"]
    texts = tiny.sample(model, tokenizer, prompts, n=3, max_tokens=9, seed=0, temperature=1e-4, batch_size=5)
    ends = []
    for prompt, got in zip(prompts, texts, strict=True):
        ids = tokenizer(prompt, return_tensors="pt")
        output = model.generate(**ids, max_new_tokens=9, do_sample=False)[0, ids["input_ids"].shape[1] :]
        ends.append(1 in output.tolist())
        assert got == [tokenizer.decode(output, skip_special_tokens=True)] * 3
    assert any(ends) and not all(ends)


def test_sampler_draws_from_the_model() -> None:
    """First tokens against softmax: χ² with 3 degrees of freedom below 40, false alarm 1e-8; the seed is fixed too."""
    tokenizer = tiny.make_tokenizer(list("abc"))
    model = tiny.make_model(len(tokenizer), hidden=32, layers=1, heads=2, seed=2)
    with torch.no_grad():
        model.lm_head.weight.mul_(5)
        expected = torch.softmax(model(**tokenizer("ab", return_tensors="pt")).logits[0, -1], -1).double().numpy()
    n = 3000
    texts = tiny.sample(model, tokenizer, ["ab"], n=n, max_tokens=1, seed=3)[0]
    vocabulary = tokenizer.get_vocab()
    observed = np.zeros(6)
    for symbol in "abc":
        observed[vocabulary[symbol]] = texts.count(symbol)
    visible = [vocabulary[s] for s in "abc"]
    hidden = texts.count("") / n  # pad, end and unknown decode to nothing
    assert expected.min() * n > 5
    chi2 = ((observed[visible] - n * expected[visible]) ** 2 / (n * expected[visible])).sum()
    rest = 1 - expected[visible].sum()
    assert chi2 + n * (hidden - rest) ** 2 / rest < 40


def test_folder_loads_with_the_auto_classes(tmp_path: Path) -> None:
    tokenizer = _tokenizer()
    model = tiny.make_model(len(tokenizer), hidden=32, layers=1, heads=2, seed=0)
    tiny.save_folder(model, tokenizer, tmp_path)
    loaded, tokens = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.dtype == torch.float32 and loaded.config.model_type == "llama"
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))
    assert loaded.generation_config.eos_token_id == tokens.eos_token_id == 1
    text = "ab\n    [0] 7"
    assert tokens.decode(tokens(text)["input_ids"]) == text
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"  # the name that transformers 4 and 5 both know
    assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o644}


def test_model_is_the_same_for_the_same_seed_and_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, second, other = (tiny.make_model(9, hidden=16, layers=1, heads=2, seed=s) for s in (5, 5, 6))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first.lm_head.weight, second.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
