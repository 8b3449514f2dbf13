"""The final model as a standard Hugging Face folder: weights, configuration, tokenizer, chat template."""

from __future__ import annotations

import shutil
from pathlib import Path

from gumption.training.model import Policy


def export_model(policy: Policy, folder: str | Path) -> Path:
    """Write a policy so that `AutoModelForCausalLM` and `AutoTokenizer` load it. Adapters are merged into the weights.

    The folder appears whole or not at all; one that is there already is replaced.

    Args:
        policy: The policy, trained or not; it stays as it is.
        folder: Where to.

    Returns:
        The folder.

    Raises:
        OSError: it cannot be written.
    """
    folder = Path(folder)
    temporary = folder.with_name(f".writing-{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        # copies: the trainer's weights are views into one buffer, which the file format would write many times over
        state = {name: weight.cpu().clone() for name, weight in policy.weights().items()}
        policy.base_model.save_pretrained(temporary, state_dict=state)
        policy.tokenizer.save_pretrained(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder
