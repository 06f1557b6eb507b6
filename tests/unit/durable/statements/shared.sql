-- ADD_DUTY
INSERT INTO lexigram_durable_duties (name, due_at) VALUES (?, 0) ON CONFLICT DO NOTHING;

-- ADD_EVENT
INSERT INTO lexigram_durable_events
    (kind, group_id, ending, status, created_at, run_id, step_no, audience)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- ADD_GROUP
INSERT INTO lexigram_durable_groups
    (name, workflow_id, param_id, batch_id, status, total, remaining, created_at, idempotency_key,
     plan_id, events)
VALUES (?, ?, ?, ?, 'pending', 0, 0, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id;

-- ADD_PLAN
INSERT INTO lexigram_durable_plans (digest, workflow_id, param_id, body, created_at)
VALUES (?, ?, ?, ?, ?) ON CONFLICT (digest) DO NOTHING;

-- ADD_STATE
INSERT INTO lexigram_durable_sync_states AS s (source_id, commit_sha, branch, metadata, synced_at)
VALUES (?, ?, ?, ?, ?) ON CONFLICT (source_id) DO UPDATE SET branch = s.branch RETURNING metadata;

-- ANSWER
UPDATE lexigram_durable_runs SET answer = ?, parked = NULL, status_at = ?, available_at = ?,
    status = CASE WHEN status = 'parked' THEN 'ready' ELSE status END
WHERE id = ? AND parked IS NOT NULL AND completed_at IS NULL;

-- ATTEMPTS
SELECT * FROM lexigram_durable_history WHERE run_id = ? ORDER BY fence;

-- AT_STEP
SELECT status, meta FROM lexigram_durable_history
WHERE run_id = ? AND step_no = ? ORDER BY fence;

-- BEGIN_HANDLER
INSERT INTO lexigram_durable_lifecycle AS l (event_id, handler_no, handler_name, kind, group_id,
    run_id, step_no, status, attempts, worker_id, started_at)
VALUES (?, ?, ?, ?, ?, ?, ?, 'RUNNING', 1, ?, ?)
ON CONFLICT (event_id, handler_no) DO UPDATE SET status = 'RUNNING',
    attempts = l.attempts + CASE WHEN l.status = 'RUNNING' THEN 0 ELSE 1 END,
    lost = CASE WHEN l.status = 'RUNNING' THEN l.lost + 1 ELSE 0 END,
    worker_id = excluded.worker_id, started_at = excluded.started_at, finished_at = NULL;

-- BEGIN_STEP
UPDATE lexigram_durable_runs SET begun = begun + 1
WHERE id = ? AND lease = ? AND status = 'running';

-- CAP_LEASES
UPDATE lexigram_durable_runs SET lease_until = ? WHERE status = 'running' AND lease_until > ?;

-- CHECK_OUT
DELETE FROM lexigram_durable_checkins WHERE worker_id = ?;

-- CHILDREN
SELECT r.id, r.status, r.started_at, r.doc_id, r.params,
    coalesce(r.message, h.message) AS last_message, h.meta AS meta
FROM lexigram_durable_runs r
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = (
    SELECT max(x.fence) FROM lexigram_durable_history x WHERE x.run_id = r.id)
WHERE r.parent_id = ? AND r.parent_step = coalesce(?,
    (SELECT q.fan FROM lexigram_durable_runs q WHERE q.id = ?),
    (SELECT max(x.parent_step) FROM lexigram_durable_runs x WHERE x.parent_id = ?))
ORDER BY r.id;

-- COUNT_GROUP
SELECT count(*) AS total, count(CASE WHEN completed_at IS NULL THEN 1 END) AS remaining,
    count(CASE WHEN status = 'failed' THEN 1 END) AS failed,
    count(CASE WHEN status = 'cancelled' THEN 1 END) AS cancelled,
    min(started_at) AS started_at
FROM lexigram_durable_runs WHERE group_id = ? AND parent_id IS NULL;

-- COUNT_KINDS
SELECT count(*) AS n FROM lexigram_durable_step_kinds;

-- DROP_GROUP
DELETE FROM lexigram_durable_groups WHERE id = ?;

-- DROP_OLD_GROUP
DELETE FROM lexigram_durable_groups WHERE id = ? AND completed_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs WHERE group_id = ?);

-- DROP_STATE
DELETE FROM lexigram_durable_sync_states WHERE source_id = ?;

-- END_HANDLER
UPDATE lexigram_durable_lifecycle SET status = ?, finished_at = ?, message = ?, meta = ?
WHERE event_id = ? AND handler_no = ? AND status IN ('RUNNING', ?);

-- FAILURES
SELECT r.id AS run_id, r.params, r.message AS run_message, s.name AS step, h.message, h.meta
FROM lexigram_durable_runs r
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = r.step_no
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = (
    SELECT max(x.fence) FROM lexigram_durable_history x
    WHERE x.run_id = r.id AND x.step_no = r.step_no)
WHERE r.group_id = ? AND r.status = 'failed' AND r.parent_id IS NULL ORDER BY r.id LIMIT ?;

-- FILL_GROUP
UPDATE lexigram_durable_groups SET total = ?, remaining = ? WHERE id = ?;

-- FIND_GROUP
SELECT id FROM lexigram_durable_groups WHERE idempotency_key = ?;

-- FIND_PLAN
SELECT id FROM lexigram_durable_plans WHERE digest = ?;

-- FORGET_EVENTS
DELETE FROM lexigram_durable_events WHERE group_id = ?;

-- FORGET_LIFECYCLE
DELETE FROM lexigram_durable_lifecycle WHERE group_id = ?;

-- GROUP
SELECT * FROM lexigram_durable_groups WHERE id = ?;

-- HANDED_OUT
SELECT r.id, r.status, r.parked, p.name FROM lexigram_durable_runs r
JOIN lexigram_durable_plan_steps p ON p.plan_id = r.plan_id AND p.step_no = 1
WHERE r.parent_id = ? AND r.parent_step = (
    SELECT max(x.parent_step) FROM lexigram_durable_runs x WHERE x.parent_id = ?)
ORDER BY r.id;

-- HANDLED
SELECT * FROM lexigram_durable_lifecycle WHERE event_id = ? ORDER BY handler_no;

-- HOLD_EVENT
UPDATE lexigram_durable_events SET lease_until = ?
WHERE id = ? AND lease = ? AND delivered_at IS NULL;

-- KINDS
SELECT k.id AS id, k.queue AS queue, k.handler AS handler, (
SELECT r.available_at FROM lexigram_durable_runs r
WHERE r.status = 'ready' AND r.step_kind = k.id ORDER BY r.rank, r.id LIMIT 1) AS waits_since
FROM lexigram_durable_step_kinds k ORDER BY k.id;

-- LACKS
SELECT lacks FROM lexigram_durable_checkins WHERE expires_at > ?;

-- LAST
SELECT meta FROM lexigram_durable_history
WHERE run_id = ? AND status IN ('COMPLETED', 'FAILED', 'PENDING') AND meta LIKE '%"kept":%'
ORDER BY fence DESC LIMIT 1;

-- LIFECYCLE
SELECT * FROM lexigram_durable_lifecycle WHERE group_id = ? ORDER BY event_id, handler_no;

-- OLD_GROUPS
SELECT id FROM lexigram_durable_groups WHERE completed_at <= ? ORDER BY completed_at LIMIT ?;

-- OPEN_GROUPS
SELECT id FROM lexigram_durable_groups WHERE completed_at IS NULL AND id > ? ORDER BY id LIMIT 500;

-- OPEN_QUESTIONS
SELECT r.id AS run_id, r.group_id AS group_id, r.parent_id AS parent_id, r.plan_id AS plan_id,
    r.step_no AS step_no, p.workflow_id AS workflow_id, s.name AS step, r.parked AS prompt,
    r.status_at AS asked_at, h.meta AS meta
FROM lexigram_durable_runs r
JOIN lexigram_durable_plans p ON p.id = r.plan_id
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = r.step_no
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = r.fence
WHERE r.parked IS NOT NULL AND r.completed_at IS NULL
    AND (CAST(? AS BIGINT) IS NULL OR r.group_id = CAST(? AS BIGINT))
ORDER BY r.id LIMIT ? OFFSET ?;

-- PLAN
SELECT body FROM lexigram_durable_plans WHERE id = ?;

-- PLAN_OF_EVENT
SELECT coalesce((SELECT plan_id FROM lexigram_durable_runs WHERE id = ?),
    (SELECT plan_id FROM lexigram_durable_groups WHERE id = ?)) AS plan_id;

-- QUESTIONS_OF_RUN
SELECT r.id AS run_id, r.group_id AS group_id, r.parent_id AS parent_id, r.plan_id AS plan_id,
    r.step_no AS step_no, p.workflow_id AS workflow_id, s.name AS step, r.parked AS prompt,
    r.status_at AS asked_at, h.meta AS meta
