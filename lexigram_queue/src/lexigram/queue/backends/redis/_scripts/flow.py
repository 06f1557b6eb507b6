"""Scripts that publish, declare and hand out."""

from __future__ import annotations

from typing import Final

from lexigram.queue.backends.redis._scripts.common import COMMON

# ARGV: prefix, max_backlog, dedup window ms, number of messages, then for each: topic, kind of
# stream, id, delay ms, number of fields, fields. Answers: whether new streams were made, then
# the positions of the messages there was no room for.
PUBLISH: Final = (
    COMMON
    + """
local max_backlog, window, number = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

local function matches(pattern, topic)
    local parts = {}
    for part in (pattern .. '*'):gmatch('(.-)%*') do parts[#parts + 1] = part end
    if topic:sub(1, #parts[1]) ~= parts[1] then return false end
    local at = #parts[1] + 1
    for i = 2, #parts - 1 do
        local from, to = topic:find(parts[i], at, true)
        if not from then return false end
        at = to + 1
    end
    local last = parts[#parts]
    return #topic - at + 1 >= #last and (last == '' or topic:sub(-#last) == last)
end

local patterns = redis.call('HGETALL', P .. ':patterns')

local function length(place)
    local total = redis.call('ZCARD', key('later', place))
    for _, kind in ipairs(kinds(place)) do
        total = total + redis.call('XLEN', key(kind, place))
    end
    return total
end

local function backlog(place)
    local total = length(place)
    if total >= max_backlog then
        for _, kind in ipairs(kinds(place)) do
            local stream = key(kind, place)
            if redis.call('EXISTS', stream) == 1 then trim(stream) end
        end
        total = length(place)
    end
    return total
end

local topics = {}
local function look(topic)
    local place = 'topic:' .. topic
    local found = {place = place, owners = {}, stream = key('', place)}
    found.groups = redis.call('SMEMBERS', key('members', place))
    for i = 1, #patterns, 2 do
        if matches(patterns[i + 1], topic) then
            local group = patterns[i]:sub(#patterns[i + 1] + 2)
            found.owners[#found.owners + 1] = {place = own(patterns[i + 1], group), group = group}
        end
    end
    found.shared = #found.groups > 0 or #found.owners == 0
    if #found.groups == 0 and #found.owners == 0 then found.kept = backlog(place) end
    topics[topic] = found
    return found
end

local answer, to_ring, due_from = {0}, {}, nil

local function put(place, groups, kind, from, to)
    if open(place, kind, groups) then answer[1] = 1 end
    redis.call('XADD', key(kind, place), '*', unpack(ARGV, from, to))
end

local function later(found, kind, delay, fields)
    due_from = due_from or now()
    if found.kept then keep(found.place, due_from + delay, kind, '', fields) end
    for _, group in ipairs(found.groups) do
        keep(own(found.topic, group), due_from + delay, kind, '', fields)
    end
    for _, owner in ipairs(found.owners) do
        keep(owner.place, due_from + delay, kind, '', fields)
    end
end

local at = 5
for position = 1, number do
    local topic, kind, id, delay = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
    local from, to = at + 5, at + 4 + tonumber(ARGV[at + 4])
    local found = topics[topic] or look(topic)
    found.topic = topic
    at = to + 1
    if found.kept and found.kept >= max_backlog then
        answer[#answer + 1] = position
    elseif window == '0'
        or redis.call('SET', P .. ':seen:' .. topic .. '\\n' .. id, 1, 'NX', 'PX', window) then
        if found.kept then found.kept = found.kept + 1 end
        if delay > 0 then
            later(found, kind, delay, {unpack(ARGV, from, to)})
        else
            if found.shared then
                if kind == '' then
                    redis.call('XADD', found.stream, '*', unpack(ARGV, from, to))
                else
                    put(found.place, found.groups, kind, from, to)
                    for _, group in ipairs(found.groups) do to_ring[own(topic, group)] = true end
                end
            end
            for _, owner in ipairs(found.owners) do
                put(owner.place, {owner.group}, kind, from, to)
                if kind ~= '' then to_ring[owner.place] = true end
            end
        end
    end
end
for place in pairs(to_ring) do ring(place) end
return answer
"""
)

