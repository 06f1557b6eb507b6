"""Scripts of workers: jobs come, are claimed, and end."""

from __future__ import annotations

from typing import Final

from lexigram.queue.backends.redis._job_scripts.common import COMMON

# ARGV: prefix, then a list per job: id, queue, priority, delay, moment, unique key, key of the
# request, policy, ids it needs, state, fields, more fields. A state is for dead letters.
INSERT: Final = (
    COMMON
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
    COMMON
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
    COMMON
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
    COMMON
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
    COMMON
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
