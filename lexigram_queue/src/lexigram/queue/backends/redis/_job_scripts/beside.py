"""Scripts of what is kept beside jobs: progress and submissions."""

from __future__ import annotations

from typing import Final

from lexigram.queue.backends.redis._job_scripts.common import COMMON

# ARGV: prefix, id, done, total, message. Progress never goes back, and ends once.
REPORT: Final = (
    COMMON
    + """
local name = key('progress:' .. ARGV[2])
local had = redis.call('HMGET', name, 'status', 'done')
if had[1] and (had[1] ~= 'running' or tonumber(ARGV[3]) < tonumber(had[2])) then return 0 end
redis.call('HSET', name, 'status', 'running', 'done', ARGV[3], 'total', ARGV[4],
           'message', ARGV[5])
redis.call('ZADD', key('progress'), moment(now), ARGV[2])
redis.call('PUBLISH', key('news'), 'progress:' .. ARGV[2])
return 1
"""
)

# ARGV: prefix, id, status, message, error.
END_PROGRESS: Final = (
    COMMON
    + """
local name = key('progress:' .. ARGV[2])
local status = redis.call('HGET', name, 'status')
if status and status ~= 'running' then return 0 end
redis.call('HSET', name, 'status', ARGV[3], 'message', ARGV[4], 'error', ARGV[5])
redis.call('HSETNX', name, 'done', 0)
redis.call('HSETNX', name, 'total', 0)
redis.call('ZADD', key('progress'), moment(now), ARGV[2])
redis.call('PUBLISH', key('news'), 'progress:' .. ARGV[2])
return 1
"""
)

# ARGV: prefix, key, task id, task name. 1 for exactly one of all callers.
SUBMIT: Final = (
    COMMON
    + """
local name = key('submission:' .. ARGV[2])
if redis.call('HSETNX', name, 'task_id', ARGV[3]) == 0 then return 0 end
redis.call('HSET', name, 'task_name', ARGV[4], 'created_at', moment(now))
redis.call('ZADD', key('submission'), moment(now), ARGV[2])
return 1
"""
)

# ARGV: prefix, key, result, 1 when there is one.
COMPLETE: Final = (
    COMMON
    + """
local name = key('submission:' .. ARGV[2])
if redis.call('EXISTS', name) == 0 then return 0 end
redis.call('HSET', name, 'is_completed', '1')
redis.call('HDEL', name, 'result')
if ARGV[4] == '1' then redis.call('HSET', name, 'result', ARGV[3]) end
return 1
"""
)

# ARGV: prefix, which (progress or submission), seconds, how many.
PURGE_SIDE: Final = (
    COMMON
    + """
local old = redis.call('ZRANGEBYSCORE', key(ARGV[2]), '-inf',
                       moment(now - tonumber(ARGV[3])), 'LIMIT', 0, ARGV[4])
for _, one in ipairs(old) do
    redis.call('DEL', key(ARGV[2] .. ':' .. one))
    redis.call('ZREM', key(ARGV[2]), one)
end
return #old
"""
)
