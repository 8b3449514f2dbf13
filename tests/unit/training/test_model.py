"""Loading policies: what is accepted, what each mistake says, and the numbers that FLOPs are counted from."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from gumption.config import LoraConfig, ModelConfig
from gumption.training.model import load_policy, model_path, model_shape


def test_loads_a_folder(model_config: ModelConfig) -> None:
    policy = load_policy(model_config)
    assert policy.model.dtype == torch.float64 and not policy.model.training
    assert policy.tokenizer.pad_token == "<pad>" and policy.device.type == "cpu"
    assert policy.tokenizer.decode(policy.tokenizer("abc")["input_ids"]) == "abc"


def test_shape_counts_query_heads_and_the_tied_head_once(model_config: ModelConfig) -> None:
    shape = load_policy(model_config).shape
    per_layer = 16 * 16 * 2 + 16 * 8 * 2 + 3 * 16 * 24  # q, o; k, v of two heads; the MLP
    assert (shape.matmul_params, shape.layers, shape.heads, shape.head_dim) == (2 * per_layer + 23 * 16, 2, 4, 4)


def test_shape_of_an_untied_head_leaves_the_embedding_out() -> None:
    config = LlamaConfig(
        vocab_size=10, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, tie_word_embeddings=False, head_dim=6,
    )  # fmt: skip
    shape = model_shape(LlamaForCausalLM(config))
    assert (shape.matmul_params, shape.head_dim) == (4 * 8 * 12 + 3 * 8 * 12 + 10 * 8, 6)


def test_shape_of_gpt2_leaves_position_embeddings_out() -> None:
    shape = model_shape(GPT2LMHeadModel(GPT2Config(vocab_size=10, n_embd=8, n_layer=2, n_head=2, n_positions=16)))
    assert (shape.matmul_params, shape.layers, shape.heads, shape.head_dim) == (2 * 12 * 64 + 80, 2, 2, 4)


def test_shape_of_experts_counts_the_active_ones() -> None:
    config = MixtralConfig(
        vocab_size=10, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=False,
    )  # fmt: skip
    shape = model_shape(MixtralForCausalLM(config))
    assert shape.matmul_params == 4 * 64 + 2 * 3 * 8 * 12 + 4 * 8 + 80


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("tiny/none_such", "no shipped model 'tiny/none_such'; there are:"),
        ("./missing", "no model folder at './missing'"),
        ("justaname", "no model folder at 'justaname' (a hub id looks like owner/name"),
        (__file__, "is a file; model.path needs a folder"),
        (str(Path(__file__).parent), "has no config.json"),
    ],
)
def test_wrong_paths_say_what_is_wrong(path: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        model_path(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_that_holds_no_causal_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(ValueError, match="cannot load a causal language model") as caught:
        load_policy(ModelConfig(path=str(tmp_path)))
    assert "\n" not in str(caught.value)


def test_a_folder_with_broken_weights(llama_folder: Path, tmp_path: Path) -> None:
    for file in llama_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ValueError, match="cannot load a causal language model"):
        load_policy(ModelConfig(path=str(tmp_path)))


def test_a_folder_without_tokenizer(llama_folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((llama_folder / name).read_bytes())
    with pytest.raises(ValueError, match="tokenizer"):
        load_policy(ModelConfig(path=str(tmp_path)))


@pytest.mark.parametrize(("package", "extra"), [("torch", "train"), ("transformers", "train"), ("peft", "lora")])
def test_a_missing_package_names_its_extra(
    model_config: ModelConfig, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    real = builtins.__import__

    def blocked(name: str, *args: object, **kwargs: object) -> object:
        if name.split(".")[0] == package:
            raise ImportError(f"No module named {package!r}")
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(builtins, "__import__", blocked)
    with pytest.raises(ValueError, match=rf"gumption\[{extra}\]"):
        load_policy(model_config.model_copy(update={"lora": LoraConfig(rank=2)}))


def test_pad_token_falls_back_to_end_of_sequence(llama_folder: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((llama_folder / name).read_bytes())
    config = (tmp_path / "config.json").read_text().replace('"pad_token_id": 0', '"pad_token_id": null')
    (tmp_path / "config.json").write_text(config)
    tokenizer = AutoTokenizer.from_pretrained(llama_folder)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    policy = load_policy(ModelConfig(path=str(tmp_path)))
    assert policy.tokenizer.pad_token == "<end>"


def test_chat_template_as_text_or_file(model_config: ModelConfig, tmp_path: Path) -> None:
    text = "{{ messages[0].content }}!"
    (tmp_path / "t.jinja").write_text(text)
    for template in (text, str(tmp_path / "t.jinja")):
        policy = load_policy(model_config.model_copy(update={"chat_template": template}))
        assert policy.tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False) == "a!"
    with pytest.raises(ValueError, match=r"model\.chat_template"):
        load_policy(model_config.model_copy(update={"chat_template": str(tmp_path / "none")}))


def test_adapters_train_alone_and_start_as_the_identity(model_config: ModelConfig) -> None:
    plain = load_policy(model_config)
    policy = load_policy(model_config.model_copy(update={"lora": LoraConfig(rank=2)}), seed=3)
    again = load_policy(model_config.model_copy(update={"lora": LoraConfig(rank=2)}), seed=3)
    trainable = [n for n, p in policy.model.named_parameters() if p.requires_grad]
    assert trainable and all("lora_" in n for n in trainable) and policy.lora
    ids = torch.tensor([[2, 3, 4]])
    assert torch.equal(policy.model(ids).logits, plain.model(ids).logits)
    assert policy.shape == plain.shape
    for a, b in zip(policy.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_wrong_adapter_targets(model_config: ModelConfig) -> None:
    with pytest.raises(ValueError, match="target_modules"):
        load_policy(model_config.model_copy(update={"lora": LoraConfig(target_modules=("nope",))}))


def test_dropout_is_off(tmp_path: Path, llama_folder: Path) -> None:
    for file in llama_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = (tmp_path / "config.json").read_text().replace('"attention_dropout": 0.0', '"attention_dropout": 0.5')
    (tmp_path / "config.json").write_text(config)
    policy = load_policy(ModelConfig(path=str(tmp_path)))
    policy.model.train()
    ids = torch.tensor([[2, 3, 4, 5, 6]])
    assert torch.equal(policy.model(ids).logits, policy.model(ids).logits)


def test_an_unknown_device() -> None:
    from gumption.training.model import _device

    for name in ("nope", "cuda:99"):
        with pytest.raises(ValueError, match=r"model\.device"):
            _device(torch, name)
