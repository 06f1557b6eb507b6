-- ADD_KINDS
INSERT INTO lexigram_durable_step_kinds (queue, handler)
SELECT DISTINCT v.queue, v.requires FROM json_to_recordset(CAST(? AS json)) AS v(
    step_no int, name text, step_type text, pool text, queue text, requires text, retries int,
    backoff float8, backoff_cap float8, resource_key text, resource_shared boolean)
ORDER BY v.queue, v.requires ON CONFLICT DO NOTHING;

-- ADD_RUNS
WITH p AS (SELECT CAST(? AS double precision) AS now, CAST(? AS bigint) AS group_id,
    CAST(? AS bigint) AS plan_id, CAST(? AS int) AS n_steps, CAST(? AS float8) AS ageing,
    CAST(? AS float8) AS gap, CAST(? AS int) AS events, CAST(? AS float8) AS base,
    CAST(? AS bigint) AS parent_id, CAST(? AS int) AS parent_step, CAST(? AS text) AS status),

v AS (SELECT * FROM json_to_recordset(CAST(? AS json)) AS v(
    n int, doc_id text, batch_id bigint, priority int, tenant text, delay float8,
    idempotency_key text, params text)),
last AS (SELECT t.tenant, (SELECT max(r.turn) FROM lexigram_durable_runs r
        WHERE r.tenant = t.tenant AND r.completed_at IS NULL) AS turn
    FROM (SELECT DISTINCT tenant FROM v WHERE tenant IS NOT NULL) t),
turns AS (SELECT v.*, CASE WHEN v.tenant IS NULL THEN p.base ELSE
        greatest(p.base, coalesce(l.turn + p.gap, p.base))
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
ORDER BY t.n
ON CONFLICT DO NOTHING RETURNING id, idempotency_key;

-- ADD_STEPS
INSERT INTO lexigram_durable_plan_steps
    (plan_id, step_no, name, step_type, pool, retries, backoff, backoff_cap, resource_key,
    resource_shared, step_kind)
SELECT CAST(? AS bigint), v.step_no, v.name, v.step_type, v.pool, v.retries, v.backoff,
    v.backoff_cap, v.resource_key, v.resource_shared, k.id
FROM json_to_recordset(CAST(? AS json)) AS v(
    step_no int, name text, step_type text, pool text, queue text, requires text, retries int,
    backoff float8, backoff_cap float8, resource_key text, resource_shared boolean)
JOIN lexigram_durable_step_kinds k ON k.queue = v.queue AND k.handler = v.requires
ON CONFLICT DO NOTHING;

-- CANCEL 1
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id),
held AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease, r.status AS was, false AS shares, false AS keeps_lock
    FROM lexigram_durable_runs r
    WHERE r.group_id = (SELECT group_id FROM p) AND r.completed_at IS NULL AND r.wanted IS DISTINCT FROM 'cancel' LIMIT 500 FOR UPDATE OF r SKIP LOCKED),
done AS (
    UPDATE lexigram_durable_runs r SET status = CASE r.status WHEN 'running' THEN 'running' ELSE 'cancelled' END,
        wanted = CASE r.status WHEN 'running' THEN 'cancel' END,
        completed_at = CASE r.status WHEN 'running' THEN NULL ELSE (SELECT now FROM clock) END,
        message = CASE r.status WHEN 'running' THEN r.message ELSE 'cancelled' END,
        status_at = (SELECT now FROM clock) FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.parent_id, r.parent_step, r.fan, h.was),
counted AS (
    SELECT group_id, CAST(count(*) AS int) AS n,
        CAST(count(*) FILTER (WHERE status = 'failed') AS int) AS failed,
        CAST(count(*) FILTER (WHERE status = 'cancelled') AS int) AS cancelled
    FROM done WHERE status IN ('completed', 'failed', 'cancelled') AND parent_id IS NULL
    GROUP BY group_id),
in_order AS MATERIALIZED (
    SELECT id FROM lexigram_durable_groups WHERE id IN (SELECT group_id FROM counted)
        AND true ORDER BY id FOR UPDATE),
counted_down AS (
    UPDATE lexigram_durable_groups g SET 
    remaining = g.remaining - c.n,
    failed = g.failed + c.failed,
    cancelled = g.cancelled + c.cancelled,
    status = CASE
        WHEN g.remaining > c.n THEN
            CASE WHEN g.status = 'pending' AND c.cancelled = c.n THEN 'pending' ELSE 'running' END
        WHEN g.failed + c.failed > 0 THEN 'failed'
        WHEN g.cancelled + c.cancelled >= g.total THEN 'cancelled' ELSE 'completed' END,
    endings = g.endings + CASE WHEN g.remaining = c.n THEN 1 ELSE 0 END,
    completed_at = CASE WHEN g.remaining = c.n THEN (SELECT now FROM clock) END,
        started_at = CASE WHEN g.started_at IS NULL AND c.cancelled < c.n THEN (SELECT now FROM clock)
                          ELSE g.started_at END
    FROM counted c JOIN in_order o ON o.id = c.group_id WHERE g.id = c.group_id
    RETURNING g.id, g.remaining, g.endings, g.status, g.started_at, g.events),
group_events AS (
    INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at, audience)
    SELECT 'group_start', d.id, 0, 'running', (SELECT now FROM clock), a.name
    FROM counted_down d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 1 <> 0 WHERE d.started_at = (SELECT now FROM clock)
    UNION ALL
    SELECT 'group_end', d.id, d.endings, d.status, (SELECT now FROM clock), a.name
    FROM counted_down d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 2 <> 0 WHERE d.remaining = 0
    ON CONFLICT DO NOTHING RETURNING group_id)
SELECT done.*, CAST((SELECT pg_notify('lexigram_durable_wanted', '')) AS text) AS notified FROM done;

-- CANCEL 2
WITH p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id)
        SELECT count(*) AS n FROM lexigram_durable_runs r WHERE r.group_id = (SELECT group_id FROM p) AND r.completed_at IS NULL AND r.wanted IS DISTINCT FROM 'cancel';

-- CANCEL 3
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id),
held AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease, r.status AS was, false AS shares, false AS keeps_lock
    FROM lexigram_durable_runs r
    WHERE r.id = ANY(ARRAY(WITH RECURSIVE tree AS (
    SELECT (SELECT run_id FROM p) AS id UNION ALL
    SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND r.completed_at IS NULL AND r.wanted IS DISTINCT FROM 'cancel' LIMIT 500 FOR UPDATE OF r SKIP LOCKED),
done AS (
    UPDATE lexigram_durable_runs r SET status = CASE r.status WHEN 'running' THEN 'running' ELSE 'cancelled' END,
        wanted = CASE r.status WHEN 'running' THEN 'cancel' END,
        completed_at = CASE r.status WHEN 'running' THEN NULL ELSE (SELECT now FROM clock) END,
        message = CASE r.status WHEN 'running' THEN r.message ELSE 'cancelled' END,
        status_at = (SELECT now FROM clock) FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.parent_id, r.parent_step, r.fan, h.was),
counted AS (
    SELECT group_id, CAST(count(*) AS int) AS n,
        CAST(count(*) FILTER (WHERE status = 'failed') AS int) AS failed,
        CAST(count(*) FILTER (WHERE status = 'cancelled') AS int) AS cancelled
    FROM done WHERE status IN ('completed', 'failed', 'cancelled') AND parent_id IS NULL
    GROUP BY group_id),
in_order AS MATERIALIZED (
    SELECT id FROM lexigram_durable_groups WHERE id IN (SELECT group_id FROM counted)
        AND true ORDER BY id FOR UPDATE),
counted_down AS (
    UPDATE lexigram_durable_groups g SET 
    remaining = g.remaining - c.n,
    failed = g.failed + c.failed,
    cancelled = g.cancelled + c.cancelled,
    status = CASE
        WHEN g.remaining > c.n THEN
            CASE WHEN g.status = 'pending' AND c.cancelled = c.n THEN 'pending' ELSE 'running' END
        WHEN g.failed + c.failed > 0 THEN 'failed'
        WHEN g.cancelled + c.cancelled >= g.total THEN 'cancelled' ELSE 'completed' END,
    endings = g.endings + CASE WHEN g.remaining = c.n THEN 1 ELSE 0 END,
    completed_at = CASE WHEN g.remaining = c.n THEN (SELECT now FROM clock) END,
        started_at = CASE WHEN g.started_at IS NULL AND c.cancelled < c.n THEN (SELECT now FROM clock)
                          ELSE g.started_at END
    FROM counted c JOIN in_order o ON o.id = c.group_id WHERE g.id = c.group_id
    RETURNING g.id, g.remaining, g.endings, g.status, g.started_at, g.events),
group_events AS (
    INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at, audience)
    SELECT 'group_start', d.id, 0, 'running', (SELECT now FROM clock), a.name
    FROM counted_down d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 1 <> 0 WHERE d.started_at = (SELECT now FROM clock)
    UNION ALL
    SELECT 'group_end', d.id, d.endings, d.status, (SELECT now FROM clock), a.name
    FROM counted_down d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 2 <> 0 WHERE d.remaining = 0
    ON CONFLICT DO NOTHING RETURNING group_id)
SELECT done.*, CAST((SELECT pg_notify('lexigram_durable_wanted', '')) AS text) AS notified FROM done;

-- CANCEL 4
WITH p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id)
        SELECT count(*) AS n FROM lexigram_durable_runs r WHERE r.id = ANY(ARRAY(WITH RECURSIVE tree AS (
    SELECT (SELECT run_id FROM p) AS id UNION ALL
    SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND r.completed_at IS NULL AND r.wanted IS DISTINCT FROM 'cancel';

-- CLAIM_KIND
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS text) AS worker, CAST(? AS text) AS lease, CAST(? AS float8) AS seconds,
    CAST(? AS bigint) AS batch),
line AS MATERIALIZED (SELECT CAST(? AS int) AS kind,
    CAST('Infinity' AS float8) AS bound, false AS others),
cand AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.group_id, r.rank,
        CASE WHEN r.resource_key IS NOT NULL THEN (
            SELECT s.resource_shared FROM lexigram_durable_plan_steps s
            WHERE s.plan_id = r.plan_id AND s.step_no = r.step_no) END AS shares
    FROM lexigram_durable_runs r
    WHERE r.status = 'ready' AND r.step_kind = (SELECT kind FROM line)
        AND r.rank <= (SELECT bound FROM line) AND (r.resource_key IS NULL OR (
    NOT EXISTS (SELECT 1 FROM lexigram_locks l
        WHERE l.resource_key IN (r.resource_key, 'waiting:' || r.resource_key)
            AND l.expires_at > (SELECT now FROM clock))
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = r.resource_key AND o.status = 'running')))
    ORDER BY r.rank, r.id LIMIT CAST(? AS bigint) FOR UPDATE OF r SKIP LOCKED),
asking AS MATERIALIZED (
    SELECT id, resource_key, row_number() OVER line = 1 OR bool_and(shares) OVER line AS fits
    FROM cand WHERE resource_key IS NOT NULL
    WINDOW line AS (PARTITION BY resource_key ORDER BY rank, id)),
keyed AS MATERIALIZED (
    SELECT resource_key, count(*) AS steps FROM asking WHERE fits GROUP BY resource_key),
fence AS (
    UPDATE lexigram_lock_fence SET last = last + (SELECT count(*) FROM keyed)
    WHERE id = 1 AND EXISTS (SELECT 1 FROM keyed) RETURNING last),
taken AS (
    INSERT INTO lexigram_locks AS l
        (resource_key, holder_id, holder_kind, holder_meta, fence, acquired_at, expires_at)
    SELECT k.resource_key, p.lease, 'worker',
        CASE WHEN k.steps > 1 THEN '{"steps": ' || k.steps || '}' ELSE '{}' END,
        f.last - row_number() OVER (ORDER BY k.resource_key DESC) + 1, (SELECT now FROM clock), (SELECT now FROM clock) + p.seconds
    FROM keyed k CROSS JOIN fence f CROSS JOIN p ORDER BY k.resource_key
    ON CONFLICT (resource_key) DO UPDATE SET holder_id = excluded.holder_id,
        holder_kind = excluded.holder_kind, holder_meta = excluded.holder_meta,
        fence = excluded.fence, acquired_at = excluded.acquired_at,
        expires_at = excluded.expires_at
    WHERE l.expires_at <= excluded.acquired_at
    RETURNING l.resource_key, l.fence),
granted AS (
    SELECT a.id, t.fence FROM asking a JOIN taken t USING (resource_key) WHERE a.fits),
