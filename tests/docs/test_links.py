import re

import docblocks
import pytest

LINK = re.compile(r"\]\((?P<target>[^)#\s]+)?(?:#(?P<anchor>[^)\s]+))?\)")
PAGES = [path.relative_to(docblocks.ROOT).as_posix() for path in docblocks.pages()]


def prose(path):
    """The page without its code blocks."""
    return re.sub(
        r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )


def anchors(path):
    titles = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_file_of_this_repository_leads_somewhere(page):
    path = docblocks.ROOT / page
    broken = []
    for link in LINK.finditer(prose(path)):
        target, anchor = link["target"] or "", link["anchor"]
        if "://" in target:
            continue
        there = (path.parent / target).resolve() if target else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(link[0])
    assert broken == []


def test_every_page_of_the_documentation_is_in_its_index():
    docs = docblocks.ROOT / "docs"
    linked = {(docs / link["target"]).resolve() for link in LINK.finditer(prose(docs / "index.md"))}
    assert [page for page in docs.rglob("*.md") if page not in linked | {docs / "index.md"}] == []


PACKAGES = [page for page in PAGES if re.fullmatch(r"lexigram\w*/README.md", page)]


@pytest.mark.parametrize("readme", PACKAGES)
def test_the_files_a_package_readme_sends_the_reader_to_are_there(readme):
    package = (docblocks.ROOT / readme).parent
    files = {path.as_posix() for path in package.rglob("src/**/*.py")}
    named = re.findall(r"`([\w/]+\.py)`", prose(docblocks.ROOT / readme))
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []
