-- COUNTS
SELECT CASE WHEN r.status IN ('completed', 'failed', 'cancelled', 'running')
    THEN upper(r.status) WHEN r.started_at IS NULL THEN 'PENDING' ELSE 'RUNNING' END AS status, count(*) AS n FROM lexigram_durable_runs r
WHERE r.batch_id = ? AND r.parent_id IS NULL GROUP BY 1;

-- COUNT_GROUPS
SELECT count(*) AS n FROM lexigram_durable_groups g 
WHERE (CAST(? AS BIGINT) IS NULL OR g.batch_id = CAST(? AS BIGINT))
    AND (CAST(? AS TEXT) IS NULL OR g.status = lower(CAST(? AS TEXT)));

-- COUNT_RUNS
SELECT count(*) AS n FROM lexigram_durable_runs r 
WHERE r.parent_id IS NULL AND (CAST(? AS BIGINT) IS NULL OR r.group_id = CAST(? AS BIGINT))
    AND (CAST(? AS BIGINT) IS NULL OR r.batch_id = CAST(? AS BIGINT))
    AND (CAST(? AS TEXT) IS NULL OR CASE WHEN r.status IN ('completed', 'failed', 'cancelled', 'running')
    THEN upper(r.status) WHEN r.started_at IS NULL THEN 'PENDING' ELSE 'RUNNING' END = CAST(? AS TEXT));

-- DOCUMENTS_DONE
SELECT count(*) AS n FROM lexigram_durable_batch_documents m
WHERE m.batch_id = ? AND m.doc_hash IN (
    SELECT r.doc_id FROM lexigram_durable_runs r
    WHERE r.batch_id = ? AND r.status = 'completed' AND r.parent_id IS NULL);

-- DURATIONS
SELECT r.id AS workflow_run_id, r.doc_id AS doc_id, CASE WHEN r.status IN ('completed', 'failed', 'cancelled', 'running')
    THEN upper(r.status) WHEN r.started_at IS NULL THEN 'PENDING' ELSE 'RUNNING' END AS status,
    r.completed_at - r.started_at AS duration
FROM lexigram_durable_runs r
WHERE r.group_id = ? AND r.parent_id IS NULL AND r.completed_at IS NOT NULL
ORDER BY duration DESC, r.id LIMIT ?;

-- FORGET_HISTORY
DELETE FROM lexigram_durable_history WHERE run_id IN (SELECT id FROM lexigram_durable_runs WHERE group_id = ?);

-- FORGET_RUNS
DELETE FROM lexigram_durable_runs WHERE group_id = ?;

-- GROUP
SELECT g.* FROM lexigram_durable_groups g WHERE g.id = ?;

-- GROUPS
SELECT g.* FROM lexigram_durable_groups g 
WHERE (CAST(? AS BIGINT) IS NULL OR g.batch_id = CAST(? AS BIGINT))
    AND (CAST(? AS TEXT) IS NULL OR g.status = lower(CAST(? AS TEXT))) ORDER BY g.id DESC LIMIT ? OFFSET ?;

-- LIFECYCLE
SELECT l.event_id, l.handler_no, l.handler_name, l.kind AS event, l.group_id AS run_group_id,
    l.run_id AS workflow_run_id, l.step_no, l.status, l.attempts, l.worker_id, l.started_at,
    l.finished_at, l.message AS status_message, l.meta
FROM lexigram_durable_lifecycle l
WHERE l.group_id = ? AND (CAST(? AS BIGINT) IS NULL OR l.run_id IN (0, CAST(? AS BIGINT)))
ORDER BY l.started_at, l.event_id, l.handler_no LIMIT ?;

-- LOCKS
SELECT * FROM resourcelock ORDER BY resource_key;

-- RUN
SELECT r.id AS id, r.group_id AS run_group_id, p.workflow_id AS workflow_definition_id,
    p.param_id AS param_definition_id, r.batch_id AS batch_id, r.doc_id AS doc_id,
    r.parent_id AS parent_run_id, r.tenant AS tenant, r.priority AS priority, CASE WHEN r.status IN ('completed', 'failed', 'cancelled', 'running')
    THEN upper(r.status) WHEN r.started_at IS NULL THEN 'PENDING' ELSE 'RUNNING' END AS status, r.status AS state,
    r.step_no AS step_no, r.n_steps AS n_steps, r.created_at AS created_at,
    r.started_at AS started_at, r.completed_at AS completed_at, r.status_at AS status_at,
    r.message AS status_message, r.params AS params, CASE WHEN r.completed_at IS NOT NULL THEN NULL WHEN r.children > 0 THEN (
    SELECT min(c.parked) FROM lexigram_durable_runs c
    WHERE c.parent_id = r.id AND c.parent_step = r.fan AND c.completed_at IS NULL)
    ELSE r.parked END AS asks