FROM lexigram_durable_runs r
JOIN lexigram_durable_plans p ON p.id = r.plan_id
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = r.step_no
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = r.fence
WHERE r.parked IS NOT NULL AND r.completed_at IS NULL AND r.id IN (
    WITH RECURSIVE tree(id) AS (SELECT CAST(? AS BIGINT) UNION ALL
        SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)
ORDER BY r.id;

-- REPAIR_GROUP
UPDATE lexigram_durable_groups
SET total = ?, remaining = ?, failed = ?, cancelled = ?, status = ?, endings = ?, started_at = ?,
    completed_at = ?
WHERE id = ?;

-- RUN
SELECT * FROM lexigram_durable_runs WHERE id = ?;

-- RUNS_OF_GROUP
SELECT id FROM lexigram_durable_runs WHERE group_id = ? AND parent_id IS NULL ORDER BY id;

-- SETTLE_EVENT
UPDATE lexigram_durable_events SET delivered_at = ?, lease = NULL, lease_until = ?
WHERE id = ? AND lease = ? AND delivered_at IS NULL;

-- SET_STATE
UPDATE lexigram_durable_sync_states SET commit_sha = ?, branch = ?, metadata = ?, synced_at = ?
WHERE source_id = ?;

-- STATE
SELECT * FROM lexigram_durable_sync_states WHERE source_id = ?;

-- STATS
SELECT g.status AS status, count(r.id) AS total,
    count(CASE WHEN r.status = 'completed' THEN 1 END) AS completed,
    count(CASE WHEN r.status IN ('failed', 'cancelled') THEN 1 END) AS failed,
    count(CASE WHEN r.completed_at IS NULL AND r.started_at IS NOT NULL THEN 1 END) AS running,
    count(CASE WHEN r.completed_at IS NULL AND r.started_at IS NULL THEN 1 END) AS pending,
    count(CASE WHEN r.status IN ('ready', 'waiting') THEN 1 END) AS waiting,
    avg(r.completed_at - r.started_at) AS average_duration,
    EXISTS (SELECT 1 FROM lexigram_durable_checkins c WHERE c.lacks LIKE '%,@%') AS lacks_handlers
FROM lexigram_durable_groups g LEFT JOIN lexigram_durable_runs r
    ON r.group_id = g.id AND r.parent_id IS NULL
WHERE g.id = ? GROUP BY g.id, g.status;

-- STEPS
SELECT id, workflow_run_id, workflow_step_number, workflow_step_name, step_type, is_last_step,
    priority, retry, retries, status, status_message, status_meta, worker_id, lease_token,
    resource_key
FROM runstep WHERE workflow_run_id = ? ORDER BY workflow_step_number;

-- STUCK
SELECT r.id FROM lexigram_durable_runs r
WHERE r.group_id = ? AND r.status = 'waiting' AND NOT EXISTS (
    SELECT 1 FROM lexigram_durable_runs c
    WHERE c.parent_id = r.id AND c.parent_step = r.fan AND c.completed_at IS NULL);

-- TAKE_DUTY
UPDATE lexigram_durable_duties SET due_at = ? WHERE name = ? AND (due_at <= ? OR due_at > ?);

-- TAKE_GROUP_END
UPDATE lexigram_durable_events SET delivered_at = ?, tries = tries + 1
WHERE delivered_at IS NULL AND group_id = ? AND kind = 'group_end' AND audience = 'listener'
    AND (lease IS NULL OR lease_until <= ?)
    AND ending = (SELECT endings FROM lexigram_durable_groups WHERE id = ? AND remaining = 0)
RETURNING status;

-- UNHANDLED
SELECT 1 FROM lexigram_durable_events
WHERE delivered_at IS NULL AND audience = 'handler' AND group_id = ? LIMIT 1;

-- UNSERVED
SELECT queue, handler, waits_since FROM (
    SELECT k.queue AS queue, k.handler AS handler, (
SELECT r.available_at FROM lexigram_durable_runs r
WHERE r.status = 'ready' AND r.step_kind = k.id ORDER BY r.rank, r.id LIMIT 1) AS waits_since
    FROM lexigram_durable_step_kinds k WHERE 
NOT EXISTS (SELECT 1 FROM lexigram_durable_checkins c
    WHERE c.expires_at > ? AND (c.lacks IS NULL OR c.lacks NOT LIKE '%,' || k.id || ',%'))) AS w
WHERE waits_since IS NOT NULL ORDER BY waits_since;

-- UNSERVED_OF_GROUP
SELECT k.queue AS queue, k.handler AS handler, g.waits_since AS waits_since
FROM (SELECT r.step_kind AS step_kind, min(r.available_at) AS waits_since
    FROM lexigram_durable_runs r WHERE r.group_id = ? AND r.status = 'ready'
    GROUP BY r.step_kind) g
JOIN lexigram_durable_step_kinds k ON k.id = g.step_kind
WHERE 
NOT EXISTS (SELECT 1 FROM lexigram_durable_checkins c
    WHERE c.expires_at > ? AND (c.lacks IS NULL OR c.lacks NOT LIKE '%,' || k.id || ',%'))
    AND EXISTS (SELECT 1 FROM lexigram_durable_checkins c WHERE c.expires_at > ?)
ORDER BY g.waits_since;
