"""The whole page: from run folders that are finished, short, empty, unfinished, damaged or hostile."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from typer import Typer
from typer.testing import CliRunner

import gumption.report
from gumption.cli.report import report_command
from gumption.ledger import Ledger, LedgerWriter
from gumption.report import write_report

pytest.importorskip("plotly")
KEYS = ["matthew", "headroom", "tokens", "leverage", "attempts", "entropy", "information", "staleness", "health"]


class Page(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.handlers, self.addresses, self.scripts, self.words = [], [], [], [], []
        self._script = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.handlers += [a for a, _ in attrs if a.startswith("on")]
        self.addresses += [v for a, v in attrs if a in ("src", "href", "action")]
        if tag == "script":
            self._script = dict(attrs)
            self.scripts.append([self._script, ""])

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None

    def handle_data(self, data):
        if self._script is not None:
            self.scripts[-1][1] += data
        else:
            self.words.append(data)


def specs(text):
    """The figures in the page, by key."""
    return {
        attributes["id"].removeprefix("spec-"): json.loads(content)
        for attributes, content in Page(text).scripts
        if attributes.get("type") == "application/json"
    }


def missing(text):
    """Keys of the figures that say that the ledger does not hold them."""
    return re.findall(r'<section id="(\w+)"><h2>[^<]*</h2><p class="missing">not in this ledger</p>', text)


@pytest.fixture(scope="module")
def page(synthetic_run):
    return write_report(synthetic_run()).read_text(encoding="utf-8")


def test_every_figure_is_there_and_draws_what_the_ledger_holds(page, synthetic_run):
    figures = specs(page)
    assert list(figures) == KEYS
    assert missing(page) == []
    for key, figure in figures.items():
        assert figure["data"], key
        axes = [v for k, v in figure["layout"].items() if re.fullmatch(r"[xy]axis\d*", k)]
        assert axes, key
    rows = Ledger(synthetic_run()).rollouts()
    bars = [t for t in figures["tokens"]["data"] if t["type"] == "bar"]
    drawn = sum(sum(values(t["x"])) for t in bars)
    assert drawn == rows["completion_tokens"].sum()


def values(array):
    """A plotly array: a list, or base64 of its bytes."""
    if isinstance(array, list):
        return array
    import numpy as np

    return np.frombuffer(base64.b64decode(array["bdata"]), np.dtype(array["dtype"])).tolist()


def test_titles_state_the_quantity(page, synthetic_run):
    headings = [html.unescape(h) for h in re.findall(r"<h2>([^<]*)</h2>", page)]
    assert re.fullmatch(r"Extra-hard problems went from a pass rate of \S+ to \S+", headings[0])
    trained = 100 * (Ledger(synthetic_run()).rollouts()["trained_tokens"]).sum()
    share = trained / Ledger(synthetic_run()).rollouts()["completion_tokens"].sum()
    assert f"{share:.1f} % were trained on" in headings[2]


def test_cards_are_sums_of_rows(page, synthetic_run):
    ledger = Ledger(synthetic_run())
    shown = dict(re.findall(r'<div class="card"><span>([^<]*)</span><strong>([^<]*)</strong>', page))
    assert list(shown) == ["Pass rate", "Extra hard", "Held out", "Wall time", "FLOPs", "Rollouts", "Trained on",
                           "Wasted FLOPs", "Bits", "Staleness"]  # fmt: skip
    assert shown["Rollouts"] == f"{ledger.rollouts().height:,}"
    wasted = ledger.summary["flops"]["wasted"] / ledger.summary["flops"]["total"]
    assert shown["Wasted FLOPs"] == f"{100 * wasted:.0f} %"
    assert float(shown["Staleness"]) == pytest.approx(ledger.summary["staleness"]["mean"], abs=0.006)


def test_model_text_cannot_become_markup_or_script(page):
    parsed = Page(page)
    assert "</script><img src=x" in "".join(parsed.words), "the hostile text is shown as text"
    assert parsed.handlers == []
    assert parsed.addresses == []
    assert "img" not in parsed.tags
    kinds = [attributes.get("type") for attributes, _ in parsed.scripts]
    assert kinds == ["application/json"] * len(KEYS) + [None, None]
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])
    allowed = set(re.findall(r"'sha256-[^']*'", policy))
    hashes = {
        f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
        for attributes, content in parsed.scripts
        if "type" not in attributes
    }
    assert hashes == allowed, "the policy allows the page's own two scripts and nothing else"
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]


def test_hostile_names_are_escaped_everywhere(tmp_path, synthetic_run):
    """Problem ids, fates, reasons, settings and the folder's name come from outside too."""
    evil = "</script><b onclick=x>"
    folder = tmp_path / "a<b>'\"&amp;"
    folder.mkdir()
    source = Ledger(synthetic_run(1))
    with LedgerWriter(folder / "ledger", text="all") as writer:
        for row in source.problems().to_dicts():
            writer.append("problems", row)
        for row in source.evals().to_dicts():
            writer.append("evals", row)
        for row in source.rollouts().to_dicts():
            writer.append("rollouts", row | {"fate": evil, "reason": evil, "text": evil})
        for row in source.groups().to_dicts():
            writer.append("groups", row | {"kind": evil, "reason": evil})
        writer.append("steps", {"version": 1, "wall": 1.0, evil: 1.0, "reward/mean": 0.5})
    (folder / "config.toml").write_text(f'seed = 1\n[model]\npath = "{evil}"\n"{evil}" = "{evil}"\n')
    (folder / "summary.json").write_text(json.dumps({"reason": evil, "gumption": evil, "flops": {"convention": evil}}))
    parsed = Page(write_report(folder).read_text(encoding="utf-8"))
    assert (parsed.handlers, parsed.addresses) == ([], [])
    assert "b" not in parsed.tags
    assert sum(attributes.get("type") is None for attributes, _ in parsed.scripts) == 2


