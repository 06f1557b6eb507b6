"""Filters of a subscription: https://cloud.google.com/pubsub/docs/subscription-message-filter.

Comparisons joined by AND or by OR, each maybe with NOT before it. Parentheses are refused: the
driver writes none.
"""

import re

LONGEST = 256  # bytes
TERM = re.compile(
    r"""\s*(?P<negated>NOT\s+|-)?(?:
        attributes:(?P<has>[\w-]+)
      | attributes\.(?P<key>[\w-]+)\s*(?P<compared>!?=)\s*"(?P<value>[^"\\]*)"
      | hasPrefix\(\s*attributes\.(?P<prefixed>[\w-]+)\s*,\s*"(?P<prefix>[^"\\]*)"\s*\)
    )\s*(?P<joined>AND|OR|$)""",
    re.VERBOSE,
)


def matcher(text):
    """Whether attributes match; raises INVALID_ARGUMENT for what is no filter."""
    from tests.doubles.pubsub.broker import invalid

    if not text:
        return lambda attributes: True
    if len(text.encode()) > LONGEST:
        raise invalid("the filter is longer than 256 bytes")
    terms, joins, position = [], set(), 0
    while True:
        found = TERM.match(text, position)
        if found is None:
            raise invalid(f"invalid filter at {position}: {text}")
        terms.append(_term(found))
        position = found.end()
        if not found["joined"]:
            break
        joins.add(found["joined"])
    if len(joins) > 1:  # AND and OR together need parentheses
        raise invalid("the filter mixes AND and OR without parentheses")
    join = any if joins == {"OR"} else all
    return lambda attributes: join(term(attributes) for term in terms)


def _term(found):
    if found["has"]:
        key = found["has"]

        def holds(attributes):
            return key in attributes
    elif found["key"]:
        key, value, equal = found["key"], found["value"], found["compared"] == "="

        def holds(attributes):
            return (key in attributes and attributes[key] == value) is equal
    else:
        key, value = found["prefixed"], found["prefix"]

        def holds(attributes):
            return key in attributes and attributes[key].startswith(value)

    return (lambda attributes: not holds(attributes)) if found["negated"] else holds
