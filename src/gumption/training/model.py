"""Loading a policy: a shipped tiny model, a Hugging Face folder, or a hub id, with one-line errors.

Dropout of the base model is switched off: rollouts are sampled without it, and the trainer's log-probs must be of the
same distribution. Only adapters keep the dropout that `model.lora.dropout` asks for.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from gumption.config import LoraConfig, ModelConfig
from gumption.flops import ModelShape

SHIPPED = "tiny/"


@dataclass(frozen=True, eq=False)
class Policy:
    """A language model that is ready to train and to sample from.

    Args:
        model: A Hugging Face causal LM (`PreTrainedModel`), or a `PeftModel` around one; in eval mode.
        tokenizer: Its tokenizer; `pad_token` is always set.
        shape: What FLOPs are counted from.
        device: Where the weights are.
        path: Where they came from: a folder, or the hub id.
        lora: The model is a `PeftModel`; only its adapters train.
    """

    model: Any
    tokenizer: Any
    shape: ModelShape
    device: Any
    path: str
    lora: bool = False

    @property
    def base_model(self) -> Any:
        """The Hugging Face model itself, without the adapter wrapper (adapter layers stay inside it)."""
        return self.model.get_base_model() if self.lora else self.model

    def plain_model(self) -> Any:
        """What an engine copies: the Hugging Face model. With adapters, a copy that has them merged in."""
        return copy.deepcopy(self.model).merge_and_unload() if self.lora else self.model

    def weights(self) -> dict[str, Any]:
        """Detached weights under the Hugging Face model's parameter names, adapters merged in.

        Without adapters these are live views: they change with the next update, so whoever keeps them copies them.
        """
        if not self.lora:
            return {name: weight.detach() for name, weight in self.model.named_parameters()}
        return _merged(self.base_model)


def load_policy(config: ModelConfig, *, seed: int = 0) -> Policy:
    """Load weights and tokenizer as `config` says.

    Args:
        config: The `[model]` table. `path` is `tiny/NAME` (shipped), a folder, or a hub id.
        seed: Of the adapters' initial weights.

    Returns:
        The policy, in eval mode on its device, dropout off.

    Raises:
        ValueError: torch, transformers or peft is not installed (says which extra), the folder does not exist, holds
            no causal language model or no tokenizer, the hub does not answer, or the device is not there.
    """
    torch = _need("torch", "train")
    transformers = _need("transformers", "train")
    device = _device(torch, config.device)
    path = model_path(config.path)
    model = _load_model(transformers, path, config, getattr(torch, config.dtype))
    tokenizer = _load_tokenizer(transformers, path, config)
    if tokenizer.pad_token_id is None:
        _set_pad_token(tokenizer, model.config)
    shape = model_shape(model)
    _no_dropout(torch, model)
    model = model.to(device)
    if config.gradient_checkpointing:
        _checkpoint_layers(model)
    if config.lora is not None:
        model = _add_adapters(torch, model, config.lora, seed)
    model.eval()
    return Policy(model, tokenizer, shape, device, path, config.lora is not None)


def shipped_models() -> list[str]:
    """Names that `tiny/NAME` accepts."""
    folder = resources.files("gumption") / "data" / "models"
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if (entry / "config.json").is_file())


def model_path(path: str) -> str:
    """Where `model.path` leads: the folder of a shipped model, a folder, or the hub id as it is.

    Raises:
        ValueError: no shipped model has that name, or the path looks like a folder and there is none.

    >>> model_path("HuggingFaceTB/SmolLM2-135M-Instruct")
    'HuggingFaceTB/SmolLM2-135M-Instruct'
    """
    if path.startswith(SHIPPED):
        name = path.removeprefix(SHIPPED)
        if name not in shipped_models():
            known = ", ".join(SHIPPED + n for n in shipped_models()) or "none in this installation"
            raise ValueError(f"no shipped model {path!r}; there are: {known}")
        return str(resources.files("gumption") / "data" / "models" / name)
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} is not a model folder: it has no config.json")
        return str(folder)
    if folder.is_file():
        raise ValueError(f"{path} is a file; model.path needs a folder with config.json, or a hub id")
    if path.startswith((".", "/", "~")) or path.count("/") != 1 or not all(path.split("/")):
        raise ValueError(f"no model folder at {path!r} (a hub id looks like owner/name; shipped: tiny/…)")
    return path


def model_shape(model: Any) -> ModelShape:
    """The numbers that FLOPs are counted from, read off the module.

    N sums every weight of two or more dimensions except embedding tables; a tied LM head counts once, as the head.
    Of mixture-of-experts weights the active share counts (experts per token / experts). Heads are query heads.

    Args:
        model: A Hugging Face causal LM, without adapters.
    """
    torch = import_module("torch")
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    heads = _first(config, "num_attention_heads", "n_head", "num_heads")
    layers = _first(config, "num_hidden_layers", "n_layer", "num_layers")
    hidden = _first(config, "hidden_size", "n_embd", "d_model")
    head_dim = getattr(config, "head_dim", None) or (hidden // heads if heads else 0)
    experts = _first(config, "num_experts", "num_local_experts", "n_routed_experts")
    active = _first(config, "num_experts_per_tok", "moe_topk")
    tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    head = model.get_output_embeddings()
    total = 0
    for name, weight in model.named_parameters():
        if weight.dim() < 2 or id(weight) in tables:
            continue
        expert = experts and active and ".experts." in f".{name}."
        total += weight.numel() * active // experts if expert else weight.numel()
    if head is not None and id(head.weight) in tables:
        total += head.weight.numel()
    return ModelShape(int(total), int(layers), int(heads), int(head_dim))


def _need(package: str, extra: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise ValueError(f"this needs {package}: pip install 'gumption[{extra}]' ({error})") from None


def _device(torch: Any, name: str) -> Any:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"model.device = {name!r}: {str(error).splitlines()[0]}") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"model.device = {name!r}: torch sees {torch.cuda.device_count()} CUDA devices here")
    return device


def _load_model(transformers: Any, path: str, config: ModelConfig, dtype: Any) -> Any:
    try:
        return transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, trust_remote_code=config.trust_remote_code
        )
    except Exception as error:  # transformers, safetensors and hub code of models raise anything
        raise ValueError(f"cannot load a causal language model from {path!r}: {_one_line(error)}") from None


def _load_tokenizer(transformers: Any, path: str, config: ModelConfig) -> Any:
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=config.trust_remote_code)
    except Exception as error:  # tokenizer back ends raise anything
        raise ValueError(f"{path!r} has no usable tokenizer: {_one_line(error)}") from None
    if len(tokenizer) == 0:
        raise ValueError(f"{path!r} has no tokenizer (its vocabulary is empty); save one beside the model")
    if config.chat_template is not None:
        tokenizer.chat_template = _template_text(config.chat_template)
    return tokenizer


def _template_text(template: str) -> str:
    """The template itself, or the text of the file that it names."""
    if "{" in template or "\n" in template:
        return template
    try:
        return Path(template).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"model.chat_template = {template!r} is neither a template nor a readable file ({error})"
        ) from None


def _set_pad_token(tokenizer: Any, config: Any) -> None:
    """Padding is masked everywhere, so any token will do: the model's own, else end of sequence, else id 0."""
    pad = getattr(config, "pad_token_id", None)
    if pad is None:
        pad = tokenizer.eos_token_id
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(0 if pad is None else int(pad))