def test_no_figure_can_close_the_element_that_holds_it():
    from gumption.report.html import _json

    class Figure:
        def to_json(self):
            return '["</script>&\u2028"]'

    assert _json(Figure()) == '["\\u003c/script\\u003e\\u0026\\u2028"]'
    assert json.loads(_json(Figure())) == ["</script>&\u2028"]


@pytest.mark.slow
def test_in_a_browser_every_figure_is_drawn_and_nothing_else_runs(tmp_path, synthetic_run):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium on this machine")
    path = write_report(synthetic_run(), tmp_path / "page.html")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
         f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    tags = [t for t in re.findall(r"<div [^>]*>", done.stdout) if "data-figure" in t and "js-plotly-plot" in t]
    assert sorted(re.search(r'data-figure="(\w+)"', t)[1] for t in tags) == sorted(KEYS)
    assert f"<title>{synthetic_run().name} · gumption</title>" in done.stdout, "a hostile text would change it"
    assert "CONSOLE" not in done.stderr


def test_nothing_is_fetched(page):
    assert not re.search(r"<(link|iframe|img|video|audio|object|embed|base)\b", page.partition("<script>")[0])
    assert not re.search(r"@import|url\(", page.partition("</style>")[0])


def test_secrets_of_the_configuration_are_not_shown(page):
    assert "rewards.options.api_key" in page
    assert "hush" not in page


def test_changed_settings_come_first(page):
    changed, _, rest = page.partition("<details>")
    assert "<th>seed</th><td>3</td>" in changed
    assert "<th>allocation.group_size</th><td>8</td>" in rest


def test_an_empty_ledger_says_so_in_every_figure(tmp_path):
    LedgerWriter(tmp_path / "ledger").close()
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert missing(text) == [*KEYS, "samples", "config"]
    assert "no evaluation in this ledger" in text


def test_a_run_of_one_step(synthetic_run):
    text = write_report(synthetic_run(1)).read_text(encoding="utf-8")
    assert list(specs(text)) == KEYS
    assert "not in this ledger" not in text


def test_a_run_that_is_still_in_its_first_evaluation(tmp_path, synthetic_run):
    source = Ledger(synthetic_run(1))
    with LedgerWriter(tmp_path / "ledger") as writer:
        for row in source.problems().to_dicts():
            writer.append("problems", row)
        for row in source.evals().to_dicts():
            if row["version"] == 0:
                writer.append("evals", row)
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert sorted(specs(text)) == ["entropy", "matthew"]
    assert "All problems: pass rate .32 before training" in text
    assert "not finished" in text


def test_without_importance_ratios_that_panel_says_so(tmp_path, synthetic_run):
    with LedgerWriter(tmp_path / "ledger") as writer:
        for row in Ledger(synthetic_run()).steps().to_dicts():
            writer.append("steps", {k: v for k, v in row.items() if not k.startswith("importance_ratio")})
    figure = specs(write_report(tmp_path).read_text(encoding="utf-8"))["staleness"]
    notes = [a["text"] for a in figure["layout"]["annotations"]]
    assert notes.count("not in this ledger") == 2


def test_a_ledger_that_does_not_add_up_is_reported_at_the_top(tmp_path, synthetic_run):
    shutil.copytree(synthetic_run(1), tmp_path, dirs_exist_ok=True)
    victim = tmp_path / "ledger" / "groups" / "000001.parquet"
    victim.write_bytes(victim.read_bytes()[:-9])
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "The ledger does not add up" in text
    assert str(victim) in text
    assert missing(text) == ["attempts"]


def test_no_plotly_is_an_error_that_names_the_extra(tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.startswith(("plotly", "gumption.report."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(gumption.report, "html", raising=False)
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(ImportError, match=r"pip install 'gumption\[report\]'"):
        write_report(tmp_path)


def test_no_ledger_or_no_place_to_write_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="holds no ledger"):
        write_report(tmp_path)
    LedgerWriter(tmp_path / "ledger").close()
    with pytest.raises(ValueError, match=r"cannot write the report to .*: No such file or directory"):
        write_report(tmp_path, tmp_path / "nowhere" / "r.html")


# -- the command


def run(*arguments):
    app = Typer()
    app.command()(report_command)
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_the_command_writes_where_it_is_told(tmp_path, synthetic_run, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    LedgerWriter(tmp_path / "ledger").close()
    result = run(tmp_path, "--out", tmp_path / "b.html")
    assert (result.exit_code, opened) == (0, [])
    assert result.stdout.strip() == f"report: {tmp_path / 'b.html'}"
    result = run(synthetic_run(1), "--out", tmp_path / "a.html", "--open", "--json")
    assert (tmp_path / "a.html").stat().st_size > 1_000_000
    assert json.loads(result.stdout) == {"report": str(tmp_path / "a.html"), "agrees": True, "disagreements": []}
    assert opened == [(tmp_path / "a.html").as_uri()]


def test_the_command_exits_with_1_when_the_ledger_is_damaged(tmp_path):
    LedgerWriter(tmp_path / "ledger").close()
    (tmp_path / "ledger" / "steps" / "000001.parquet").write_bytes(b"")
    result = run(tmp_path, "--no-open")
    assert result.exit_code == 1
    assert (tmp_path / "report.html").exists()
    assert "000001.parquet" in result.output


def test_the_command_without_a_ledger_raises_one_readable_line(tmp_path):
    result = run(tmp_path)
    assert isinstance(result.exception, ValueError)
    assert "give the folder that `gumption train` printed" in str(result.exception)


def test_help_has_examples():
    result = run("--help")
    assert result.exit_code == 0
    assert "gumption report runs/latest" in result.stdout
