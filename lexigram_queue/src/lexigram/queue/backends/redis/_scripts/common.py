"""What several scripts have in common."""

from __future__ import annotations

from typing import Final

# Shared by all: ARGV[1] is the prefix.
COMMON: Final = """
local P = ARGV[1]

local function key(kind, place)
    if kind == '' then return P .. ':' .. place end
    return P .. ':' .. kind .. ':' .. place
end

local function own(topic, group) return 'group:' .. #topic .. ':' .. topic .. ':' .. group end

local function now()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A flat list of names and values as a table.
local function record(flat)
    local found = {}
    for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
    return found
end

local function ring(place)
    local bell = key('bell', place)
    -- A few are enough to wake everybody who waits.
    if redis.call('XLEN', bell) < 8 then redis.call('XADD', bell, '*', 'ring', '1') end
end

-- Make the stream of this kind exist, with its groups.
local function open(place, kind, groups)
    if kind == '' or redis.call('SADD', key('subs', place), kind) == 0 then return false end
    for _, group in ipairs(groups) do
        redis.pcall('XGROUP', 'CREATE', key(kind, place), group, '0', 'MKSTREAM', 'ENTRIESREAD', 0)
    end
    return true
end

-- Keep a message until it is due; returns its number.
local function keep(place, due, kind, lane, fields)
    local later = key('later', place)
    local number = string.format('%016d', redis.call('INCR', P .. ':number'))
    local first = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
    redis.call('ZADD', later, string.format('%.0f', due), number)
    redis.call('HSET', key('kept', place), number, cmsgpack.pack({kind, lane, fields}))
    local is_next = not first[2] or due < tonumber(first[2])
    if is_next and place:sub(1, 6) == 'group:' then ring(place) end
    return number
end

-- The streams of a place that exist, the plain one included, by kind.
local function kinds(place)
    local found = redis.call('SMEMBERS', key('subs', place))
    found[#found + 1] = ''
    return found
end

local function older(id, than)
    local ms, seq = id:match('(%d+)-(%d+)')
    local other_ms, other_seq = than:match('(%d+)-(%d+)')
    ms, other_ms = tonumber(ms), tonumber(other_ms)
    return ms < other_ms or (ms == other_ms and tonumber(seq) < tonumber(other_seq))
end

-- The other groups of a stream, foreign ones too; asked once per script.
local asked = {}
local function others(stream, group)
    local found = asked[stream]
    if found then return found end
    found = {}
    for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
        local one = record(flat)
        if one['name'] ~= group then found[#found + 1] = one end
    end
    asked[stream] = found
    return found
end

local function is_needed(stream, id, group)
    for _, other in ipairs(others(stream, group)) do
        if older(other['last-delivered-id'], id) then return true end
        if other['pending'] > 0 then
            if redis.call('XPENDING', stream, other['name'], id, id, 1)[1] then return true end
        end
    end
    return false
end

-- Remove what every group has handled: what a foreign group acknowledged last stays otherwise.
local function trim(stream)
    local least
    for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
        local one = record(flat)
        local first = one['last-delivered-id']
        if one['pending'] > 0 then
            first = redis.call('XPENDING', stream, one['name'])[2]
        else
            local ms, seq = first:match('(%d+)-(%d+)')
            first = ms .. '-' .. string.format('%.0f', tonumber(seq) + 1)
        end
        if not least or older(first, least) then least = first end
    end
    if least then redis.call('XTRIM', stream, 'MINID', least) end
end
"""

