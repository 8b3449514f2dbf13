import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from gumption.rollouts.stopping import StopStrings, decode_texts, eos_ids


@pytest.fixture(scope="module")
def byte_tokenizer():
    """Byte-level: one token per byte, and a few merged ones, so that characters and stop strings span tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(alphabet)}
    merges = []
    for a, b in [("a", "b"), ("Ċ", "Ċ"), ("ab", "c")]:
        merges.append((a, b))
        vocab[a + b] = len(vocab)
    core = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core)


def first_hit(tokenizer, stop, text_or_ids):
    """Tokens until the stop string is seen, feeding one token at a time."""
    ids = np.array(text_or_ids if isinstance(text_or_ids, list) else tokenizer.encode(text_or_ids), np.int32)
    watcher = StopStrings(tokenizer, stop, len(tokenizer))
    for count in range(1, len(ids) + 1):
        if watcher.hits(ids[None], np.array([count]), ids[None, count - 1])[0]:
            return decode_texts(tokenizer, [ids[:count]])[0]
    return None


@pytest.mark.parametrize(
    ("stop", "text", "seen"),
    [
        (("\n\n",), "x\n\ny", "x\n\n"),
        (("bc",), "xabcd", "xabc"),  # ends in the middle of a merge
        (("ca", "zz"), "abcabx", "abcab"),  # begins in one token, ends inside the next
        (("é!",), "né!x", "né!"),  # characters of two bytes
        (("日",), "今日は", "今日"),
        (("q",), "abc", None),
    ],
)
def test_stop_is_seen_at_the_token_that_completes_it(byte_tokenizer, stop, text, seen):
    assert first_hit(byte_tokenizer, stop, text) == seen


def test_any_string_is_found_where_a_plain_search_finds_it(byte_tokenizer):
    rng = np.random.default_rng(0)
    letters = list("abc\n é")
    for _ in range(60):
        text = "".join(rng.choice(letters, 30))
        stop = "".join(rng.choice(letters, rng.integers(1, 4)))
        ids = byte_tokenizer.encode(text)
        prefixes = [decode_texts(byte_tokenizer, [np.array(ids[:n])])[0] for n in range(1, len(ids) + 1)]
        assert first_hit(byte_tokenizer, (stop,), ids) == next((p for p in prefixes if stop in p), None)


def test_only_suspects_are_decoded(byte_tokenizer, monkeypatch):
    watcher = StopStrings(byte_tokenizer, ("zq",), len(byte_tokenizer))
    decoded = []
    monkeypatch.setattr(
        "gumption.rollouts.stopping.decode_texts", lambda t, ids: decoded.append(len(ids)) or [""] * len(ids)
    )
    ids = np.array([byte_tokenizer.encode("xzqy")] * 2, np.int32)
    watcher.hits(ids, np.array([2, 3]), ids[np.arange(2), [1, 2]])  # newest: z (no), q (yes)
    assert decoded == [1]


def test_text_is_cut_after_the_stop_that_ends_first(byte_tokenizer):
    watcher = StopStrings(byte_tokenizer, ("cd", "b"), len(byte_tokenizer))
    assert watcher.cut("abcdx") == "ab" and watcher.cut("none") == "none"


def test_an_empty_stop_string_is_an_error(byte_tokenizer):
    with pytest.raises(ValueError, match="empty string"):
        StopStrings(byte_tokenizer, ("",), 10)


def test_end_ids_come_from_generation_config_and_tokenizer(lab, tokenizer):
    model = lab.build_llama()
    model.generation_config.eos_token_id = [7, 5]
    assert eos_ids(model, tokenizer) == (1, 5, 7)
    model.generation_config.eos_token_id = None
    model.config.eos_token_id = 4
    assert eos_ids(model, None) == (4,)
    model.config.eos_token_id = None
    assert eos_ids(model, None) == ()
