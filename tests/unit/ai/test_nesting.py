"""Pages whose tags are nested beyond reason: the tree stays shallow, and the text is there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from lexigram.ai.workers.document_ingestion.formats.html import markdown_of
from lexigram.ai.workers.document_ingestion.formats.nesting import MAX_DEPTH, flatten_html

# Parts of tables are put around cells, formatting into every block.
IMPLIED = 5

# Not those of drawings and formulas: these have other rules, cost nothing, and are removed.
NAMES = """div p span b font ul ol li dl dt dd table tbody tr td caption select option button form h1
    h2 a section article ruby rt object template pre blockquote x-y title textarea"""
TAGS = st.sampled_from(NAMES.split())
TOKENS = st.one_of(
    TAGS.map("<{}>".format),
    TAGS.map("<{} class=x>".format),
    TAGS.map("</{}>".format),
    st.builds("<{} a{}>".format, TAGS, st.integers(0, 999)),
    st.sampled_from(["x", "<!--", "-->", "<", ">", '"', "<a b='>'>", '<p =">', "&lt;"]),
)


def depth(html):
    deepest, pending = 0, [(LexborHTMLParser(html).root, 1)]
    while pending:
        node, level = pending.pop()
        deepest = max(deepest, level)
        pending.extend((child, level + 1) for child in node.iter())
    return deepest


@given(st.lists(TOKENS, min_size=1, max_size=6), st.integers(1, 1_000))
def test_no_repetition_of_tags_makes_a_deep_tree(tokens, times):
    page = flatten_html("".join(tokens) * times)
    assert depth(page) <= IMPLIED * MAX_DEPTH


@given(st.lists(TOKENS, max_size=400))
def test_no_mixture_of_tags_makes_a_deep_tree(tokens):
    assert depth(flatten_html("".join(tokens))) <= IMPLIED * MAX_DEPTH


PLAIN = st.sampled_from(["div", "section", "article", "span", "h1", "x-y", "dl", "figure"])


@given(st.recursive(st.just("x"), lambda inner: st.builds("<{0}>y{1}</{0}>".format, PLAIN, inner)))
def test_a_page_in_good_order_is_left_as_it_is(page):
    assert flatten_html(page) == page


@pytest.mark.parametrize(
    "page",
    [
        "<div>" * 100_000 + "text" + "</div>" * 100_000,
        "<span>" * 20_000 + "text",
        "".join(f"<b class={number}>" for number in range(50_000)) + "text",
        "".join(f"<font size={number}><p>" for number in range(20_000)) + "text",
        "<rt>" * 50_000 + "text",
        "<ul><li>" * 50_000 + "text",
        "<blockquote>" * 50_000 + "text",
        "".join(f"<body a{number}>" for number in range(50_000)) + "text",
        "<p " + " ".join(f"a{number}" for number in range(100_000)) + ">text",
        '<p alt="' * 50_000 + '">text',
        "<p a==" + '">' * 50_000 + "text",
    ],
    ids=lambda page: page[:12],
)
def test_the_text_of_a_page_nested_beyond_reason_is_there(page):
    assert "text" in markdown_of(page)[0]


def test_lists_and_quotations_do_not_multiply_their_marks():
    page = "<blockquote>" * 190 + "<p>x" * 1_000
    content, _ = markdown_of(page)
    assert content.count("x") == 1_000
    assert len(content) < 100 * 1_000


def test_a_table_in_a_cell_is_read_once():
    content, _ = markdown_of(
        "<table><tr><td>outer<table><tr><td>inner</td></tr></table></td><td>next</td></tr></table>"
    )
    assert content.count("inner") == 1
    assert content.count("next") == 1


def test_what_has_no_tags_in_it_is_not_counted_as_nested():
    page = (
        "<script>" + "'<div>'" * 500 + "</script><!--" + "<div>" * 500 + "--><h1>Title</h1><p>text"
    )
    assert markdown_of(page)[0] == "# Title\n\ntext"
    assert markdown_of("<title>a <b> c</title><p>x")[1] == "a <b> c"
    assert markdown_of("<xmp><div>&amp;</xmp>")[0] == "```\n<div>&amp;\n```"


def test_a_drawing_that_ends_in_its_own_tag_does_not_stay_open():
    page = "<svg/>" + "<div><p>a</div>" * 300 + "<h1>Title</h1>"
    assert markdown_of(page)[0].endswith("# Title")


def test_long_attributes_keep_what_is_read_of_them():
    image = f'<img src="data:{"A" * 5_000}" alt="a chart">'
    assert "a chart" in markdown_of(f"<p>{image}</p>")[0]
    assert markdown_of(f'<div class="{"b " * 2_000}" hidden>secret</div><p>x')[0] == "x"
