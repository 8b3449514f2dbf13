"""RunConfig: what is accepted, what is refused and with which words, TOML round trip."""

import tomllib

import pytest

from gumption.config import RunConfig, apply_overrides


def test_toml_round_trip_keeps_every_setting():
    config = RunConfig.from_dict(
        {
            "seed": 7,
            "model": {"path": 'a "quoted" path', "lora": {"rank": 4, "target_modules": ["q_proj"]}},
            "problems": {"source": ["skill_chain", "gym:chain_sum"], "weights": [1, 3], "options": {"min_terms": 2}},
            "allocation": {"max_attempts": "none"},
            "rollouts": {"stop": ["\n\n", "é"]},
            "budget": {"wall": "1h30m", "flops": 1.6e12},
        }
    )
    again = RunConfig.from_dict(tomllib.loads(config.to_toml()))
    assert again == config
    assert again.allocation.max_attempts is None
    assert again.budget.wall == 5400


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("5m", 300.0), ("1h30m", 5400.0), ("2h", 7200.0), ("45", 45.0), (12, 12.0)]
)
def test_wall_time_is_read_in_words(text, seconds):
    assert RunConfig.from_dict({"budget": {"wall": text}}).budget.wall == seconds


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"allocation": {"groupsize": 4}}, "did you mean 'group_size'"),
        ({"alocation": {}}, "did you mean 'allocation'"),
        ({"training": {"learning_rate": -1}}, "training.learning_rate"),
        ({"allocation": {"retry_probability": 0}}, "allocation.retry_probability"),
        ({"budget": {"wall": "soon"}}, "write it like 90s, 5m or 1h30m"),
        ({"credit": {"advantage": "chain"}, "allocation": {"rule": "fixed"}}, "never_give_up"),
        ({"training": {"schedule": "cosine"}}, "decay_updates"),
        ({"problems": {"weights": [1.0]}}, "problems.weights"),
        ({"credit": {"chain_max_rl": True}, "allocation": {"rule": "fixed"}}, "chain advantage"),
    ],
)
def test_mistakes_are_named(data, words):
    with pytest.raises(ValueError, match=words):
        RunConfig.from_dict(data)


def test_overrides_make_tables_and_read_toml_values():
    data = apply_overrides({"a": {"b": 1}}, ["a.b=2", "a.c=[1, 2]", "d.e.f=true", "g=word", 'h="3"'])
    assert data == {"a": {"b": 2, "c": [1, 2]}, "d": {"e": {"f": True}}, "g": "word", "h": "3"}


@pytest.mark.parametrize("item", ["novalue", "=3", "a.b.c=1"])
def test_bad_overrides_are_refused(item):
    with pytest.raises(ValueError, match="--set"):
        apply_overrides({"a": {"b": 1}}, [item])


def test_recipe_errors_name_the_file(tmp_path):
    with pytest.raises(ValueError, match="no recipe at"):
        RunConfig.from_toml(tmp_path / "missing.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[model\n")
    with pytest.raises(ValueError, match=r"broken\.toml is not a TOML file"):
        RunConfig.from_toml(broken)


def test_advantage_follows_the_rule():
    assert RunConfig().advantage == "chain"
    assert RunConfig.from_dict({"allocation": {"rule": "fixed"}}).advantage == "grpo"
