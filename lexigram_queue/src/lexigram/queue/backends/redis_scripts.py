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
``P:bell:<place>``    wakes a member that waits: something changed that is not in its stream
``P:dead:<place>``    dead letters; ``P:deadindex:<place>`` finds them by message id
``P:members:<place>`` the groups of a topic; ``P:groups`` all of them, ``P:patterns`` by pattern,
                      ``P:paused``, ``P:temporary`` (when they were last received from)
====================  ==============================================================================

Locks: none needed, a script runs alone. Costs: a stream finds an id in logarithmic time, so every
script is linear in the messages it is given.
"""

from __future__ import annotations

from typing import Final

# Shared by all: ARGV[1] is the prefix.
_COMMON = """
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
_SETTLE = """
local T, G, me = ARGV[2], ARGV[3], ARGV[4]
local mine = own(T, G)

local function is_mine(stream, id, count)
    local found = redis.pcall('XPENDING', stream, G, id, id, 1)[1]
    return type(found) == 'table' and found[2] == me and found[4] == tonumber(count)
end

local function finish(stream, ids)
    redis.call('XACK', stream, G, unpack(ids))
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

# ARGV: prefix, max_backlog, dedup window ms, number of messages, then for each: topic, kind of
# stream, id, delay ms, number of fields, fields. Answers: whether new streams were made, then
# the positions of the messages there was no room for.
PUBLISH: Final = (
    _COMMON
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
    _COMMON
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
    _COMMON
    + """
local T, G, is_pattern = ARGV[2], ARGV[3], ARGV[4] == '1'
local field, place, mine = T .. '\\n' .. G, 'topic:' .. T, own(T, G)
for _, kind in ipairs(kinds(mine)) do redis.call('DEL', key(kind, mine)) end
for _, kind in ipairs({'subs', 'later', 'kept', 'held', 'bell', 'dead', 'deadindex'}) do
    redis.call('DEL', key(kind, mine))
end
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
    _COMMON
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

# ARGV: prefix, topic, group, me, then receipts: stream, id, count, lane.
ACK: Final = (
    _COMMON
    + _SETTLE
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
    _COMMON
    + _SETTLE
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
    _COMMON
    + _SETTLE
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

# ARGV: prefix, topic, group, me, then receipts. A member named "-" has them, for so long already
# that the next look of any member claims them.
RELEASE: Final = (
    _COMMON
    + _SETTLE
    + """
local any = false
for i = 5, #ARGV, 4 do
    local stream, id = ARGV[i], ARGV[i + 1]
    if is_mine(stream, id, ARGV[i + 2]) then
        redis.call('XCLAIM', stream, G, '-', 0, id, 'IDLE', 31536000000, 'JUSTID')
        any = true
    end
end
if any then ring(mine) end
return 1
"""
)

# ARGV: prefix, topic, group, me, idle ms to set, then receipts. Answers the positions of those
# that are lost. JUSTID: does not count as a delivery.
EXTEND: Final = (
    _COMMON
    + _SETTLE
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
    _COMMON
    + _SETTLE
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

# ARGV: prefix, topic, group, ms after which a member without messages is forgotten.
# Answers the temporary groups nobody received from for ten minutes.
TIDY: Final = (
    _COMMON
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

# ARGV: prefix, topic, group, offset, limit. Answers number and fields of dead letters.
DEAD_PAGE: Final = (
    _COMMON
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
    _COMMON
    + """
return redis.call('ZCARD', key('deadindex', own(ARGV[2], ARGV[3])))
"""
)

# ARGV: prefix, topic, group, then message ids. Answers dead letters as DEAD_PAGE, by id.
DEAD_BY_ID: Final = (
    _COMMON
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
# An entry somebody else redrove or purged meanwhile is passed over. Answers how many.
REDRIVE: Final = (
    _COMMON
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
    _COMMON
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

# The state of a group in each of its streams; ARGV: prefix, topic, group, 1 for a pattern.
_STREAMS = """
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

local function waiting(stream, state)
    local facts = record(redis.call('XINFO', 'STREAM', stream))
    if state['entries-read'] then return facts['entries-added'] - state['entries-read'] end
    return facts['length'] - state['pending']
end
"""

# ARGV: and the visibility ms. Answers depth and lag.
FIGURES: Final = (
    _COMMON
    + _STREAMS
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

# ARGV: and a limit. Answers stream, id and fields of what waits.
PEEK: Final = (
    _COMMON
    + _STREAMS
    + """
local found, left = {}, tonumber(ARGV[5])
each(function(stream, kind, state)
    if left <= 0 then return end
    local from = '(' .. state['last-delivered-id']
    for _, entry in ipairs(redis.call('XRANGE', stream, from, '+', 'COUNT', left)) do
        found[#found + 1] = entry
        left = left - 1
    end
end)
return found
"""
)

# Drops what waits; in flight excepted. Answers how many.
PURGE: Final = (
    _COMMON
    + _STREAMS
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
