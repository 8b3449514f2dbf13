"""docs/ledger.md says what the code does. To write its tables again: print(gumption.ledger.schema.markdown(table))."""

from pathlib import Path

import pytest

from gumption.ledger import metrics, schema
from gumption.ledger.profile import BUCKETS
from gumption.types import FATES

DOC = (Path(__file__).parents[3] / "docs" / "ledger.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    _, found, rest = DOC.partition(f"### {title}\n")
    assert found, f"docs/ledger.md has no section {title}"
    return rest.split("\n#")[0]


@pytest.mark.parametrize("table", list(schema.TABLES))
def test_every_column_is_documented_with_type_unit_and_meaning(table):
    assert schema.markdown(table) in section(table)


def test_the_lost_table_and_the_metrics_are_documented():
    assert f"| `{schema.LOST_COLUMN.name}` |" in section("lost")
    assert metrics.markdown() in section("Metrics of a step")


def test_fates_buckets_and_version_are_documented():
    for name in (*FATES, *BUCKETS):
        assert f"| `{name}` |" in DOC
    assert f"version {schema.SCHEMA_VERSION}." in DOC


def test_unknown_tables_are_named():
    with pytest.raises(ValueError, match="unknown ledger table 'rolouts'"):
        schema.columns("rolouts")
