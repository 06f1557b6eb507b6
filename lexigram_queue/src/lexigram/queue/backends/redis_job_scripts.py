"""What happens to jobs inside Redis: every script is one transaction on the server's own clock.

Keys, all under one prefix (with ``{}`` in it, so that a cluster keeps them together):

- ``job:<id>``: a hash; ``doc`` is what never changes, as JSON; the other fields are the state
- ``ids``: all jobs by the number they arrived under
- ``queues``: names of queues that ever had a job; ``ready:<queue>``: what can be claimed, by
  urgency, then by a text that sorts by time and number
- ``delayed``, ``running``, ``ended``, ``failed``: ids by the moment that counts for each
- ``unique``, ``requests``: keys that are taken; ``waiters:<id>``: who waits for a job
- ``counts``: how many jobs are where
"""

from __future__ import annotations

from typing import Final

_COMMON: Final = """
local P = ARGV[1]
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local news, others = {}, {}
local FINAL = {completed = true, failed = true, cancelled = true}
local PLACE = {delayed = 'delayed', running = 'running', completed = 'ended',
               cancelled = 'ended', failed = 'failed'}

local function key(name) return P .. ':' .. name end
local function job(id) return P .. ':job:' .. id end
local function moment(seconds) return string.format('%.6f', seconds) end

local function tell()
    for topic in pairs(news) do redis.call('PUBLISH', key('news'), topic) end
end

-- A cell of the table of counts.
local function count(cell, old)
    if cell == old then return end
    if old then redis.call('HINCRBY', key('counts'), old, -1) end
    if cell then redis.call('HINCRBY', key('counts'), cell, 1) end
end

-- The one place where a job moves. `more` are other fields to write with it.
local function become(id, state, at, more)
    local name = job(id)
    local had = redis.call('HMGET', name, 'state', 'queue', 'priority', 'seq', 'unique_key',
                           'retry_count', 'counted', 'member')
    local old, queue = had[1], had[2]
    if old == 'ready' then
        redis.call('ZREM', key('ready:' .. queue), had[8])
    elseif old and PLACE[old] then
        redis.call('ZREM', key(PLACE[old]), id)
    end
    local retried = had[6]
    for i = 1, #more, 2 do
        if more[i] == 'retry_count' then retried = more[i + 1] end
    end
    local cell = queue .. '\\n' .. state .. '\\n' .. (tonumber(retried) > 0 and '1' or '0')
    count(cell, had[7])
    local fields = {'state', state, 'counted', cell}
    for i = 1, #more do fields[#fields + 1] = more[i] end
    if had[5] then
        if not FINAL[state] then
            redis.call('HSET', key('unique'), had[5], id)
        elseif redis.call('HGET', key('unique'), had[5]) == id then
            redis.call('HDEL', key('unique'), had[5])
        end
    end
    if state == 'ready' then
        local member = string.format('%017.6f:%015d:', at, had[4]) .. id
        fields[#fields + 1] = 'member'
        fields[#fields + 1] = member
        fields[#fields + 1] = 'available_at'
        fields[#fields + 1] = moment(at)
        redis.call('ZADD', key('ready:' .. queue), -tonumber(had[3]), member)
        news['work'] = true
    elseif state == 'delayed' then
        fields[#fields + 1] = 'available_at'
        fields[#fields + 1] = moment(at)
        redis.call('ZADD', key('delayed'), moment(at), id)
        news['work'] = true
    elseif state == 'running' then
        redis.call('ZADD', key('running'), moment(at), id)
    elseif FINAL[state] then
        fields[#fields + 1] = 'completed_at'
        fields[#fields + 1] = moment(now)
        redis.call('ZADD', key(PLACE[state]), moment(now), id)
        news['done'] = true
    end
    if state ~= 'running' then
        fields[#fields + 1] = 'lease'
        fields[#fields + 1] = ''
    end
    redis.call('HSET', name, unpack(fields))
end

local function by_time(id, more)
    local at = tonumber(redis.call('HGET', job(id), 'available_at'))
    become(id, at > now and 'delayed' or 'ready', at, more)
end

local function ended(id)
    local had = redis.call('HMGET', job(id), 'name', 'queue', 'state', 'reason')
    others[#others + 1] = {id, had[1], had[2], had[3], had[4]}
end

-- Those who waited for a job that ended, and those who waited for these, and so on.
local function let_go(first)
    local left = {first}
    while #left > 0 do
        local id = table.remove(left)
        local state = redis.call('HGET', job(id), 'state')
        if FINAL[state] then
            local waiters = key('waiters:' .. id)
            for _, name in ipairs(redis.call('LRANGE', waiters, 0, -1)) do
                local had = redis.call('HMGET', job(name), 'state', 'policy')
                if had[1] == 'waiting' then
                    if state ~= 'completed' and had[2] == 'cancel' then
                        become(name, 'cancelled', 0, {'reason', 'dependency'})
                        ended(name)
                        left[#left + 1] = name
                    elseif redis.call('HINCRBY', job(name), 'waits', -1) == 0 then
                        by_time(name, {})
                    end
                end
            end
            redis.call('DEL', waiters)
        end
    end
end

local function forget(id)
    local had = redis.call('HMGET', job(id), 'state', 'queue', 'member', 'counted',
                           'request_key', 'unique_key')
    if had[1] == 'ready' then
        redis.call('ZREM', key('ready:' .. had[2]), had[3])
    elseif PLACE[had[1]] then
        redis.call('ZREM', key(PLACE[had[1]]), id)
    end
    count(nil, had[4])
    if had[5] and redis.call('HGET', key('requests'), had[5]) == id then
        redis.call('HDEL', key('requests'), had[5])
    end
    if had[6] and redis.call('HGET', key('unique'), had[6]) == id then
        redis.call('HDEL', key('unique'), had[6])
    end
    redis.call('ZREM', key('ids'), id)
    redis.call('DEL', job(id), key('waiters:' .. id))
end

-- What callers may see; a result whose time is over is gone.
local function seen(id)
    local row = redis.call('HMGET', job(id), 'doc', 'seq', 'state', 'scheduled_at',
        'available_at', 'created_at', 'started_at', 'completed_at', 'retry_count', 'lost_count',
        'error', 'reason', 'notes', 'cancel_requested', 'lease', 'fence', 'result',
        'result_until')
    if row[18] and tonumber(row[18]) <= now then row[17] = false end
    row[18] = nil
    return row
end
"""

