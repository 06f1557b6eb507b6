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

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# What callers may see of a job beside its id, and what a field that is not there means.
SEEN: Final[Mapping[str, Any]] = {
    "name": "",
    "queue": "",
    "payload": "",
    "state": "",
    "unique_key": None,
    "idempotency_key": None,
    "depends_on": "",
    "on_dependency_failure": "cancel",
    "correlation_id": None,
    "causation_id": None,
    "error": "",
    "reason": "",
    "notes": "",
    "cancel_requested": False,
    "lease": "",
    "result": None,
    "seq": 0,
    "priority": 0,
    "max_retries": 0,
    "max_deliveries": 0,
    "timeout": None,
    "result_ttl": None,
    "scheduled_at": None,
    "available_at": None,
    "created_at": None,
    "started_at": None,
    "completed_at": None,
    "retry_count": 0,
    "lost_count": 0,
    "fence": 0,
}
_NUMBERS: Final = (
    *("seq", "priority", "max_retries", "max_deliveries", "timeout", "result_ttl"),
    *("scheduled_at", "available_at", "created_at", "started_at", "completed_at"),
    *("retry_count", "lost_count", "fence"),
)

_IS_NUMBER: Final = f"local IS_NUMBER = {{{', '.join(f'{name} = true' for name in _NUMBERS)}}}"

_COMMON: Final = (
    _IS_NUMBER
    + """
local P = ARGV[1]
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local news, others, counted = {}, {}, {}
local FINAL = {completed = true, failed = true, cancelled = true}
local PLACE = {delayed = 'delayed', running = 'running', completed = 'ended',
               cancelled = 'ended', failed = 'failed'}

local function key(name) return P .. ':' .. name end
local function job(id) return P .. ':job:' .. id end
local function moment(seconds) return string.format('%.6f', seconds) end
local function number(text) return tonumber(text or 0) end

-- Its place among what can be claimed, from the fields of the job.
local function member(id, available_at, seq)
    return string.format('%017.6f:%015d:', tonumber(available_at), tonumber(seq)) .. id
end

-- A command with many values; Lua hands over some thousands at most.
local function many(command, name, values)
    for i = 1, #values, 2000 do
        redis.call(command, name, unpack(values, i, math.min(i + 1999, #values)))
    end
end

local function any_exists(names)
    for i = 1, #names, 2000 do
        local last = math.min(i + 1999, #names)
        if redis.call('EXISTS', unpack(names, i, last)) > 0 then return true end
    end
    return false
end

-- One job more or less of this kind.
local function count(queue, state, retries, by)
    local cell = queue .. '\\n' .. state .. '\\n' .. (number(retries) > 0 and '1' or '0')
    counted[cell] = (counted[cell] or 0) + by
end

-- The end of every script that moves jobs.
local function close()
    for cell, by in pairs(counted) do
        if by ~= 0 then redis.call('HINCRBY', key('counts'), cell, by) end
    end
    for topic in pairs(news) do redis.call('PUBLISH', key('news'), topic) end
end

local function free_unique(unique, id)
    if unique and redis.call('HGET', key('unique'), unique) == id then
        redis.call('HDEL', key('unique'), unique)
    end
end

-- The one place where a job moves, beside INSERT, CLAIM and FINISH, which move many at once.
-- `more` are other fields to write with it.
local function become(id, state, at, more)
    local name = job(id)
    local had = redis.call('HMGET', name, 'state', 'queue', 'priority', 'seq', 'unique_key',
                           'retry_count', 'available_at')
    local old, queue = had[1], had[2]
    if old == 'ready' then
        redis.call('ZREM', key('ready:' .. queue), member(id, had[7], had[4]))
    elseif old and PLACE[old] then
        redis.call('ZREM', key(PLACE[old]), id)
    end
    local retries = had[6]
    for i = 1, #more, 2 do
        if more[i] == 'retry_count' then retries = more[i + 1] end
    end
    if old then count(queue, old, had[6], -1) end
    count(queue, state, retries, 1)
    local fields = {'state', state}
    for i = 1, #more do fields[#fields + 1] = more[i] end
    if had[5] then
        if FINAL[state] then
            free_unique(had[5], id)
        else
            redis.call('HSET', key('unique'), had[5], id)
        end
    end
    if state == 'ready' then
        fields[#fields + 1] = 'available_at'
        fields[#fields + 1] = moment(at)
        redis.call('ZADD', key('ready:' .. queue), -number(had[3]),
                   member(id, moment(at), had[4]))
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
    if old == 'running' then
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
                local had = redis.call('HMGET', job(name), 'state', 'on_dependency_failure')
                if had[1] == 'waiting' then
                    if state ~= 'completed' and had[2] ~= 'run' then
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
    local had = redis.call('HMGET', job(id), 'state', 'queue', 'available_at', 'seq',
                           'retry_count', 'idempotency_key', 'unique_key')
    if had[1] == 'ready' then
        redis.call('ZREM', key('ready:' .. had[2]), member(id, had[3], had[4]))
    elseif PLACE[had[1]] then
        redis.call('ZREM', key(PLACE[had[1]]), id)
    end
    if had[1] then count(had[2], had[1], had[5], -1) end
    if had[6] and redis.call('HGET', key('requests'), had[6]) == id then
        redis.call('HDEL', key('requests'), had[6])
    end
    free_unique(had[7], id)
    redis.call('ZREM', key('ids'), id)
    redis.call('DEL', job(id), key('waiters:' .. id))
end

-- Its fields by name; nil when there is no such job. All of them at once, not each by its name:
-- an ordinary job has a third of them.
local function row_of(id)
    local told, row = redis.call('HGETALL', job(id)), {id = id}
    if #told == 0 then return nil end
    for i = 1, #told, 2 do
        local name, value = told[i], told[i + 1]
        row[name] = IS_NUMBER[name] and tonumber(value) or value
    end
    return row
end

-- What callers may see; a result whose time is over is gone.
local function seen(id)
    local row = row_of(id)
    if row.result_until and tonumber(row.result_until) <= now then row.result = nil end
    return row
end
"""
)