claimed AS (
    UPDATE lexigram_durable_runs r SET status = 'running', lease = p.lease, worker_id = p.worker,
        lease_until = (SELECT now FROM clock) + p.seconds, fence = r.fence + 1, step_started_at = (SELECT now FROM clock),
        started_at = coalesce(r.started_at, (SELECT now FROM clock)), status_at = (SELECT now FROM clock)
    FROM cand c CROSS JOIN p
    WHERE r.id = c.id
        AND (c.resource_key IS NULL OR c.id IN (SELECT id FROM granted))
    RETURNING r.id, r.group_id, r.plan_id, r.step_no, r.step_type, r.step_kind, r.retry, r.fence,
        r.priority, r.rank, r.resource_key, r.lease, r.doc_id, r.batch_id, r.tenant, r.params,
        r.children_failed, r.answer, r.parent_id, r.events, r.lost, r.begun),
begun AS (
    UPDATE lexigram_durable_groups SET status = 'running', started_at = (SELECT now FROM clock)
    WHERE id IN (SELECT id FROM lexigram_durable_groups
        WHERE status = 'pending' AND id IN (SELECT group_id FROM claimed) FOR UPDATE SKIP LOCKED)
    RETURNING id, events),
group_events AS (
    INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at, audience)
    SELECT 'group_start', d.id, 0, 'running', (SELECT now FROM clock), a.name FROM begun d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 1 <> 0
    ON CONFLICT DO NOTHING),
life AS (
    INSERT INTO lexigram_durable_events
        (kind, group_id, ending, status, created_at, run_id, step_no, audience)
    SELECT x.kind, d.group_id, x.fence, x.status, (SELECT now FROM clock), d.id, x.step_no, 'handler'
    FROM claimed d CROSS JOIN LATERAL (VALUES 
        (1, 4, 'item_start', d.fence = 1, d.fence,
            d.step_no, 'running'),
        (2, 32, 'step_start', true, d.fence, d.step_no,
            'running'))
        AS x(n, bit, kind, happened, fence, step_no, status)
    WHERE d.events <> 0 AND d.events & x.bit <> 0 AND x.happened
    ORDER BY d.id, x.n ON CONFLICT DO NOTHING)
SELECT c.*, g.fence AS lock_fence, x.*
FROM (SELECT (SELECT count(*) FROM keyed) - (SELECT count(*) FROM taken) AS lost_races,
    line.kind AS line, line.others AS others,
    (SELECT count(*) FROM lexigram_durable_step_kinds) AS kinds FROM line) x
LEFT JOIN claimed c ON true LEFT JOIN granted g ON g.id = c.id
ORDER BY c.rank, c.id;

-- CLAIM_KINDS
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS text) AS worker, CAST(? AS text) AS lease, CAST(? AS float8) AS seconds,
    CAST(? AS bigint) AS batch),
first AS MATERIALIZED (
    SELECT h.* FROM unnest(CAST(? AS int[])) AS k(kind) CROSS JOIN LATERAL (
        SELECT r.step_kind AS kind, r.rank, r.id FROM lexigram_durable_runs r
        WHERE r.status = 'ready' AND r.step_kind = k.kind AND (r.resource_key IS NULL OR (
    NOT EXISTS (SELECT 1 FROM lexigram_locks l
        WHERE l.resource_key IN (r.resource_key, 'waiting:' || r.resource_key)
            AND l.expires_at > (SELECT now FROM clock))
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = r.resource_key AND o.status = 'running')))
        ORDER BY r.rank, r.id LIMIT 1) h
    ORDER BY h.rank, h.id LIMIT 2),
line AS MATERIALIZED (
    SELECT (array_agg(kind ORDER BY rank, id))[1] AS kind, CASE WHEN count(*) > 1
        THEN max(rank) + 1.0 ELSE CAST('Infinity' AS float8) END AS bound,
        count(*) > 1 AS others FROM first),
cand AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.group_id, r.rank,
        CASE WHEN r.resource_key IS NOT NULL THEN (
            SELECT s.resource_shared FROM lexigram_durable_plan_steps s
            WHERE s.plan_id = r.plan_id AND s.step_no = r.step_no) END AS shares
    FROM lexigram_durable_runs r
    WHERE r.status = 'ready' AND r.step_kind = (SELECT kind FROM line)
        AND r.rank <= (SELECT bound FROM line) AND (r.resource_key IS NULL OR (
    NOT EXISTS (SELECT 1 FROM lexigram_locks l
        WHERE l.resource_key IN (r.resource_key, 'waiting:' || r.resource_key)
            AND l.expires_at > (SELECT now FROM clock))
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = r.resource_key AND o.status = 'running')))
    ORDER BY r.rank, r.id LIMIT CAST(? AS bigint) FOR UPDATE OF r SKIP LOCKED),
asking AS MATERIALIZED (
    SELECT id, resource_key, row_number() OVER line = 1 OR bool_and(shares) OVER line AS fits
    FROM cand WHERE resource_key IS NOT NULL
    WINDOW line AS (PARTITION BY resource_key ORDER BY rank, id)),
keyed AS MATERIALIZED (
    SELECT resource_key, count(*) AS steps FROM asking WHERE fits GROUP BY resource_key),
fence AS (
    UPDATE lexigram_lock_fence SET last = last + (SELECT count(*) FROM keyed)
    WHERE id = 1 AND EXISTS (SELECT 1 FROM keyed) RETURNING last),
taken AS (
    INSERT INTO lexigram_locks AS l
        (resource_key, holder_id, holder_kind, holder_meta, fence, acquired_at, expires_at)
    SELECT k.resource_key, p.lease, 'worker',
        CASE WHEN k.steps > 1 THEN '{"steps": ' || k.steps || '}' ELSE '{}' END,
        f.last - row_number() OVER (ORDER BY k.resource_key DESC) + 1, (SELECT now FROM clock), (SELECT now FROM clock) + p.seconds
    FROM keyed k CROSS JOIN fence f CROSS JOIN p ORDER BY k.resource_key
    ON CONFLICT (resource_key) DO UPDATE SET holder_id = excluded.holder_id,
        holder_kind = excluded.holder_kind, holder_meta = excluded.holder_meta,
        fence = excluded.fence, acquired_at = excluded.acquired_at,
        expires_at = excluded.expires_at
    WHERE l.expires_at <= excluded.acquired_at
    RETURNING l.resource_key, l.fence),
granted AS (
    SELECT a.id, t.fence FROM asking a JOIN taken t USING (resource_key) WHERE a.fits),
claimed AS (
    UPDATE lexigram_durable_runs r SET status = 'running', lease = p.lease, worker_id = p.worker,
        lease_until = (SELECT now FROM clock) + p.seconds, fence = r.fence + 1, step_started_at = (SELECT now FROM clock),
        started_at = coalesce(r.started_at, (SELECT now FROM clock)), status_at = (SELECT now FROM clock)
    FROM cand c CROSS JOIN p
    WHERE r.id = c.id
        AND (c.resource_key IS NULL OR c.id IN (SELECT id FROM granted))
    RETURNING r.id, r.group_id, r.plan_id, r.step_no, r.step_type, r.step_kind, r.retry, r.fence,
        r.priority, r.rank, r.resource_key, r.lease, r.doc_id, r.batch_id, r.tenant, r.params,
        r.children_failed, r.answer, r.parent_id, r.events, r.lost, r.begun),
begun AS (
    UPDATE lexigram_durable_groups SET status = 'running', started_at = (SELECT now FROM clock)
    WHERE id IN (SELECT id FROM lexigram_durable_groups
        WHERE status = 'pending' AND id IN (SELECT group_id FROM claimed) FOR UPDATE SKIP LOCKED)
    RETURNING id, events),
group_events AS (
    INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at, audience)
    SELECT 'group_start', d.id, 0, 'running', (SELECT now FROM clock), a.name FROM begun d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 1 <> 0
    ON CONFLICT DO NOTHING),
life AS (
    INSERT INTO lexigram_durable_events
        (kind, group_id, ending, status, created_at, run_id, step_no, audience)
    SELECT x.kind, d.group_id, x.fence, x.status, (SELECT now FROM clock), d.id, x.step_no, 'handler'
    FROM claimed d CROSS JOIN LATERAL (VALUES 
        (1, 4, 'item_start', d.fence = 1, d.fence,
            d.step_no, 'running'),
        (2, 32, 'step_start', true, d.fence, d.step_no,
            'running'))
        AS x(n, bit, kind, happened, fence, step_no, status)
    WHERE d.events <> 0 AND d.events & x.bit <> 0 AND x.happened
    ORDER BY d.id, x.n ON CONFLICT DO NOTHING)
SELECT c.*, g.fence AS lock_fence, x.*
FROM (SELECT (SELECT count(*) FROM keyed) - (SELECT count(*) FROM taken) AS lost_races,
    line.kind AS line, line.others AS others,
    (SELECT count(*) FROM lexigram_durable_step_kinds) AS kinds FROM line) x
LEFT JOIN claimed c ON true LEFT JOIN granted g ON g.id = c.id
ORDER BY c.rank, c.id;

-- CLAIM_KINDS_OF_BATCH
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS text) AS worker, CAST(? AS text) AS lease, CAST(? AS float8) AS seconds,
    CAST(? AS bigint) AS batch),
first AS MATERIALIZED (
    SELECT h.* FROM unnest(CAST(? AS int[])) AS k(kind) CROSS JOIN LATERAL (
        SELECT r.step_kind AS kind, r.rank, r.id FROM lexigram_durable_runs r
        WHERE r.status = 'ready' AND r.step_kind = k.kind AND (r.resource_key IS NULL OR (
    NOT EXISTS (SELECT 1 FROM lexigram_locks l
        WHERE l.resource_key IN (r.resource_key, 'waiting:' || r.resource_key)
            AND l.expires_at > (SELECT now FROM clock))
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = r.resource_key AND o.status = 'running'))) AND r.batch_id = (SELECT batch FROM p)
        ORDER BY r.rank, r.id LIMIT 1) h
    ORDER BY h.rank, h.id LIMIT 2),
line AS MATERIALIZED (
    SELECT (array_agg(kind ORDER BY rank, id))[1] AS kind, CASE WHEN count(*) > 1
        THEN max(rank) + 1.0 ELSE CAST('Infinity' AS float8) END AS bound,
        count(*) > 1 AS others FROM first),
cand AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.group_id, r.rank,
        CASE WHEN r.resource_key IS NOT NULL THEN (
            SELECT s.resource_shared FROM lexigram_durable_plan_steps s
            WHERE s.plan_id = r.plan_id AND s.step_no = r.step_no) END AS shares
    FROM lexigram_durable_runs r
    WHERE r.status = 'ready' AND r.step_kind = (SELECT kind FROM line)
        AND r.rank <= (SELECT bound FROM line) AND (r.resource_key IS NULL OR (
    NOT EXISTS (SELECT 1 FROM lexigram_locks l
        WHERE l.resource_key IN (r.resource_key, 'waiting:' || r.resource_key)
            AND l.expires_at > (SELECT now FROM clock))
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = r.resource_key AND o.status = 'running'))) AND r.batch_id = (SELECT batch FROM p)
    ORDER BY r.rank, r.id LIMIT CAST(? AS bigint) FOR UPDATE OF r SKIP LOCKED),
asking AS MATERIALIZED (
    SELECT id, resource_key, row_number() OVER line = 1 OR bool_and(shares) OVER line AS fits
    FROM cand WHERE resource_key IS NOT NULL
    WINDOW line AS (PARTITION BY resource_key ORDER BY rank, id)),
keyed AS MATERIALIZED (
    SELECT resource_key, count(*) AS steps FROM asking WHERE fits GROUP BY resource_key),
fence AS (
    UPDATE lexigram_lock_fence SET last = last + (SELECT count(*) FROM keyed)
    WHERE id = 1 AND EXISTS (SELECT 1 FROM keyed) RETURNING last),
taken AS (
    INSERT INTO lexigram_locks AS l
        (resource_key, holder_id, holder_kind, holder_meta, fence, acquired_at, expires_at)
    SELECT k.resource_key, p.lease, 'worker',
        CASE WHEN k.steps > 1 THEN '{"steps": ' || k.steps || '}' ELSE '{}' END,
        f.last - row_number() OVER (ORDER BY k.resource_key DESC) + 1, (SELECT now FROM clock), (SELECT now FROM clock) + p.seconds
    FROM keyed k CROSS JOIN fence f CROSS JOIN p ORDER BY k.resource_key
    ON CONFLICT (resource_key) DO UPDATE SET holder_id = excluded.holder_id,
        holder_kind = excluded.holder_kind, holder_meta = excluded.holder_meta,
        fence = excluded.fence, acquired_at = excluded.acquired_at,
        expires_at = excluded.expires_at
    WHERE l.expires_at <= excluded.acquired_at
    RETURNING l.resource_key, l.fence),
granted AS (
    SELECT a.id, t.fence FROM asking a JOIN taken t USING (resource_key) WHERE a.fits),
