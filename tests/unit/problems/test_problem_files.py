"""Problem files: formats, fields, and every way in which a file can be broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gumption.config import ProblemsConfig
from gumption.problems import ProblemSet, files, load_problems
from gumption.types import Message

ROWS = [
    {"question": "What is 17 + 25?", "answer": "17 + 25 = 42\n#### 42", "level": 1},
    {"question": "What is ½ of 3?", "answer": "#### 1.5", "level": 2},
    {"question": "What is 17 + 25?", "answer": "17 + 25 = 42\n#### 42", "level": 1},
]


def load(path: Path, **settings: object) -> ProblemSet:
    return load_problems(ProblemsConfig(source=str(path), **settings), seed=0)


def write(path: Path, rows: list[dict]) -> Path:
    suffixes = path.name.removesuffix(".gz")
    if suffixes.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
        data = path.read_bytes()
    elif suffixes.endswith(".json"):
        data = json.dumps(rows, indent=2, ensure_ascii=False).encode()
    else:
        data = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.json", "a.parquet", "a.jsonl.gz", "a.json.gz", "a.parquet.gz", "A.JSONL"]
)
def test_every_format_gives_the_same_problems(tmp_path, name):
    problems = load(write(tmp_path / name, ROWS))
    assert [p.answer for p in problems.problems] == ["42", "1.5", "42"]
    assert [p.meta["level"] for p in problems.problems] == [1, 2, 1]
    assert problems.problems[1].prompt == (
        "What is ½ of 3?\n\nReason step by step and put the final answer in \\boxed{}."
    )
    assert {p.verifier for p in problems.problems} == {"math"}
    assert not problems.skipped
    assert [p.id for p in problems.problems] == [p.id for p in load(write(tmp_path / "b.jsonl", ROWS)).problems]


def test_duplicate_rows_stay_distinct_problems(tmp_path):
    first, _, third = load(write(tmp_path / "a.jsonl", ROWS)).problems
    assert first.id.endswith("-0") and third.id.endswith("-1")
    assert first.id[:-2] == third.id[:-2]


def test_raw_columns_stay_in_meta(tmp_path):
    problem = load(write(tmp_path / "a.jsonl", ROWS)).problems[0]
    assert problem.meta["answer"] == ROWS[0]["answer"]
    assert "question" not in problem.meta


@pytest.mark.parametrize(
    ("row", "prompt", "answer"),
    [
        ({"prompt": "2+2=", "solution": "4"}, "2+2=", "4"),
        (
            {"problem": "x?", "ground_truth": "7"},
            "x?\n\nReason step by step and put the final answer in \\boxed{}.",
            "7",
        ),
        ({"prompt": "x?", "problem": "no", "answer": 142.0}, "x?", 142.0),
        (
            {"prompt": [{"role": "user", "content": "x?"}], "reward_model": {"ground_truth": "34"}},
            (Message("user", "x?"),),
            "34",
        ),
        ({"messages": [{"role": "user", "content": "x?"}], "answer": ["a", "b"]}, (Message("user", "x?"),), ["a", "b"]),
    ],
)
def test_fields_are_found(tmp_path, row, prompt, answer):
    problem = load(write(tmp_path / "a.jsonl", [row])).problems[0]
    assert (problem.prompt, problem.answer) == (prompt, answer)


def test_fields_template_and_chat_can_be_set(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"text": "x?", "extra": {"target": "34"}}])
    settings = {
        "prompt_field": "text",
        "answer_field": "extra.target",
        "template": "Q: {prompt} {braces}",
        "chat": True,
    }
    problem = load(path, **settings).problems[0]
    assert problem.prompt == (Message("user", "Q: x? {braces}"),)
    assert problem.answer == problem.meta["target"] == "34"


def test_a_row_may_name_its_verifier_but_never_code(tmp_path):
    rows = [{"prompt": "a", "answer": "b", "verifier": v} for v in ("exact", "os:system", 3)]
    assert [p.verifier for p in load(write(tmp_path / "a.jsonl", rows)).problems] == ["exact", "math", "math"]


def test_size_keeps_the_first_ones(tmp_path):
    assert len(load(write(tmp_path / "a.jsonl", ROWS), size=2)) == 2


def test_where_names_file_and_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"prompt": "a", "answer": "1"}\n\n{"prompt": "b", "answer": "2"}\n')
    problems = load(path)
    assert [problems.where(i) for i in range(2)] == [f"{path}:2", f"{path}:4"]
    array = write(tmp_path / "a.json", ROWS)
    lines = array.read_text().splitlines()
    positions = [int(load(array).where(i).rpartition(":")[2]) for i in range(3)]
    assert [lines[n - 1].strip() for n in positions] == ["{"] * 3


# -- what can be wrong with a line

GOOD = '{"prompt": "a", "answer": "1"}'
BAD_LINES = {
    "not JSON": (b'{"prompt": "a", ', "not JSON"),
    "an array": (b"[1, 2]", "not an object"),
    "a number": (b"17", "not an object"),
    "no question": (b'{"answer": "1"}', "no question"),
    "no answer": (b'{"prompt": "a"}', "no answer"),
    "null answer": (b'{"prompt": "a", "answer": null}', "the answer is empty"),
    "blank answer": (b'{"prompt": "a", "answer": "  "}', "the answer is empty"),
    "NaN answer": (b'{"prompt": "a", "answer": NaN}', "the answer is empty"),
    "nothing behind the marks": (b'{"prompt": "a", "answer": "so ####  "}', "nothing stands after '####'"),
    "blank question": (b'{"prompt": " ", "answer": "1"}', "missing or empty"),
    "numeric question": (b'{"prompt": 5, "answer": "1"}', "missing or empty"),
    "broken chat": (b'{"prompt": [{"role": "user"}], "answer": "1"}', "chat messages need"),
    "not UTF-8": (b'{"prompt": "\xff\xfe", "answer": "1"}', "not UTF-8"),
    "binary": (bytes(range(128, 200)), "not UTF-8"),
    "lone surrogate": (b'{"prompt": "\\ud800", "answer": "1"}', "surrogates not allowed"),
    "deep nesting": (b"[" * 100_000, "not JSON"),
    "huge integer": (b'{"prompt": "a", "answer": ' + b"9" * 5000 + b"}", "not JSON"),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_malformed_line_is_skipped_and_named_or_fatal(tmp_path, kind):
    line, reason = BAD_LINES[kind]
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD.encode() + b"\n" + line + b"\n" + GOOD.encode() + b"\n")
    problems = load(path)
    assert len(problems) == 2
    (skipped,) = problems.skipped
    assert str(skipped).startswith(f"{path}:2: ") and reason in skipped.reason
    assert "\n" not in str(skipped)
    with pytest.raises(ValueError, match=f"a.jsonl:2: .*{reason[:12]}"):
        load(path, strict=True)


@pytest.mark.parametrize("kind", [k for k in BAD_LINES if k != "no answer"])
def test_only_malformed_lines_is_an_error_that_says_why(tmp_path, kind):
    line, reason = BAD_LINES[kind]
    path = tmp_path / "a.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(ValueError, match=f"all 1 rows were skipped; the first: .*a.jsonl:1: .*{reason[:12]}"):
        load(path)


def test_rows_without_any_answer_column_need_another_verifier(tmp_path):
    problems = load(write(tmp_path / "a.jsonl", [{"prompt": "a", "target": "1"}, {"prompt": "b", "target": "2"}]))
    assert {p.verifier for p in problems.problems} == {"none"} and not problems.skipped
    assert problems.problems[1].meta == {"target": "2"}


def test_a_line_that_is_too_long_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "a.jsonl"
    long = json.dumps({"prompt": "x" * 5000, "answer": "1"})
    path.write_text(f"{GOOD}\n{long}\n{GOOD}\n")
    problems = load(path)
    assert len(problems) == 2 and problems.skipped[0].line == 2 and "longer than" in problems.skipped[0].reason


def test_a_huge_line_below_the_limit_is_read(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"prompt": "x" * 3_000_000, "answer": "1"}])
    assert len(load(path).problems[0].prompt) == 3_000_000


# -- what can be wrong with a file

EMPTY = {"a.jsonl": b"", "b.json": b" \n", "c.json": b"[]", "d.jsonl": b"\n\n"}


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_file_is_an_error(tmp_path, name):
    (tmp_path / name).write_bytes(EMPTY[name])
    with pytest.raises(ValueError, match=f"no problems in .*{name}: it has no rows"):
        load(tmp_path / name)


def test_an_empty_parquet_file_is_an_error(tmp_path):
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="it has no rows"):
        load(tmp_path / "a.parquet")


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.parquet", "a.jsonl.gz", "a.json.gz", "a.parquet.gz"])
def test_a_binary_file_is_an_error_in_one_line(tmp_path, name):
    (tmp_path / name).write_bytes(bytes(range(256)) * 10)
    with pytest.raises(ValueError, match="rows were skipped; the first: ") as error:
        load(tmp_path / name)
    assert "\n" not in str(error.value) and str(tmp_path / name) in str(error.value)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.json.gz"])
def test_a_truncated_gz_keeps_what_could_be_read(tmp_path, name):
    rows = [{"prompt": f"{i} {i * 7919 % 104729} {'x' * (i % 50)}", "answer": str(i)} for i in range(4000)]
    path = write(tmp_path / name, rows)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    problems = load(path)
    assert 1000 < len(problems) < 20_000
    assert [p.answer for p in problems.problems] == [str(i) for i in range(len(problems))]
    (skipped,) = problems.skipped
    assert skipped.line > 1000 and "damaged" in skipped.reason
    with pytest.raises(ValueError, match="damaged"):
        load(path, strict=True)


@pytest.mark.parametrize("name", ["a.parquet", "a.parquet.gz"])
def test_a_truncated_table_is_an_error(tmp_path, name):
    path = write(tmp_path / name, ROWS * 100)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="rows were skipped"):
        load(path)


@pytest.mark.parametrize(
    ("text", "found", "reason"),
    [
        ('[{"prompt": "a", "answer": "1"}', 1, "',' or '\\]' expected"),
        ('[{"prompt": "a", "answer": "1"},\n{"prompt": "b"', 1, "not JSON from here on"),
        ('[{"prompt": "a", "answer": "1"},\n\n{"prompt": "b" "answer"}]', 1, "not JSON from here on"),
        ('[{"prompt": "a", "answer": "1"},\n7,\n{"prompt": "b", "answer": "2"}]', 2, "not an object"),
    ],
)
def test_a_broken_array_keeps_the_rows_before(tmp_path, text, found, reason):
    path = tmp_path / "a.json"
    path.write_text(text)
    problems = load(path)
    assert len(problems) == found
    with pytest.raises(ValueError, match=reason):
        load(path, strict=True)
    expected = 3 if "\n\n" in text else 2 if "\n" in text else 1
    assert problems.skipped[0].line == expected


def test_json_with_another_layout(tmp_path):
    row = {"prompt": "a", "answer": "1", "tests": [{"x": 1}]}
    for text in (
        json.dumps({"data": [row, row]}),
        f"{json.dumps(row)}\n{json.dumps(row)}",
        "\ufeff" + json.dumps([row, row]),
    ):
        (tmp_path / "a.json").write_text(text, encoding="utf-8")
        assert len(load(tmp_path / "a.json")) == 2
    (tmp_path / "a.json").write_text(json.dumps(row))
    assert load(tmp_path / "a.json").problems[0].meta["tests"] == [{"x": 1}]


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert len(load(tmp_path / "a.jsonl")) == 1


@pytest.mark.parametrize(
    ("name", "reason"), [("missing.jsonl", "no file at"), ("a.csv", "unknown format"), ("", "unknown format")]
)
def test_no_such_file(tmp_path, name, reason):
    if name == "a.csv":
        (tmp_path / name).write_text("a,b")
    with pytest.raises(ValueError, match=reason):
        load(tmp_path / name)


def test_a_hundred_thousand_rows_are_cheap_to_dress(tmp_path):
    """Reading costs a small multiple of parsing the JSON alone (both timed in this process, alternating)."""
    import time

    path = tmp_path / "a.jsonl"
    rows = [
        {"question": f"How much is {i} + {i + 1}? " + "word " * 30, "answer": f"#### {2 * i + 1}"}
        for i in range(20_000)
    ]
    write(path, rows)
    ratios = []
    for _ in range(3):
        start = time.process_time()
        for line in path.read_bytes().splitlines():
            json.loads(line)
        parsed = time.process_time()
        load(path)
        ratios.append((time.process_time() - parsed) / (parsed - start))
    assert min(ratios) < 25
