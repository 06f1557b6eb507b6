-- ADD_KINDS
INSERT INTO lexigram_durable_step_kinds (queue, handler)
SELECT DISTINCT v.queue, v.requires FROM (SELECT value ->> 'queue' AS queue, value ->> 'requires' AS requires FROM json_each(?)) AS v WHERE true ON CONFLICT DO NOTHING;

-- ADD_RUNS
WITH p AS (SELECT ? AS now, ? AS group_id, ? AS plan_id, ? AS n_steps, ? AS ageing, ? AS gap,
    ? AS events, ? AS base, ? AS parent_id, ? AS parent_step, ? AS status),
v AS MATERIALIZED (SELECT * FROM (SELECT value ->> 'n' AS n, value ->> 'doc_id' AS doc_id, value ->> 'batch_id' AS batch_id, value ->> 'priority' AS priority, value ->> 'tenant' AS tenant, value ->> 'delay' AS delay, value ->> 'idempotency_key' AS idempotency_key, value ->> 'params' AS params FROM json_each(?)) AS v),
last AS (SELECT t.tenant, (SELECT max(r.turn) FROM lexigram_durable_runs r
        WHERE r.tenant = t.tenant AND r.completed_at IS NULL) AS turn
    FROM (SELECT DISTINCT tenant FROM v WHERE tenant IS NOT NULL) t),
turns AS (SELECT v.*, CASE WHEN v.tenant IS NULL THEN p.base ELSE
        max(p.base, coalesce(l.turn + p.gap, p.base))
        + p.gap * (row_number() OVER (PARTITION BY v.tenant ORDER BY v.n) - 1) END + v.delay AS turn
    FROM v CROSS JOIN p LEFT JOIN last l ON l.tenant = v.tenant)
INSERT INTO lexigram_durable_runs (group_id, plan_id, doc_id, batch_id, tenant, priority, turn,
    rank, status, step_no, n_steps, step_type, step_kind, resource_key, available_at, created_at,
    status_at, completed_at, params, idempotency_key, events, parent_id, parent_step)
SELECT p.group_id, p.plan_id, t.doc_id, t.batch_id, t.tenant, t.priority, t.turn,
    t.turn - t.priority * p.ageing,
    CASE WHEN p.status = 'ready' AND t.delay > 0 THEN 'delayed' ELSE p.status END, 1, p.n_steps,
    coalesce(s.pool, s.step_type), s.step_kind, s.resource_key, p.now + t.delay, p.now, p.now,
    CASE WHEN p.status = 'cancelled' THEN p.now END, t.params, t.idempotency_key, p.events,
    p.parent_id, p.parent_step
FROM turns t CROSS JOIN p
JOIN lexigram_durable_plan_steps s ON s.plan_id = p.plan_id AND s.step_no = 1
WHERE true ORDER BY t.n
ON CONFLICT DO NOTHING RETURNING id, idempotency_key;

-- ADD_STEPS
INSERT INTO lexigram_durable_plan_steps
    (plan_id, step_no, name, step_type, pool, retries, backoff, backoff_cap, resource_key,
    resource_shared, step_kind)
SELECT ?, v.step_no, v.name, v.step_type, v.pool, v.retries, v.backoff, v.backoff_cap, v.resource_key, v.resource_shared, k.id FROM (SELECT value ->> 'step_no' AS step_no, value ->> 'name' AS name, value ->> 'step_type' AS step_type, value ->> 'pool' AS pool, value ->> 'retries' AS retries, value ->> 'backoff' AS backoff, value ->> 'backoff_cap' AS backoff_cap, value ->> 'resource_key' AS resource_key, value ->> 'resource_shared' AS resource_shared, value ->> 'queue' AS queue, value ->> 'requires' AS requires FROM json_each(?)) AS v
JOIN lexigram_durable_step_kinds k ON k.queue = v.queue AND k.handler = v.requires
WHERE true ON CONFLICT DO NOTHING;

-- BEGIN_GROUPS
UPDATE lexigram_durable_groups SET status = 'running', started_at = ?
WHERE status = 'pending' AND id IN (SELECT value FROM json_each(?))
RETURNING id, events;