# ARGV: prefix, then JSON: a list of 14 values per job. JSON, for the client packs arguments in
# Python: one per value took a quarter of the time of a job. A state of its own is for dead letters.
INSERT: Final = (
    _COMMON
    + """
local answers = {}
for _, new in ipairs(cjson.decode(ARGV[2])) do
    local id, doc, name, queue, priority = new[1], new[2], new[3], new[4], new[5]
    local delay, scheduled, unique, request = new[6], new[7], new[8], new[9]
    local policy, needed, state = new[10], new[11], new[12]
    local kind, other, waits, broken = 'new', id, {}, false
    local taken = request ~= '' and redis.call('HGET', key('requests'), request)
    local held = unique ~= '' and state == '' and redis.call('HGET', key('unique'), unique)
    if redis.call('EXISTS', job(id)) == 1 then
        kind = 'known_id'
    elseif taken then
        kind, other = 'same_request', taken
    elseif held then
        kind, other = 'not_unique', held
    else
        for one in string.gmatch(needed, '[^\\n]+') do
            local there = redis.call('HGET', job(one), 'state')
            if not there then
                kind, other = 'unknown_dependency', one
                break
            elseif not FINAL[there] then
                waits[#waits + 1] = one
            elseif there ~= 'completed' and policy == 'cancel' then
                broken = true
            end
        end
    end
    if kind == 'new' then
        local seq = redis.call('INCR', key('seq'))
        local at = now + delay
        if delay > 0 then
            scheduled = moment(at)
        elseif scheduled ~= '' then
            at = math.max(now, scheduled)
            scheduled = moment(scheduled)
        end
        local fields = {'doc', doc, 'name', name, 'queue', queue, 'priority', priority,
            'seq', seq, 'policy', policy, 'scheduled_at', scheduled, 'available_at', moment(at),
            'created_at', moment(now), 'retry_count', 0, 'lost_count', 0,
            'max_deliveries', new[13], 'waits', #waits, 'fence', 0}
        if unique ~= '' then
            fields[#fields + 1] = 'unique_key'
            fields[#fields + 1] = unique
        end
        if request ~= '' then
            fields[#fields + 1] = 'request_key'
            fields[#fields + 1] = request
            redis.call('HSET', key('requests'), request, id)
        end
        redis.call('HSET', job(id), unpack(fields))
        redis.call('ZADD', key('ids'), seq, id)
        redis.call('SADD', key('queues'), queue)
        if state ~= '' then
            become(id, state, at, new[14])
        elseif broken then
            become(id, 'cancelled', at, {'reason', 'dependency'})
        elseif #waits > 0 then
            become(id, 'waiting', at, {})
            for _, one in ipairs(waits) do redis.call('RPUSH', key('waiters:' .. one), id) end
        else
            become(id, at > now and 'delayed' or 'ready', at, {})
        end
    end
    answers[#answers + 1] = {kind, other}
end
tell()
return answers
"""
)

