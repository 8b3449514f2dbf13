import pytest

from gumption.rollouts.prompts import PromptError, encode_prompt, prompt_text
from gumption.types import Message, Problem

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}{% if add_generation_prompt %}a{% endif %}"


def chat(*messages):
    return Problem("c-0", tuple(Message(*m) for m in messages), None, "exact")


@pytest.fixture
def chatty(tokenizer):
    tokenizer.chat_template = TEMPLATE
    yield tokenizer
    tokenizer.chat_template = None


def test_plain_text_is_encoded_as_it_is(tokenizer):
    problem = Problem("t-0", "12ab", None, "exact")
    ids = encode_prompt(tokenizer, problem, system_prompt="9", max_tokens=4)
    assert tokenizer.convert_ids_to_tokens(ids) == ["1", "2", "a", "b"] and ids.dtype == "int32"


def test_chat_goes_through_the_template_with_a_generation_prompt(chatty):
    assert prompt_text(chatty, chat(("user", "12"))) == "u12a"


def test_system_prompt_comes_first_unless_there_is_one(chatty):
    assert prompt_text(chatty, chat(("user", "12")), "00") == "s00u12a"
    assert prompt_text(chatty, chat(("system", "9"), ("user", "12")), "00") == "s9u12a"


def test_special_tokens_in_front_come_from_one_place_only(chatty, tokenizer):
    """A tokenizer that adds a beginning token does so for plain text; a template writes its own."""
    from tokenizers.processors import TemplateProcessing

    core = tokenizer.backend_tokenizer
    before = core.post_processor
    core.post_processor = TemplateProcessing(single="<pad> $A", special_tokens=[("<pad>", 0)])
    try:
        plain = encode_prompt(tokenizer, Problem("t-0", "1", None, "exact"), max_tokens=9)
        chatted = encode_prompt(tokenizer, chat(("user", "1")), max_tokens=9)
    finally:
        core.post_processor = before
    assert plain.tolist()[0] == 0 and len(plain) == 2 and 0 not in chatted.tolist()


def test_what_cannot_be_encoded_says_why(tokenizer, chatty):
    with pytest.raises(PromptError, match=r"at most 3 .*max_prompt_tokens"):
        encode_prompt(tokenizer, Problem("t-0", "1234", None, "exact"), max_tokens=3)
    with pytest.raises(PromptError, match="no tokens"):
        encode_prompt(tokenizer, Problem("t-0", "", None, "exact"), max_tokens=3)
    chatty.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(PromptError, match="roles must alternate"):
        encode_prompt(chatty, chat(("user", "1")), max_tokens=9)
    chatty.chat_template = None
    with pytest.raises(PromptError, match=r"model\.chat_template"):
        encode_prompt(chatty, chat(("user", "1")), max_tokens=9)