# ARGV: prefix, then a list per job: id, queue, priority, delay, moment, unique key, key of the
# request, policy, ids it needs, state, fields, more fields. A state is for dead letters.
INSERT: Final = (
    _COMMON
    + """
local jobs = cmsgpack.unpack(ARGV[2])
local answers, names, added, ready, ids = {}, {}, {}, {}, {}
for i, new in ipairs(jobs) do names[i] = job(new[1]) end
local some_are_known = any_exists(names)
-- Refused jobs leave gaps.
local seq = redis.call('INCRBY', key('seq'), #jobs) - #jobs

for i, new in ipairs(jobs) do
    local id, queue, priority, delay, scheduled = new[1], new[2], new[3], new[4], new[5]
    local unique, request, policy, needed, state = new[6], new[7], new[8], new[9], new[10]
    local kind, other, waits, broken = 'new', id, {}, false
    local taken = request ~= '' and redis.call('HGET', key('requests'), request)
    local held = unique ~= '' and state == '' and redis.call('HGET', key('unique'), unique)
    if added[id] or (some_are_known and redis.call('EXISTS', names[i]) == 1) then
        kind = 'known_id'
    elseif taken then
        kind, other = 'same_request', taken
    elseif held then
        kind, other = 'not_unique', held
    elseif needed ~= '' then
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
        seq = seq + 1
        added[id] = true
        local fields = new[11]
        local function set(name, value)
            fields[#fields + 1] = name
            fields[#fields + 1] = value
        end
        local at = now + delay
        if delay > 0 then
            scheduled = at
        elseif scheduled ~= '' then
            at = math.max(now, scheduled)
        end
        if scheduled ~= '' then set('scheduled_at', moment(scheduled)) end
        set('seq', seq)
        set('created_at', moment(now))
        set('available_at', moment(at))
        if #waits > 0 then set('waits', #waits) end
        local is_ready = state == '' and not broken and #waits == 0 and at <= now
        if is_ready then set('state', 'ready') end
        redis.call('HSET', names[i], unpack(fields))
        ids[#ids + 1] = seq
        ids[#ids + 1] = id
        if request ~= '' then redis.call('HSET', key('requests'), request, id) end
        if not ready[queue] then ready[queue] = {} end
        if is_ready then
            local heap = ready[queue]
            heap[#heap + 1] = -priority
            heap[#heap + 1] = member(id, moment(at), seq)
            count(queue, 'ready', 0, 1)
            if unique ~= '' then redis.call('HSET', key('unique'), unique, id) end
            news['work'] = true
        elseif state ~= '' then
            become(id, state, at, new[12])
        elseif broken then
            become(id, 'cancelled', at, {'reason', 'dependency'})
        elseif #waits > 0 then
            become(id, 'waiting', at, {})
            for _, one in ipairs(waits) do redis.call('RPUSH', key('waiters:' .. one), id) end
        else
            become(id, 'delayed', at, {})
        end
    end
    answers[i] = {kind, other}
end
many('ZADD', key('ids'), ids)
for queue, heap in pairs(ready) do
    redis.call('SADD', key('queues'), queue)
    many('ZADD', key('ready:' .. queue), heap)
end
close()
return cmsgpack.pack(answers)
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

-- From each queue its first ones: they leave it in one go.
local taken = {}
local function take(name, found)
    for _, text in ipairs(found) do taken[#taken + 1] = {name, string.sub(text, 35)} end
    if #found > 0 then redis.call('ZREMRANGEBYRANK', key('ready:' .. name), 0, #found - 1) end
end

if in_turn or #names == 1 then
    for _, name in ipairs(names) do
        if #taken < limit then
            take(name, redis.call('ZRANGE', key('ready:' .. name), 0, limit - #taken - 1))
        end
    end
else
    -- The heads of all queues, merged.
    local all, heads = {}, {}
    for _, name in ipairs(names) do
        local found = redis.call('ZRANGE', key('ready:' .. name), 0, limit - 1, 'WITHSCORES')
        for i = 1, #found, 2 do all[#all + 1] = {tonumber(found[i + 1]), found[i], name} end
    end
    table.sort(all, function(a, b)
        if a[1] ~= b[1] then return a[1] < b[1] end
        return a[2] < b[2]
    end)
    for i = 1, math.min(limit, #all) do
        local name = all[i][3]
        taken[i] = {name, string.sub(all[i][2], 35)}
        heads[name] = (heads[name] or 0) + 1
    end
    for name, number in pairs(heads) do
        redis.call('ZREMRANGEBYRANK', key('ready:' .. name), 0, number - 1)
    end
end

local rows, running = {}, {}
local started, till = moment(now), moment(now + lease)
for _, one in ipairs(taken) do
    local queue, id = one[1], one[2]
    local row = row_of(id)
    if row then
        row.state, row.lease, row.fence, row.started_at = 'running', holder, number(row.fence) + 1, now
        redis.call('HSET', job(id), 'state', 'running', 'lease', holder, 'fence', row.fence,
                   'started_at', started)
        rows[#rows + 1] = row
        running[#running + 1] = till
        running[#running + 1] = id
        count(queue, 'ready', row.retry_count, -1)
        count(queue, 'running', row.retry_count, 1)
    end
end
many('ZADD', key('running'), running)
close()
return cmsgpack.pack(rows)
"""
)

