"""Statements from text and pieces."""

import pytest

from lexigram.sql.statements import render_statement


def test_a_piece_stands_in_every_place_with_its_name_and_may_have_places_itself():
    text = "WITH {clock} UPDATE t SET at = {now}, meta = '{}' WHERE at < {now} AND {such}"
    assert render_statement(text, clock="c AS (SELECT 1 AS n)", now="(SELECT n FROM c)", such="b = {now}") == (
        "WITH c AS (SELECT 1 AS n) UPDATE t SET at = (SELECT n FROM c), meta = '{}'"
        " WHERE at < (SELECT n FROM c) AND b = (SELECT n FROM c)"
    )  # fmt: skip


def test_json_in_a_statement_is_no_place():
    text = """SELECT '{"steps": ' || n || '}', '{}'"""
    assert render_statement(text) == text


def test_a_place_without_a_piece_is_refused_with_the_statement():
    with pytest.raises(ValueError, match=r"no piece for \{now\} in the statement: SELECT \{now\}"):
        render_statement("SELECT {now}", clock="x")


def test_pieces_that_contain_each_other_are_refused():
    with pytest.raises(ValueError, match="contain each other: a, b"):
        render_statement("{a}", a="{b}", b="{a}")
