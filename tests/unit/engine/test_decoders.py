"""Both decoders against the model's own full forward pass, without a cache."""

import numpy as np
import pytest
import torch
import transformers

from gumption.rollouts.decoder import make_decoder
from gumption.rollouts.generic import GenericDecoder
from gumption.rollouts.llama import LlamaDecoder, unsupported

BASE = {
    "vocab_size": 19,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "bos_token_id": None,
}
ROPE = {"rope_theta": 1e4}
LEAN = {
    "llama, multi-head": ("Llama", {}),
    "llama, grouped, tied, biases": (
        "Llama",
        {"num_key_value_heads": 2, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "llama3 rope": (
        "Llama",
        {
            "num_key_value_heads": 1,
            "rope_parameters": ROPE
            | {
                "rope_type": "llama3",
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "yarn (attention scaling)": (
        "Llama",
        {"rope_parameters": ROPE | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
    ),
    "qwen2": ("Qwen2", {"num_key_value_heads": 2}),
    "qwen3": ("Qwen3", {"num_key_value_heads": 2, "head_dim": 16}),
    "mistral": ("Mistral", {"num_key_value_heads": 2, "sliding_window": None}),
}
OTHERS = {
    "gpt2 (learned positions)": ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "gpt-neox (partial rotary, parallel residual)": ("GPTNeoX", {}),
    "bloom (alibi)": ("Bloom", {"n_layer": 2, "n_head": 4}),
    "gemma2 (sliding window of 6, soft caps)": (
        "Gemma2",
        {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 6},
    ),
    "mistral (sliding window of 6)": ("Mistral", {"num_key_value_heads": 2, "sliding_window": 6}),
    "llama, dynamic rope": ("Llama", {"rope_parameters": ROPE | {"rope_type": "dynamic", "factor": 2.0}}),
    "falcon (multi-query)": ("Falcon", {"multi_query": True, "alibi": False}),
}


def some(cases, *quick):
    """All cases; those not named run with the slow tests (each loads another module of transformers)."""
    return [c if c in quick else pytest.param(c, marks=pytest.mark.slow) for c in cases]


def build(lab, kind, changes, seed=0):
    config = getattr(transformers, f"{kind}Config")(**(BASE | changes))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM")(config)
        with torch.no_grad():
            for _name, parameter in model.named_parameters():
                if parameter.ndim == 1:  # norms and biases away from their initial 1 and 0
                    parameter.add_(0.2 * torch.randn_like(parameter))
    return lab.sharpen(model, 3.0 if changes.get("tie_word_embeddings") or kind in ("GPT2", "Gemma2", "Bloom") else 8.0)


def check(lab, model, tokenizer, decoder_class, max_tokens=14):
    engine = lab.engine(model, tokenizer, max_tokens=max_tokens, in_flight=5)
    assert isinstance(engine.decoder, decoder_class)
    requests = lab.requests(4, n=3)
    found = lab.run_all(engine, requests)
    for request in requests:
        for rollout in found[request.problem.id, 0, 0]:
            lab.check_rollout(model, rollout, seed=7, max_tokens=max_tokens)


@pytest.mark.parametrize("name", some(LEAN, "llama, grouped, tied, biases", "qwen3"))
def test_lean_decoder_is_the_model(lab, tokenizer, name):
    check(lab, build(lab, *LEAN[name]), tokenizer, LlamaDecoder)


@pytest.mark.parametrize("name", some(OTHERS, "gpt2 (learned positions)", "gemma2 (sliding window of 6, soft caps)"))
def test_generic_decoder_is_the_model(lab, tokenizer, name):
    check(lab, build(lab, *OTHERS[name]), tokenizer, GenericDecoder)


def test_generic_decoder_is_the_model_for_a_llama_too(lab, tokenizer, llama, monkeypatch):
    monkeypatch.setattr("gumption.rollouts.llama.FAMILY", ())
    check(lab, llama, tokenizer, GenericDecoder)


def test_a_model_that_only_looks_like_a_llama_is_noticed(lab, llama):
    """Its class name says Llama, its arithmetic does not: the check at construction falls back to its own forward."""
    model = lab.build_llama()
    model.model.layers[1].mlp.act_fn = torch.nn.Tanh()
    assert unsupported(model) is None
    assert isinstance(make_decoder(model), GenericDecoder)
    assert isinstance(make_decoder(llama), LlamaDecoder)


def test_bfloat16_stays_close_to_the_model(lab, tokenizer):
    model = lab.build_llama().bfloat16()
    engine = lab.engine(model, tokenizer)
    assert isinstance(engine.decoder, LlamaDecoder)
    found = lab.run_all(engine, lab.requests(2, n=2))
    gaps = []
    for attempt in found.values():
        for rollout in attempt:
            want_TV = lab.full_logprobs(model, rollout)
            want_T = want_TV[np.arange(len(rollout.completion_ids_T)), rollout.completion_ids_T]
            gaps.append(np.abs(want_T - rollout.logprobs_T).mean())
    assert np.mean(gaps) < 0.05


def test_state_space_models_are_refused_with_a_reason(lab, tokenizer):
    config = transformers.MambaConfig(vocab_size=19, hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(ValueError, match="attention KV cache"):
        make_decoder(transformers.MambaForCausalLM(config))


@pytest.mark.parametrize("family", ["lean", "generic"])
def test_new_weights_reach_the_decoder_and_a_missing_one_is_named(lab, family):
    kind, changes = LEAN["llama, grouped, tied, biases"] if family == "lean" else OTHERS["gpt2 (learned positions)"]
    old, new = build(lab, kind, changes), build(lab, kind, changes, seed=1)
    decoder = make_decoder(old)
    ids = np.arange(2, 9)
    decoder.load(dict(new.named_parameters()))  # without the tied head, as trainers hand them over
    from gumption.rollouts.decoder import Prefill

    decoder.cache.prepare(0, 1, len(ids), 20)
    decoder.cache.place(0, np.array([len(ids)]))
    with torch.inference_mode():
        got = decoder.forward(np.zeros(0, np.int64), Prefill((ids,), np.array([1])))[0]
        want = new(input_ids=torch.from_numpy(ids)[None]).logits[0, -1]
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    broken = dict(new.named_parameters())
    missing = next(n for n in broken if "mlp" in n)
    del broken[missing]
    with pytest.raises(ValueError, match=missing):
        decoder.load(broken)
