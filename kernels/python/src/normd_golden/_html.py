"""The page that --golden-html writes: a row for each report. It has no script and loads nothing."""

from __future__ import annotations

import html
from typing import Any, Dict, Sequence

_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>normd-golden</title>
<style>
body {{ font: 14px/1.4 sans-serif; margin: 2em; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 0.3em 0.8em; text-align: left; border-bottom: 1px solid #ccc; vertical-align: top; }}
td.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
tr.failed {{ background: #fdecea; }}
</style>
<h1>Beside the nearest value</h1>
<p>{passed} of {count} results are within their limits. Errors are in ulp of the result's type.</p>
<table>
<tr><th>test<th>what<th>nearest<th>max ulp<th>limit<th>mean ulp<th>variant
{rows}
</table>
</html>
"""


def page(rows: Sequence[Dict[str, Any]]) -> str:
    """The page of recorded reports (pytest_plugin.Golden)."""
    passed = sum(row["outcome"] == "passed" for row in rows)
    return _PAGE.format(passed=passed, count=len(rows), rows="\n".join(_row(row) for row in rows))


def _row(row: Dict[str, Any]) -> str:
    limit = "" if row["limit_ulp"] is None else f"{row['limit_ulp']:g}"
    what = f"{row['spec']} {row['dtype']} {row['shape']}"
    numbers = (f"{100 * row['nearest']:.4g} %", f"{row['max_ulp']:.4g}", limit, f"{row['mean_ulp']:.3g}")
    cells = "".join(f'<td class="number">{html.escape(one)}' for one in numbers)
    words = [html.escape(str(one)) for one in (row["test"], what, row["variant"])]
    return f'<tr class="{html.escape(row["outcome"])}"><td>{words[0]}<td>{words[1]}{cells}<td>{words[2]}'