# ARGV: prefix, topic, group, 1 for a pattern, t for a temporary group (else 1).
DECLARE: Final = (
    COMMON
    + """
local T, G, is_pattern, sort = ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]
local field, place, mine = T .. '\\n' .. G, 'topic:' .. T, own(T, G)
local known = redis.call('HEXISTS', P .. ':groups', field) == 1
local first = redis.call('SCARD', key('members', place)) == 0

local function make(stream, from_start)
    local id, read = '0', 0
    if redis.call('EXISTS', stream) == 1 then
        local facts = record(redis.call('XINFO', 'STREAM', stream))
        read = facts['entries-added']
        if from_start then read = read - facts['length'] else id = '$' end
    end
    local made = redis.pcall('XGROUP', 'CREATE', stream, G, id, 'MKSTREAM', 'ENTRIESREAD', read)
    if type(made) == 'table' and made.err and not made.err:find('BUSYGROUP') then
        error(made.err)
    end
end

-- A group that is known and has lost its place in a stream begins at the start: rather twice.
if not is_pattern then
    for _, kind in ipairs(kinds(place)) do make(key(kind, place), known or first) end
end
for _, kind in ipairs(kinds(mine)) do make(key(kind, mine), true) end
make(key('bell', mine), true)
if known then return 0 end
redis.call('HSET', P .. ':groups', field, sort)
if sort == 't' then redis.call('ZADD', P .. ':temporary', string.format('%.0f', now()), field) end
if is_pattern then
    redis.call('HSET', P .. ':patterns', field, T)
    return 1
end
redis.call('SADD', key('members', place), G)
if first and redis.call('EXISTS', key('later', place)) == 1 then
    redis.call('RENAME', key('later', place), key('later', mine))
    redis.call('RENAME', key('kept', place), key('kept', mine))
end
return 1
"""
)

# ARGV: prefix, topic, group, 1 for a pattern.
DROP: Final = (
    COMMON
    + """
local T, G, is_pattern = ARGV[2], ARGV[3], ARGV[4] == '1'
local field, place, mine = T .. '\\n' .. G, 'topic:' .. T, own(T, G)
for _, kind in ipairs(kinds(mine)) do redis.call('DEL', key(kind, mine)) end
local own_keys = {
    'subs', 'later', 'kept', 'held', 'begun', 'counted', 'bell', 'dead', 'deadindex'
}
for _, kind in ipairs(own_keys) do redis.call('DEL', key(kind, mine)) end
redis.call('HDEL', P .. ':groups', field)
redis.call('HDEL', P .. ':patterns', field)
redis.call('HDEL', P .. ':paused', field)
redis.call('ZREM', P .. ':temporary', field)
if is_pattern or redis.call('SREM', key('members', place), G) == 0 then return 0 end
local is_last = redis.call('SCARD', key('members', place)) == 0
for _, kind in ipairs(kinds(place)) do
    local stream = key(kind, place)
    if redis.call('EXISTS', stream) == 1 then
        redis.call('XGROUP', 'DESTROY', stream, G)
        -- What only this group had not handled goes with it; a foreign group keeps its stream.
        if is_last and #redis.call('XINFO', 'GROUPS', stream) == 0 then
            redis.call('DEL', stream)
            redis.call('SREM', key('subs', place), kind)
        else
            trim(stream)
        end
    end
end
return 1
"""
)

