"""Scripts for operators: jobs are cancelled, revived, found and deleted."""

from __future__ import annotations

from typing import Final

from lexigram.queue.backends.redis._job_scripts.common import COMMON

# ARGV: prefix, id.
CANCEL: Final = (
    COMMON
    + """
local id = ARGV[2]
local state = redis.call('HGET', job(id), 'state')
if not state or FINAL[state] then return {0, 0, {}} end
redis.call('HSET', job(id), 'cancel_requested', '1')
if state == 'running' then
    redis.call('PUBLISH', key('news'), 'cancel')
    return {1, 1, {}}
end
become(id, 'cancelled', 0, {'reason', 'asked'})
ended(id)
let_go(id)
close()
return {1, 0, others}
"""
)

# ARGV: prefix, id, the states it may be in.
REVIVE: Final = (
    COMMON
    + """
local id = ARGV[2]
local had = redis.call('HMGET', job(id), 'state', 'unique_key', 'name')
local fits = false
for i = 3, #ARGV do fits = fits or had[1] == ARGV[i] end
if not fits or had[3] == '' then return 0 end
if had[2] and redis.call('HEXISTS', key('unique'), had[2]) == 1 then return 0 end
redis.call('HDEL', job(id), 'error', 'reason', 'notes', 'cancel_requested', 'completed_at')
redis.call('HSET', job(id), 'lost_count', 0)
become(id, 'ready', now, {'retry_count', '0'})
close()
return 1
"""
)

# ARGV: prefix, id, reason, error, notes. 0: there is none that could be buried as it is.
BURY: Final = (
    COMMON
    + """
local id = ARGV[2]
local state = redis.call('HGET', job(id), 'state')
if state == 'failed' then forget(id) end
if not state or state == 'failed' then
    close()
    return 0
end
become(id, 'failed', 0, {'reason', ARGV[3], 'error', ARGV[4], 'notes', ARGV[5]})
let_go(id)
close()
return 1
"""
)

# ARGV: prefix, id.
GET: Final = (
    COMMON
    + """
if redis.call('EXISTS', job(ARGV[2])) == 0 then return false end
return cmsgpack.pack(seen(ARGV[2]))
"""
)

# ARGV: prefix, which set, first, last, queue, name, retried ('', '0' or '1'), states.
# Answers: how many were looked at, and the rows that fit, latest first.
FIND: Final = (
    COMMON
    + """
local rows, wanted = {}, {}
for i = 8, #ARGV do wanted[ARGV[i]] = true end
local ids = redis.call('ZREVRANGE', key(ARGV[2]), ARGV[3], ARGV[4])
for _, id in ipairs(ids) do
    local had = redis.call('HMGET', job(id), 'state', 'queue', 'name', 'retry_count')
    local retried = number(had[4]) > 0 and '1' or '0'
    if wanted[had[1]] and (ARGV[5] == '' or ARGV[5] == had[2])
        and (ARGV[6] == '' or ARGV[6] == had[3]) and (ARGV[7] == '' or ARGV[7] == retried) then
        rows[#rows + 1] = seen(id)
    end
end
return {#ids, cmsgpack.pack(rows)}
"""
)

# ARGV: prefix, id, states. Who waits for it would wait for ever: it is cancelled first.
DELETE: Final = (
    COMMON
    + """
local id = ARGV[2]
local state = redis.call('HGET', job(id), 'state')
local fits = false
for i = 3, #ARGV do fits = fits or state == ARGV[i] end
if not state or not fits then return 0 end
if not FINAL[state] then
    become(id, 'cancelled', 0, {'reason', 'asked'})
    let_go(id)
end
forget(id)
close()
return 1
"""
)

# ARGV: prefix, number after which to look, how many, states. Answers: gone, the last number.
DELETE_MANY: Final = (
    COMMON
    + """
local wanted, gone, last = {}, 0, ''
for i = 4, #ARGV do wanted[ARGV[i]] = true end
local found = redis.call('ZRANGEBYSCORE', key('ids'), '(' .. ARGV[2], '+inf', 'WITHSCORES',
                         'LIMIT', 0, ARGV[3])
for i = 1, #found, 2 do
    local id = found[i]
    last = found[i + 1]
    local state = redis.call('HGET', job(id), 'state')
    if wanted[state] then
        if not FINAL[state] then
            become(id, 'cancelled', 0, {'reason', 'asked'})
            let_go(id)
        end
        forget(id)
        gone = gone + 1
    end
end
close()
return {gone, last}
"""
)

# ARGV: prefix, seconds, how many.
PURGE: Final = (
    COMMON
    + """
local old = redis.call('ZRANGEBYSCORE', key('ended'), '-inf',
                       moment(now - tonumber(ARGV[2])), 'LIMIT', 0, ARGV[3])
for _, id in ipairs(old) do forget(id) end
close()
return #old
"""
)
