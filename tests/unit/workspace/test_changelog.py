"""tools/changelog.py: the fragments become the section of a release, and nothing is lost."""

from datetime import date

import changelog
import pytest

DAY = date(2026, 12, 1)


@pytest.fixture
def fragments(tmp_path):
    folder = tmp_path / "changelog.d"
    folder.mkdir()
    (folder / "README.md").write_text("about\n")
    (folder / "3.10.fix.md").write_text("A retry keeps\nits priority.\n")
    (folder / "3.9.fix.md").write_text("A lock ends.\n")
    (folder / "12.feature.md").write_text("Sagas.\n\n    lexigram saga ls\n")
    return folder


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "CHANGELOG.md"
    path.write_text("# Changelog\n\nAbout versions.\n")
    return path


def test_a_section_has_each_kind_once_in_the_order_of_numbers(fragments):
    section = changelog.render_section("Unreleased", changelog.read_fragments(fragments))
    assert section == (
        "## Unreleased\n\n"
        "### New\n\n- Sagas.\n\n      lexigram saga ls\n\n"
        "### Fixed\n\n- A lock ends.\n- A retry keeps\n  its priority.\n"
    )


def test_a_release_moves_the_fragments_above_the_releases_before(fragments, file):
    changelog.release("1.0.0", DAY, changelog.read_fragments(fragments), file)
    assert [path.name for path in fragments.iterdir()] == ["README.md"]
    (fragments / "13.change.md").write_text("Renamed.\n")
    changelog.release("1.1.0", DAY, changelog.read_fragments(fragments), file)
    text = file.read_text()
    assert text.startswith("# Changelog\n\nAbout versions.\n\n## 1.1.0 (2026-12-01)\n\n")
    assert text.index("- Renamed.") < text.index("\n\n## 1.0.0 (2026-12-01)\n\n### New")
    assert text.endswith("  its priority.\n")


def test_a_version_is_released_once_and_with_fragments(fragments, file):
    found = changelog.read_fragments(fragments)
    with pytest.raises(changelog.ChangelogError, match="no fragments"):
        changelog.release("1.0.0", DAY, {}, file)
    changelog.release("1.0.0", DAY, found, file)
    with pytest.raises(changelog.ChangelogError, match=r"has version 1\.0\.0 already"):
        changelog.release("1.0.0", DAY, found, file)


@pytest.mark.parametrize(
    ("name", "text"), [("notes.md", "x"), ("3.fixes.md", "x"), ("3.fix.md", " \n")]
)
def test_a_fragment_that_cannot_be_placed_is_named(fragments, name, text):
    (fragments / name).write_text(text)
    with pytest.raises(changelog.ChangelogError, match=name):
        changelog.read_fragments(fragments)


def test_every_fragment_of_this_repository_can_be_released():
    assert changelog.read_fragments(changelog.FRAGMENTS)