# ARGV: prefix, topic, group, me, limit, 1 to look after what is due or lost, visibility ms,
# whose turn it is, 1 for a pattern.
# Answers: 1 when paused, else 0; ms until the next message is due (-1: none); whose turn is next;
# 1 when only the plain streams need to be read; the deliveries, each as stream, id, count, fields.
TAKE: Final = (
    COMMON
    + """
local T, G, me, left = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local upkeep, visibility, turn = ARGV[6] == '1', ARGV[7], tonumber(ARGV[8])
local field, mine = T .. '\\n' .. G, own(T, G)
local sort = redis.call('HGET', P .. ':groups', field)
if not sort then return redis.error_reply('NOGROUP the group was never declared') end
if redis.call('HEXISTS', P .. ':paused', field) == 1 then return {1} end

local places = {mine}
if ARGV[9] ~= '1' then places = {'topic:' .. T, mine} end
local taken, is_plain = {}, 1

local function take(stream, id, count, fields)
    taken[#taken + 1] = {stream, id, count, fields}
    left = left - 1
end

local later = key('later', mine)

local function move_due()
    local time = now()
    if sort == 't' then
        redis.call('ZADD', P .. ':temporary', string.format('%.0f', time), field)
    end
    local due = redis.call('ZRANGEBYSCORE', later, '-inf', string.format('%.0f', time),
        'LIMIT', 0, 100)
    for _, number in ipairs(due) do
        local packed = redis.call('HGET', key('kept', mine), number)
        redis.call('ZREM', later, number)
        if packed then
            redis.call('HDEL', key('kept', mine), number)
            local kept = cmsgpack.unpack(packed)
            open(mine, kept[1], {G})
            local stream = key(kept[1], mine)
            local id = redis.call('XADD', stream, '*', unpack(kept[3]))
            if kept[2] ~= '' then
                redis.call('HSET', key('held', mine), kept[2], stream .. '|' .. id)
            end
        end
    end
end

-- A lane whose message is gone, for whatever reason, is free.
local function check_lanes()
    local held = redis.call('HGETALL', key('held', mine))
    for i = 1, #held, 2 do
        local stream, id = held[i + 1]:match('^(.*)|(.-)$')
        local there
        if stream == 'later' then
            there = redis.call('ZSCORE', later, id)
        elseif stream == key('holders', mine) then
            there = redis.call('XRANGE', stream, id, id)[1]
        else
            there = redis.pcall('XPENDING', stream, G, id, id, 1)[1]
        end
        if not there then redis.call('HDEL', key('held', mine), held[i]) end
    end
end

local function claim(stream)
    local cursor = '0-0'
    repeat
        local got = redis.call('XAUTOCLAIM', stream, G, me, visibility, cursor, 'COUNT', left)
        cursor = got[1]
        for _, entry in ipairs(got[2]) do
            local state = redis.call('XPENDING', stream, G, entry[1], entry[1], 1)[1]
            take(stream, entry[1], state[4], entry[2])
        end
    until cursor == '0-0' or left == 0
end

if upkeep then
    local bell = key('bell', mine)
    local rung = redis.call('XPENDING', bell, G, '-', '+', 100)
    for _, one in ipairs(rung) do
        redis.call('XACK', bell, G, one[1])
        redis.call('XDEL', bell, one[1])
    end
    move_due()
    check_lanes()
end

-- Streams by their order: the levels from the highest, then lanes and plain ones in turn.
local levels, lanes, plain = {}, {}, {}
for _, place in ipairs(places) do
    for _, kind in ipairs(kinds(place)) do
        local level, lane = kind:match('^level(%d)$'), kind:match('^lane(%d+)$')
        local stream = key(kind, place)
        if kind == '' then
            plain[#plain + 1] = {stream = stream, is_own = place == mine}
        elseif level then
            levels[#levels + 1] = {stream = stream, rank = tonumber(level)}
        elseif lane then
            lanes[#lanes + 1] = {stream = stream, lane = lane, rank = tonumber(lane)}
        else
            plain[#plain + 1] = {stream = stream}
        end
        if kind ~= '' then is_plain = 0 end
        if upkeep and left > 0 then claim(stream) end
    end
end
-- Of the same rank the topic's before the group's: "topic:" is behind "group:" in the alphabet.
local function by_rank(a, b)
    if a.rank ~= b.rank then return a.rank > b.rank end
    return a.stream > b.stream
end
table.sort(levels, by_rank)
table.sort(lanes, by_rank)

local function read(stream, count)
    local got = redis.call('XREADGROUP', 'GROUP', G, me, 'COUNT', count, 'STREAMS', stream, '>')
    if not got then return {} end
    return got[1][2]
end

for _, level in ipairs(levels) do
    if left == 0 then break end
    for _, entry in ipairs(read(level.stream, left)) do take(level.stream, entry[1], 1, entry[2]) end
end

-- One from each lane; a lane in which an ordered message is under way is passed over.
local function from_lane(part)
    if redis.call('HEXISTS', key('held', mine), part.lane) == 1 then return 0 end
    local entry = read(part.stream, 1)[1]
    if not entry then return 0 end
    for i = 1, #entry[2], 2 do
        if entry[2][i] == 'ordering-key' and entry[2][i + 1] ~= '' then
            redis.call('HSET', key('held', mine), part.lane, part.stream .. '|' .. entry[1])
            break
        end
    end
    take(part.stream, entry[1], 1, entry[2])
    return 1
end

local parts = plain
if #lanes > 0 then
    for _, part in ipairs(plain) do lanes[#lanes + 1] = part end
    parts = lanes
end
local size, idle = #parts, 0
while left > 0 and idle < size do
    local part = parts[turn % size + 1]
    local got
    if part.lane then
        got = from_lane(part)
    else
        local entries = read(part.stream, #lanes > 0 and 1 or math.ceil(left / (size - idle)))
        got = #entries
        for _, entry in ipairs(entries) do take(part.stream, entry[1], 1, entry[2]) end
        if part.is_own and got > 0 then is_plain = 0 end
    end
    if got == 0 then idle = idle + 1 else idle = 0 end
    turn = turn + 1
end
-- One ring wakes one member: with more to do than it may take, it wakes the next.
if left == 0 and is_plain == 0 then ring(mine) end

local wait = -1
local next = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
if next[2] then wait = math.max(0, tonumber(next[2]) - now()) end
return {0, wait, #lanes > 0 and turn % size or 0, is_plain, taken}
"""
)