# ARGV: prefix, holder, limit, lease, queues in turn; without queues the first of all of them.
CLAIM: Final = (
    _COMMON
    + """
local holder, limit, lease = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local names = {}
for i = 5, #ARGV do names[#names + 1] = ARGV[i] end
local in_turn = #names > 0
if not in_turn then
    for _, name in ipairs(redis.call('SMEMBERS', key('queues'))) do
        if redis.call('EXISTS', key('ready:' .. name)) == 1 then names[#names + 1] = name end
    end
end

local taken = {}
local function take(name, most)
    local found = redis.call('ZRANGE', key('ready:' .. name), 0, most - 1)
    for _, member in ipairs(found) do taken[#taken + 1] = string.sub(member, 35) end
    return #found
end

if in_turn or #names == 1 then
    for _, name in ipairs(names) do
        if #taken < limit then take(name, limit - #taken) end
    end
else
    -- The heads of all queues, merged.
    local all = {}
    for _, name in ipairs(names) do
        local found = redis.call('ZRANGE', key('ready:' .. name), 0, limit - 1, 'WITHSCORES')
        for i = 1, #found, 2 do all[#all + 1] = {tonumber(found[i + 1]), found[i]} end
    end
    table.sort(all, function(a, b)
        if a[1] ~= b[1] then return a[1] < b[1] end
        return a[2] < b[2]
    end)
    for i = 1, math.min(limit, #all) do taken[i] = string.sub(all[i][2], 35) end
end

local rows = {}
for i, id in ipairs(taken) do
    redis.call('HINCRBY', job(id), 'fence', 1)
    become(id, 'running', now + lease, {'lease', holder, 'started_at', moment(now)})
    rows[i] = seen(id)
end
return rows
"""
)

# ARGV: prefix, lease, then JSON: id, position, holder and fence of each.
EXTEND: Final = (
    _COMMON
    + """
local states = {}
for _, claim in ipairs(cjson.decode(ARGV[3])) do
    local id = claim[1]
    local had = redis.call('HMGET', job(id), 'state', 'seq', 'lease', 'fence', 'cancel_requested')
    local mine = had[1] == 'running' and had[2] == claim[2] and had[3] == claim[3]
        and had[4] == claim[4]
    if not mine then
        states[#states + 1] = 'lost'
    else
        redis.call('ZADD', key('running'), moment(now + tonumber(ARGV[2])), id)
        states[#states + 1] = had[5] == '1' and 'cancel_requested' or 'kept'
    end
end
return states
"""
)

# ARGV: prefix, then JSON per end: id, position, holder, fence, next state, 1 for a failed attempt,
# 1 when it settles, delay, result, seconds it is kept, error, reason.
FINISH: Final = (
    _COMMON
    + """
local answers = {}
for _, one in ipairs(cjson.decode(ARGV[2])) do
    local id, state = one[1], one[5]
    local had = redis.call('HMGET', job(id), 'state', 'seq', 'lease', 'fence',
                           'cancel_requested', 'retry_count')
    local mine = had[1] == 'running' and had[2] == one[2] and had[3] == one[3]
        and had[4] == one[4]
    if not mine then
        answers[#answers + 1] = false
    else
        local retries = tonumber(had[6]) + one[6]
        local more = {'retry_count', tostring(retries)}
        if one[7] == 1 then
            more[3], more[4], more[5], more[6] = 'error', one[11], 'reason', one[12]
        end
        local queued = state == 'ready' or state == 'delayed'
        if queued and had[5] == '1' then
            state = 'cancelled'
            more[#more + 1] = 'reason'
            more[#more + 1] = 'asked'
        end
        if state == 'completed' and one[9] ~= '' then
            more[#more + 1] = 'result'
            more[#more + 1] = one[9]
            more[#more + 1] = 'result_until'
            more[#more + 1] = moment(now + one[10])
        end
        become(id, state, now + one[8], more)
        if FINAL[state] and redis.call('EXISTS', key('waiters:' .. id)) == 1 then let_go(id) end
        answers[#answers + 1] = {state, retries}
    end
end
tell()
return {answers, others}
"""
)

