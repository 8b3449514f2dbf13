"""Tiny random models, and a reference: one full forward pass without a cache says what a rollout should have been."""

import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from gumption import randomness
from gumption.config import RolloutsConfig
from gumption.flops import ModelShape
from gumption.rollouts.engine import TorchEngine
from gumption.types import Problem, Request

SYMBOLS = "0123456789abcdef"
END = 1
SHAPE = ModelShape(matmul_params=1000, layers=2, heads=4, head_dim=8)


@pytest.fixture(scope="session")
def tokenizer():
    vocab = {t: i for i, t in enumerate(["<pad>", "<end>", "<unk>", *SYMBOLS])}
    core = Tokenizer(models.WordLevel(vocab=vocab, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<end>", unk_token="<unk>")


def build_llama(seed=0, **changes):
    settings = {
        "vocab_size": 19,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "eos_token_id": END,
        "pad_token_id": 0,
        "bos_token_id": None,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**(settings | changes)))
    return sharpen(model)


def sharpen(model, factor=8.0):
    """Larger weights than at initialisation, so that the distributions are far from uniform."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "norm" not in name:
                parameter.mul_(factor if "lm_head" in name or "embed_out" in name else 3.0)
    return model.eval()


def make_problem(i, tokens=None):
    rng = np.random.default_rng(i)
    text = "".join(rng.choice(list(SYMBOLS), tokens or rng.integers(3, 9)))
    return Problem(f"p{i}-0", text, None, "exact")


def make_engine(model, tokenizer, *, seed=7, allow=None, in_flight=None, **config):
    config = RolloutsConfig(**({"max_tokens": 10, "in_flight": 8, "decode_steps": 3} | config))
    return TorchEngine(model, tokenizer, config=config, seed=seed, shape=SHAPE, allow=allow, in_flight=in_flight)


def run_all(engine, requests, limit=2000):
    """Submit when slots are free, poll until everything is back; attempts by (problem, visit, attempt)."""
    todo, out = list(requests), []
    for _ in range(limit):
        while todo and engine.free_slots > 0:
            engine.submit(todo.pop(0))
        out += engine.poll()
        if not todo and not engine.in_flight:
            return {(a.request.problem.id, a.request.visit, a.request.attempt): a for a in out}
    raise AssertionError("the engine does not finish")


def plain(logits_TV):
    return torch.log_softmax(logits_TV.float(), -1)


@torch.no_grad()
def full_logprobs(model, rollout, processed=plain):
    """Log-probs over the vocabulary at every completion token, from one full forward pass, as the trainer has them."""
    ids = torch.from_numpy(np.concatenate([rollout.prompt_ids_T, rollout.completion_ids_T]).astype(np.int64))[None]
    return processed(model(input_ids=ids, use_cache=False).logits[0, len(rollout.prompt_ids_T) - 1 : -1]).numpy()


def check_rollout(model, rollout, seed, *, max_tokens, stage="rollouts", eos=(END,), processed=plain, atol=1e-4):
    """The tokens are the inverse CDF of the hashed uniforms, with the right log-probs and the right end."""
    logprobs_TV, ids_T = full_logprobs(model, rollout, processed), rollout.completion_ids_T
    np.testing.assert_allclose(rollout.logprobs_T, logprobs_TV[np.arange(len(ids_T)), ids_T], atol=atol)
    request = rollout.request
    key = randomness.key(seed, stage, request.problem.id, request.visit, request.attempt, rollout.member)
    uniforms_T = randomness.uniforms(np.full(len(ids_T), key, np.uint64), np.arange(len(ids_T)))
    above_T = np.cumsum(np.exp(logprobs_TV), -1)[np.arange(len(ids_T)), ids_T]
    below_T = above_T - np.exp(logprobs_TV)[np.arange(len(ids_T)), ids_T]
    assert (below_T - atol <= uniforms_T).all() and (uniforms_T <= above_T + atol).all()
    ended = np.isin(ids_T, eos)
    assert not ended[:-1].any() and len(ids_T) <= max_tokens
    assert rollout.finish == ("stop" if ended[-1] else "length") and (ended[-1] or len(ids_T) == max_tokens)


class Helpers:
    build_llama = staticmethod(build_llama)
    sharpen = staticmethod(sharpen)
    problem = staticmethod(make_problem)
    engine = staticmethod(make_engine)
    run_all = staticmethod(run_all)
    full_logprobs = staticmethod(full_logprobs)
    check_rollout = staticmethod(check_rollout)
    shape = SHAPE

    @staticmethod
    def requests(count, n=4, start=0):
        return [Request(make_problem(i), n) for i in range(start, start + count)]


@pytest.fixture(scope="session")
def lab():
    return Helpers


@pytest.fixture(scope="session")
def llama():
    return build_llama()