claimed AS (
    UPDATE lexigram_durable_runs r SET status = 'running', lease = p.lease, worker_id = p.worker,
        lease_until = (SELECT now FROM clock) + p.seconds, fence = r.fence + 1, step_started_at = (SELECT now FROM clock),
        started_at = coalesce(r.started_at, (SELECT now FROM clock)), status_at = (SELECT now FROM clock)
    FROM cand c CROSS JOIN p
    WHERE r.id = c.id
        AND (c.resource_key IS NULL OR c.id IN (SELECT id FROM granted))
    RETURNING r.id, r.group_id, r.plan_id, r.step_no, r.step_type, r.step_kind, r.retry, r.fence,
        r.priority, r.rank, r.resource_key, r.lease, r.doc_id, r.batch_id, r.tenant, r.params,
        r.children_failed, r.answer, r.parent_id, r.events, r.lost, r.begun),
begun AS (
    UPDATE lexigram_durable_groups SET status = 'running', started_at = (SELECT now FROM clock)
    WHERE id IN (SELECT id FROM lexigram_durable_groups
        WHERE status = 'pending' AND id IN (SELECT group_id FROM claimed) FOR UPDATE SKIP LOCKED)
    RETURNING id, events),
group_events AS (
    INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at, audience)
    SELECT 'group_start', d.id, 0, 'running', (SELECT now FROM clock), a.name FROM begun d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 1 <> 0
    ON CONFLICT DO NOTHING),
life AS (
    INSERT INTO lexigram_durable_events
        (kind, group_id, ending, status, created_at, run_id, step_no, audience)
    SELECT x.kind, d.group_id, x.fence, x.status, (SELECT now FROM clock), d.id, x.step_no, 'handler'
    FROM claimed d CROSS JOIN LATERAL (VALUES 
        (1, 4, 'item_start', d.fence = 1, d.fence,
            d.step_no, 'running'),
        (2, 32, 'step_start', true, d.fence, d.step_no,
            'running'))
        AS x(n, bit, kind, happened, fence, step_no, status)
    WHERE d.events <> 0 AND d.events & x.bit <> 0 AND x.happened
    ORDER BY d.id, x.n ON CONFLICT DO NOTHING)
SELECT c.*, g.fence AS lock_fence, x.*
FROM (SELECT (SELECT count(*) FROM keyed) - (SELECT count(*) FROM taken) AS lost_races,
    line.kind AS line, line.others AS others,
    (SELECT count(*) FROM lexigram_durable_step_kinds) AS kinds FROM line) x
LEFT JOIN claimed c ON true LEFT JOIN granted g ON g.id = c.id
ORDER BY c.rank, c.id;

-- CLAIM_KIND_OF_BATCH
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS text) AS worker, CAST(? AS text) AS lease, CAST(? AS float8) AS seconds,
    CAST(? AS bigint) AS batch),
line AS MATERIALIZED (SELECT CAST(? AS int) AS kind,
    CAST('Infinity' AS float8) AS bound, false AS others),
cand AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.group_id, r.rank,
        CASE WHEN r.resource_key IS NOT NULL THEN (
            SELECT s.resource_shared FROM lexigram_durable_plan_steps s
            WHERE s.plan_id = r.plan_id AND s.step_no = r.step_no) END AS shares
    FROM lexigram_durable_runs r
    WHERE r.status = 'ready' AND r.step_kind = (SELECT kind FROM line)
        AND r.rank <= (SELECT bound FROM line) AND (r.resource_key IS NULL OR (
    NOT EXISTS (SELECT 1 FROM lexigram_locks l
        WHERE l.resource_key IN (r.resource_key, 'waiting:' || r.resource_key)
            AND l.expires_at > (SELECT now FROM clock))
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = r.resource_key AND o.status = 'running'))) AND r.batch_id = (SELECT batch FROM p)
    ORDER BY r.rank, r.id LIMIT CAST(? AS bigint) FOR UPDATE OF r SKIP LOCKED),
asking AS MATERIALIZED (
    SELECT id, resource_key, row_number() OVER line = 1 OR bool_and(shares) OVER line AS fits
    FROM cand WHERE resource_key IS NOT NULL
    WINDOW line AS (PARTITION BY resource_key ORDER BY rank, id)),
keyed AS MATERIALIZED (
    SELECT resource_key, count(*) AS steps FROM asking WHERE fits GROUP BY resource_key),
fence AS (
    UPDATE lexigram_lock_fence SET last = last + (SELECT count(*) FROM keyed)
    WHERE id = 1 AND EXISTS (SELECT 1 FROM keyed) RETURNING last),
taken AS (
    INSERT INTO lexigram_locks AS l
        (resource_key, holder_id, holder_kind, holder_meta, fence, acquired_at, expires_at)
    SELECT k.resource_key, p.lease, 'worker',
        CASE WHEN k.steps > 1 THEN '{"steps": ' || k.steps || '}' ELSE '{}' END,
        f.last - row_number() OVER (ORDER BY k.resource_key DESC) + 1, (SELECT now FROM clock), (SELECT now FROM clock) + p.seconds
    FROM keyed k CROSS JOIN fence f CROSS JOIN p ORDER BY k.resource_key
    ON CONFLICT (resource_key) DO UPDATE SET holder_id = excluded.holder_id,
        holder_kind = excluded.holder_kind, holder_meta = excluded.holder_meta,
        fence = excluded.fence, acquired_at = excluded.acquired_at,
        expires_at = excluded.expires_at
    WHERE l.expires_at <= excluded.acquired_at
    RETURNING l.resource_key, l.fence),
granted AS (
    SELECT a.id, t.fence FROM asking a JOIN taken t USING (resource_key) WHERE a.fits),
claimed AS (
    UPDATE lexigram_durable_runs r SET status = 'running', lease = p.lease, worker_id = p.worker,
        lease_until = (SELECT now FROM clock) + p.seconds, fence = r.fence + 1, step_started_at = (SELECT now FROM clock),
        started_at = coalesce(r.started_at, (SELECT now FROM clock)), status_at = (SELECT now FROM clock)
    FROM cand c CROSS JOIN p
    WHERE r.id = c.id
        AND (c.resource_key IS NULL OR c.id IN (SELECT id FROM granted))
    RETURNING r.id, r.group_id, r.plan_id, r.step_no, r.step_type, r.step_kind, r.retry, r.fence,
        r.priority, r.rank, r.resource_key, r.lease, r.doc_id, r.batch_id, r.tenant, r.params,
        r.children_failed, r.answer, r.parent_id, r.events, r.lost, r.begun),
begun AS (
    UPDATE lexigram_durable_groups SET status = 'running', started_at = (SELECT now FROM clock)
    WHERE id IN (SELECT id FROM lexigram_durable_groups
        WHERE status = 'pending' AND id IN (SELECT group_id FROM claimed) FOR UPDATE SKIP LOCKED)
    RETURNING id, events),
group_events AS (
    INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at, audience)
    SELECT 'group_start', d.id, 0, 'running', (SELECT now FROM clock), a.name FROM begun d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 1 <> 0
    ON CONFLICT DO NOTHING),
life AS (
    INSERT INTO lexigram_durable_events
        (kind, group_id, ending, status, created_at, run_id, step_no, audience)
    SELECT x.kind, d.group_id, x.fence, x.status, (SELECT now FROM clock), d.id, x.step_no, 'handler'
    FROM claimed d CROSS JOIN LATERAL (VALUES 
        (1, 4, 'item_start', d.fence = 1, d.fence,
            d.step_no, 'running'),
        (2, 32, 'step_start', true, d.fence, d.step_no,
            'running'))
        AS x(n, bit, kind, happened, fence, step_no, status)
    WHERE d.events <> 0 AND d.events & x.bit <> 0 AND x.happened
    ORDER BY d.id, x.n ON CONFLICT DO NOTHING)
SELECT c.*, g.fence AS lock_fence, x.*
FROM (SELECT (SELECT count(*) FROM keyed) - (SELECT count(*) FROM taken) AS lost_races,
    line.kind AS line, line.others AS others,
    (SELECT count(*) FROM lexigram_durable_step_kinds) AS kinds FROM line) x
LEFT JOIN claimed c ON true LEFT JOIN granted g ON g.id = c.id
ORDER BY c.rank, c.id;

-- FINISH
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS float8) AS seconds, CAST(? AS float8) AS ageing),
v AS (SELECT * FROM json_to_recordset(CAST(? AS json)) AS v(
    run_id bigint, step_no int, lease text, kind text, message text, meta text, jitter float8,
    sticky boolean, fatal boolean, next_no int, children int)),

family AS MATERIALIZED (
    SELECT id FROM lexigram_durable_runs WHERE id = ANY(ARRAY(
        SELECT u.id FROM v JOIN lexigram_durable_runs r ON r.id = v.run_id AND r.lease = v.lease
        CROSS JOIN LATERAL (VALUES (r.id), (CASE WHEN v.kind <> 'completed'
            OR r.step_no = r.n_steps OR r.wanted IS NOT NULL THEN r.parent_id END)) AS u(id)
        WHERE u.id IS NOT NULL))
    ORDER BY id DESC FOR UPDATE),
held AS MATERIALIZED (
    SELECT t.*, t.outcome = 'running' AND t.next_key IS NOT NULL AS keeps_lock
    FROM (
SELECT r.id AS id, r.group_id AS group_id, r.step_no AS step_no, r.retry AS retry,
    r.fence AS fence, r.worker_id AS worker_id, r.lease AS lease, r.events AS events,
    r.parent_id AS parent_id, r.parent_step AS parent_step,
    r.resource_key AS resource_key, s.resource_shared AS shares,
    r.step_started_at AS step_started_at, v.kind AS kind, v.message AS message, v.meta AS meta, v.kind = 'error' AS is_error,
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
                        AND l.holder_id = r.lease AND l.expires_at > (SELECT now FROM clock)))) THEN 'running'
         ELSE 'ready' END
WHEN 'error' THEN
    CASE WHEN v.fatal OR r.retry + 1 >= s.retries THEN 'failed'
         WHEN r.wanted = 'cancel' THEN 'cancelled'
         WHEN r.wanted = 'pause' THEN 'paused'
         WHEN s.backoff > 0 THEN 'delayed' ELSE 'ready' END
ELSE CASE WHEN r.wanted = 'cancel' THEN 'cancelled' WHEN r.wanted = 'pause' THEN 'paused'
          WHEN v.kind = 'parked' THEN 'parked' ELSE 'ready' END
END AS outcome
FROM v
JOIN lexigram_durable_runs r
    ON r.id = v.run_id AND r.lease = v.lease AND r.step_no = v.step_no
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = r.step_no
LEFT JOIN lexigram_durable_plan_steps n
    ON n.plan_id = r.plan_id AND n.step_no = coalesce(v.next_no, r.step_no + 1)
        WHERE (SELECT count(*) FROM family) >= 0 ORDER BY r.id DESC FOR UPDATE OF r) t),
done AS (
    UPDATE lexigram_durable_runs r SET 
    status = h.outcome,
    step_no = CASE WHEN h.advances THEN h.next_no ELSE r.step_no END,
    step_type = CASE WHEN h.advances THEN h.next_type ELSE r.step_type END,
    step_kind = CASE WHEN h.advances THEN h.next_kind ELSE r.step_kind END,
    resource_key = CASE WHEN h.advances THEN h.next_key
                        WHEN h.outcome = 'completed' THEN NULL ELSE r.resource_key END,
    retry = CASE WHEN h.advances THEN 0 WHEN h.is_error THEN r.retry + 1 ELSE r.retry END,
    lost = CASE WHEN h.kind = 'released' THEN r.lost ELSE 0 END, begun = 0,
    fence = CASE WHEN h.outcome = 'running' THEN r.fence + 1 ELSE r.fence END,
    available_at = CASE WHEN h.is_error THEN (SELECT now FROM clock) + h.delay ELSE (SELECT now FROM clock) END,
    rank = CASE WHEN h.is_error THEN (SELECT now FROM clock) + h.delay - r.priority * (SELECT ageing FROM p) ELSE r.rank END,
    lease = CASE WHEN h.outcome = 'running' THEN r.lease END,
    lease_until = CASE WHEN h.outcome = 'running' THEN (SELECT now FROM clock) + (SELECT seconds FROM p) END,
    worker_id = CASE WHEN h.outcome = 'running' THEN r.worker_id END,
    wanted = CASE WHEN h.outcome = 'running' THEN r.wanted END,
    step_started_at = CASE WHEN h.outcome = 'running' THEN (SELECT now FROM clock) END,
    status_at = (SELECT now FROM clock),
    completed_at = CASE WHEN h.outcome IN ('completed', 'failed', 'cancelled') THEN (SELECT now FROM clock) END,
    message = CASE WHEN h.outcome = 'failed' THEN h.message ELSE r.message END,
    fan = CASE WHEN NOT h.advances THEN r.fan WHEN h.children IS NOT NULL THEN r.step_no END,
    children = CASE WHEN h.advances THEN coalesce(h.children, 0) ELSE r.children END,
    children_failed = CASE WHEN h.advances THEN 0 ELSE r.children_failed END,
    parked = CASE WHEN h.kind = 'parked' THEN h.message END,
    answer = CASE WHEN h.advances OR h.kind = 'parked' THEN NULL ELSE r.answer END
    FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.step_no, r.retry, r.fence, r.parent_id,
        r.parent_step, r.events, h.kind, h.step_no AS was_step, h.fence AS was_fence),
