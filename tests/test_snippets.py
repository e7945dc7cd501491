"""A page becomes a script that does what its snippets say, on the lines where they say it."""

from __future__ import annotations

import sys

import pytest
from tools import snippets

PAGE = """# A page

```sql
-- told.sql; beside it stands nothing
SELECT 1
```

```bash
pip install something
eddyline check told.sql    # says nothing
```

```python
seen = Path("told.sql").read_text().splitlines()[1]
print(seen)
{last}
```

```text
SELECT 1
```
"""


@pytest.fixture
def page(tmp_path):
    def page(last=""):
        file = tmp_path / "page.md"
        file.write_text(PAGE.format(last=last), "utf-8")
        return file

    return page


def test_python_stands_on_its_lines_and_other_blocks_on_their_first(page):
    lines = snippets.script(page()).splitlines()
    told = PAGE.splitlines()
    at = told.index('seen = Path("told.sql").read_text().splitlines()[1]')
    assert lines[at : at + 2] == told[at : at + 2]
    assert lines[3] == "_file('told.sql', '-- told.sql; beside it stands nothing\\nSELECT 1\\n')"
    assert [line for line in lines if line.startswith("_run")] == [
        "_run('eddyline check told.sql    # says nothing')"
    ]


def test_what_a_page_prints_is_told_apart(page):
    assert snippets.printed(page()) == ["SELECT 1"]
    assert snippets.has_snippets(page())


def test_an_error_names_the_line_of_the_page(page, tmp_path):
    file = page('raise ValueError("told")')
    # Without the command, which would start another process.
    file.write_text(file.read_text("utf-8").replace("eddyline check", "true"), "utf-8")
    (place := tmp_path / "place").mkdir()
    done = snippets.run(file, sys.executable, place)
    assert done.returncode == 1
    assert "SELECT 1" in done.stdout
    line = file.read_text("utf-8").splitlines().index('raise ValueError("told")') + 1
    assert f"line {line}, in <module>" in done.stderr