-- CANCEL_RUNNING
UPDATE lexigram_durable_runs SET wanted = 'cancel', status_at = ?
WHERE (group_id = ? OR id IN (
    WITH RECURSIVE tree(id) AS (SELECT ? UNION ALL
        SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND status = 'running' AND wanted IS NOT 'cancel';

-- CANCEL_WAITING
UPDATE lexigram_durable_runs SET status = 'cancelled', completed_at = ?, status_at = ?,
    message = 'cancelled'
WHERE (group_id = ? OR id IN (
    WITH RECURSIVE tree(id) AS (SELECT ? UNION ALL
        SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND completed_at IS NULL AND status <> 'running'
RETURNING id, group_id, status, parent_id, parent_step;

-- CANDIDATES
SELECT r.id AS id, r.resource_key AS resource_key,
    CASE WHEN r.resource_key IS NOT NULL THEN (
        SELECT s.resource_shared FROM lexigram_durable_plan_steps s
        WHERE s.plan_id = r.plan_id AND s.step_no = r.step_no) END AS shares
FROM lexigram_durable_runs r
WHERE r.status = 'ready' AND r.step_kind = ? AND r.rank <= ? AND 
(? IS NULL OR r.batch_id = ?)
AND (r.resource_key IS NULL OR (
    NOT EXISTS (SELECT 1 FROM lexigram_locks l
        WHERE l.resource_key IN (r.resource_key, 'waiting:' || r.resource_key)
            AND l.expires_at > ?)
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = r.resource_key AND o.status = 'running')))
ORDER BY r.rank, r.id LIMIT ?;

-- CHECK_IN
INSERT INTO lexigram_durable_checkins AS c
    (worker_id, first_checkin, last_checkin, expires_at, lacks)
VALUES (?, ?, ?, ?, ?) ON CONFLICT (worker_id) DO UPDATE
SET last_checkin = excluded.last_checkin, expires_at = excluded.expires_at,
    lacks = excluded.lacks, first_checkin = CASE
    WHEN c.expires_at <= excluded.last_checkin OR c.first_checkin > excluded.last_checkin
    THEN excluded.last_checkin ELSE c.first_checkin END;

-- CHECK_OUT_DEAD
DELETE FROM lexigram_durable_checkins
WHERE expires_at <= ? AND worker_id NOT IN (SELECT value FROM json_each(?)) RETURNING worker_id;

-- CLAIM
WITH p AS (SELECT ? AS now, ? AS seconds, ? AS ageing) UPDATE lexigram_durable_runs SET status = 'running', lease = ?, worker_id = ?,
    lease_until = (SELECT now FROM p) + (SELECT seconds FROM p), fence = fence + 1, step_started_at = (SELECT now FROM p),
    started_at = coalesce(started_at, (SELECT now FROM p)), status_at = (SELECT now FROM p)
WHERE id IN (SELECT value FROM json_each(?))
RETURNING id, group_id, plan_id, step_no, step_type, step_kind, retry, fence, priority, rank,
    resource_key, lease, doc_id, batch_id, tenant, params, children_failed, answer, parent_id,
    events, lost, begun, NULL AS lock_fence;

-- COUNT_DOWN
WITH p AS (SELECT ? AS now)
UPDATE lexigram_durable_groups AS g SET 
    remaining = g.remaining - c.n,
    failed = g.failed + c.failed,
    cancelled = g.cancelled + c.cancelled,
    status = CASE
        WHEN g.remaining > c.n THEN
            CASE WHEN g.status = 'pending' AND c.cancelled = c.n THEN 'pending' ELSE 'running' END
        WHEN g.failed + c.failed > 0 THEN 'failed'
        WHEN g.cancelled + c.cancelled >= g.total THEN 'cancelled' ELSE 'completed' END,
    endings = g.endings + CASE WHEN g.remaining = c.n THEN 1 ELSE 0 END,
    completed_at = CASE WHEN g.remaining = c.n THEN (SELECT now FROM p) END,
    started_at = CASE WHEN g.started_at IS NULL AND c.cancelled < c.n THEN (SELECT now FROM p)
                      ELSE g.started_at END
FROM (SELECT ? AS id, ? AS n, ? AS failed, ? AS cancelled) c WHERE g.id = c.id
RETURNING id, remaining, endings, status, started_at, events;

-- EXPIRED
SELECT h.*, 
CASE WHEN h.outcome = 'failed' THEN 
'poison: its worker ended ' || h.begun || CASE h.begun WHEN 1 THEN ' time' ELSE ' times' END
    || ' while the handler ran' ELSE 'reset by dead-worker reaper' END AS message, 
CASE WHEN h.outcome = 'failed' THEN '{"error": "WorkerLost", "reason": "poison", "text": "'
    || 
'poison: its worker ended ' || h.begun || CASE h.begun WHEN 1 THEN ' time' ELSE ' times' END
    || ' while the handler ran' || '"}' END AS meta FROM (
SELECT r.id, r.group_id, r.step_no, r.retry, r.fence, r.worker_id, r.lease, r.resource_key,
    r.parent_id, r.parent_step, r.events, r.step_started_at, r.begun, 
CASE WHEN r.wanted = 'cancel' THEN 'cancelled'
     WHEN r.begun >= ? THEN 'failed'
     WHEN r.wanted = 'pause' THEN 'paused' ELSE 'ready' END AS outcome
FROM lexigram_durable_runs r
WHERE r.status = 'running' AND r.lease_until <= ?
    AND (r.worker_id NOT IN (SELECT value FROM json_each(?))
        OR r.lease NOT IN (SELECT value FROM json_each(?)))
ORDER BY r.lease_until LIMIT 500) AS h;

-- FINISH
UPDATE lexigram_durable_runs AS r SET 
    status = :outcome,
    step_no = CASE WHEN :advances THEN :next_no ELSE r.step_no END,
    step_type = CASE WHEN :advances THEN :next_type ELSE r.step_type END,
    step_kind = CASE WHEN :advances THEN :next_kind ELSE r.step_kind END,
    resource_key = CASE WHEN :advances THEN :next_key
                        WHEN :outcome = 'completed' THEN NULL ELSE r.resource_key END,
    retry = CASE WHEN :advances THEN 0 WHEN :is_error THEN r.retry + 1 ELSE r.retry END,
    lost = CASE WHEN :kind = 'released' THEN r.lost ELSE 0 END, begun = 0,
    fence = CASE WHEN :outcome = 'running' THEN r.fence + 1 ELSE r.fence END,
    available_at = CASE WHEN :is_error THEN :now + :delay ELSE :now END,
    rank = CASE WHEN :is_error THEN :now + :delay - r.priority * :ageing ELSE r.rank END,
    lease = CASE WHEN :outcome = 'running' THEN r.lease END,
    lease_until = CASE WHEN :outcome = 'running' THEN :now + :seconds END,
    worker_id = CASE WHEN :outcome = 'running' THEN r.worker_id END,
    wanted = CASE WHEN :outcome = 'running' THEN r.wanted END,
    step_started_at = CASE WHEN :outcome = 'running' THEN :now END,
    status_at = :now,
    completed_at = CASE WHEN :outcome IN ('completed', 'failed', 'cancelled') THEN :now END,
    message = CASE WHEN :outcome = 'failed' THEN :message ELSE r.message END,
    fan = CASE WHEN NOT :advances THEN r.fan WHEN :children IS NOT NULL THEN r.step_no END,
    children = CASE WHEN :advances THEN coalesce(:children, 0) ELSE r.children END,
    children_failed = CASE WHEN :advances THEN 0 ELSE r.children_failed END,
    parked = CASE WHEN :kind = 'parked' THEN :message END,
    answer = CASE WHEN :advances OR :kind = 'parked' THEN NULL ELSE r.answer END
WHERE r.id = :id AND r.lease = :lease AND r.step_no = :step_no;

-- FINISH_HISTORY
INSERT INTO lexigram_durable_history
    (run_id, fence, step_no, retry, status, worker_id, started_at, finished_at, message, meta)
SELECT :id, :fence, :step_no,
    :retry + CASE WHEN :is_error OR :kind = 'failed' THEN 1 ELSE 0 END,
    CASE WHEN :kind = 'completed' THEN 'COMPLETED'
         WHEN :kind = 'failed' OR :outcome = 'failed' THEN 'FAILED'
         WHEN :kind = 'error' THEN 'ERROR' ELSE 'PENDING' END,
    :worker_id, :step_started_at, :now, :message, :meta;

-- FINISH_KEPT
UPDATE lexigram_durable_runs SET step_no = :next_no, step_type = :next_type,
    step_kind = :next_kind, resource_key = :next_key, retry = 0, lost = 0, begun = 0, fence = fence + 1, available_at = :now,
    lease_until = :now + :seconds, step_started_at = :now, status_at = :now, fan = NULL,
    children = 0, children_failed = 0, answer = NULL
WHERE id = :id AND lease = :lease AND step_no = :step_no;

-- FORGET_HISTORY
DELETE FROM lexigram_durable_history WHERE run_id IN (SELECT value FROM json_each(?));

-- FORGET_RUNS
DELETE FROM lexigram_durable_runs WHERE id IN (SELECT value FROM json_each(?));

-- FREE_KEYS
WITH RECURSIVE keys(k) AS (
    SELECT min(resource_key) FROM lexigram_durable_runs
    WHERE resource_key IS NOT NULL AND status = 'blocked'
    UNION ALL
    SELECT (SELECT min(resource_key) FROM lexigram_durable_runs
            WHERE resource_key > keys.k AND status = 'blocked')
    FROM keys WHERE keys.k IS NOT NULL)
SELECT k FROM keys WHERE k IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM lexigram_locks l WHERE l.resource_key = k AND l.expires_at > ?)
AND NOT EXISTS (
    SELECT 1 FROM lexigram_durable_runs o
    WHERE o.resource_key = k AND o.status IN ('ready', 'running'));

-- GATHER
UPDATE lexigram_durable_runs SET children = children - ?, children_failed = children_failed + ?,
    status = CASE WHEN status = 'waiting' AND children <= ? THEN 'ready' ELSE status END
WHERE id = ? AND fan = ?;

-- HELD
WITH p AS (SELECT ? AS now)
SELECT r.id AS id, r.group_id AS group_id, r.step_no AS step_no, r.retry AS retry,
    r.fence AS fence, r.worker_id AS worker_id, r.lease AS lease, r.events AS events,
    r.parent_id AS parent_id, r.parent_step AS parent_step,
    r.resource_key AS resource_key, s.resource_shared AS shares,
    r.step_started_at AS step_started_at, v.kind AS kind, v.kind = 'error' AS is_error,
    v.kind IN ('completed', 'failed') AND n.step_no IS NOT NULL AS advances, v.children AS children,
    n.step_no AS next_no, coalesce(n.pool, n.step_type) AS next_type, n.step_kind AS next_kind,
    n.resource_key AS next_key,
    CASE WHEN s.backoff * (1 << CASE WHEN r.retry < 20 THEN r.retry ELSE 20 END) < s.backoff_cap
         THEN s.backoff * (1 << CASE WHEN r.retry < 20 THEN r.retry ELSE 20 END)
         ELSE s.backoff_cap END * v.jitter AS delay,
    
CASE CASE WHEN v.kind = 'failed' THEN 'completed' ELSE v.kind END
WHEN 'completed' THEN
    CASE WHEN n.step_no IS NULL THEN v.kind
         WHEN r.wanted = 'cancel' THEN 'cancelled'
         WHEN r.wanted = 'pause' THEN 'paused'
         WHEN v.children > 0 THEN 'waiting'
         WHEN v.sticky AND (n.resource_key IS NULL OR (n.resource_key = r.resource_key
            AND NOT s.resource_shared AND NOT n.resource_shared
            AND EXISTS (SELECT 1 FROM lexigram_locks l WHERE l.resource_key = r.resource_key
                        AND l.holder_id = r.lease AND l.expires_at > (SELECT now FROM p)))) THEN 'running'
         ELSE 'ready' END
WHEN 'error' THEN
    CASE WHEN v.fatal OR r.retry + 1 >= s.retries THEN 'failed'
         WHEN r.wanted = 'cancel' THEN 'cancelled'
         WHEN r.wanted = 'pause' THEN 'paused'
         WHEN s.backoff > 0 THEN 'delayed' ELSE 'ready' END
ELSE CASE WHEN r.wanted = 'cancel' THEN 'cancelled' WHEN r.wanted = 'pause' THEN 'paused'
          WHEN v.kind = 'parked' THEN 'parked' ELSE 'ready' END
END AS outcome
FROM (SELECT value ->> 0 AS run_id, value ->> 1 AS step_no, value ->> 2 AS lease, value ->> 3 AS sticky, value ->> 4 AS kind, value ->> 5 AS jitter, value ->> 6 AS fatal, value ->> 7 AS next_no, value ->> 8 AS children FROM json_each(?)) AS v
JOIN lexigram_durable_runs r
    ON r.id = v.run_id AND r.lease = v.lease AND r.step_no = v.step_no
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = r.step_no
LEFT JOIN lexigram_durable_plan_steps n
    ON n.plan_id = r.plan_id AND n.step_no = coalesce(v.next_no, r.step_no + 1);

-- HELD_COMPLETED
WITH p AS (SELECT ? AS now)
SELECT r.id AS id, r.group_id AS group_id, r.step_no AS step_no, r.retry AS retry,
    r.fence AS fence, r.worker_id AS worker_id, r.lease AS lease, r.events AS events,
    r.parent_id AS parent_id, r.parent_step AS parent_step,
    r.resource_key AS resource_key, s.resource_shared AS shares,
    r.step_started_at AS step_started_at, v.kind AS kind, v.kind = 'error' AS is_error,
    v.kind IN ('completed', 'failed') AND n.step_no IS NOT NULL AS advances, v.children AS children,
    n.step_no AS next_no, coalesce(n.pool, n.step_type) AS next_type, n.step_kind AS next_kind,
    n.resource_key AS next_key,
    CASE WHEN s.backoff * (1 << CASE WHEN r.retry < 20 THEN r.retry ELSE 20 END) < s.backoff_cap
         THEN s.backoff * (1 << CASE WHEN r.retry < 20 THEN r.retry ELSE 20 END)
         ELSE s.backoff_cap END * v.jitter AS delay,
    
CASE CASE WHEN v.kind = 'failed' THEN 'completed' ELSE v.kind END
WHEN 'completed' THEN
    CASE WHEN n.step_no IS NULL THEN v.kind
         WHEN r.wanted = 'cancel' THEN 'cancelled'
         WHEN r.wanted = 'pause' THEN 'paused'
         WHEN v.children > 0 THEN 'waiting'
         WHEN v.sticky AND (n.resource_key IS NULL OR (n.resource_key = r.resource_key
            AND NOT s.resource_shared AND NOT n.resource_shared
            AND EXISTS (SELECT 1 FROM lexigram_locks l WHERE l.resource_key = r.resource_key
                        AND l.holder_id = r.lease AND l.expires_at > (SELECT now FROM p)))) THEN 'running'
         ELSE 'ready' END
WHEN 'error' THEN
    CASE WHEN v.fatal OR r.retry + 1 >= s.retries THEN 'failed'
         WHEN r.wanted = 'cancel' THEN 'cancelled'
         WHEN r.wanted = 'pause' THEN 'paused'
         WHEN s.backoff > 0 THEN 'delayed' ELSE 'ready' END
ELSE CASE WHEN r.wanted = 'cancel' THEN 'cancelled' WHEN r.wanted = 'pause' THEN 'paused'
          WHEN v.kind = 'parked' THEN 'parked' ELSE 'ready' END
END AS outcome
FROM (SELECT value ->> 0 AS run_id, value ->> 1 AS step_no, value ->> 2 AS lease, value ->> 3 AS sticky, 'completed' AS kind, 1 AS jitter, 0 AS fatal, NULL AS next_no, NULL AS children FROM json_each(?)) AS v
JOIN lexigram_durable_runs r
    ON r.id = v.run_id AND r.lease = v.lease AND r.step_no = v.step_no
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = r.step_no
LEFT JOIN lexigram_durable_plan_steps n
    ON n.plan_id = r.plan_id AND n.step_no = coalesce(v.next_no, r.step_no + 1);

-- KEEP
UPDATE lexigram_durable_runs SET lease_until = ?
WHERE (id, lease) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?)) AND status = 'running'
RETURNING id, lease, wanted, resource_key;

-- KEEP_LOCK
UPDATE lexigram_locks SET expires_at = ?
WHERE resource_key = ? AND holder_id = ? AND expires_at > ?;

-- KNOWN_RUNS
SELECT id, group_id, idempotency_key FROM lexigram_durable_runs
WHERE idempotency_key IN (SELECT value FROM json_each(?));

-- LINES
SELECT q.step_kind AS kind, q.rank AS rank
FROM json_each(?) AS k JOIN lexigram_durable_runs q ON q.id = (
    SELECT r.id FROM lexigram_durable_runs r
    WHERE r.status = 'ready' AND r.step_kind = k.value AND 
(? IS NULL OR r.batch_id = ?)
AND (r.resource_key IS NULL OR (
    NOT EXISTS (SELECT 1 FROM lexigram_locks l
        WHERE l.resource_key IN (r.resource_key, 'waiting:' || r.resource_key)
            AND l.expires_at > ?)
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = r.resource_key AND o.status = 'running')))
    ORDER BY r.rank, r.id LIMIT 1)
ORDER BY q.rank, q.id LIMIT 2;

-- LOCK_GROUP
SELECT * FROM lexigram_durable_groups WHERE id = ?;

-- LOCK_RUNS
SELECT value AS id FROM json_each(?);

-- NEXT_DUE
SELECT min(available_at) - ? AS seconds FROM lexigram_durable_runs WHERE status = 'delayed';

-- PARK
UPDATE lexigram_durable_runs SET status = 'blocked' WHERE id IN (
    SELECT r.id FROM lexigram_locks l
    JOIN lexigram_durable_runs r ON r.resource_key = l.resource_key AND r.status = 'ready'
    WHERE l.expires_at > ? LIMIT 1000);

-- PAUSE
UPDATE lexigram_durable_runs SET status_at = ?,
    wanted = CASE status WHEN 'running' THEN 'pause' END,
    status = CASE status WHEN 'running' THEN 'running' ELSE 'paused' END
WHERE (group_id = ? OR id IN (
    WITH RECURSIVE tree(id) AS (SELECT ? UNION ALL
        SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND completed_at IS NULL AND status <> 'paused' AND wanted IS NULL;

-- PROMOTE
UPDATE lexigram_durable_runs SET status = 'ready' WHERE id IN (
    SELECT id FROM lexigram_durable_runs WHERE status = 'delayed' AND available_at <= ?
    ORDER BY available_at LIMIT 1000);

-- REAPED_ATTEMPT
INSERT INTO lexigram_durable_history
    (run_id, fence, step_no, retry, status, worker_id, started_at, finished_at, message, meta)
VALUES (?, ?, ?, ?, CASE ? WHEN 'failed' THEN 'FAILED' ELSE 'PENDING' END, ?, ?, ?, ?, ?);

-- RECOUNT
UPDATE lexigram_durable_runs SET children = (SELECT count(*) FROM lexigram_durable_runs c WHERE c.parent_id = lexigram_durable_runs.id
        AND c.parent_step = lexigram_durable_runs.fan AND c.completed_at IS NULL), children_failed = (SELECT count(*) FROM lexigram_durable_runs c WHERE c.parent_id = lexigram_durable_runs.id
        AND c.parent_step = lexigram_durable_runs.fan AND c.status IN ('failed', 'cancelled')),
    status = CASE WHEN status IN ('ready', 'waiting')
        THEN CASE WHEN (SELECT count(*) FROM lexigram_durable_runs c WHERE c.parent_id = lexigram_durable_runs.id
        AND c.parent_step = lexigram_durable_runs.fan AND c.completed_at IS NULL) > 0 THEN 'waiting' ELSE 'ready' END ELSE status END
WHERE fan IS NOT NULL AND id IN (SELECT value FROM json_each(?));

-- REOPEN
UPDATE lexigram_durable_groups SET remaining = remaining + ?, failed = failed - ?,
    cancelled = cancelled - ?, completed_at = NULL,
    status = CASE WHEN started_at IS NULL THEN 'pending' ELSE 'running' END
WHERE id = ?;

-- RESET
UPDATE lexigram_durable_runs SET status = 'ready', retry = 0, lost = 0, begun = 0, lease = NULL,
    lease_until = NULL, worker_id = NULL, wanted = NULL, step_started_at = NULL,
    completed_at = NULL, available_at = ?, message = NULL, parked = NULL, status_at = ?
WHERE id IN (SELECT value FROM json_each(?));

-- RESUME
UPDATE lexigram_durable_runs SET status_at = ?, wanted = NULL,
    status = CASE WHEN status = 'running' THEN 'running'
                  WHEN children > 0 THEN 'waiting' WHEN parked IS NOT NULL THEN 'parked'
                  WHEN available_at > ? THEN 'delayed' ELSE 'ready' END
WHERE (group_id = ? OR id IN (
    WITH RECURSIVE tree(id) AS (SELECT ? UNION ALL
        SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND (status = 'paused' OR wanted = 'pause');

-- SOME_RUNS
SELECT r.id FROM lexigram_durable_runs r WHERE r.group_id = ? AND EXISTS (
    SELECT 1 FROM lexigram_durable_groups g WHERE g.id = r.group_id AND g.completed_at IS NOT NULL)
LIMIT 500;

-- STEADY
SELECT count(*) = 0 OR max(expires_at > ? AND first_checkin <= ?) AS is_steady
FROM lexigram_durable_checkins WHERE worker_id IN (SELECT value FROM json_each(?));

-- SUSPECTS
SELECT g.id AS id FROM lexigram_durable_groups g
LEFT JOIN (
    SELECT group_id, count(CASE WHEN parent_id IS NULL AND completed_at IS NULL THEN 1 END) AS open,
        count(CASE WHEN parent_id IS NULL AND status = 'failed' THEN 1 END) AS failed,
        count(CASE WHEN parent_id IS NULL AND status = 'cancelled' THEN 1 END) AS cancelled,
        count(CASE WHEN parent_id IS NULL THEN 1 END) AS total,
        count(CASE WHEN status = 'waiting' THEN 1 END) AS waiting,
        min(started_at) AS started_at
    FROM lexigram_durable_runs WHERE group_id IN (SELECT value FROM json_each(?)) GROUP BY group_id) c ON c.group_id = g.id
WHERE g.id IN (SELECT value FROM json_each(?)) AND (c.group_id IS NULL OR c.open <> g.remaining OR c.failed <> g.failed
    OR c.cancelled <> g.cancelled OR c.total <> g.total OR c.waiting > 0 OR g.remaining = 0
    OR (g.started_at IS NULL AND c.started_at IS NOT NULL));

-- TAKE_BACK
UPDATE lexigram_durable_runs SET status = ?, lost = lost + 1, lease = NULL, lease_until = NULL,
    worker_id = NULL, wanted = NULL, step_started_at = NULL, status_at = ?, available_at = ?,
    completed_at = CASE WHEN ? IN ('failed', 'cancelled') THEN ? END,
    message = CASE WHEN ? = 'failed' THEN ? ELSE message END
WHERE id = ?;

-- TAKE_EVENTS_OF handler
UPDATE lexigram_durable_events SET lease = ?, lease_until = ?, tries = tries + 1
WHERE id IN (SELECT id FROM lexigram_durable_events
    WHERE delivered_at IS NULL AND audience = 'handler' AND kind IN (SELECT value FROM json_each(?))
        AND id NOT IN (SELECT value FROM json_each(?))
        AND (lease_until IS NULL OR lease_until <= ?)
        AND (lease IS NULL OR ? IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_checkins
            WHERE worker_id = ? AND expires_at > ? AND first_checkin <= ?))
    ORDER BY id LIMIT ?)
RETURNING *;

-- TAKE_EVENTS_OF listener
UPDATE lexigram_durable_events SET lease = ?, lease_until = ?, tries = tries + 1
WHERE id IN (SELECT id FROM lexigram_durable_events
    WHERE delivered_at IS NULL AND audience = 'listener' AND kind IN (SELECT value FROM json_each(?))
        AND id NOT IN (SELECT value FROM json_each(?))
        AND (lease_until IS NULL OR lease_until <= ?)
        AND (lease IS NULL OR ? IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_checkins
            WHERE worker_id = ? AND expires_at > ? AND first_checkin <= ?))
    ORDER BY id LIMIT ?)
RETURNING *;

-- TO_RETRY
SELECT id, group_id, status, resource_key, lease, parent_id, fan FROM lexigram_durable_runs AS r
WHERE (group_id = ? OR id IN (
    WITH RECURSIVE tree(id) AS (SELECT ? UNION ALL
        SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND (status IN ('failed', 'cancelled') OR (? AND status <> 'completed'))
    AND (parent_id IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_runs q
        WHERE q.id = r.parent_id AND q.fan = r.parent_step));

-- UNBLOCK
UPDATE lexigram_durable_runs SET status = 'ready' WHERE id IN (
    SELECT id FROM lexigram_durable_runs WHERE resource_key = ? AND status = 'blocked'
    ORDER BY rank, id LIMIT coalesce((
        SELECT CASE WHEN s.resource_shared THEN 50 ELSE 1 END
        FROM (SELECT plan_id, step_no FROM lexigram_durable_runs
            WHERE resource_key = ? AND status = 'blocked' ORDER BY rank, id LIMIT 1) f
        JOIN lexigram_durable_plan_steps s USING (plan_id, step_no)), 1));

-- UNLOCK
DELETE FROM lexigram_locks AS l WHERE l.resource_key = ? AND l.holder_id = ?
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = l.resource_key AND o.lease = l.holder_id AND o.status = 'running');

-- WAITING_EVENTS
SELECT p.body AS body, w.kind AS kind, w.done AS done, w.waits_since AS waits_since
FROM (SELECT o.plan_id AS plan_id, o.kind AS kind, o.done AS done, min(o.created_at) AS waits_since
    FROM (SELECT e.kind AS kind, e.created_at AS created_at,
            coalesce((SELECT r.plan_id FROM lexigram_durable_runs r WHERE r.id = e.run_id),
                (SELECT g.plan_id FROM lexigram_durable_groups g WHERE g.id = e.group_id)) AS plan_id,
            (SELECT group_concat(l.handler_no) FROM lexigram_durable_lifecycle l
                WHERE l.event_id = e.id AND l.status IN ('COMPLETED', 'FAILED')) AS done
        FROM lexigram_durable_events e
        WHERE e.delivered_at IS NULL AND e.audience = 'handler' AND true
        ORDER BY e.id LIMIT 10000) o
    GROUP BY o.plan_id, o.kind, o.done) w
JOIN lexigram_durable_plans p ON p.id = w.plan_id;

-- WAITING_EVENTS_OF_GROUP
SELECT p.body AS body, w.kind AS kind, w.done AS done, w.waits_since AS waits_since
FROM (SELECT o.plan_id AS plan_id, o.kind AS kind, o.done AS done, min(o.created_at) AS waits_since
    FROM (SELECT e.kind AS kind, e.created_at AS created_at,
            coalesce((SELECT r.plan_id FROM lexigram_durable_runs r WHERE r.id = e.run_id),
                (SELECT g.plan_id FROM lexigram_durable_groups g WHERE g.id = e.group_id)) AS plan_id,
            (SELECT group_concat(l.handler_no) FROM lexigram_durable_lifecycle l
                WHERE l.event_id = e.id AND l.status IN ('COMPLETED', 'FAILED')) AS done
        FROM lexigram_durable_events e
        WHERE e.delivered_at IS NULL AND e.audience = 'handler' AND e.group_id = ?
        ORDER BY e.id LIMIT 10000) o
    GROUP BY o.plan_id, o.kind, o.done) w
JOIN lexigram_durable_plans p ON p.id = w.plan_id;