# A delivery is settled only by the one who has it: same consumer, same count of deliveries.
SETTLE: Final = """
local T, G, me = ARGV[2], ARGV[3], ARGV[4]
local mine = own(T, G)

local function is_mine(stream, id, count)
    local found = redis.pcall('XPENDING', stream, G, id, id, 1)[1]
    return type(found) == 'table' and found[2] == me and found[4] == tonumber(count)
end

local function finish(stream, ids)
    redis.call('XACK', stream, G, unpack(ids))
    local begun = key('begun', mine)
    if redis.call('EXISTS', begun) == 1 then
        for _, id in ipairs(ids) do redis.call('HDEL', begun, stream .. '|' .. id) end
    end
    local gone = {}
    for _, id in ipairs(ids) do
        if not is_needed(stream, id, G) then gone[#gone + 1] = id end
    end
    if #gone > 0 then redis.call('XDEL', stream, unpack(gone)) end
end

local function holds(stream, id, lane)
    return lane ~= '' and redis.call('HGET', key('held', mine), lane) == stream .. '|' .. id
end

local function let_go(stream, id, lane)
    if holds(stream, id, lane) then
        redis.call('HDEL', key('held', mine), lane)
        ring(mine)
    end
end
"""

# The state of a group in each of its streams; ARGV: prefix, topic, group, 1 for a pattern.
STREAMS: Final = """
local T, G = ARGV[2], ARGV[3]
local mine = own(T, G)

-- In the order they are read: levels, then the topic's streams before the group's.
local function each(visit)
    local places, found = {mine}, {}
    if ARGV[4] ~= '1' then places = {'topic:' .. T, mine} end
    for number, place in ipairs(places) do
        for _, kind in ipairs(kinds(place)) do
            local rank = tonumber(kind:match('^level(%d)$') or 0) * 10 - number
            found[#found + 1] = {stream = key(kind, place), kind = kind, rank = rank}
        end
    end
    table.sort(found, function(a, b)
        if a.rank ~= b.rank then return a.rank > b.rank end
        return a.stream < b.stream
    end)
    for _, one in ipairs(found) do
        if redis.call('EXISTS', one.stream) == 1 then
            for _, flat in ipairs(redis.call('XINFO', 'GROUPS', one.stream)) do
                local state = record(flat)
                if state['name'] == G then visit(one.stream, one.kind, state) end
            end
        end
    end
end

-- Which start of the server this is; another after a failover, too.
local function life()
    local facts = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
    return facts:match('run_id:(%x+)') .. facts:match('master_replid:(%x+)')
end

-- The entries behind this id, from both sides: the shorter one ends it.
local function count_behind(stream, id, length)
    local size, after, before = 100, '(' .. id, id
    local behind, ahead = 0, 0
    while true do
        local page = redis.call('XRANGE', stream, after, '+', 'COUNT', size)
        behind = behind + #page
        if #page < size then return behind end
        after = '(' .. page[size][1]
        page = redis.call('XREVRANGE', stream, before, '-', 'COUNT', size)
        ahead = ahead + #page
        if #page < size then return length - ahead end
        before = '(' .. page[size][1]
    end
end

-- The append-only file and replication carry the place of a group, not its count of entries read
-- (XCLAIM ... LASTID does for XREADGROUP). So after a start of the server the group is counted
-- once, and the count is stored in Redis, which continues from there.
local function waiting(stream, state)
    local facts, at = record(redis.call('XINFO', 'STREAM', stream)), state['last-delivered-id']
    local length, added = facts['length'], facts['entries-added']
    if length == 0 or not older(at, facts['last-generated-id']) then return 0 end
    if older(at, facts['first-entry'][1]) then return length end
    local counted, this = key('counted', mine), life()
    if state['entries-read'] and redis.call('HGET', counted, stream) == this then
        return math.min(length, added - state['entries-read'])
    end
    local behind = count_behind(stream, at, length)
    -- A server without memory or a replica refuses to write: then it is counted again next time.
    redis.pcall('XGROUP', 'SETID', stream, G, at, 'ENTRIESREAD', added - behind)
    redis.pcall('HSET', counted, stream, this)
    return behind
end
"""

# Added to the count of deliveries by each release, so that an old receipt fits no later delivery;
# the release takes back the delivery itself.
RELEASED: Final = 1_000_000
