"""What the redis driver does inside Redis, in Lua: each script is one round trip, and atomic.

Keys, all below one prefix ``P`` (names of topics and groups come last, so no two can collide):

====================  ==============================================================================
``P:<place>``         a stream of messages; a place is ``topic:<topic>``, shared by its groups, or
                      ``group:<bytes of topic>:<topic>:<group>``, one group's own: its retries,
                      redrives and due messages, and all that a pattern takes
``P:level5:<place>``  the same for priority 5 (1 to 9), ``P:lane3:<place>`` for keys of lane 3
``P:holders:<place>`` retries of ordered messages: they still hold their lane
``P:subs:<place>``    which of the three above exist
``P:later:<place>``   delayed messages by the time they are due; ``P:kept:<place>`` holds them
``P:held:<place>``    lanes in which an ordered message is under way, and where that message is
``P:counted:<place>`` in which start of the server the entries read of a stream were counted
``P:begun:<place>``   how often handlers of messages that came back were begun, by stream and id
``P:bell:<place>``    wakes a member that waits: something changed that is not in its stream
``P:dead:<place>``    dead letters; ``P:deadindex:<place>`` finds them by message id
``P:members:<place>`` the groups of a topic; ``P:groups`` all of them, ``P:patterns`` by pattern,
                      ``P:paused``, ``P:temporary`` (when they were last received from)
====================  ==============================================================================

Locks: none needed, a script runs alone. Costs: a stream finds an id in logarithmic time, so every
script is linear in the messages it is given.
"""

from lexigram.queue.backends.redis._scripts.common import RELEASED
from lexigram.queue.backends.redis._scripts.flow import DECLARE, DROP, PUBLISH, TAKE
from lexigram.queue.backends.redis._scripts.settle import (
    ACK,
    DEAD,
    EXTEND,
    LEAVE,
    MARK_BEGUN,
    NACK,
    RELEASE,
    TIDY,
)
from lexigram.queue.backends.redis._scripts.steer import (
    COUNT_DEAD,
    DEAD_BY_ID,
    DEAD_PAGE,
    PEEK,
    PURGE,
    PURGE_DEAD,
    REDRIVE,
    STATISTICS,
)

__all__ = [
    "ACK",
    "COUNT_DEAD",
    "DEAD",
    "DEAD_BY_ID",
    "DEAD_PAGE",
    "DECLARE",
    "DROP",
    "EXTEND",
    "LEAVE",
    "MARK_BEGUN",
    "NACK",
    "PEEK",
    "PUBLISH",
    "PURGE",
    "PURGE_DEAD",
    "REDRIVE",
    "RELEASE",
    "RELEASED",
    "STATISTICS",
    "TAKE",
    "TIDY",
]
