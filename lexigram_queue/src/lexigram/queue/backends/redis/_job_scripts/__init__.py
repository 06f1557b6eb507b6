"""What happens to jobs inside Redis: every script is one transaction on the server's own clock.

Keys, all under one prefix (with ``{}`` in it, so that a cluster keeps them together):

- ``job:<id>``: a hash of the fields in ``SEEN`` and a few more; one that is not there has the
  value that ``SEEN`` says
- ``ids``: all jobs by the number they arrived under
- ``queues``: names of queues that ever had a job; ``ready:<queue>``: what can be claimed, by
  urgency, then by a text that sorts by time and number
- ``delayed``, ``running``, ``ended``, ``failed``: ids by the moment that counts for each
- ``unique``, ``requests``: keys that are taken; ``waiters:<id>``: who waits for a job
- ``counts``: how many jobs are where

The way of an ordinary job is in, claimed, completed: each is one read and one write of its hash,
and what many jobs of one script share is written once. Asking for every step of every job took
the server 80 µs a job instead of 45, in batches of 100. Lists of jobs come and go as one msgpack text,
which neither side has to escape.
"""

from lexigram.queue.backends.redis._job_scripts.beside import (
    COMPLETE,
    END_PROGRESS,
    PURGE_SIDE,
    REPORT,
    SUBMIT,
)
from lexigram.queue.backends.redis._job_scripts.common import SEEN
from lexigram.queue.backends.redis._job_scripts.flow import CLAIM, EXTEND, FINISH, INSERT, TEND
from lexigram.queue.backends.redis._job_scripts.steer import (
    BURY,
    CANCEL,
    DELETE,
    DELETE_MANY,
    FIND,
    GET,
    PURGE,
    REVIVE,
)

__all__ = [
    "BURY",
    "CANCEL",
    "CLAIM",
    "COMPLETE",
    "DELETE",
    "DELETE_MANY",
    "END_PROGRESS",
    "EXTEND",
    "FIND",
    "FINISH",
    "GET",
    "INSERT",
    "PURGE",
    "PURGE_SIDE",
    "REPORT",
    "REVIVE",
    "SEEN",
    "SUBMIT",
    "TEND",
]
