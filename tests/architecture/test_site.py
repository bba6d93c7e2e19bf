"""The documentation builds as a site, without a warning, and each link of it leads to a page and a heading."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    for page in pages:
        made = page.with_name("index.html") if page.stem == "README" else page
        assert (tmp_path / "site" / made).is_file(), made
    source = (tmp_path / "site" / "repository" / "dags" / "on_call.py.html").read_text()
    assert "PauseJobOperator" in source