# ARGV: prefix, the most to do in one go.
TEND: Final = (
    _COMMON
    + """
local most, promoted = tonumber(ARGV[2]), 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('delayed'), '-inf', moment(now),
                               'LIMIT', 0, most)) do
    become(id, 'ready', tonumber(redis.call('HGET', job(id), 'available_at')), {})
    promoted = promoted + 1
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('running'), '-inf', moment(now),
                               'LIMIT', 0, most)) do
    local lost = redis.call('HINCRBY', job(id), 'lost_count', 1)
    local had = redis.call('HMGET', job(id), 'cancel_requested', 'max_deliveries')
    if had[1] == '1' then
        become(id, 'cancelled', 0, {'reason', 'asked'})
        ended(id)
        let_go(id)
    elseif lost >= tonumber(had[2]) then
        become(id, 'failed', 0, {'reason', 'poison',
               'error', 'its workers died or lost it ' .. lost .. ' times'})
        ended(id)
        let_go(id)
    else
        become(id, 'ready', now, {})
    end
    promoted = promoted + 1
end
tell()
local due = redis.call('ZRANGE', key('delayed'), 0, 0, 'WITHSCORES')
return {promoted, others, due[2] and moment(tonumber(due[2]) - now) or ''}
"""
)

# ARGV: prefix, id.
CANCEL: Final = (
    _COMMON
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
tell()
return {1, 0, others}
"""
)

# ARGV: prefix, id, the states it may be in.
REVIVE: Final = (
    _COMMON
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
tell()
return 1
"""
)

# ARGV: prefix, id, reason, error, notes. 0: there is none that could be buried as it is.
BURY: Final = (
    _COMMON
    + """
local id = ARGV[2]
local state = redis.call('HGET', job(id), 'state')
if state == 'failed' then forget(id) end
if not state or state == 'failed' then return 0 end
become(id, 'failed', 0, {'reason', ARGV[3], 'error', ARGV[4], 'notes', ARGV[5]})
let_go(id)
tell()
return 1
"""
)

# ARGV: prefix, id.
GET: Final = (
    _COMMON
    + """
if redis.call('EXISTS', job(ARGV[2])) == 0 then return false end
return seen(ARGV[2])
"""
)

# ARGV: prefix, which set, first, last, queue, name, retried ('', '0' or '1'), states.
# Answers: how many were looked at, and the rows that fit, latest first.
FIND: Final = (
    _COMMON
    + """
local rows, wanted = {}, {}
for i = 8, #ARGV do wanted[ARGV[i]] = true end
local ids = redis.call('ZREVRANGE', key(ARGV[2]), ARGV[3], ARGV[4])
for _, id in ipairs(ids) do
    local had = redis.call('HMGET', job(id), 'state', 'queue', 'name', 'retry_count')
    local retried = tonumber(had[4]) > 0 and '1' or '0'
    if wanted[had[1]] and (ARGV[5] == '' or ARGV[5] == had[2])
        and (ARGV[6] == '' or ARGV[6] == had[3]) and (ARGV[7] == '' or ARGV[7] == retried) then
        rows[#rows + 1] = seen(id)
    end
end
return {#ids, rows}
"""
)

# ARGV: prefix, id, states. Who waits for it would wait for ever: it is cancelled first.
DELETE: Final = (
    _COMMON
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
tell()
return 1
"""
)

# ARGV: prefix, number after which to look, how many, states. Answers: gone, the last number.
DELETE_MANY: Final = (
    _COMMON
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
tell()
return {gone, last}
"""
)

# ARGV: prefix, seconds, how many.
PURGE: Final = (
    _COMMON
    + """
local old = redis.call('ZRANGEBYSCORE', key('ended'), '-inf',
                       moment(now - tonumber(ARGV[2])), 'LIMIT', 0, ARGV[3])
for _, id in ipairs(old) do forget(id) end
return #old
"""
)

# ARGV: prefix, id, done, total, message. Progress never goes back, and ends once.
REPORT: Final = (
    _COMMON
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
    _COMMON
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
    _COMMON
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
    _COMMON
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
    _COMMON
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