attempts AS (
INSERT INTO lexigram_durable_history
    (run_id, fence, step_no, retry, status, worker_id, started_at, finished_at, message, meta)
SELECT h.id, h.fence, h.step_no,
    h.retry + CASE WHEN h.is_error OR h.kind = 'failed' THEN 1 ELSE 0 END,
    CASE WHEN h.kind = 'completed' THEN 'COMPLETED'
         WHEN h.kind = 'failed' OR h.outcome = 'failed' THEN 'FAILED'
         WHEN h.kind = 'error' THEN 'ERROR' ELSE 'PENDING' END,
    h.worker_id, h.step_started_at, (SELECT now FROM clock), h.message, h.meta FROM held h),
life AS (
    INSERT INTO lexigram_durable_events
        (kind, group_id, ending, status, created_at, run_id, step_no, audience)
    SELECT x.kind, d.group_id, x.fence, x.status, (SELECT now FROM clock), d.id, x.step_no, 'handler'
    FROM done d CROSS JOIN LATERAL (VALUES 
        (1, 64, 'step_end', d.kind = 'completed', d.was_fence,
            d.was_step, 'completed'),
        (2, 128, 'step_failed',
            d.status = 'failed' OR d.kind = 'failed', d.was_fence, d.was_step, 'failed'),
        (3, 8, 'item_end', d.status = 'completed',
            d.was_fence, d.was_step, 'completed'),
        (4, 16, 'item_failed', d.status = 'failed',
            d.was_fence, d.was_step, 'failed'),
        (5, 32, 'step_start', d.status = 'running', d.fence,
            d.step_no, 'running'))
        AS x(n, bit, kind, happened, fence, step_no, status)
    WHERE d.events <> 0 AND d.events & x.bit <> 0 AND x.happened
    ORDER BY d.id, x.n ON CONFLICT DO NOTHING),
children AS MATERIALIZED (
    SELECT parent_id, parent_step, CAST(count(*) AS int) AS n,
        CAST(count(*) FILTER (WHERE status <> 'completed') AS int) AS failed
    FROM done WHERE status IN ('completed', 'failed', 'cancelled') AND parent_id IS NOT NULL
    GROUP BY parent_id, parent_step),
parents AS MATERIALIZED (
    SELECT id FROM lexigram_durable_runs
    WHERE id = ANY(ARRAY(SELECT parent_id FROM children WHERE parent_id NOT IN (
        SELECT id FROM done))) ORDER BY id DESC FOR UPDATE),
gathered AS (
    UPDATE lexigram_durable_runs r SET children = r.children - c.n,
        children_failed = r.children_failed + c.failed,
        status = CASE WHEN r.status = 'waiting' AND r.children <= c.n THEN 'ready'
                      ELSE r.status END
    FROM children c WHERE r.id = ANY(ARRAY(SELECT id FROM parents)) AND r.id = c.parent_id
        AND r.fan = c.parent_step
    RETURNING r.id, r.status),

unlocked AS (
    DELETE FROM lexigram_locks l USING held h
    WHERE l.resource_key = h.resource_key AND l.holder_id = h.lease AND NOT h.keeps_lock
        AND l.holder_meta = '{}' AND (SELECT count(*) FROM parents) >= 0
    RETURNING l.resource_key, h.shares),
leavers AS (
    SELECT resource_key, lease, CAST(count(*) AS int) AS n FROM held
    WHERE resource_key IS NOT NULL AND NOT keeps_lock GROUP BY resource_key, lease),
leavers_in_order AS MATERIALIZED (
    SELECT resource_key FROM lexigram_locks
    WHERE resource_key IN (SELECT resource_key FROM leavers) AND holder_meta <> '{}'
        AND (SELECT count(*) FROM parents) >= 0
    ORDER BY resource_key FOR UPDATE),
leaving AS (
    UPDATE lexigram_locks l SET
        holder_meta = '{"steps": ' || CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) - e.n || '}',
        expires_at = CASE WHEN CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) > e.n THEN l.expires_at ELSE 0 END
    FROM leavers e JOIN leavers_in_order o USING (resource_key)
    WHERE l.resource_key = e.resource_key AND l.holder_id = e.lease AND l.holder_meta <> '{}'
    RETURNING l.resource_key, l.expires_at),
freed AS (
    SELECT resource_key, CASE WHEN shares THEN 50 ELSE 1 END AS n FROM unlocked
    UNION ALL SELECT resource_key, 50 FROM leaving WHERE expires_at = 0),
unblocked AS (
    UPDATE lexigram_durable_runs SET status = 'ready'
    WHERE id IN (SELECT b.id FROM freed f CROSS JOIN LATERAL (
        SELECT id FROM lexigram_durable_runs
        WHERE resource_key = f.resource_key AND status = 'blocked'
        ORDER BY rank, id LIMIT f.n FOR UPDATE SKIP LOCKED) b)
    RETURNING id),

counted AS (
    SELECT group_id, CAST(count(*) AS int) AS n,
        CAST(count(*) FILTER (WHERE status = 'failed') AS int) AS failed,
        CAST(count(*) FILTER (WHERE status = 'cancelled') AS int) AS cancelled
    FROM done WHERE status IN ('completed', 'failed', 'cancelled') AND parent_id IS NULL
    GROUP BY group_id),
in_order AS MATERIALIZED (
    SELECT id FROM lexigram_durable_groups WHERE id IN (SELECT group_id FROM counted)
        AND (SELECT count(*) FROM parents) >= 0 AND (SELECT count(*) FROM unblocked) >= 0 ORDER BY id FOR UPDATE),
counted_down AS (
    UPDATE lexigram_durable_groups g SET 
    remaining = g.remaining - c.n,
    failed = g.failed + c.failed,
    cancelled = g.cancelled + c.cancelled,
    status = CASE
        WHEN g.remaining > c.n THEN
            CASE WHEN g.status = 'pending' AND c.cancelled = c.n THEN 'pending' ELSE 'running' END
        WHEN g.failed + c.failed > 0 THEN 'failed'
        WHEN g.cancelled + c.cancelled >= g.total THEN 'cancelled' ELSE 'completed' END,
    endings = g.endings + CASE WHEN g.remaining = c.n THEN 1 ELSE 0 END,
    completed_at = CASE WHEN g.remaining = c.n THEN (SELECT now FROM clock) END,
        started_at = CASE WHEN g.started_at IS NULL AND c.cancelled < c.n THEN (SELECT now FROM clock)
                          ELSE g.started_at END
    FROM counted c JOIN in_order o ON o.id = c.group_id WHERE g.id = c.group_id
    RETURNING g.id, g.remaining, g.endings, g.status, g.started_at, g.events),
group_events AS (
    INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at, audience)
    SELECT 'group_start', d.id, 0, 'running', (SELECT now FROM clock), a.name
    FROM counted_down d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 1 <> 0 WHERE d.started_at = (SELECT now FROM clock)
    UNION ALL
    SELECT 'group_end', d.id, d.endings, d.status, (SELECT now FROM clock), a.name
    FROM counted_down d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 2 <> 0 WHERE d.remaining = 0
    ON CONFLICT DO NOTHING RETURNING group_id),
news AS MATERIALIZED (
    SELECT CASE WHEN EXISTS (SELECT 1 FROM done WHERE status IN ('ready', 'delayed'))
                OR EXISTS (SELECT 1 FROM unblocked) OR EXISTS (SELECT 1 FROM group_events) OR EXISTS (SELECT 1 FROM gathered WHERE status = 'ready')
           THEN CAST(pg_notify('lexigram_durable', '') AS text) END AS notified)
SELECT done.*, news.notified, ARRAY(SELECT resource_key FROM leaving WHERE expires_at = 0) AS freed
FROM done CROSS JOIN news;

-- FINISH_PLAIN
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS float8) AS seconds, CAST(? AS float8) AS ageing),
v AS (SELECT * FROM json_to_recordset(CAST(? AS json)) AS v(
    run_id bigint, step_no int, lease text, kind text, message text, meta text, jitter float8,
    sticky boolean, fatal boolean, next_no int, children int)),

held AS MATERIALIZED (
    SELECT t.*, t.outcome = 'running' AND t.next_key IS NOT NULL AS keeps_lock
    FROM (
SELECT r.id AS id, r.group_id AS group_id, r.step_no AS step_no, r.retry AS retry,
    r.fence AS fence, r.worker_id AS worker_id, r.lease AS lease, r.events AS events,
    r.parent_id AS parent_id, r.parent_step AS parent_step,
    r.resource_key AS resource_key, s.resource_shared AS shares,
    r.step_started_at AS step_started_at, v.kind AS kind, v.message AS message, v.meta AS meta, v.kind = 'error' AS is_error,
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
                        AND l.holder_id = r.lease AND l.expires_at > (SELECT now FROM clock)))) THEN 'running'
         ELSE 'ready' END
WHEN 'error' THEN
    CASE WHEN v.fatal OR r.retry + 1 >= s.retries THEN 'failed'
         WHEN r.wanted = 'cancel' THEN 'cancelled'
         WHEN r.wanted = 'pause' THEN 'paused'
         WHEN s.backoff > 0 THEN 'delayed' ELSE 'ready' END
ELSE CASE WHEN r.wanted = 'cancel' THEN 'cancelled' WHEN r.wanted = 'pause' THEN 'paused'
          WHEN v.kind = 'parked' THEN 'parked' ELSE 'ready' END
END AS outcome
FROM v
JOIN lexigram_durable_runs r
    ON r.id = v.run_id AND r.lease = v.lease AND r.step_no = v.step_no
JOIN lexigram_durable_plan_steps s ON s.plan_id = r.plan_id AND s.step_no = r.step_no
LEFT JOIN lexigram_durable_plan_steps n
    ON n.plan_id = r.plan_id AND n.step_no = coalesce(v.next_no, r.step_no + 1)
         ORDER BY r.id DESC FOR UPDATE OF r) t),
done AS (
    UPDATE lexigram_durable_runs r SET 
    status = h.outcome,
    step_no = CASE WHEN h.advances THEN h.next_no ELSE r.step_no END,
    step_type = CASE WHEN h.advances THEN h.next_type ELSE r.step_type END,
    step_kind = CASE WHEN h.advances THEN h.next_kind ELSE r.step_kind END,
    resource_key = CASE WHEN h.advances THEN h.next_key
                        WHEN h.outcome = 'completed' THEN NULL ELSE r.resource_key END,
    retry = CASE WHEN h.advances THEN 0 WHEN h.is_error THEN r.retry + 1 ELSE r.retry END,
    lost = CASE WHEN h.kind = 'released' THEN r.lost ELSE 0 END, begun = 0,
    fence = CASE WHEN h.outcome = 'running' THEN r.fence + 1 ELSE r.fence END,
    available_at = CASE WHEN h.is_error THEN (SELECT now FROM clock) + h.delay ELSE (SELECT now FROM clock) END,
    rank = CASE WHEN h.is_error THEN (SELECT now FROM clock) + h.delay - r.priority * (SELECT ageing FROM p) ELSE r.rank END,
    lease = CASE WHEN h.outcome = 'running' THEN r.lease END,
    lease_until = CASE WHEN h.outcome = 'running' THEN (SELECT now FROM clock) + (SELECT seconds FROM p) END,
    worker_id = CASE WHEN h.outcome = 'running' THEN r.worker_id END,
    wanted = CASE WHEN h.outcome = 'running' THEN r.wanted END,
    step_started_at = CASE WHEN h.outcome = 'running' THEN (SELECT now FROM clock) END,
    status_at = (SELECT now FROM clock),
    completed_at = CASE WHEN h.outcome IN ('completed', 'failed', 'cancelled') THEN (SELECT now FROM clock) END,
    message = CASE WHEN h.outcome = 'failed' THEN h.message ELSE r.message END,
    fan = CASE WHEN NOT h.advances THEN r.fan WHEN h.children IS NOT NULL THEN r.step_no END,
    children = CASE WHEN h.advances THEN coalesce(h.children, 0) ELSE r.children END,
    children_failed = CASE WHEN h.advances THEN 0 ELSE r.children_failed END,
    parked = CASE WHEN h.kind = 'parked' THEN h.message END,
    answer = CASE WHEN h.advances OR h.kind = 'parked' THEN NULL ELSE r.answer END
    FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.step_no, r.retry, r.fence, r.parent_id,
        r.parent_step, r.events, h.kind, h.step_no AS was_step, h.fence AS was_fence),
