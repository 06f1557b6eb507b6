"""Scripts for operators: dead letters, statistics, peek and purge."""

from __future__ import annotations

from typing import Final

from lexigram.queue.backends.redis._scripts.common import COMMON, STREAMS

# ARGV: prefix, topic, group, offset, limit. Answers number and fields of dead letters.
DEAD_PAGE: Final = (
    COMMON
    + """
local mine, offset, limit = own(ARGV[2], ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local page = {}
local index = redis.call('ZRANGE', key('deadindex', mine), offset, offset + limit - 1, 'WITHSCORES')
for i = 2, #index, 2 do
    local entry = redis.call('XRANGE', key('dead', mine), index[i] .. '-0', index[i] .. '-0')[1]
    if entry then page[#page + 1] = {index[i], entry[2]} end
end
return page
"""
)

# ARGV: prefix, topic, group.
COUNT_DEAD: Final = (
    COMMON
    + """
return redis.call('ZCARD', key('deadindex', own(ARGV[2], ARGV[3])))
"""
)

# ARGV: prefix, topic, group, then message ids. Answers dead letters as DEAD_PAGE, by id.
DEAD_BY_ID: Final = (
    COMMON
    + """
local mine, page = own(ARGV[2], ARGV[3]), {}
for i = 4, #ARGV do
    local number = redis.call('ZSCORE', key('deadindex', mine), ARGV[i])
    if number then
        local entry = redis.call('XRANGE', key('dead', mine), number .. '-0', number .. '-0')[1]
        if entry then page[#page + 1] = {number, entry[2]} end
    end
end
return page
"""
)

# ARGV: prefix, topic, group, then for each: message id, number, kind, number of fields, fields.
# An entry that was redriven or purged meanwhile is skipped. Returns their number.
REDRIVE: Final = (
    COMMON
    + """
local G, mine = ARGV[3], own(ARGV[2], ARGV[3])
local index, back, at = key('deadindex', mine), 0, 4
while at <= #ARGV do
    local message, number, kind = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local from, to = at + 4, at + 3 + tonumber(ARGV[at + 3])
    if redis.call('ZSCORE', index, message) == number then
        redis.call('ZREM', index, message)
        redis.call('XDEL', key('dead', mine), number .. '-0')
        open(mine, kind, {G})
        redis.call('XADD', key(kind, mine), '*', unpack(ARGV, from, to))
        back = back + 1
    end
    at = to + 1
end
if back > 0 then ring(mine) end
return back
"""
)

# ARGV: prefix, topic, group, then message ids; without any, all go.
PURGE_DEAD: Final = (
    COMMON
    + """
local mine, gone = own(ARGV[2], ARGV[3]), 0
local dead, index = key('dead', mine), key('deadindex', mine)
if #ARGV == 3 then
    gone = redis.call('ZCARD', index)
    redis.call('DEL', dead, index)
    return gone
end
for i = 4, #ARGV do
    local number = redis.call('ZSCORE', index, ARGV[i])
    if number then
        redis.call('ZREM', index, ARGV[i])
        redis.call('XDEL', dead, number .. '-0')
        gone = gone + 1
    end
end
return gone
"""
)

# ARGV: and the visibility ms. Answers depth and lag.
STATISTICS: Final = (
    COMMON
    + STREAMS
    + """
local later = key('later', mine)
local depth = redis.call('ZCARD', later)
local lag = redis.call('ZCOUNT', later, '-inf', string.format('%.0f', now()))
each(function(stream, kind, state)
    local ready = waiting(stream, state)
    depth = depth + ready + state['pending']
    local lane = kind:match('^lane(%d+)$')
    if not (lane and redis.call('HEXISTS', key('held', mine), lane) == 1) then lag = lag + ready end
    if state['pending'] > 0 then
        lag = lag + #redis.call('XPENDING', stream, G, 'IDLE', ARGV[5], '-', '+', 1000)
    end
end)
return {depth, lag}
"""
)

# ARGV: and a limit, and the visibility ms. Answers id and fields of what STATISTICS counts as lag:
# what waits, then what a member lost or what is due, and the next look of a member brings.
PEEK: Final = (
    COMMON
    + STREAMS
    + """
local found, left = {}, tonumber(ARGV[5])
each(function(stream, kind, state)
    if left <= 0 then return end
    local from = '(' .. state['last-delivered-id']
    for _, entry in ipairs(redis.call('XRANGE', stream, from, '+', 'COUNT', left)) do
        found[#found + 1] = entry
        left = left - 1
    end
    if left <= 0 or state['pending'] == 0 then return end
    for _, lost in ipairs(redis.call('XPENDING', stream, G, 'IDLE', ARGV[6], '-', '+', left)) do
        for _, entry in ipairs(redis.call('XRANGE', stream, lost[1], lost[1])) do
            found[#found + 1] = entry
            left = left - 1
        end
    end
end)
if left <= 0 then return found end
local time = string.format('%.0f', now())
for _, number in ipairs(redis.call('ZRANGEBYSCORE', key('later', mine), '-inf', time,
    'LIMIT', 0, left)) do
    local packed = redis.call('HGET', key('kept', mine), number)
    if packed then found[#found + 1] = {number, cmsgpack.unpack(packed)[3]} end
end
return found
"""
)

# Drops what waits; in flight excepted. Answers how many.
PURGE: Final = (
    COMMON
    + STREAMS
    + """
local later = key('later', mine)
local gone = redis.call('ZCARD', later)
redis.call('DEL', later, key('kept', mine))
local held = redis.call('HGETALL', key('held', mine))
for i = 1, #held, 2 do
    if held[i + 1]:sub(1, 6) == 'later|' then redis.call('HDEL', key('held', mine), held[i]) end
end
each(function(stream, kind, state)
    local from = '(' .. state['last-delivered-id']
    local facts = record(redis.call('XINFO', 'STREAM', stream))
    redis.call('XGROUP', 'SETID', stream, G, facts['last-generated-id'],
        'ENTRIESREAD', facts['entries-added'])
    repeat
        local page = redis.call('XRANGE', stream, from, '+', 'COUNT', 500)
        for _, entry in ipairs(page) do
            gone = gone + 1
            from = '(' .. entry[1]
            if not is_needed(stream, entry[1], G) then redis.call('XDEL', stream, entry[1]) end
        end
    until #page == 0
end)
return gone
"""
)
