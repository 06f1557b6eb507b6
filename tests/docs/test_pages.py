import docblocks
import pytest
from tests import processes

PAGES = [path.relative_to(docblocks.ROOT).as_posix() for path in docblocks.pages()]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_the_page_does_what_it_says(page, tmp_path):
    docblocks.Page(docblocks.ROOT / page, tmp_path, processes.run).run()


def page_of(tmp_path, text):
    path = docblocks.ROOT / "docs" / "page-of-a-test.md"
    page = docblocks.Page(path, tmp_path)
    source = tmp_path / "page.md"
    source.write_text(text, encoding="utf-8")
    return page, list(docblocks.blocks(source))


def run(tmp_path, text):
    page, blocks = page_of(tmp_path, text)
    return [page._block(block) for block in blocks]


def test_a_block_that_raises_fails_with_page_and_line(tmp_path):
    text = "# title\n\n```python\nx = 1\nraise ValueError('wrong')\n```\n"
    with pytest.raises(docblocks.BlockError) as caught:
        run(tmp_path, text)
    assert str(caught.value).startswith("docs/page-of-a-test.md:4: ")
    assert "line 5, in <module>" in str(caught.value)
    assert "ValueError: wrong" in str(caught.value)


def test_printed_text_is_compared_with_the_output_block(tmp_path):
    good = "```python\nprint('a', 1.25)\n```\n```text output\na ...\n```\n"
    assert run(tmp_path, good) == [True, True]
    with pytest.raises(docblocks.BlockError, match="but it printed"):
        run(tmp_path, good.replace("a ...", "b ..."))


def test_a_file_block_is_there_for_later_blocks(tmp_path):
    text = (
        "```python file=shop/orders.py\nTOTAL = 3\n```\n"
        "```python\nfrom shop.orders import TOTAL\nassert TOTAL == 3\n```\n"
    )
    assert run(tmp_path, text) == [True, True]


def test_a_block_may_stay_unrun_only_with_a_reason(tmp_path):
    assert run(tmp_path, '```python no-run="needs a broker"\nraise\n```\n') == [False]
    with pytest.raises(docblocks.BlockError, match="no-run needs a reason"):
        run(tmp_path, "```python no-run\nraise\n```\n")


def test_console_commands_run_with_their_exit_code_and_output(tmp_path):
    text = (
        "```console\n$ python -c 'print(7); raise SystemExit(3)'  # exit 3\n7\n$ make demo\n```\n"
    )
    assert run(tmp_path, text) == [True]
    with pytest.raises(docblocks.BlockError, match="exit code 3, expected 0"):
        run(tmp_path, text.replace("  # exit 3", ""))