attempts AS (
INSERT INTO lexigram_durable_history
    (run_id, fence, step_no, retry, status, worker_id, started_at, finished_at, message, meta)
SELECT h.id, h.fence, h.step_no,
    h.retry + CASE WHEN h.is_error OR h.kind = 'failed' THEN 1 ELSE 0 END,
    CASE WHEN h.kind = 'completed' THEN 'COMPLETED'
         WHEN h.kind = 'failed' OR h.outcome = 'failed' THEN 'FAILED'
         WHEN h.kind = 'error' THEN 'ERROR' ELSE 'PENDING' END,
    h.worker_id, h.step_started_at, (SELECT now FROM clock), h.message, h.meta FROM held h),


unlocked AS (
    DELETE FROM lexigram_locks l USING held h
    WHERE l.resource_key = h.resource_key AND l.holder_id = h.lease AND NOT h.keeps_lock
        AND l.holder_meta = '{}' AND true
    RETURNING l.resource_key, h.shares),
leavers AS (
    SELECT resource_key, lease, CAST(count(*) AS int) AS n FROM held
    WHERE resource_key IS NOT NULL AND NOT keeps_lock GROUP BY resource_key, lease),
leavers_in_order AS MATERIALIZED (
    SELECT resource_key FROM lexigram_locks
    WHERE resource_key IN (SELECT resource_key FROM leavers) AND holder_meta <> '{}'
        AND true
    ORDER BY resource_key FOR UPDATE),
leaving AS (
    UPDATE lexigram_locks l SET
        holder_meta = '{"steps": ' || CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) - e.n || '}',
        expires_at = CASE WHEN CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) > e.n THEN l.expires_at ELSE 0 END
    FROM leavers e JOIN leavers_in_order o USING (resource_key)
    WHERE l.resource_key = e.resource_key AND l.holder_id = e.lease AND l.holder_meta <> '{}'
    RETURNING l.resource_key, l.expires_at),
freed AS (
    SELECT resource_key, CASE WHEN shares THEN 50 ELSE 1 END AS n FROM unlocked
    UNION ALL SELECT resource_key, 50 FROM leaving WHERE expires_at = 0),
unblocked AS (
    UPDATE lexigram_durable_runs SET status = 'ready'
    WHERE id IN (SELECT b.id FROM freed f CROSS JOIN LATERAL (
        SELECT id FROM lexigram_durable_runs
        WHERE resource_key = f.resource_key AND status = 'blocked'
        ORDER BY rank, id LIMIT f.n FOR UPDATE SKIP LOCKED) b)
    RETURNING id),

counted AS (
    SELECT group_id, CAST(count(*) AS int) AS n,
        CAST(count(*) FILTER (WHERE status = 'failed') AS int) AS failed,
        CAST(count(*) FILTER (WHERE status = 'cancelled') AS int) AS cancelled
    FROM done WHERE status IN ('completed', 'failed', 'cancelled') AND parent_id IS NULL
    GROUP BY group_id),
in_order AS MATERIALIZED (
    SELECT id FROM lexigram_durable_groups WHERE id IN (SELECT group_id FROM counted)
        AND (SELECT count(*) FROM unblocked) >= 0 ORDER BY id FOR UPDATE),
counted_down AS (
    UPDATE lexigram_durable_groups g SET 
    remaining = g.remaining - c.n,
    failed = g.failed + c.failed,
    cancelled = g.cancelled + c.cancelled,
    status = CASE
        WHEN g.remaining > c.n THEN
            CASE WHEN g.status = 'pending' AND c.cancelled = c.n THEN 'pending' ELSE 'running' END
        WHEN g.failed + c.failed > 0 THEN 'failed'
        WHEN g.cancelled + c.cancelled >= g.total THEN 'cancelled' ELSE 'completed' END,
    endings = g.endings + CASE WHEN g.remaining = c.n THEN 1 ELSE 0 END,
    completed_at = CASE WHEN g.remaining = c.n THEN (SELECT now FROM clock) END,
        started_at = CASE WHEN g.started_at IS NULL AND c.cancelled < c.n THEN (SELECT now FROM clock)
                          ELSE g.started_at END
    FROM counted c JOIN in_order o ON o.id = c.group_id WHERE g.id = c.group_id
    RETURNING g.id, g.remaining, g.endings, g.status, g.started_at, g.events),
group_events AS (
    INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at, audience)
    SELECT 'group_start', d.id, 0, 'running', (SELECT now FROM clock), a.name
    FROM counted_down d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 1 <> 0 WHERE d.started_at = (SELECT now FROM clock)
    UNION ALL
    SELECT 'group_end', d.id, d.endings, d.status, (SELECT now FROM clock), a.name
    FROM counted_down d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 2 <> 0 WHERE d.remaining = 0
    ON CONFLICT DO NOTHING RETURNING group_id),
news AS MATERIALIZED (
    SELECT CASE WHEN EXISTS (SELECT 1 FROM done WHERE status IN ('ready', 'delayed'))
                OR EXISTS (SELECT 1 FROM unblocked) OR EXISTS (SELECT 1 FROM group_events) 
           THEN CAST(pg_notify('lexigram_durable', '') AS text) END AS notified)
SELECT done.*, news.notified, ARRAY(SELECT resource_key FROM leaving WHERE expires_at = 0) AS freed
FROM done CROSS JOIN news;

-- FORGET_FREED
DELETE FROM lexigram_locks WHERE resource_key = ANY(CAST(? AS text[])) AND expires_at = 0;

-- FORGET_RUNS
WITH gone AS (
    DELETE FROM lexigram_durable_runs WHERE id = ANY(ARRAY(
        SELECT r.id FROM lexigram_durable_runs r WHERE r.group_id = ? AND EXISTS (
            SELECT 1 FROM lexigram_durable_groups g
            WHERE g.id = r.group_id AND g.completed_at IS NOT NULL)
        LIMIT 500 FOR UPDATE OF r SKIP LOCKED))
    RETURNING id),
h AS (DELETE FROM lexigram_durable_history WHERE run_id IN (SELECT id FROM gone))
SELECT count(*) AS n FROM gone;

-- HEARTBEAT
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS text) AS worker, CAST(? AS float8) AS seconds, CAST(? AS text) AS lacks),
v AS (SELECT * FROM unnest(CAST(? AS bigint[]), CAST(? AS text[])) AS v(run_id, lease)),
seen AS (
    INSERT INTO lexigram_durable_checkins AS c
        (worker_id, first_checkin, last_checkin, expires_at, lacks)
    SELECT worker, (SELECT now FROM clock), (SELECT now FROM clock), (SELECT now FROM clock) + seconds, lacks FROM p
    ON CONFLICT (worker_id) DO UPDATE
    SET last_checkin = excluded.last_checkin, expires_at = excluded.expires_at,
        lacks = excluded.lacks, first_checkin = CASE
    WHEN c.expires_at <= excluded.last_checkin OR c.first_checkin > excluded.last_checkin
    THEN excluded.last_checkin ELSE c.first_checkin END),
free AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease FROM lexigram_durable_runs r
    JOIN v ON v.run_id = r.id AND v.lease = r.lease
    WHERE r.status = 'running' FOR UPDATE OF r SKIP LOCKED),
kept AS (
    UPDATE lexigram_durable_runs r SET lease_until = (SELECT now FROM clock) + p.seconds
    FROM free f CROSS JOIN p WHERE r.id = f.id),
locked AS MATERIALIZED (
    SELECT l.resource_key FROM lexigram_locks l
    JOIN free f ON f.resource_key = l.resource_key AND f.lease = l.holder_id
    WHERE l.expires_at > (SELECT now FROM clock) FOR UPDATE OF l SKIP LOCKED),
kept_locks AS (
    UPDATE lexigram_locks l SET expires_at = (SELECT now FROM clock) + p.seconds
    FROM locked k CROSS JOIN p WHERE l.resource_key = k.resource_key)
SELECT v.run_id, v.lease, r.wanted, r.id IS NOT NULL AND (r.resource_key IS NULL
    OR EXISTS (SELECT 1 FROM lexigram_locks l
        WHERE l.resource_key = r.resource_key AND l.holder_id = r.lease)) AS is_kept
FROM v LEFT JOIN lexigram_durable_runs r
    ON r.id = v.run_id AND r.lease = v.lease AND r.status = 'running';

-- KNOWN_RUNS
SELECT id, group_id, idempotency_key FROM lexigram_durable_runs
WHERE idempotency_key = ANY(CAST(? AS text[]));

-- LOCK_GROUP
SELECT * FROM lexigram_durable_groups WHERE id = ? FOR UPDATE;

-- LOCK_RUNS
SELECT id FROM lexigram_durable_runs WHERE id = ANY(CAST(? AS bigint[]))
ORDER BY id DESC FOR UPDATE;

-- NEXT_DUE
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now) SELECT min(available_at) - (SELECT now FROM clock) AS seconds
FROM lexigram_durable_runs WHERE status = 'delayed';

-- PARENTS_OF_GROUP
SELECT id FROM lexigram_durable_runs WHERE id = ANY(ARRAY(
    SELECT r.parent_id FROM lexigram_durable_runs r WHERE r.group_id = ? AND r.parent_id IS NOT NULL))
ORDER BY id DESC FOR UPDATE;

-- PARENTS_OF_RUN
WITH p AS (SELECT CAST(? AS bigint) AS run_id)
SELECT id FROM lexigram_durable_runs WHERE id = ANY(ARRAY(
    SELECT r.parent_id FROM lexigram_durable_runs r WHERE r.id = ANY(ARRAY(WITH RECURSIVE tree AS (
    SELECT (SELECT run_id FROM p) AS id UNION ALL
    SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND r.parent_id IS NOT NULL))
ORDER BY id DESC FOR UPDATE;

-- PARK
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now) UPDATE lexigram_durable_runs SET status = 'blocked'
WHERE id = ANY(ARRAY(SELECT r.id FROM lexigram_locks l
    JOIN lexigram_durable_runs r ON r.resource_key = l.resource_key AND r.status = 'ready'
    WHERE l.expires_at > (SELECT now FROM clock) LIMIT 1000 FOR UPDATE OF r SKIP LOCKED));

-- PAUSE 1
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id),
held AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease, r.status AS was, false AS shares, false AS keeps_lock
    FROM lexigram_durable_runs r
    WHERE r.group_id = (SELECT group_id FROM p) AND r.completed_at IS NULL AND r.status <> 'paused' AND r.wanted IS NULL LIMIT 500 FOR UPDATE OF r SKIP LOCKED),
done AS (
    UPDATE lexigram_durable_runs r SET status = CASE r.status WHEN 'running' THEN 'running' ELSE 'paused' END,
        wanted = CASE r.status WHEN 'running' THEN 'pause' END, status_at = (SELECT now FROM clock) FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.parent_id, r.parent_step, r.fan, h.was)
SELECT done.*, CAST((SELECT pg_notify('lexigram_durable_wanted', '')) AS text) AS notified FROM done;

-- PAUSE 2
WITH p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id)
        SELECT count(*) AS n FROM lexigram_durable_runs r WHERE r.group_id = (SELECT group_id FROM p) AND r.completed_at IS NULL AND r.status <> 'paused' AND r.wanted IS NULL;

