"""Names in a paper's file cannot break the page."""

from __future__ import annotations

from dataclasses import replace

from helpers.table_records import cell, table
from holdfast.reproduce.markdown import section

ODD = "a|b\n# c <img src=x> p < 0.1"


def test_names_cannot_break_out_of_a_table():
    plain = table(["one"], [[cell(0.5, 0.4)]])
    rows = [replace(plain.rows[0], name=ODD, note=ODD)]
    odd = replace(plain, rows=rows, columns=[ODD], caption=ODD, claim=ODD)
    plain = replace(plain, rows=[replace(plain.rows[0], note="text")], caption="text", claim="text")
    page = section(odd)
    assert page.count("\n") == section(plain).count("\n")
    assert "<img" not in page
    assert "| a\\|b # c &lt;img src=x> p < 0.1 | a\\|b # c &lt;img src=x> p < 0.1 |" in page
    assert "- a|b # c &lt;img src=x> p < 0.1: a|b # c &lt;img src=x> p < 0.1" in page