FROM lexigram_durable_runs r JOIN lexigram_durable_plans p ON p.id = r.plan_id WHERE r.id = ?;

-- RUNS
SELECT r.id AS id, r.group_id AS run_group_id, p.workflow_id AS workflow_definition_id,
    p.param_id AS param_definition_id, r.batch_id AS batch_id, r.doc_id AS doc_id,
    r.parent_id AS parent_run_id, r.tenant AS tenant, r.priority AS priority, CASE WHEN r.status IN ('completed', 'failed', 'cancelled', 'running')
    THEN upper(r.status) WHEN r.started_at IS NULL THEN 'PENDING' ELSE 'RUNNING' END AS status, r.status AS state,
    r.step_no AS step_no, r.n_steps AS n_steps, r.created_at AS created_at,
    r.started_at AS started_at, r.completed_at AS completed_at, r.status_at AS status_at,
    r.message AS status_message, r.params AS params, CASE WHEN r.completed_at IS NOT NULL THEN NULL WHEN r.children > 0 THEN (
    SELECT min(c.parked) FROM lexigram_durable_runs c
    WHERE c.parent_id = r.id AND c.parent_step = r.fan AND c.completed_at IS NULL)
    ELSE r.parked END AS asks
FROM lexigram_durable_runs r JOIN lexigram_durable_plans p ON p.id = r.plan_id 
WHERE r.parent_id IS NULL AND (CAST(? AS BIGINT) IS NULL OR r.group_id = CAST(? AS BIGINT))
    AND (CAST(? AS BIGINT) IS NULL OR r.batch_id = CAST(? AS BIGINT))
    AND (CAST(? AS TEXT) IS NULL OR CASE WHEN r.status IN ('completed', 'failed', 'cancelled', 'running')
    THEN upper(r.status) WHEN r.started_at IS NULL THEN 'PENDING' ELSE 'RUNNING' END = CAST(? AS TEXT)) ORDER BY r.id DESC LIMIT ? OFFSET ?;

-- STEPS
SELECT s.id, s.workflow_run_id, s.workflow_step_number, s.workflow_step_name, s.step_config_id,
    s.step_type, s.is_last_step, s.created_date, s.priority, s.start_date, s.status_date,
    s.completed_date, s.retry, s.retries, s.status, s.status_message, s.status_meta, s.worker_id,
    s.resource_key
FROM runstep s 
JOIN lexigram_durable_runs r ON r.id = s.workflow_run_id
WHERE (CAST(? AS TEXT) IS NULL OR s.status = CAST(? AS TEXT))
    AND (CAST(? AS TEXT) IS NULL OR CAST(? AS TEXT) NOT IN ('FAILED', 'RUNNING')
        OR r.status = lower(CAST(? AS TEXT)))
    AND (CAST(? AS BIGINT) IS NULL OR r.group_id = CAST(? AS BIGINT))
    AND (CAST(? AS BIGINT) IS NULL OR r.batch_id = CAST(? AS BIGINT))
ORDER BY s.workflow_run_id DESC, s.workflow_step_number LIMIT ? OFFSET ?;

-- STEPS_OF_RUN
SELECT s.id, s.workflow_run_id, s.workflow_step_number, s.workflow_step_name, s.step_config_id,
    s.step_type, s.is_last_step, s.created_date, s.priority, s.start_date, s.status_date,
    s.completed_date, s.retry, s.retries, s.status, s.status_message, s.status_meta, s.worker_id,
    s.resource_key
FROM runstep s WHERE s.workflow_run_id = ? ORDER BY s.workflow_step_number;

-- STEP_STATS
SELECT s.name AS step, s.step_type AS step_type, s.step_no AS step_no, h.status AS status,
    count(*) AS attempts, avg(h.finished_at - h.started_at) AS average_duration,
    min(h.finished_at - h.started_at) AS shortest, max(h.finished_at - h.started_at) AS longest
FROM lexigram_durable_runs r
JOIN lexigram_durable_history h ON h.run_id = r.id
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = h.step_no
WHERE r.group_id = ? GROUP BY s.step_no, s.name, s.step_type, h.status ORDER BY s.step_no, h.status;

-- USES_PARAMS
SELECT id FROM lexigram_durable_groups WHERE param_id = ? LIMIT 1;

-- WORKERS
SELECT * FROM workercheckin ORDER BY first_checkin;