-- PAUSE 3
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id),
held AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease, r.status AS was, false AS shares, false AS keeps_lock
    FROM lexigram_durable_runs r
    WHERE r.id = ANY(ARRAY(WITH RECURSIVE tree AS (
    SELECT (SELECT run_id FROM p) AS id UNION ALL
    SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND r.completed_at IS NULL AND r.status <> 'paused' AND r.wanted IS NULL LIMIT 500 FOR UPDATE OF r SKIP LOCKED),
done AS (
    UPDATE lexigram_durable_runs r SET status = CASE r.status WHEN 'running' THEN 'running' ELSE 'paused' END,
        wanted = CASE r.status WHEN 'running' THEN 'pause' END, status_at = (SELECT now FROM clock) FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.parent_id, r.parent_step, r.fan, h.was)
SELECT done.*, CAST((SELECT pg_notify('lexigram_durable_wanted', '')) AS text) AS notified FROM done;

-- PAUSE 4
WITH p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id)
        SELECT count(*) AS n FROM lexigram_durable_runs r WHERE r.id = ANY(ARRAY(WITH RECURSIVE tree AS (
    SELECT (SELECT run_id FROM p) AS id UNION ALL
    SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND r.completed_at IS NULL AND r.status <> 'paused' AND r.wanted IS NULL;

-- PROMOTE
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now) UPDATE lexigram_durable_runs SET status = 'ready'
WHERE id = ANY(ARRAY(SELECT id FROM lexigram_durable_runs
    WHERE status = 'delayed' AND available_at <= (SELECT now FROM clock)
    ORDER BY available_at LIMIT 1000 FOR UPDATE SKIP LOCKED));

-- REAP
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS text[]) AS own, CAST(? AS text[]) AS held, CAST(? AS int) AS max_lost,
    CAST(? AS float8) AS ageing, CAST(? AS float8) AS seconds),
steady AS MATERIALIZED (
    SELECT coalesce(bool_or(c.expires_at > (SELECT now FROM clock) AND c.first_checkin <= (SELECT now FROM clock) - p.seconds / 2),
        true) AS is_steady
    FROM p LEFT JOIN lexigram_durable_checkins c ON c.worker_id = ANY(p.own)),
taken AS MATERIALIZED (
    SELECT r.id, r.group_id, r.step_no, r.retry, r.fence, r.worker_id, r.lease, r.resource_key,
        r.step_started_at, r.begun, false AS shares, 'reaped' AS kind, false AS is_error,
        false AS keeps_lock,
        
CASE WHEN r.wanted = 'cancel' THEN 'cancelled'
     WHEN r.begun >= (SELECT max_lost FROM p) THEN 'failed'
     WHEN r.wanted = 'pause' THEN 'paused' ELSE 'ready' END AS outcome
    FROM lexigram_durable_runs r
    WHERE r.status = 'running' AND r.lease_until <= (SELECT now FROM clock) AND (SELECT is_steady FROM steady)
        AND (r.worker_id <> ALL((SELECT own FROM p)::text[])
            OR r.lease <> ALL((SELECT held FROM p)::text[]))
    ORDER BY r.lease_until LIMIT 500 FOR UPDATE OF r SKIP LOCKED),
held AS MATERIALIZED (
    SELECT h.*, 
CASE WHEN h.outcome = 'failed' THEN 
'poison: its worker ended ' || h.begun || CASE h.begun WHEN 1 THEN ' time' ELSE ' times' END
    || ' while the handler ran' ELSE 'reset by dead-worker reaper' END AS message, 
CASE WHEN h.outcome = 'failed' THEN '{"error": "WorkerLost", "reason": "poison", "text": "'
    || 
'poison: its worker ended ' || h.begun || CASE h.begun WHEN 1 THEN ' time' ELSE ' times' END
    || ' while the handler ran' || '"}' END AS meta FROM taken h),
done AS (
    UPDATE lexigram_durable_runs r SET status = h.outcome, lost = r.lost + 1, lease = NULL,
        lease_until = NULL, worker_id = NULL, wanted = NULL, step_started_at = NULL,
        status_at = (SELECT now FROM clock), available_at = (SELECT now FROM clock),
        completed_at = CASE WHEN h.outcome IN ('failed', 'cancelled') THEN (SELECT now FROM clock) END,
        message = CASE WHEN h.outcome = 'failed' THEN h.message ELSE r.message END
    FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.step_no, r.fence, r.parent_id, r.parent_step,
        r.events, h.kind, h.step_no AS was_step, h.fence AS was_fence),
life AS (
    INSERT INTO lexigram_durable_events
        (kind, group_id, ending, status, created_at, run_id, step_no, audience)
    SELECT x.kind, d.group_id, x.fence, x.status, (SELECT now FROM clock), d.id, x.step_no, 'handler'
    FROM done d CROSS JOIN LATERAL (VALUES 
        (1, 64, 'step_end', d.kind = 'completed', d.was_fence,
            d.was_step, 'completed'),
        (2, 128, 'step_failed',
            d.status = 'failed' OR d.kind = 'failed', d.was_fence, d.was_step, 'failed'),
        (3, 8, 'item_end', d.status = 'completed',
            d.was_fence, d.was_step, 'completed'),
        (4, 16, 'item_failed', d.status = 'failed',
            d.was_fence, d.was_step, 'failed'),
        (5, 32, 'step_start', d.status = 'running', d.fence,
            d.step_no, 'running'))
        AS x(n, bit, kind, happened, fence, step_no, status)
    WHERE d.events <> 0 AND d.events & x.bit <> 0 AND x.happened
    ORDER BY d.id, x.n ON CONFLICT DO NOTHING),
attempts AS (
INSERT INTO lexigram_durable_history
    (run_id, fence, step_no, retry, status, worker_id, started_at, finished_at, message, meta)
SELECT h.id, h.fence, h.step_no,
    h.retry + CASE WHEN h.is_error OR h.kind = 'failed' THEN 1 ELSE 0 END,
    CASE WHEN h.kind = 'completed' THEN 'COMPLETED'
         WHEN h.kind = 'failed' OR h.outcome = 'failed' THEN 'FAILED'
         WHEN h.kind = 'error' THEN 'ERROR' ELSE 'PENDING' END,
    h.worker_id, h.step_started_at, (SELECT now FROM clock), h.message, h.meta FROM held h),

children AS MATERIALIZED (
    SELECT parent_id, parent_step, CAST(count(*) AS int) AS n,
        CAST(count(*) FILTER (WHERE status <> 'completed') AS int) AS failed
    FROM done WHERE status IN ('completed', 'failed', 'cancelled') AND parent_id IS NOT NULL
    GROUP BY parent_id, parent_step),
parents AS MATERIALIZED (
    SELECT id FROM lexigram_durable_runs
    WHERE id = ANY(ARRAY(SELECT parent_id FROM children WHERE parent_id NOT IN (
        SELECT id FROM done))) ORDER BY id DESC FOR UPDATE),
gathered AS (
    UPDATE lexigram_durable_runs r SET children = r.children - c.n,
        children_failed = r.children_failed + c.failed,
        status = CASE WHEN r.status = 'waiting' AND r.children <= c.n THEN 'ready'
                      ELSE r.status END
    FROM children c WHERE r.id = ANY(ARRAY(SELECT id FROM parents)) AND r.id = c.parent_id
        AND r.fan = c.parent_step
    RETURNING r.id, r.status),

unlocked AS (
    DELETE FROM lexigram_locks l USING held h
    WHERE l.resource_key = h.resource_key AND l.holder_id = h.lease AND NOT h.keeps_lock
        AND l.holder_meta = '{}' AND (SELECT count(*) FROM parents) >= 0
    RETURNING l.resource_key, h.shares),
leavers AS (
    SELECT resource_key, lease, CAST(count(*) AS int) AS n FROM held
    WHERE resource_key IS NOT NULL AND NOT keeps_lock GROUP BY resource_key, lease),
leavers_in_order AS MATERIALIZED (
    SELECT resource_key FROM lexigram_locks
    WHERE resource_key IN (SELECT resource_key FROM leavers) AND holder_meta <> '{}'
        AND (SELECT count(*) FROM parents) >= 0
    ORDER BY resource_key FOR UPDATE),
leaving AS (
    UPDATE lexigram_locks l SET
        holder_meta = '{"steps": ' || CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) - e.n || '}',
        expires_at = CASE WHEN CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) > e.n THEN l.expires_at ELSE 0 END
    FROM leavers e JOIN leavers_in_order o USING (resource_key)
    WHERE l.resource_key = e.resource_key AND l.holder_id = e.lease AND l.holder_meta <> '{}'
    RETURNING l.resource_key, l.expires_at),
freed AS (
    SELECT resource_key, CASE WHEN shares THEN 50 ELSE 1 END AS n FROM unlocked
    UNION ALL SELECT resource_key, 50 FROM leaving WHERE expires_at = 0),
unblocked AS (
    UPDATE lexigram_durable_runs SET status = 'ready'
    WHERE id IN (SELECT b.id FROM freed f CROSS JOIN LATERAL (
        SELECT id FROM lexigram_durable_runs
        WHERE resource_key = f.resource_key AND status = 'blocked'
        ORDER BY rank, id LIMIT f.n FOR UPDATE SKIP LOCKED) b)
    RETURNING id),

counted AS (
    SELECT group_id, CAST(count(*) AS int) AS n,
        CAST(count(*) FILTER (WHERE status = 'failed') AS int) AS failed,
        CAST(count(*) FILTER (WHERE status = 'cancelled') AS int) AS cancelled
    FROM done WHERE status IN ('completed', 'failed', 'cancelled') AND parent_id IS NULL
    GROUP BY group_id),
in_order AS MATERIALIZED (
    SELECT id FROM lexigram_durable_groups WHERE id IN (SELECT group_id FROM counted)
        AND (SELECT count(*) FROM parents) >= 0 AND (SELECT count(*) FROM unblocked) >= 0 ORDER BY id FOR UPDATE),
counted_down AS (
    UPDATE lexigram_durable_groups g SET 
    remaining = g.remaining - c.n,
    failed = g.failed + c.failed,
    cancelled = g.cancelled + c.cancelled,
    status = CASE
        WHEN g.remaining > c.n THEN
            CASE WHEN g.status = 'pending' AND c.cancelled = c.n THEN 'pending' ELSE 'running' END
        WHEN g.failed + c.failed > 0 THEN 'failed'
        WHEN g.cancelled + c.cancelled >= g.total THEN 'cancelled' ELSE 'completed' END,
    endings = g.endings + CASE WHEN g.remaining = c.n THEN 1 ELSE 0 END,
    completed_at = CASE WHEN g.remaining = c.n THEN (SELECT now FROM clock) END,
        started_at = CASE WHEN g.started_at IS NULL AND c.cancelled < c.n THEN (SELECT now FROM clock)
                          ELSE g.started_at END
    FROM counted c JOIN in_order o ON o.id = c.group_id WHERE g.id = c.group_id
    RETURNING g.id, g.remaining, g.endings, g.status, g.started_at, g.events),
group_events AS (
    INSERT INTO lexigram_durable_events (kind, group_id, ending, status, created_at, audience)
    SELECT 'group_start', d.id, 0, 'running', (SELECT now FROM clock), a.name
    FROM counted_down d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 1 <> 0 WHERE d.started_at = (SELECT now FROM clock)
    UNION ALL
    SELECT 'group_end', d.id, d.endings, d.status, (SELECT now FROM clock), a.name
    FROM counted_down d JOIN (VALUES ('listener', true), ('handler', false)) AS a(name, always)
        ON a.always OR d.events & 2 <> 0 WHERE d.remaining = 0
    ON CONFLICT DO NOTHING RETURNING group_id),
gone AS (
    DELETE FROM lexigram_durable_checkins c
    WHERE c.expires_at <= (SELECT now FROM clock) AND c.worker_id <> ALL((SELECT own FROM p)::text[])
        AND (SELECT is_steady FROM steady)
    RETURNING c.worker_id)
SELECT h.id * 10000 + h.step_no AS step_id, h.worker_id, h.outcome,
    CAST((SELECT pg_notify('lexigram_durable', '')) AS text) AS notified FROM held h
UNION ALL SELECT NULL, worker_id, NULL, NULL FROM gone;

-- RECOUNT
UPDATE lexigram_durable_runs SET children = (SELECT count(*) FROM lexigram_durable_runs c WHERE c.parent_id = lexigram_durable_runs.id
        AND c.parent_step = lexigram_durable_runs.fan AND c.completed_at IS NULL), children_failed = (SELECT count(*) FROM lexigram_durable_runs c WHERE c.parent_id = lexigram_durable_runs.id
        AND c.parent_step = lexigram_durable_runs.fan AND c.status IN ('failed', 'cancelled')),
    status = CASE WHEN status IN ('ready', 'waiting')
        THEN CASE WHEN (SELECT count(*) FROM lexigram_durable_runs c WHERE c.parent_id = lexigram_durable_runs.id
        AND c.parent_step = lexigram_durable_runs.fan AND c.completed_at IS NULL) > 0 THEN 'waiting' ELSE 'ready' END ELSE status END
WHERE fan IS NOT NULL AND id = ANY(CAST(? AS bigint[]));

-- RESUME 1
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id),
held AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease, r.status AS was, false AS shares, false AS keeps_lock
    FROM lexigram_durable_runs r
    WHERE r.group_id = (SELECT group_id FROM p) AND (r.status = 'paused' OR r.wanted = 'pause') LIMIT 500 FOR UPDATE OF r SKIP LOCKED),
done AS (
    UPDATE lexigram_durable_runs r SET status = CASE WHEN r.status = 'running' THEN 'running'
                  WHEN r.children > 0 THEN 'waiting' WHEN r.parked IS NOT NULL THEN 'parked'
                  WHEN r.available_at > (SELECT now FROM clock) THEN 'delayed' ELSE 'ready' END,
        wanted = NULL, status_at = (SELECT now FROM clock) FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.parent_id, r.parent_step, r.fan, h.was)
SELECT done.*, CAST((SELECT pg_notify('lexigram_durable', '')) AS text) AS notified FROM done;

-- RESUME 2
WITH p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id)
        SELECT count(*) AS n FROM lexigram_durable_runs r WHERE r.group_id = (SELECT group_id FROM p) AND (r.status = 'paused' OR r.wanted = 'pause');