def _no_dropout(torch: Any, model: Any) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout", "activation_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def _checkpoint_layers(model: Any) -> None:
    if hasattr(model, "activation_checkpointing_enable"):  # its name in newer versions of transformers
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def _add_adapters(torch: Any, model: Any, config: LoraConfig, seed: int) -> Any:
    peft = _need("peft", "lora")
    targets = config.target_modules
    lora = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return peft.get_peft_model(model, lora)
        except ValueError as error:
            raise ValueError(f"model.lora.target_modules = {targets!r}: {_one_line(error)}") from None


def _merged(base: Any) -> dict[str, Any]:
    """Base weight + adapter product, under the name that the weight has without adapters."""
    layers = {name: module for name, module in base.named_modules() if hasattr(module, "get_delta_weight")}
    weights: dict[str, Any] = {}
    for name, weight in base.named_parameters():
        owner, inside, leaf = name.partition(".base_layer.")
        if inside and owner in layers:
            value = weight.detach()
            if leaf == "weight":
                layer = layers[owner]
                for adapter in layer.active_adapters:
                    value = value + layer.get_delta_weight(adapter).detach().to(value.dtype)
            weights[f"{owner}.{leaf}"] = value
        elif not any(name.startswith(f"{owner}.") for owner in layers):
            weights[name] = weight.detach()
    return weights


def _first(config: Any, *names: str) -> int:
    return next((v for n in names if isinstance(v := getattr(config, n, None), int)), 0)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "…"
