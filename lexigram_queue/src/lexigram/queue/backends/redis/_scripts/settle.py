"""Scripts that settle deliveries, and what is left of members and groups."""

from __future__ import annotations

from typing import Final

from lexigram.queue.backends.redis._scripts.common import COMMON, RELEASED, SETTLE

# ARGV: prefix, topic, group, me, then receipts: stream, id, count, lane.
ACK: Final = (
    COMMON
    + SETTLE
    + """
-- What this member has between the first and the last of them, asked once per stream.
local from, to, has, done, order = {}, {}, {}, {}, {}
for i = 5, #ARGV, 4 do
    local stream, id = ARGV[i], ARGV[i + 1]
    if not from[stream] or older(id, from[stream]) then from[stream] = id end
    if not to[stream] or older(to[stream], id) then to[stream] = id end
end
for stream, first in pairs(from) do
    local found = {}
    for _, one in ipairs(redis.pcall('XPENDING', stream, G, first, to[stream], 100000, me)) do
        found[one[1]] = one[4]
    end
    has[stream] = found
end
for i = 5, #ARGV, 4 do
    local stream, id = ARGV[i], ARGV[i + 1]
    if has[stream][id] == tonumber(ARGV[i + 2]) then
        has[stream][id] = nil
        if not done[stream] then
            done[stream] = {}
            order[#order + 1] = stream
        end
        local ids = done[stream]
        ids[#ids + 1] = id
        let_go(stream, id, ARGV[i + 3])
    end
end
for _, stream in ipairs(order) do finish(stream, done[stream]) end
return 1
"""
)

# ARGV: prefix, topic, group, me, receipt (4), kind of stream, delay ms, fields.
NACK: Final = (
    COMMON
    + SETTLE
    + """
local stream, id, lane, kind = ARGV[5], ARGV[6], ARGV[8], ARGV[9]
local delay, fields = tonumber(ARGV[10]), {unpack(ARGV, 11)}
if not is_mine(stream, id, ARGV[7]) then return 0 end
local is_holder = holds(stream, id, lane)
finish(stream, {id})
-- A retry of an ordered message keeps its lane: the next of its key waits for it.
if is_holder then kind = 'holders' else lane = '' end
local place
if delay > 0 then
    place = 'later|' .. keep(mine, now() + delay, kind, lane, fields)
else
    open(mine, kind, {G})
    local to = key(kind, mine)
    place = to .. '|' .. redis.call('XADD', to, '*', unpack(fields))
    if kind ~= '' then ring(mine) end
end
if is_holder then redis.call('HSET', key('held', mine), lane, place) end
return 1
"""
)

# ARGV: prefix, topic, group, me, receipt (4), message id, fields. One entry per message id.
DEAD: Final = (
    COMMON
    + SETTLE
    + """
local stream, id, lane, message = ARGV[5], ARGV[6], ARGV[8], ARGV[9]
if not is_mine(stream, id, ARGV[7]) then return 0 end
local dead, index = key('dead', mine), key('deadindex', mine)
local before = redis.call('ZSCORE', index, message)
if before then redis.call('XDEL', dead, before .. '-0') end
local number = redis.call('INCR', P .. ':number')
redis.call('XADD', dead, number .. '-0', unpack(ARGV, 10))
redis.call('ZADD', index, number, message)
let_go(stream, id, lane)
finish(stream, {id})
return 1
"""
)

# ARGV: prefix, topic, group, me, receipt (4). Answers how often it was begun by now, 0 when it is
# lost.
MARK_BEGUN: Final = (
    COMMON
    + SETTLE
    + """
local stream, id = ARGV[5], ARGV[6]
if not is_mine(stream, id, ARGV[7]) then return 0 end
return redis.call('HINCRBY', key('begun', mine), stream .. '|' .. id, 1)
"""
)

# ARGV: prefix, topic, group, me, then receipts. A member named "-" has them, for so long already
# that the next look of any member claims them.
RELEASE: Final = (
    COMMON
    + SETTLE
    + """
local any = false
for i = 5, #ARGV, 4 do
    local stream, id, count = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
    if is_mine(stream, id, count) then
        redis.call('XCLAIM', stream, G, '-', 0, id, 'IDLE', 31536000000,
            'RETRYCOUNT', count - 1 + {RELEASED}, 'JUSTID')
        any = true
    end
end
if any then ring(mine) end
return 1
""".replace("{RELEASED}", str(RELEASED))
)

# ARGV: prefix, topic, group, me, idle ms to set, then receipts. Answers the positions of those
# that are lost. JUSTID: does not count as a delivery.
EXTEND: Final = (
    COMMON
    + SETTLE
    + """
local lost = {}
for i = 6, #ARGV, 4 do
    local stream, id = ARGV[i], ARGV[i + 1]
    if is_mine(stream, id, ARGV[i + 2]) then
        redis.call('XCLAIM', stream, G, me, 0, id, 'IDLE', ARGV[5], 'JUSTID')
    else
        lost[#lost + 1] = (i - 6) / 4
    end
end
return lost
"""
)

# ARGV: prefix, topic, group, me, 1 for a pattern. Hands back all this member has and forgets it.
LEAVE: Final = (
    COMMON
    + SETTLE
    + """
local places, any = {mine}, false
if ARGV[5] ~= '1' then places[2] = 'topic:' .. T end
for _, place in ipairs(places) do
    for _, kind in ipairs(kinds(place)) do
        local stream = key(kind, place)
        local has = redis.pcall('XPENDING', stream, G, '-', '+', 1000, me)
        while #has > 0 do
            for _, one in ipairs(has) do
                redis.call('XCLAIM', stream, G, '-', 0, one[1], 'IDLE', 31536000000, 'JUSTID')
            end
            any = true
            has = redis.call('XPENDING', stream, G, '-', '+', 1000, me)
        end
        redis.pcall('XGROUP', 'DELCONSUMER', stream, G, me)
    end
end
redis.pcall('XGROUP', 'DELCONSUMER', key('bell', mine), G, me)
if any then ring(mine) end
return 1
"""
)

TIDY: Final = (
    COMMON
    + """
local T, G, patience = ARGV[2], ARGV[3], tonumber(ARGV[4])
for _, place in ipairs({'topic:' .. T, own(T, G)}) do
    for _, kind in ipairs(kinds(place)) do
        local stream = key(kind, place)
        if redis.call('EXISTS', stream) == 1 then
            trim(stream)
            for _, flat in ipairs(redis.pcall('XINFO', 'CONSUMERS', stream, G)) do
                local one = record(flat)
                if one['pending'] == 0 and one['idle'] > patience then
                    redis.call('XGROUP', 'DELCONSUMER', stream, G, one['name'])
                end
            end
        end
    end
end
return redis.call('ZRANGEBYSCORE', P .. ':temporary', '-inf',
    string.format('%.0f', now() - 600000), 'LIMIT', 0, 100)
"""
)