-- RESUME 3
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id),
held AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease, r.status AS was, false AS shares, false AS keeps_lock
    FROM lexigram_durable_runs r
    WHERE r.id = ANY(ARRAY(WITH RECURSIVE tree AS (
    SELECT (SELECT run_id FROM p) AS id UNION ALL
    SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND (r.status = 'paused' OR r.wanted = 'pause') LIMIT 500 FOR UPDATE OF r SKIP LOCKED),
done AS (
    UPDATE lexigram_durable_runs r SET status = CASE WHEN r.status = 'running' THEN 'running'
                  WHEN r.children > 0 THEN 'waiting' WHEN r.parked IS NOT NULL THEN 'parked'
                  WHEN r.available_at > (SELECT now FROM clock) THEN 'delayed' ELSE 'ready' END,
        wanted = NULL, status_at = (SELECT now FROM clock) FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.parent_id, r.parent_step, r.fan, h.was)
SELECT done.*, CAST((SELECT pg_notify('lexigram_durable', '')) AS text) AS notified FROM done;

-- RESUME 4
WITH p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id)
        SELECT count(*) AS n FROM lexigram_durable_runs r WHERE r.id = ANY(ARRAY(WITH RECURSIVE tree AS (
    SELECT (SELECT run_id FROM p) AS id UNION ALL
    SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND (r.status = 'paused' OR r.wanted = 'pause');

-- RETRY 1
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id),
held AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease, r.status AS was, false AS shares, false AS keeps_lock
    FROM lexigram_durable_runs r
    WHERE r.group_id = (SELECT group_id FROM p) AND r.status IN ('failed', 'cancelled') AND (r.parent_id IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_runs q
    WHERE q.id = r.parent_id AND q.fan = r.parent_step))  FOR UPDATE OF r SKIP LOCKED),
done AS (
    UPDATE lexigram_durable_runs r SET status = 'ready', retry = 0, lost = 0, begun = 0, lease = NULL, lease_until = NULL,
        worker_id = NULL, wanted = NULL, step_started_at = NULL, completed_at = NULL,
        available_at = (SELECT now FROM clock), message = NULL, parked = NULL, status_at = (SELECT now FROM clock) FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.parent_id, r.parent_step, r.fan, h.was),

unlocked AS (
    DELETE FROM lexigram_locks l USING held h
    WHERE l.resource_key = h.resource_key AND l.holder_id = h.lease AND NOT h.keeps_lock
        AND l.holder_meta = '{}' AND true
    RETURNING l.resource_key, h.shares),
leavers AS (
    SELECT resource_key, lease, CAST(count(*) AS int) AS n FROM held
    WHERE resource_key IS NOT NULL AND NOT keeps_lock GROUP BY resource_key, lease),
leavers_in_order AS MATERIALIZED (
    SELECT resource_key FROM lexigram_locks
    WHERE resource_key IN (SELECT resource_key FROM leavers) AND holder_meta <> '{}'
        AND true
    ORDER BY resource_key FOR UPDATE),
leaving AS (
    UPDATE lexigram_locks l SET
        holder_meta = '{"steps": ' || CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) - e.n || '}',
        expires_at = CASE WHEN CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) > e.n THEN l.expires_at ELSE 0 END
    FROM leavers e JOIN leavers_in_order o USING (resource_key)
    WHERE l.resource_key = e.resource_key AND l.holder_id = e.lease AND l.holder_meta <> '{}'
    RETURNING l.resource_key, l.expires_at),
freed AS (
    SELECT resource_key, CASE WHEN shares THEN 50 ELSE 1 END AS n FROM unlocked
    UNION ALL SELECT resource_key, 50 FROM leaving WHERE expires_at = 0),
unblocked AS (
    UPDATE lexigram_durable_runs SET status = 'ready'
    WHERE id IN (SELECT b.id FROM freed f CROSS JOIN LATERAL (
        SELECT id FROM lexigram_durable_runs
        WHERE resource_key = f.resource_key AND status = 'blocked'
        ORDER BY rank, id LIMIT f.n FOR UPDATE SKIP LOCKED) b)
    RETURNING id),
reopened AS (
    UPDATE lexigram_durable_groups g SET remaining = g.remaining + c.n,
        failed = g.failed - c.failed, cancelled = g.cancelled - c.cancelled, completed_at = NULL,
        status = CASE WHEN g.started_at IS NULL THEN 'pending' ELSE 'running' END
    FROM (SELECT group_id, count(*) AS n, count(*) FILTER (WHERE was = 'failed') AS failed,
              count(*) FILTER (WHERE was = 'cancelled') AS cancelled
          FROM done WHERE was IN ('failed', 'cancelled') AND parent_id IS NULL
          GROUP BY group_id) c
    WHERE g.id = c.group_id AND (SELECT count(*) FROM unblocked) >= 0)

SELECT done.*, CAST((SELECT pg_notify('lexigram_durable', '')) AS text) AS notified FROM done;

-- RETRY 2
WITH p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id)
        SELECT count(*) AS n FROM lexigram_durable_runs r WHERE r.group_id = (SELECT group_id FROM p) AND r.status IN ('failed', 'cancelled') AND (r.parent_id IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_runs q
    WHERE q.id = r.parent_id AND q.fan = r.parent_step));

-- RETRY 3
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id),
held AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease, r.status AS was, false AS shares, false AS keeps_lock
    FROM lexigram_durable_runs r
    WHERE r.id = ANY(ARRAY(WITH RECURSIVE tree AS (
    SELECT (SELECT run_id FROM p) AS id UNION ALL
    SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND r.status IN ('failed', 'cancelled') AND (r.parent_id IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_runs q
    WHERE q.id = r.parent_id AND q.fan = r.parent_step))  FOR UPDATE OF r SKIP LOCKED),
done AS (
    UPDATE lexigram_durable_runs r SET status = 'ready', retry = 0, lost = 0, begun = 0, lease = NULL, lease_until = NULL,
        worker_id = NULL, wanted = NULL, step_started_at = NULL, completed_at = NULL,
        available_at = (SELECT now FROM clock), message = NULL, parked = NULL, status_at = (SELECT now FROM clock) FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.parent_id, r.parent_step, r.fan, h.was),

unlocked AS (
    DELETE FROM lexigram_locks l USING held h
    WHERE l.resource_key = h.resource_key AND l.holder_id = h.lease AND NOT h.keeps_lock
        AND l.holder_meta = '{}' AND true
    RETURNING l.resource_key, h.shares),
leavers AS (
    SELECT resource_key, lease, CAST(count(*) AS int) AS n FROM held
    WHERE resource_key IS NOT NULL AND NOT keeps_lock GROUP BY resource_key, lease),
leavers_in_order AS MATERIALIZED (
    SELECT resource_key FROM lexigram_locks
    WHERE resource_key IN (SELECT resource_key FROM leavers) AND holder_meta <> '{}'
        AND true
    ORDER BY resource_key FOR UPDATE),
leaving AS (
    UPDATE lexigram_locks l SET
        holder_meta = '{"steps": ' || CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) - e.n || '}',
        expires_at = CASE WHEN CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) > e.n THEN l.expires_at ELSE 0 END
    FROM leavers e JOIN leavers_in_order o USING (resource_key)
    WHERE l.resource_key = e.resource_key AND l.holder_id = e.lease AND l.holder_meta <> '{}'
    RETURNING l.resource_key, l.expires_at),
freed AS (
    SELECT resource_key, CASE WHEN shares THEN 50 ELSE 1 END AS n FROM unlocked
    UNION ALL SELECT resource_key, 50 FROM leaving WHERE expires_at = 0),
unblocked AS (
    UPDATE lexigram_durable_runs SET status = 'ready'
    WHERE id IN (SELECT b.id FROM freed f CROSS JOIN LATERAL (
        SELECT id FROM lexigram_durable_runs
        WHERE resource_key = f.resource_key AND status = 'blocked'
        ORDER BY rank, id LIMIT f.n FOR UPDATE SKIP LOCKED) b)
    RETURNING id),
reopened AS (
    UPDATE lexigram_durable_groups g SET remaining = g.remaining + c.n,
        failed = g.failed - c.failed, cancelled = g.cancelled - c.cancelled, completed_at = NULL,
        status = CASE WHEN g.started_at IS NULL THEN 'pending' ELSE 'running' END
    FROM (SELECT group_id, count(*) AS n, count(*) FILTER (WHERE was = 'failed') AS failed,
              count(*) FILTER (WHERE was = 'cancelled') AS cancelled
          FROM done WHERE was IN ('failed', 'cancelled') AND parent_id IS NULL
          GROUP BY group_id) c
    WHERE g.id = c.group_id AND (SELECT count(*) FROM unblocked) >= 0)

SELECT done.*, CAST((SELECT pg_notify('lexigram_durable', '')) AS text) AS notified FROM done;

-- RETRY 4
WITH p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id)
        SELECT count(*) AS n FROM lexigram_durable_runs r WHERE r.id = ANY(ARRAY(WITH RECURSIVE tree AS (
    SELECT (SELECT run_id FROM p) AS id UNION ALL
    SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND r.status IN ('failed', 'cancelled') AND (r.parent_id IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_runs q
    WHERE q.id = r.parent_id AND q.fan = r.parent_step));

-- RETRY_HARD 1
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id),
held AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease, r.status AS was, false AS shares, false AS keeps_lock
    FROM lexigram_durable_runs r
    WHERE r.group_id = (SELECT group_id FROM p) AND r.status <> 'completed' AND (r.parent_id IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_runs q
    WHERE q.id = r.parent_id AND q.fan = r.parent_step))  FOR UPDATE OF r SKIP LOCKED),
done AS (
    UPDATE lexigram_durable_runs r SET status = 'ready', retry = 0, lost = 0, begun = 0, lease = NULL, lease_until = NULL,
        worker_id = NULL, wanted = NULL, step_started_at = NULL, completed_at = NULL,
        available_at = (SELECT now FROM clock), message = NULL, parked = NULL, status_at = (SELECT now FROM clock) FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.parent_id, r.parent_step, r.fan, h.was),

unlocked AS (
    DELETE FROM lexigram_locks l USING held h
    WHERE l.resource_key = h.resource_key AND l.holder_id = h.lease AND NOT h.keeps_lock
        AND l.holder_meta = '{}' AND true
    RETURNING l.resource_key, h.shares),
leavers AS (
    SELECT resource_key, lease, CAST(count(*) AS int) AS n FROM held
    WHERE resource_key IS NOT NULL AND NOT keeps_lock GROUP BY resource_key, lease),
leavers_in_order AS MATERIALIZED (
    SELECT resource_key FROM lexigram_locks
    WHERE resource_key IN (SELECT resource_key FROM leavers) AND holder_meta <> '{}'
        AND true
    ORDER BY resource_key FOR UPDATE),
leaving AS (
    UPDATE lexigram_locks l SET
        holder_meta = '{"steps": ' || CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) - e.n || '}',
        expires_at = CASE WHEN CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) > e.n THEN l.expires_at ELSE 0 END
    FROM leavers e JOIN leavers_in_order o USING (resource_key)
    WHERE l.resource_key = e.resource_key AND l.holder_id = e.lease AND l.holder_meta <> '{}'
    RETURNING l.resource_key, l.expires_at),
freed AS (
    SELECT resource_key, CASE WHEN shares THEN 50 ELSE 1 END AS n FROM unlocked
    UNION ALL SELECT resource_key, 50 FROM leaving WHERE expires_at = 0),
unblocked AS (
    UPDATE lexigram_durable_runs SET status = 'ready'
    WHERE id IN (SELECT b.id FROM freed f CROSS JOIN LATERAL (
        SELECT id FROM lexigram_durable_runs
        WHERE resource_key = f.resource_key AND status = 'blocked'
        ORDER BY rank, id LIMIT f.n FOR UPDATE SKIP LOCKED) b)
    RETURNING id),
reopened AS (
    UPDATE lexigram_durable_groups g SET remaining = g.remaining + c.n,
        failed = g.failed - c.failed, cancelled = g.cancelled - c.cancelled, completed_at = NULL,
        status = CASE WHEN g.started_at IS NULL THEN 'pending' ELSE 'running' END
    FROM (SELECT group_id, count(*) AS n, count(*) FILTER (WHERE was = 'failed') AS failed,
              count(*) FILTER (WHERE was = 'cancelled') AS cancelled
          FROM done WHERE was IN ('failed', 'cancelled') AND parent_id IS NULL
          GROUP BY group_id) c
    WHERE g.id = c.group_id AND (SELECT count(*) FROM unblocked) >= 0)

SELECT done.*, CAST((SELECT pg_notify('lexigram_durable', '')) AS text) AS notified FROM done;