# ARGV: prefix, lease, then a list: id, position, holder and fence of each.
EXTEND: Final = (
    _COMMON
    + """
local states, kept = {}, {}
local till = moment(now + tonumber(ARGV[2]))
for i, claim in ipairs(cmsgpack.unpack(ARGV[3])) do
    local id = claim[1]
    local had = redis.call('HMGET', job(id), 'state', 'seq', 'lease', 'fence', 'cancel_requested')
    local mine = had[1] == 'running' and had[2] == claim[2] and had[3] == claim[3]
        and had[4] == claim[4]
    if not mine then
        states[i] = 'lost'
    else
        kept[#kept + 1] = till
        kept[#kept + 1] = id
        states[i] = had[5] == '1' and 'cancel_requested' or 'kept'
    end
end
many('ZADD', key('running'), kept)
return states
"""
)

# ARGV: prefix, then a list per end: id, position, holder, fence, next state, 1 for a failed
# attempt, 1 when it settles, delay, result, seconds it is kept, error, reason.
FINISH: Final = (
    _COMMON
    + """
local answers, gone, waiters, place = {}, {}, {}, {ended = {}, failed = {}}
local ends = cmsgpack.unpack(ARGV[2])
local at = moment(now)
for i, one in ipairs(ends) do
    local id, state = one[1], one[5]
    local had = redis.call('HMGET', job(id), 'state', 'seq', 'lease', 'fence',
                           'cancel_requested', 'retry_count', 'queue', 'unique_key')
    local mine = had[1] == 'running' and had[2] == one[2] and had[3] == one[3]
        and had[4] == one[4]
    if not mine then
        answers[i] = false
    else
        local retries = number(had[6]) + one[6]
        local fields = {'lease', ''}
        local function set(name, value)
            fields[#fields + 1] = name
            fields[#fields + 1] = value
        end
        if one[6] == 1 then set('retry_count', tostring(retries)) end
        -- A job that never failed has neither.
        if one[7] == 1 and (retries > 0 or one[11] ~= '' or one[12] ~= '') then
            set('error', one[11])
            set('reason', one[12])
        end
        if not FINAL[state] and had[5] == '1' then
            state = 'cancelled'
            set('reason', 'asked')
        end
        if state == 'completed' and one[9] ~= '' then
            set('result', one[9])
            set('result_until', moment(now + one[10]))
        end
        if FINAL[state] then
            set('state', state)
            set('completed_at', at)
            redis.call('HSET', job(id), unpack(fields))
            free_unique(had[8], id)
            count(had[7], 'running', had[6], -1)
            count(had[7], state, retries, 1)
            gone[#gone + 1] = id
            waiters[#waiters + 1] = key('waiters:' .. id)
            local list = place[PLACE[state]]
            list[#list + 1] = at
            list[#list + 1] = id
            news['done'] = true
        else
            become(id, state, now + one[8], fields)
        end
        answers[i] = {state, retries}
    end
end
many('ZREM', key('running'), gone)
for name, list in pairs(place) do many('ZADD', key(name), list) end
if any_exists(waiters) then
    for _, id in ipairs(gone) do let_go(id) end
end
close()
return cmsgpack.pack({answers, others})
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
close()
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
close()
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
close()
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
    _COMMON
    + """
if redis.call('EXISTS', job(ARGV[2])) == 0 then return false end
return cmsgpack.pack(seen(ARGV[2]))
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
close()
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
close()
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
close()
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
