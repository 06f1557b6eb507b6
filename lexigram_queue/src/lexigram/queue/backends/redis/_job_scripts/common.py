"""What several scripts have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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

NUMBERS: Final = (
    *("seq", "priority", "max_retries", "max_deliveries", "timeout", "result_ttl"),
    *("scheduled_at", "available_at", "created_at", "started_at", "completed_at"),
    *("retry_count", "lost_count", "fence"),
)

IS_NUMBER: Final = f"local IS_NUMBER = {{{', '.join(f'{name} = true' for name in NUMBERS)}}}"

COMMON: Final = (
    IS_NUMBER
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
    local flat, row = redis.call('HGETALL', job(id)), {id = id}
    if #flat == 0 then return nil end
    for i = 1, #flat, 2 do
        local name, value = flat[i], flat[i + 1]
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