-- RETRY_HARD 2
WITH p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id)
        SELECT count(*) AS n FROM lexigram_durable_runs r WHERE r.group_id = (SELECT group_id FROM p) AND r.status <> 'completed' AND (r.parent_id IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_runs q
    WHERE q.id = r.parent_id AND q.fan = r.parent_step));

-- RETRY_HARD 3
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id),
held AS MATERIALIZED (
    SELECT r.id, r.resource_key, r.lease, r.status AS was, false AS shares, false AS keeps_lock
    FROM lexigram_durable_runs r
    WHERE r.id = ANY(ARRAY(WITH RECURSIVE tree AS (
    SELECT (SELECT run_id FROM p) AS id UNION ALL
    SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND r.status <> 'completed' AND (r.parent_id IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_runs q
    WHERE q.id = r.parent_id AND q.fan = r.parent_step))  FOR UPDATE OF r SKIP LOCKED),
done AS (
    UPDATE lexigram_durable_runs r SET status = 'ready', retry = 0, lost = 0, begun = 0, lease = NULL, lease_until = NULL,
        worker_id = NULL, wanted = NULL, step_started_at = NULL, completed_at = NULL,
        available_at = (SELECT now FROM clock), message = NULL, parked = NULL, status_at = (SELECT now FROM clock) FROM held h WHERE r.id = h.id
    RETURNING r.id, r.group_id, r.status, r.parent_id, r.parent_step, r.fan, h.was),

unlocked AS (
    DELETE FROM lexigram_locks l USING held h
    WHERE l.resource_key = h.resource_key AND l.holder_id = h.lease AND NOT h.keeps_lock
        AND l.holder_meta = '{}' AND true
    RETURNING l.resource_key, h.shares),
leavers AS (
    SELECT resource_key, lease, CAST(count(*) AS int) AS n FROM held
    WHERE resource_key IS NOT NULL AND NOT keeps_lock GROUP BY resource_key, lease),
leavers_in_order AS MATERIALIZED (
    SELECT resource_key FROM lexigram_locks
    WHERE resource_key IN (SELECT resource_key FROM leavers) AND holder_meta <> '{}'
        AND true
    ORDER BY resource_key FOR UPDATE),
leaving AS (
    UPDATE lexigram_locks l SET
        holder_meta = '{"steps": ' || CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) - e.n || '}',
        expires_at = CASE WHEN CAST(CAST(l.holder_meta AS json) ->> 'steps' AS int) > e.n THEN l.expires_at ELSE 0 END
    FROM leavers e JOIN leavers_in_order o USING (resource_key)
    WHERE l.resource_key = e.resource_key AND l.holder_id = e.lease AND l.holder_meta <> '{}'
    RETURNING l.resource_key, l.expires_at),
freed AS (
    SELECT resource_key, CASE WHEN shares THEN 50 ELSE 1 END AS n FROM unlocked
    UNION ALL SELECT resource_key, 50 FROM leaving WHERE expires_at = 0),
unblocked AS (
    UPDATE lexigram_durable_runs SET status = 'ready'
    WHERE id IN (SELECT b.id FROM freed f CROSS JOIN LATERAL (
        SELECT id FROM lexigram_durable_runs
        WHERE resource_key = f.resource_key AND status = 'blocked'
        ORDER BY rank, id LIMIT f.n FOR UPDATE SKIP LOCKED) b)
    RETURNING id),
reopened AS (
    UPDATE lexigram_durable_groups g SET remaining = g.remaining + c.n,
        failed = g.failed - c.failed, cancelled = g.cancelled - c.cancelled, completed_at = NULL,
        status = CASE WHEN g.started_at IS NULL THEN 'pending' ELSE 'running' END
    FROM (SELECT group_id, count(*) AS n, count(*) FILTER (WHERE was = 'failed') AS failed,
              count(*) FILTER (WHERE was = 'cancelled') AS cancelled
          FROM done WHERE was IN ('failed', 'cancelled') AND parent_id IS NULL
          GROUP BY group_id) c
    WHERE g.id = c.group_id AND (SELECT count(*) FROM unblocked) >= 0)

SELECT done.*, CAST((SELECT pg_notify('lexigram_durable', '')) AS text) AS notified FROM done;

-- RETRY_HARD 4
WITH p AS (SELECT CAST(? AS bigint) AS group_id, CAST(? AS bigint) AS run_id)
        SELECT count(*) AS n FROM lexigram_durable_runs r WHERE r.id = ANY(ARRAY(WITH RECURSIVE tree AS (
    SELECT (SELECT run_id FROM p) AS id UNION ALL
    SELECT c.id FROM tree t JOIN lexigram_durable_runs c ON c.parent_id = t.id)
    SELECT id FROM tree)) AND r.status <> 'completed' AND (r.parent_id IS NULL OR EXISTS (SELECT 1 FROM lexigram_durable_runs q
    WHERE q.id = r.parent_id AND q.fan = r.parent_step));

-- SUBMIT
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
g AS (
    INSERT INTO lexigram_durable_groups (name, workflow_id, param_id, batch_id, status, total,
        remaining, created_at, plan_id, events)
    SELECT CAST(? AS text), CAST(? AS text), CAST(? AS text), CAST(? AS bigint), 'pending', c.n,
        c.n, (SELECT now FROM clock), s.plan_id, CAST(? AS int)
    FROM lexigram_durable_plan_steps s CROSS JOIN (SELECT CAST(? AS int) AS n) c
    WHERE s.plan_id = ? AND s.step_no = 1
    RETURNING id, plan_id, events),
p AS (SELECT (SELECT now FROM clock) AS now, g.id AS group_id, g.plan_id, CAST(? AS int) AS n_steps,
    CAST(? AS float8) AS ageing, CAST(? AS float8) AS gap, g.events, (SELECT now FROM clock) AS base,
    CAST(NULL AS bigint) AS parent_id, CAST(NULL AS int) AS parent_step, 'ready' AS status
    FROM g),

v AS (SELECT * FROM json_to_recordset(CAST(? AS json)) AS v(
    n int, doc_id text, batch_id bigint, priority int, tenant text, delay float8,
    idempotency_key text, params text)),
last AS (SELECT t.tenant, (SELECT max(r.turn) FROM lexigram_durable_runs r
        WHERE r.tenant = t.tenant AND r.completed_at IS NULL) AS turn
    FROM (SELECT DISTINCT tenant FROM v WHERE tenant IS NOT NULL) t),
turns AS (SELECT v.*, CASE WHEN v.tenant IS NULL THEN p.base ELSE
        greatest(p.base, coalesce(l.turn + p.gap, p.base))
        + p.gap * (row_number() OVER (PARTITION BY v.tenant ORDER BY v.n) - 1) END + v.delay AS turn
    FROM v CROSS JOIN p LEFT JOIN last l ON l.tenant = v.tenant),
added AS (
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
ORDER BY t.n
ON CONFLICT DO NOTHING RETURNING id, idempotency_key)
SELECT a.id, g.id AS group_id, CAST((SELECT pg_notify('lexigram_durable', '')) AS text) AS notified
FROM added a CROSS JOIN g ORDER BY a.id;

-- SUSPECTS
SELECT g.id AS id FROM lexigram_durable_groups g
LEFT JOIN (
    SELECT group_id, count(CASE WHEN parent_id IS NULL AND completed_at IS NULL THEN 1 END) AS open,
        count(CASE WHEN parent_id IS NULL AND status = 'failed' THEN 1 END) AS failed,
        count(CASE WHEN parent_id IS NULL AND status = 'cancelled' THEN 1 END) AS cancelled,
        count(CASE WHEN parent_id IS NULL THEN 1 END) AS total,
        count(CASE WHEN status = 'waiting' THEN 1 END) AS waiting,
        min(started_at) AS started_at
    FROM lexigram_durable_runs WHERE group_id = ANY(CAST(? AS bigint[])) GROUP BY group_id) c ON c.group_id = g.id
WHERE g.id = ANY(CAST(? AS bigint[])) AND (c.group_id IS NULL OR c.open <> g.remaining OR c.failed <> g.failed
    OR c.cancelled <> g.cancelled OR c.total <> g.total OR c.waiting > 0 OR g.remaining = 0
    OR (g.started_at IS NULL AND c.started_at IS NOT NULL));

-- TAKE_EVENTS_OF handler
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now) UPDATE lexigram_durable_events
SET lease = ?, lease_until = (SELECT now FROM clock) + CAST(? AS float8), tries = tries + 1
WHERE id = ANY(ARRAY(SELECT id FROM lexigram_durable_events
    WHERE delivered_at IS NULL AND audience = 'handler' AND kind = ANY(CAST(? AS text[]))
        AND id <> ALL(CAST(? AS bigint[]))
        AND (lease_until IS NULL OR lease_until <= (SELECT now FROM clock))
        AND (lease IS NULL OR CAST(? AS text) IS NULL OR EXISTS (
            SELECT 1 FROM lexigram_durable_checkins
            WHERE worker_id = ? AND expires_at > (SELECT now FROM clock)
                AND first_checkin <= (SELECT now FROM clock) - CAST(? AS float8)))
    ORDER BY id LIMIT CAST(? AS bigint) FOR UPDATE SKIP LOCKED))
RETURNING *;

-- TAKE_EVENTS_OF listener
WITH clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now) UPDATE lexigram_durable_events
SET lease = ?, lease_until = (SELECT now FROM clock) + CAST(? AS float8), tries = tries + 1
WHERE id = ANY(ARRAY(SELECT id FROM lexigram_durable_events
    WHERE delivered_at IS NULL AND audience = 'listener' AND kind = ANY(CAST(? AS text[]))
        AND id <> ALL(CAST(? AS bigint[]))
        AND (lease_until IS NULL OR lease_until <= (SELECT now FROM clock))
        AND (lease IS NULL OR CAST(? AS text) IS NULL OR EXISTS (
            SELECT 1 FROM lexigram_durable_checkins
            WHERE worker_id = ? AND expires_at > (SELECT now FROM clock)
                AND first_checkin <= (SELECT now FROM clock) - CAST(? AS float8)))
    ORDER BY id LIMIT CAST(? AS bigint) FOR UPDATE SKIP LOCKED))
RETURNING *;

-- UNPARK
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision) AS now),
keys AS (
    (SELECT min(resource_key) AS k FROM lexigram_durable_runs
     WHERE resource_key IS NOT NULL AND status = 'blocked')
    UNION ALL
    SELECT (SELECT min(resource_key) FROM lexigram_durable_runs
            WHERE resource_key > keys.k AND status = 'blocked')
    FROM keys WHERE keys.k IS NOT NULL)
UPDATE lexigram_durable_runs SET status = 'ready'
WHERE id IN (SELECT b.id FROM keys CROSS JOIN LATERAL (
    SELECT id FROM lexigram_durable_runs WHERE resource_key = keys.k AND status = 'blocked'
    ORDER BY rank, id LIMIT (
        SELECT CASE WHEN s.resource_shared THEN 50 ELSE 1 END
        FROM (SELECT plan_id, step_no FROM lexigram_durable_runs
            WHERE resource_key = keys.k AND status = 'blocked' ORDER BY rank, id LIMIT 1) f
        JOIN lexigram_durable_plan_steps s USING (plan_id, step_no))
    FOR UPDATE SKIP LOCKED) b
    WHERE keys.k IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM lexigram_locks l WHERE l.resource_key = keys.k AND l.expires_at > (SELECT now FROM clock))
    AND NOT EXISTS (
        SELECT 1 FROM lexigram_durable_runs o
        WHERE o.resource_key = keys.k AND o.status IN ('ready', 'running')));

-- WAITING_EVENTS
SELECT p.body AS body, w.kind AS kind, w.done AS done, w.waits_since AS waits_since
FROM (SELECT o.plan_id AS plan_id, o.kind AS kind, o.done AS done, min(o.created_at) AS waits_since
    FROM (SELECT e.kind AS kind, e.created_at AS created_at,
            coalesce((SELECT r.plan_id FROM lexigram_durable_runs r WHERE r.id = e.run_id),
                (SELECT g.plan_id FROM lexigram_durable_groups g WHERE g.id = e.group_id)) AS plan_id,
            (SELECT string_agg(CAST(l.handler_no AS text), ',' ORDER BY l.handler_no) FROM lexigram_durable_lifecycle l
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
            (SELECT string_agg(CAST(l.handler_no AS text), ',' ORDER BY l.handler_no) FROM lexigram_durable_lifecycle l
                WHERE l.event_id = e.id AND l.status IN ('COMPLETED', 'FAILED')) AS done
        FROM lexigram_durable_events e
        WHERE e.delivered_at IS NULL AND e.audience = 'handler' AND e.group_id = ?
        ORDER BY e.id LIMIT 10000) o
    GROUP BY o.plan_id, o.kind, o.done) w
JOIN lexigram_durable_plans p ON p.id = w.plan_id;
