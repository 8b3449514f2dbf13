from gumption.config import RunConfig
from gumption.ledger.redaction import redact


def test_secrets_in_nested_options_are_replaced_and_the_rest_is_untouched():
    tree = {
        "rewards": {"options": {"OPENAI_API_KEY": "sk-1", "password": "x", "tokens": ["a", 3],
                                "headers": [{"Authorization": "b"}]}},
        "budget": {"tokens": 5000},
        "rollouts": {"options": {"pad_token": "<pad>", "max_tokens": 32, "auth": ""}},
    }  # fmt: skip
    assert redact(tree) == {
        "rewards": {
            "options": {
                "OPENAI_API_KEY": "[redacted]",
                "password": "[redacted]",
                "tokens": ["[redacted]", 3],
                "headers": [{"Authorization": "[redacted]"}],
            }
        },
        "budget": {"tokens": 5000},
        "rollouts": {"options": {"pad_token": "<pad>", "max_tokens": 32, "auth": ""}},
    }
    assert tree["rewards"]["options"]["password"] == "x"


def test_no_key_of_the_configuration_itself_looks_like_a_secret():
    config = RunConfig().model_dump(mode="json")
    assert redact(config) == config
