"""Builds the documents as a site: a page for each Markdown file, a search, and every link and anchor checked.

Pages link to files outside `docs` as they do on disk, so the site is built of a copy of the tree that has all Markdown
pages and whatever they link to.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort, ConfigurationError

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
CHAPTERS = {
    "How to": "docs/how-to",
    "Reference": "docs/reference",
    "Explanation": "docs/explanation",
    "Mechanisms": "src/colane/scheduling/mechanisms",
    "The five papers": "docs/papers",
    "Decisions": "docs/decisions",
}
OTHERS = ("CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "gpu/README.md")


def main(site: Path) -> int:
    """Build the site into a folder, which is emptied before; 1 where a link or an anchor leads nowhere."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    with tempfile.TemporaryDirectory(prefix="colane-site-") as stage:
        tree, written = Path(stage, "tree"), Path(stage, "mkdocs.yml")
        pages = [Path(page) for page in _git("ls-files", "*.md")]
        for page in pages:
            _copy(page, tree)
        config = {
            "site_name": "Colane", "docs_dir": str(tree), "site_dir": str(site.absolute()), "nav": _nav(pages),
            "theme": {"name": "readthedocs", "highlightjs": False}, "plugins": ["search"], "strict": True,
            "markdown_extensions": ["tables", "fenced_code", "sane_lists", {"toc": {"permalink": True}}],
            "validation": {"links": {"not_found": "warn", "anchors": "warn", "unrecognized_links": "warn"}},
        }  # fmt: skip
        try:
            written.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
            build(load_config(str(written)))
        except (Abort, ConfigurationError) as error:
            sys.stderr.write(f"scripts/docs: {error}; the warnings above name page and link\n")
            return 1
    sys.stdout.write(f"{len(pages)} pages in {site}; to look: python3 -m http.server --directory {site}\n")
    return 0


def _copy(page: Path, tree: Path) -> None:
    """Copy a page with what it links to; a link to a folder is one to its page, which lists the others there."""
    text = (ROOT / page).read_text(encoding="utf-8")

    def kept(found: re.Match[str]) -> str:
        target = (ROOT / page.parent / found[2]).resolve()
        if not target.is_dir() or not target.is_relative_to(ROOT):
            if target.is_file() and target.suffix != ".md" and target.is_relative_to(ROOT):
                copy = tree / target.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(target, copy)
            return found[0]
        listing = tree / target.relative_to(ROOT) / "README.md"
        if not (target / "README.md").exists() and not listing.exists():
            listing.parent.mkdir(parents=True, exist_ok=True)
            names = (name for name in sorted(target.glob("*.md")))
            lines = [f"* [{_title(name)}]({name.name})" for name in names]
            listing.write_text("\n".join([f"# {target.name.capitalize()}\n", *lines, ""]), encoding="utf-8")
        return f"{found[1]}{found[2].rstrip('/')}/README.md{found[3]}"

    copy = tree / page
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(LINK.sub(kept, text), encoding="utf-8")


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def _nav(pages: list[Path]) -> list[object]:
    chapters = [
        {chapter: [str(page) for page in pages if page.is_relative_to(folder)]} for chapter, folder in CHAPTERS.items()
    ]
    return ["README.md", {"All documents": "docs/README.md"}, "docs/tutorial.md", *chapters, {"Project": [*OTHERS]}]


def _git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
