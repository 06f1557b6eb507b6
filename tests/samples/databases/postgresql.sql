-- Written by tests/samples/databases/fill.py at commit 25c098f.
CREATE SCHEMA before_upgrade;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE before_upgrade.lexigram_ai_dead_letters (
    source character varying(32) NOT NULL,
    id text NOT NULL,
    payload text NOT NULL,
    failure_count integer NOT NULL,
    first_failure double precision NOT NULL,
    last_failure double precision NOT NULL,
    last_error text NOT NULL,
    category character varying(16) NOT NULL,
    state character varying(12) NOT NULL,
    retry_count integer NOT NULL,
    max_retries integer NOT NULL,
    next_retry double precision NOT NULL,
    retried_at double precision,
    notified boolean NOT NULL,
    notes text NOT NULL
);
CREATE TABLE before_upgrade.lexigram_ai_figures (
    name character varying(200) NOT NULL,
    period bigint NOT NULL,
    value double precision NOT NULL
);
CREATE TABLE before_upgrade.lexigram_ai_maintenance_runs (
    id bigint NOT NULL,
    task character varying(200) NOT NULL,
    task_type character varying(32) NOT NULL,
    status character varying(16) NOT NULL,
    started_at double precision NOT NULL,
    completed_at double precision NOT NULL,
    items_processed bigint NOT NULL,
    items_deleted bigint NOT NULL,
    error text,
    notes text NOT NULL
);
CREATE SEQUENCE before_upgrade.lexigram_ai_maintenance_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE before_upgrade.lexigram_ai_maintenance_runs_id_seq OWNED BY before_upgrade.lexigram_ai_maintenance_runs.id;
CREATE TABLE before_upgrade.lexigram_bulk_batches (
    operation_id character varying(255) NOT NULL,
    batch_id bigint NOT NULL,
    failed text NOT NULL
);
CREATE TABLE before_upgrade.lexigram_bulk_operations (
    operation_id character varying(255) NOT NULL,
    batch_size integer NOT NULL,
    created_at double precision NOT NULL
);
CREATE TABLE before_upgrade.lexigram_bus_deliveries (
    group_id bigint NOT NULL,
    message bigint NOT NULL,
    id text NOT NULL,
    state character varying(8) NOT NULL,
    due_at double precision NOT NULL,
    rank bigint NOT NULL,
    queued_at double precision NOT NULL,
    ordering_key text,
    lane text,
    fence integer DEFAULT 0 NOT NULL,
    delivery_count integer DEFAULT 0 NOT NULL,
    envelope text,
    body bytea,
    dead text
);
CREATE TABLE before_upgrade.lexigram_bus_groups (
    id bigint NOT NULL,
    topic text NOT NULL,
    name text NOT NULL,
    matches text,
    paused boolean DEFAULT false NOT NULL,
    temporary boolean DEFAULT false NOT NULL,
    used_at double precision NOT NULL
);
CREATE SEQUENCE before_upgrade.lexigram_bus_groups_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE before_upgrade.lexigram_bus_groups_id_seq OWNED BY before_upgrade.lexigram_bus_groups.id;
CREATE TABLE before_upgrade.lexigram_bus_inbox (
    group_name text NOT NULL,
    message_id text NOT NULL,
    handled_at double precision NOT NULL
);
CREATE TABLE before_upgrade.lexigram_bus_messages (
    seq bigint NOT NULL,
    id text NOT NULL,
    topic text NOT NULL,
    body bytea NOT NULL,
    headers text NOT NULL,
    sent_at double precision NOT NULL,
    ttl double precision,
    priority integer NOT NULL,
    guarantee character varying(16) NOT NULL,
    retry_count integer NOT NULL,
    max_retries integer NOT NULL,
    due_at double precision NOT NULL,
    ordering_key text,
    lane text,
    copies integer NOT NULL,
    remaining integer NOT NULL
);
CREATE SEQUENCE before_upgrade.lexigram_bus_messages_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE before_upgrade.lexigram_bus_messages_seq_seq OWNED BY before_upgrade.lexigram_bus_messages.seq;
CREATE TABLE before_upgrade.lexigram_bus_outbox (
    seq bigint NOT NULL,
    queue text NOT NULL,
    owner character varying(255) NOT NULL,
    id text NOT NULL,
    topic text NOT NULL,
    body bytea NOT NULL,
    envelope text NOT NULL,
    ordering_key text,
    due_at double precision NOT NULL,
    holder character varying(255),
    attempts integer DEFAULT 0 NOT NULL,
    error text
);
CREATE SEQUENCE before_upgrade.lexigram_bus_outbox_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE before_upgrade.lexigram_bus_outbox_seq_seq OWNED BY before_upgrade.lexigram_bus_outbox.seq;
CREATE TABLE before_upgrade.lexigram_bus_seen (
    topic text NOT NULL,
    id text NOT NULL,
    seen_at double precision NOT NULL
);
CREATE TABLE before_upgrade.lexigram_cache (
    namespace character varying(128) NOT NULL,
    key text NOT NULL,
    value bytea NOT NULL,
    expires_at double precision
);
CREATE TABLE before_upgrade.lexigram_durable_batch_documents (
    batch_id bigint NOT NULL,
    uri_id bigint NOT NULL,
    doc_hash character varying(80) NOT NULL
);
CREATE TABLE before_upgrade.lexigram_durable_batches (
    id bigint NOT NULL,
    name character varying(255),
    source character varying(255) NOT NULL,
    params text NOT NULL,
    created_at double precision NOT NULL,
    completed_at double precision
);
CREATE SEQUENCE before_upgrade.lexigram_durable_batches_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE before_upgrade.lexigram_durable_batches_id_seq OWNED BY before_upgrade.lexigram_durable_batches.id;
CREATE TABLE before_upgrade.lexigram_durable_checkins (
    worker_id character varying(255) NOT NULL,
    first_checkin double precision NOT NULL,
    last_checkin double precision NOT NULL,
    expires_at double precision NOT NULL
);
CREATE TABLE before_upgrade.lexigram_durable_document_uris (
    id bigint NOT NULL,
    key character varying(64) NOT NULL,
    uri text NOT NULL,
    source character varying(255) NOT NULL,
    doc_hash character varying(80) NOT NULL,
    version integer NOT NULL,
    batch_id bigint,
    metadata text NOT NULL,
    updated_at double precision NOT NULL
);
CREATE SEQUENCE before_upgrade.lexigram_durable_document_uris_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE before_upgrade.lexigram_durable_document_uris_id_seq OWNED BY before_upgrade.lexigram_durable_document_uris.id;
CREATE TABLE before_upgrade.lexigram_durable_documents (
    hash character varying(80) NOT NULL,
    mime_type character varying(255) NOT NULL,
    file_size bigint NOT NULL,
    metadata text NOT NULL,
    created_at double precision NOT NULL
);
CREATE TABLE before_upgrade.lexigram_durable_duties (
    name character varying(64) NOT NULL,
    due_at double precision NOT NULL
);
CREATE TABLE before_upgrade.lexigram_durable_events (
    id bigint NOT NULL,
    kind character varying(32) NOT NULL,
    group_id bigint NOT NULL,
    ending integer NOT NULL,
    status character varying(16) NOT NULL,
    created_at double precision NOT NULL,
    lease character varying(255),
    lease_until double precision,
    tries integer DEFAULT 0 NOT NULL,
    delivered_at double precision,
    run_id bigint DEFAULT 0 NOT NULL,
    step_no integer DEFAULT 0 NOT NULL,
    audience character varying(16) DEFAULT 'listener'::character varying NOT NULL
);
CREATE SEQUENCE before_upgrade.lexigram_durable_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE before_upgrade.lexigram_durable_events_id_seq OWNED BY before_upgrade.lexigram_durable_events.id;
CREATE TABLE before_upgrade.lexigram_durable_groups (
    id bigint NOT NULL,
    name character varying(255),
    workflow_id character varying(255) NOT NULL,
    param_id character varying(255),
    batch_id bigint,
    status character varying(16) NOT NULL,
    total integer NOT NULL,
    remaining integer NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    cancelled integer DEFAULT 0 NOT NULL,
    endings integer DEFAULT 0 NOT NULL,
    created_at double precision NOT NULL,
    started_at double precision,
    completed_at double precision,
    idempotency_key character varying(255),
    plan_id bigint,
    events integer DEFAULT 0 NOT NULL
);
CREATE SEQUENCE before_upgrade.lexigram_durable_groups_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE before_upgrade.lexigram_durable_groups_id_seq OWNED BY before_upgrade.lexigram_durable_groups.id;
CREATE TABLE before_upgrade.lexigram_durable_history (
    run_id bigint NOT NULL,
    fence integer NOT NULL,
    step_no integer NOT NULL,
    retry integer NOT NULL,
    status character varying(16) NOT NULL,
    worker_id character varying(255),
    started_at double precision,
    finished_at double precision NOT NULL,
    message text,
    meta text
);
CREATE TABLE before_upgrade.lexigram_durable_lifecycle (
    event_id bigint NOT NULL,
    handler_no integer NOT NULL,
    handler_name character varying(255) NOT NULL,
    kind character varying(32) NOT NULL,
    group_id bigint NOT NULL,
    run_id bigint NOT NULL,
    step_no integer NOT NULL,
    status character varying(16) NOT NULL,
    attempts integer NOT NULL,
    worker_id character varying(255),
    started_at double precision NOT NULL,
    finished_at double precision,
    message text,
    meta text
);
CREATE TABLE before_upgrade.lexigram_durable_plan_steps (
    plan_id bigint NOT NULL,
    step_no integer NOT NULL,
    name character varying(255) NOT NULL,
    step_type character varying(255) NOT NULL,
    retries integer NOT NULL,
    backoff double precision NOT NULL,
    backoff_cap double precision NOT NULL,
    resource_key character varying(255),
    pool character varying(255),
    resource_shared boolean DEFAULT false NOT NULL
);
CREATE TABLE before_upgrade.lexigram_durable_plans (
    id bigint NOT NULL,
    digest character varying(64) NOT NULL,
    workflow_id character varying(255) NOT NULL,
    param_id character varying(255),
    body text NOT NULL,
    created_at double precision NOT NULL
);
CREATE SEQUENCE before_upgrade.lexigram_durable_plans_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE before_upgrade.lexigram_durable_plans_id_seq OWNED BY before_upgrade.lexigram_durable_plans.id;
CREATE TABLE before_upgrade.lexigram_durable_runs (
    id bigint NOT NULL,
    group_id bigint NOT NULL,
    plan_id bigint NOT NULL,
    doc_id character varying(255),
    batch_id bigint,
    tenant character varying(255),
    priority integer NOT NULL,
    turn double precision NOT NULL,
    rank double precision NOT NULL,
    status character varying(16) NOT NULL,
    step_no integer NOT NULL,
    n_steps integer NOT NULL,
    step_type character varying(255) NOT NULL,
    resource_key character varying(255),
    retry integer DEFAULT 0 NOT NULL,
    lost integer DEFAULT 0 NOT NULL,
    available_at double precision NOT NULL,
    lease character varying(255),
    lease_until double precision,
    worker_id character varying(255),
    fence integer DEFAULT 0 NOT NULL,
    wanted character varying(16),
    created_at double precision NOT NULL,
    started_at double precision,
    step_started_at double precision,
    status_at double precision NOT NULL,
    completed_at double precision,
    message text,
    params text NOT NULL,
    idempotency_key character varying(255),
    parent_id bigint,
    parent_step integer,
    fan integer,
    children integer DEFAULT 0 NOT NULL,
    children_failed integer DEFAULT 0 NOT NULL,
    parked text,
    answer text,
    events integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='60');
CREATE SEQUENCE before_upgrade.lexigram_durable_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE before_upgrade.lexigram_durable_runs_id_seq OWNED BY before_upgrade.lexigram_durable_runs.id;
CREATE TABLE before_upgrade.lexigram_durable_sync_states (
    source_id character varying(255) NOT NULL,
    commit_sha character varying(255),
    branch character varying(255) NOT NULL,
    metadata text NOT NULL,
    synced_at double precision NOT NULL
);
CREATE TABLE before_upgrade.lexigram_durable_uri_history (
    uri_id bigint NOT NULL,
    version integer NOT NULL,
    doc_hash character varying(80) NOT NULL,
    action character varying(16) NOT NULL,
    batch_id bigint,
    created_at double precision NOT NULL
);
CREATE TABLE before_upgrade.lexigram_graph_checkpoints (
    run_id character varying(255) NOT NULL,
    seq bigint NOT NULL,
    whole boolean NOT NULL,
    data bytea NOT NULL,
    nodes text NOT NULL,
    created_at double precision NOT NULL
);
CREATE TABLE before_upgrade.lexigram_graph_runs (
    run_id character varying(255) NOT NULL,
    graph character varying(255) NOT NULL,
    version integer NOT NULL,
    status character varying(16) NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    due_at double precision,
    error text,
    parent_run character varying(255),
    parent_seq bigint
);
CREATE TABLE before_upgrade.lexigram_idempotency (
    namespace character varying(128) NOT NULL,
    key text NOT NULL,
    status character varying(16) NOT NULL,
    value bytea,
    created_at double precision NOT NULL,
    expires_at double precision
);
CREATE TABLE before_upgrade.lexigram_job_edges (
    depends_on character varying(512) NOT NULL,
    job_id character varying(512) NOT NULL
);
CREATE TABLE before_upgrade.lexigram_job_progress (
    task_id character varying(512) NOT NULL,
    done bigint NOT NULL,
    total bigint NOT NULL,
    status character varying(16) NOT NULL,
    message text NOT NULL,
    error text NOT NULL,
    updated_at double precision NOT NULL
);
CREATE TABLE before_upgrade.lexigram_job_submissions (
    key character varying(512) NOT NULL,
    task_id character varying(512) NOT NULL,
    task_name character varying(512) NOT NULL,
    created_at double precision NOT NULL,
    is_completed boolean NOT NULL,
    result text
);
CREATE TABLE before_upgrade.lexigram_jobs (
    seq bigint NOT NULL,
    id character varying(512) NOT NULL,
    name character varying(512) NOT NULL,
    queue character varying(512) NOT NULL,
    priority integer NOT NULL,
    payload text NOT NULL,
    max_retries integer NOT NULL,
    max_deliveries integer NOT NULL,
    timeout double precision,
    result_ttl double precision,
    unique_key character varying(512),
    idempotency_key character varying(512),
    depends_on text NOT NULL,
    on_dependency_failure character varying(16) NOT NULL,
    correlation_id character varying(512),
    causation_id character varying(512),
    state character varying(16) NOT NULL,
    scheduled_at double precision,
    available_at double precision NOT NULL,
    created_at double precision NOT NULL,
    started_at double precision,
    completed_at double precision,
    retry_count integer DEFAULT 0 NOT NULL,
    lost_count integer DEFAULT 0 NOT NULL,
    error text DEFAULT ''::text NOT NULL,
    reason character varying(255) DEFAULT ''::character varying NOT NULL,
    notes text DEFAULT ''::text NOT NULL,
    cancel_requested boolean DEFAULT false NOT NULL,
    waits integer DEFAULT 0 NOT NULL,
    is_awaited boolean DEFAULT false NOT NULL,
    lease character varying(255),
    lease_until double precision,
    fence integer DEFAULT 0 NOT NULL,
    result text,
    result_until double precision
);
CREATE SEQUENCE before_upgrade.lexigram_jobs_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE before_upgrade.lexigram_jobs_seq_seq OWNED BY before_upgrade.lexigram_jobs.seq;
CREATE TABLE before_upgrade.lexigram_lock_fence (
    id integer NOT NULL,
    last bigint NOT NULL
);
CREATE TABLE before_upgrade.lexigram_locks (
    resource_key character varying(255) NOT NULL,
    holder_id character varying(255) NOT NULL,
    holder_kind character varying(32) NOT NULL,
    holder_meta text NOT NULL,
    fence bigint NOT NULL,
    acquired_at double precision NOT NULL,
    expires_at double precision NOT NULL
);
CREATE TABLE before_upgrade.lexigram_sagas (
    saga_id character varying(255) NOT NULL,
    state character varying(16) NOT NULL,
    data text NOT NULL,
    updated_at double precision NOT NULL,
    owner character varying(255),
    leased_until double precision
);
CREATE TABLE before_upgrade.lexigram_schedule_firings (
    schedule character varying(200) NOT NULL,
    tick bigint NOT NULL,
    manual integer NOT NULL,
    fired bigint NOT NULL,
    state character varying(16) NOT NULL,
    reference text,
    error text,
    callback character varying(200),
    holder character varying(255),
    lease bigint
);
CREATE TABLE before_upgrade.lexigram_schedules (
    name character varying(200) NOT NULL,
    definition text NOT NULL,
    state character varying(16) NOT NULL,
    origin character varying(16) NOT NULL,
    owner character varying(200) NOT NULL,
    next_tick bigint,
    due bigint,
    last_tick bigint,
    failures integer NOT NULL,
    last_error text
);
CREATE VIEW before_upgrade.lifecyclehistory AS
 SELECT ((lexigram_durable_lifecycle.event_id * 100) + lexigram_durable_lifecycle.handler_no) AS id,
    lexigram_durable_lifecycle.kind AS event,
    lexigram_durable_lifecycle.group_id AS run_group_id,
        CASE
            WHEN (lexigram_durable_lifecycle.run_id > 0) THEN lexigram_durable_lifecycle.run_id
            ELSE NULL::bigint
        END AS workflow_run_id,
        CASE
            WHEN (lexigram_durable_lifecycle.step_no > 0) THEN ((lexigram_durable_lifecycle.run_id * 10000) + lexigram_durable_lifecycle.step_no)
            ELSE NULL::bigint
        END AS step_id,
    lexigram_durable_lifecycle.handler_name,
    lexigram_durable_lifecycle.status,
    lexigram_durable_lifecycle.attempts,
    to_timestamp(lexigram_durable_lifecycle.started_at) AS start_date,
    to_timestamp(lexigram_durable_lifecycle.finished_at) AS completed_date,
    lexigram_durable_lifecycle.message AS status_message,
    lexigram_durable_lifecycle.meta AS status_meta,
    lexigram_durable_lifecycle.worker_id
   FROM before_upgrade.lexigram_durable_lifecycle;
CREATE TABLE before_upgrade.migrations_of_lexigram (
    version_num character varying(32) NOT NULL
);
CREATE TABLE before_upgrade.migrations_of_lexigram_ai_workers (
    version_num character varying(32) NOT NULL
);
CREATE TABLE before_upgrade.migrations_of_lexigram_queue (
    version_num character varying(32) NOT NULL
);
CREATE TABLE before_upgrade.migrations_of_lexigram_workflow (
    version_num character varying(32) NOT NULL
);
CREATE VIEW before_upgrade.resourcelock AS
 SELECT l.resource_key,
    l.holder_id,
    l.holder_kind,
    ( SELECT min(((r.id * 10000) + r.step_no)) AS min
           FROM before_upgrade.lexigram_durable_runs r
          WHERE (((r.resource_key)::text = (l.resource_key)::text) AND ((r.status)::text = 'running'::text) AND ((r.lease)::text = (l.holder_id)::text))) AS step_id,
    to_timestamp(l.acquired_at) AS acquired_at,
    to_timestamp(l.expires_at) AS expires_at,
    l.holder_meta
   FROM before_upgrade.lexigram_locks l;
CREATE VIEW before_upgrade.runstep AS
 SELECT ((r.id * 10000) + p.step_no) AS id,
    r.id AS workflow_run_id,
    p.step_no AS workflow_step_number,
    p.name AS workflow_step_name,
    ((p.plan_id * 10000) + p.step_no) AS step_config_id,
    p.step_type,
    (p.step_no = r.n_steps) AS is_last_step,
    to_timestamp(r.created_at) AS created_date,
    r.priority,
    to_timestamp(
        CASE
            WHEN ((p.step_no = r.step_no) AND ((r.status)::text = 'running'::text)) THEN r.step_started_at
            WHEN ((p.step_no = r.step_no) AND (r.retry = 0) AND ((h.status)::text <> 'PENDING'::text) AND ((r.status)::text <> ALL ((ARRAY['running'::character varying, 'completed'::character varying, 'failed'::character varying, 'cancelled'::character varying])::text[]))) THEN NULL::double precision
            ELSE h.started_at
        END) AS start_date,
    to_timestamp(
        CASE
            WHEN ((p.step_no = r.step_no) AND ((r.status)::text = 'running'::text)) THEN r.step_started_at
            WHEN ((p.step_no = r.step_no) AND (r.retry = 0) AND ((h.status)::text <> 'PENDING'::text) AND ((r.status)::text <> ALL ((ARRAY['running'::character varying, 'completed'::character varying, 'failed'::character varying, 'cancelled'::character varying])::text[]))) THEN r.status_at
            ELSE h.finished_at
        END) AS status_date,
    to_timestamp(
        CASE
            WHEN (((h.status)::text = ANY ((ARRAY['COMPLETED'::character varying, 'FAILED'::character varying])::text[])) AND ((p.step_no < r.step_no) OR ((r.status)::text = ANY ((ARRAY['completed'::character varying, 'failed'::character varying])::text[])))) THEN h.finished_at
            ELSE NULL::double precision
        END) AS completed_date,
        CASE
            WHEN (p.step_no = r.step_no) THEN r.retry
            ELSE COALESCE(h.retry, 0)
        END AS retry,
    p.retries,
        CASE
            WHEN ((p.step_no < r.step_no) OR ((r.status)::text = 'completed'::text)) THEN 'COMPLETED'::text
            WHEN (p.step_no > r.step_no) THEN
            CASE
                WHEN ((r.status)::text = ANY ((ARRAY['failed'::character varying, 'cancelled'::character varying])::text[])) THEN 'CANCELLED'::text
                ELSE 'PENDING'::text
            END
            WHEN ((r.status)::text = 'running'::text) THEN 'RUNNING'::text
            WHEN ((r.status)::text = 'failed'::text) THEN 'FAILED'::text
            WHEN ((r.status)::text = 'cancelled'::text) THEN 'CANCELLED'::text
            WHEN (r.retry > 0) THEN 'ERROR'::text
            ELSE 'PENDING'::text
        END AS status,
        CASE
            WHEN ((p.step_no > r.step_no) AND ((r.status)::text = 'failed'::text)) THEN 'cancelled: prior step failed'::text
            WHEN (((p.step_no = r.step_no) AND ((r.status)::text = 'running'::text)) OR ((p.step_no = r.step_no) AND (r.retry = 0) AND ((h.status)::text <> 'PENDING'::text) AND ((r.status)::text <> ALL ((ARRAY['running'::character varying, 'completed'::character varying, 'failed'::character varying, 'cancelled'::character varying])::text[])))) THEN NULL::text
            WHEN ((p.step_no < r.step_no) AND (h.run_id IS NULL)) THEN 'skipped'::text
            ELSE h.message
        END AS status_message,
        CASE
            WHEN (((p.step_no = r.step_no) AND ((r.status)::text = 'running'::text)) OR ((p.step_no = r.step_no) AND (r.retry = 0) AND ((h.status)::text <> 'PENDING'::text) AND ((r.status)::text <> ALL ((ARRAY['running'::character varying, 'completed'::character varying, 'failed'::character varying, 'cancelled'::character varying])::text[])))) THEN NULL::text
            WHEN ((p.step_no < r.step_no) AND (h.run_id IS NULL)) THEN '{"skipped": true}'::text
            ELSE h.meta
        END AS status_meta,
        CASE
            WHEN ((p.step_no = r.step_no) AND ((r.status)::text = 'running'::text)) THEN r.worker_id
            WHEN (((h.status)::text = 'PENDING'::text) OR ((p.step_no = r.step_no) AND (r.retry = 0) AND ((h.status)::text <> 'PENDING'::text) AND ((r.status)::text <> ALL ((ARRAY['running'::character varying, 'completed'::character varying, 'failed'::character varying, 'cancelled'::character varying])::text[])))) THEN NULL::character varying
            ELSE h.worker_id
        END AS worker_id,
        CASE
            WHEN (p.step_no = r.step_no) THEN r.lease
            ELSE NULL::character varying
        END AS lease_token,
    p.resource_key
   FROM ((before_upgrade.lexigram_durable_runs r
     JOIN before_upgrade.lexigram_durable_plan_steps p ON ((p.plan_id = r.plan_id)))
     LEFT JOIN before_upgrade.lexigram_durable_history h ON (((h.run_id = r.id) AND (h.fence = ( SELECT max(x.fence) AS max
           FROM before_upgrade.lexigram_durable_history x
          WHERE ((x.run_id = r.id) AND (x.step_no = p.step_no)))))));
CREATE VIEW before_upgrade.workercheckin AS
 SELECT lexigram_durable_checkins.worker_id AS id,
    to_timestamp(lexigram_durable_checkins.first_checkin) AS first_checkin,
    to_timestamp(lexigram_durable_checkins.last_checkin) AS last_checkin
   FROM before_upgrade.lexigram_durable_checkins;
CREATE TABLE before_upgrade.workflow_content_checkpoints (
    key_str character varying(512) NOT NULL,
    stage_id character varying(255) NOT NULL,
    tenant_id character varying(255) NOT NULL,
    entry_json text NOT NULL,
    stage_handler_version character varying(255) NOT NULL,
    output_size_bytes bigint NOT NULL,
    completed_at double precision NOT NULL,
    created_at double precision NOT NULL
);
CREATE TABLE before_upgrade.workflow_state_transitions (
    machine_id character varying(255) NOT NULL,
    version bigint NOT NULL,
    from_state character varying(255) NOT NULL,
    event character varying(255) NOT NULL,
    to_state character varying(255) NOT NULL,
    transitioned_at double precision NOT NULL
);
ALTER TABLE ONLY before_upgrade.lexigram_ai_maintenance_runs ALTER COLUMN id SET DEFAULT nextval('before_upgrade.lexigram_ai_maintenance_runs_id_seq'::regclass);
ALTER TABLE ONLY before_upgrade.lexigram_bus_groups ALTER COLUMN id SET DEFAULT nextval('before_upgrade.lexigram_bus_groups_id_seq'::regclass);
ALTER TABLE ONLY before_upgrade.lexigram_bus_messages ALTER COLUMN seq SET DEFAULT nextval('before_upgrade.lexigram_bus_messages_seq_seq'::regclass);
ALTER TABLE ONLY before_upgrade.lexigram_bus_outbox ALTER COLUMN seq SET DEFAULT nextval('before_upgrade.lexigram_bus_outbox_seq_seq'::regclass);
ALTER TABLE ONLY before_upgrade.lexigram_durable_batches ALTER COLUMN id SET DEFAULT nextval('before_upgrade.lexigram_durable_batches_id_seq'::regclass);
ALTER TABLE ONLY before_upgrade.lexigram_durable_document_uris ALTER COLUMN id SET DEFAULT nextval('before_upgrade.lexigram_durable_document_uris_id_seq'::regclass);
ALTER TABLE ONLY before_upgrade.lexigram_durable_events ALTER COLUMN id SET DEFAULT nextval('before_upgrade.lexigram_durable_events_id_seq'::regclass);
ALTER TABLE ONLY before_upgrade.lexigram_durable_groups ALTER COLUMN id SET DEFAULT nextval('before_upgrade.lexigram_durable_groups_id_seq'::regclass);
ALTER TABLE ONLY before_upgrade.lexigram_durable_plans ALTER COLUMN id SET DEFAULT nextval('before_upgrade.lexigram_durable_plans_id_seq'::regclass);
ALTER TABLE ONLY before_upgrade.lexigram_durable_runs ALTER COLUMN id SET DEFAULT nextval('before_upgrade.lexigram_durable_runs_id_seq'::regclass);
ALTER TABLE ONLY before_upgrade.lexigram_jobs ALTER COLUMN seq SET DEFAULT nextval('before_upgrade.lexigram_jobs_seq_seq'::regclass);
INSERT INTO before_upgrade.lexigram_ai_dead_letters VALUES
	('jobs', '7', '{"name":"mail"}', 1, 1000, 1000, 'boom', 'unknown', 'waiting', 0, 2, 1060, NULL, false, '{"topic":"orders"}');
INSERT INTO before_upgrade.lexigram_ai_figures VALUES
	('dead_letters.dlq.retried', 0, 1),
	('maintenance.runs', 20000, 1);
INSERT INTO before_upgrade.lexigram_ai_maintenance_runs VALUES
	(1, 'vacuum', 'index_optimization', 'completed', 1767225600, 1795117793.824325, 1, 0, NULL, '{}');
INSERT INTO before_upgrade.lexigram_bulk_batches VALUES
	('import', 0, '[]'),
	('import', 1, '[]');
INSERT INTO before_upgrade.lexigram_bulk_operations VALUES
	('import', 2, 1795117794.9862146);
INSERT INTO before_upgrade.lexigram_bus_deliveries VALUES
	(1, 1, '1f4cea1c-0058-49a5-aae4-32bf86b3b074', 'ready', 1795117793.481935, 0, 1795117793.481935, NULL, NULL, 0, 0, NULL, NULL, NULL),
	(1, 2, '9021087d-c99c-4bae-991e-ad615e15ed4d', 'ready', 1795117793.491586, 0, 1795117793.491586, NULL, NULL, 0, 0, NULL, NULL, NULL),
	(2, 4, '9a8d63b2-2884-47b3-992b-9f9d5b521196', 'dead', 1795117793.645031, 0, 1795117793.628184, NULL, NULL, 1, 1, '{"ce-specversion":"1.0","ce-source":"/lexigram","ce-type":"returns","content-type":"application/json","ce-id":"9a8d63b2-2884-47b3-992b-9f9d5b521196","ce-time":"2026-11-19T19:49:53.538360+00:00","ce-lextopic":"returns","ce-lextimestamp":"1795117793.5383596","ce-lexmaxretries":"0"}', NULL, '{"error":"ValueError: no stock","failed_at":"2026-11-19T19:49:53.645031+00:00","retry_count":0,"reason":"retries_exhausted","traceback":"Traceback (most recent call last):\n  File \"lexigram_queue/src/lexigram/queue/subscription.py\", line 471, in _attempt\n    await self._attempts.run(delivery, message)\n  File \"fill.py\", line 129, in refuse\n    raise ValueError(\"no stock\")\nValueError: no stock\n","attempts":1,"group":"desk"}');
INSERT INTO before_upgrade.lexigram_bus_groups VALUES
	(1, 'orders', 'billing', NULL, false, false, 1795117793.42017),
	(2, 'returns', 'desk', NULL, false, false, 1795117793.527979);
INSERT INTO before_upgrade.lexigram_bus_inbox VALUES
	('billing', 'message-1', 1795117793.7344239);
INSERT INTO before_upgrade.lexigram_bus_messages VALUES
	(1, '1f4cea1c-0058-49a5-aae4-32bf86b3b074', 'orders', '\x7b226e756d626572223a317d', '{"content-type":"application/json"}', 1795117793.4290688, NULL, 0, 'at_least_once', 0, 3, 1795117793.481935, NULL, NULL, 1, 1),
	(2, '9021087d-c99c-4bae-991e-ad615e15ed4d', 'orders', '\x7b226e756d626572223a327d', '{"content-type":"application/json"}', 1795117793.4881413, NULL, 0, 'at_least_once', 0, 3, 1795117793.491586, NULL, NULL, 1, 1),
	(3, '900408f8-24e7-40e3-8803-247bfe43f44f', 'nobody', '\x7b226e756d626572223a337d', '{"content-type":"application/json"}', 1795117793.5058584, NULL, 0, 'at_least_once', 0, 3, 1795117793.507604, NULL, NULL, 0, 0),
	(4, '9a8d63b2-2884-47b3-992b-9f9d5b521196', 'returns', '\x7b226e756d626572223a347d', '{"content-type":"application/json"}', 1795117793.5383596, NULL, 0, 'at_least_once', 0, 0, 1795117793.628184, NULL, NULL, 1, 1);
INSERT INTO before_upgrade.lexigram_bus_outbox VALUES
	(1, 'sql', 'worker:4250:b783845c057350f2', 'c2e9a333-7f01-41b4-8b1a-d4b988841568', 'orders', '\x7b226e756d626572223a357d', '{"ce-specversion":"1.0","ce-source":"/lexigram","ce-type":"orders","content-type":"application/json","ce-id":"c2e9a333-7f01-41b4-8b1a-d4b988841568","ce-time":"2026-11-19T19:49:53.699854+00:00","ce-lextopic":"orders","ce-lextimestamp":"1795117793.6998541"}', NULL, 0, NULL, 0, NULL);
INSERT INTO before_upgrade.lexigram_bus_seen VALUES
	('orders', '1f4cea1c-0058-49a5-aae4-32bf86b3b074', 1795117793.481935),
	('orders', '9021087d-c99c-4bae-991e-ad615e15ed4d', 1795117793.491586),
	('nobody', '900408f8-24e7-40e3-8803-247bfe43f44f', 1795117793.507604),
	('returns', '9a8d63b2-2884-47b3-992b-9f9d5b521196', 1795117793.628184);
INSERT INTO before_upgrade.lexigram_cache VALUES
	('default', 'color', '\x81a46e616d65a4626c7565', NULL);
INSERT INTO before_upgrade.lexigram_durable_batch_documents VALUES
	(1, 1, 'sha256-8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8');
INSERT INTO before_upgrade.lexigram_durable_batches VALUES
	(1, 'folder', 'mail', '{}', 1795117794.452203, NULL);
INSERT INTO before_upgrade.lexigram_durable_checkins VALUES
	('worker:4250:dbbf27d0f12c75d2', 1795117794.7498, 1795117794.764687, 1795117804.764687);
INSERT INTO before_upgrade.lexigram_durable_document_uris VALUES
	(1, 'ecfbc157a67914c8a122340c39398f90eb0286cb09c440c33167aefa206c6ca5', 'a.txt', 'folder', 'sha256-8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8', 1, 1, '{}', 1795117794.555236);
INSERT INTO before_upgrade.lexigram_durable_documents VALUES
	('sha256-8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8', 'text/plain', 5, '{}', 1795117794.555236);
INSERT INTO before_upgrade.lexigram_durable_duties VALUES
	('prune', 1795118393.948543),
	('sweep', 1795117853.948661);
INSERT INTO before_upgrade.lexigram_durable_events VALUES
	(1, 'group_start', 1, 0, 'running', 1795117794.006755, NULL, NULL, 0, NULL, 0, 0, 'listener'),
	(2, 'group_start', 2, 0, 'running', 1795117794.057188, NULL, NULL, 0, NULL, 0, 0, 'listener'),
	(3, 'group_start', 3, 0, 'running', 1795117794.072469, NULL, NULL, 0, NULL, 0, 0, 'listener'),
	(4, 'group_end', 1, 1, 'completed', 1795117794.209099, NULL, NULL, 0, NULL, 0, 0, 'listener'),
	(6, 'group_end', 2, 1, 'failed', 1795117794.268133, NULL, NULL, 0, NULL, 0, 0, 'listener'),
	(5, 'group_end', 1, 1, 'completed', 1795117794.209099, NULL, NULL, 1, 1795117794.324713, 0, 0, 'handler'),
	(7, 'group_end', 2, 1, 'failed', 1795117794.268133, NULL, NULL, 1, 1795117794.394941, 0, 0, 'handler'),
	(8, 'group_start', 5, 0, 'running', 1795117794.8632, NULL, NULL, 0, NULL, 0, 0, 'listener');
INSERT INTO before_upgrade.lexigram_durable_groups VALUES
	(3, 'parcel', 'parcel', NULL, NULL, 'running', 1, 1, 0, 0, 0, 1795117794.029524, 1795117794.072469, NULL, NULL, 3, 0),
	(1, 'done', 'charge-ship', NULL, NULL, 'completed', 1, 0, 0, 0, 1, 1795117793.955092, 1795117794.006755, 1795117794.209099, NULL, 1, 2),
	(2, 'failed', 'charge-refuse', NULL, NULL, 'failed', 1, 0, 1, 0, 1, 1795117794.003772, 1795117794.057188, 1795117794.268133, NULL, 2, 2),
	(4, 'waits', 'later-ship', NULL, NULL, 'pending', 1, 1, 0, 0, 0, 1795117794.78575, NULL, NULL, NULL, 4, 2),
	(5, 'cut off', 'charge-hang', NULL, NULL, 'running', 1, 1, 0, 0, 0, 1795117794.816587, 1795117794.8632, NULL, NULL, 5, 2);
INSERT INTO before_upgrade.lexigram_durable_history VALUES
	(1, 1, 1, 0, 'COMPLETED', 'worker:4250:a1ffdda048c78ef1', 1795117794.006755, 1795117794.164495, 'success', '{"charged":1}'),
	(3, 1, 1, 0, 'COMPLETED', 'worker:4250:a1ffdda048c78ef1', 1795117794.072469, 1795117794.178452, 'success', '{"ran":["pack"],"kept":"{\"at\":{\"state\":{\"input\":\"Bob\",\"output\":\"\",\"parcel\":\"a parcel for Bob\"},\"t\":[[\"ask\",2]],\"c\":[2,1,0]}}"}'),
	(2, 1, 1, 0, 'COMPLETED', 'worker:4250:a1ffdda048c78ef1', 1795117794.057188, 1795117794.178452, 'success', '{"charged":1}'),
	(1, 2, 2, 0, 'COMPLETED', 'worker:4250:a1ffdda048c78ef1', 1795117794.164495, 1795117794.209099, 'success', '{"shipped":1}'),
	(2, 2, 2, 1, 'FAILED', 'worker:4250:a1ffdda048c78ef1', 1795117794.178452, 1795117794.268133, 'ValueError: out of stock', '{"error":"ValueError","text":"out of stock","worker_id":"worker:4250:a1ffdda048c78ef1","doc_id":null,"attempt":1}'),
	(3, 2, 2, 0, 'PENDING', 'worker:4250:a1ffdda048c78ef1', 1795117794.178452, 1795117794.289414, 'send a parcel for Bob?', '{"asks":"ask","kept":"{\"at\":{\"state\":{\"input\":\"Bob\",\"output\":\"\",\"parcel\":\"a parcel for Bob\"},\"t\":[[\"ask\",2]],\"c\":[2,1,0]},\"pause\":{\"id\":\"271e4ac305e1428c96de51e3a2ad73f9\",\"key\":2,\"name\":\"ask\",\"prompt\":\"send a parcel for Bob?\",\"remember\":{},\"due_at\":null}}"}'),
	(5, 1, 1, 0, 'COMPLETED', 'worker:4250:dbbf27d0f12c75d2', 1795117794.8632, 1795117794.950286, 'success', '{"charged":1}');
INSERT INTO before_upgrade.lexigram_durable_lifecycle VALUES
	(5, 1, 'log', 'group_end', 1, 0, 0, 'COMPLETED', 1, 'worker:4250:a1ffdda048c78ef1', 1795117794.257133, 1795117794.293426, 'success', '{"logged":true}'),
	(7, 1, 'log', 'group_end', 2, 0, 0, 'COMPLETED', 1, 'worker:4250:a1ffdda048c78ef1', 1795117794.324754, 1795117794.381743, 'success', '{"logged":true}');
INSERT INTO before_upgrade.lexigram_durable_plan_steps VALUES
	(1, 1, 'charge', 'work', 1, 0, 300, NULL, NULL, false),
	(1, 2, 'ship', 'work', 1, 0, 300, NULL, NULL, false),
	(2, 1, 'charge', 'work', 1, 0, 300, NULL, NULL, false),
	(2, 2, 'refuse', 'work', 1, 0, 300, NULL, NULL, false),
	(3, 1, 'turn 1', 'graph', 1, 0, 300, NULL, NULL, false),
	(3, 2, 'turn 2', 'graph', 1, 0, 300, NULL, NULL, false),
	(3, 3, 'turn 3', 'graph', 1, 0, 300, NULL, NULL, false),
	(3, 4, 'turn 4', 'graph', 1, 0, 300, NULL, NULL, false),
	(3, 5, 'turn 5', 'graph', 1, 0, 300, NULL, NULL, false),
	(3, 6, 'turn 6', 'graph', 1, 0, 300, NULL, NULL, false),
	(3, 7, '(end)', 'graph', 1, 0, 300, NULL, NULL, false),
	(4, 1, 'later', 'other', 1, 0, 300, NULL, NULL, false),
	(4, 2, 'ship', 'other', 1, 0, 300, NULL, NULL, false),
	(5, 1, 'charge', 'work', 1, 0, 300, NULL, NULL, false),
	(5, 2, 'hang', 'work', 1, 0, 300, NULL, NULL, false);
INSERT INTO before_upgrade.lexigram_durable_plans VALUES
	(1, 'fdf6a215b69f4d1b2d945a167638a0234c674b957fbd94798fe258ac22646d6c', 'charge-ship', NULL, '{"lifecycle":{"group_end":[{"handler":"log","name":"log","params":{},"retries":1}]},"param_id":null,"steps":[{"backoff":0.0,"backoff_cap":300.0,"handler":"charge","name":"charge","params":{},"resource_key":null,"retries":1,"step_type":"work","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"ship","name":"ship","params":{},"resource_key":null,"retries":1,"step_type":"work","timeout":null}],"workflow_id":"charge-ship"}', 1795117793.955092),
	(2, '967d3f56755eae7bd0c192cb7fb4a3d7650e7fc2dcee78b47d9f1be130e63b8d', 'charge-refuse', NULL, '{"lifecycle":{"group_end":[{"handler":"log","name":"log","params":{},"retries":1}]},"param_id":null,"steps":[{"backoff":0.0,"backoff_cap":300.0,"handler":"charge","name":"charge","params":{},"resource_key":null,"retries":1,"step_type":"work","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"refuse","name":"refuse","params":{},"resource_key":null,"retries":1,"step_type":"work","timeout":null}],"workflow_id":"charge-refuse"}', 1795117794.003772),
	(3, 'e0b0d28c53132a8df42f2933f20e1ce066095d4b36bf048ccc527c4c7890d5d0', 'parcel', NULL, '{"param_id":null,"steps":[{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"turn 1","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"turn 2","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"turn 3","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"turn 4","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"turn 5","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"turn 6","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"(end)","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null}],"workflow_id":"parcel"}', 1795117794.029524),
	(4, '2bde9e65e7a6aff558906e7e08e33d0cd58b098c82a3b56f5812cbb1642c7cb9', 'later-ship', NULL, '{"lifecycle":{"group_end":[{"handler":"log","name":"log","params":{},"retries":1}]},"param_id":null,"steps":[{"backoff":0.0,"backoff_cap":300.0,"handler":"later","name":"later","params":{},"resource_key":null,"retries":1,"step_type":"other","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"ship","name":"ship","params":{},"resource_key":null,"retries":1,"step_type":"other","timeout":null}],"workflow_id":"later-ship"}', 1795117794.78575),
	(5, '534f58418a39044f796c2411e3ed182597e28ce140358ee2a5f43557bb726968', 'charge-hang', NULL, '{"lifecycle":{"group_end":[{"handler":"log","name":"log","params":{},"retries":1}]},"param_id":null,"steps":[{"backoff":0.0,"backoff_cap":300.0,"handler":"charge","name":"charge","params":{},"resource_key":null,"retries":1,"step_type":"work","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"hang","name":"hang","params":{},"resource_key":null,"retries":1,"step_type":"work","timeout":null}],"workflow_id":"charge-hang"}', 1795117794.816587);
INSERT INTO before_upgrade.lexigram_durable_runs VALUES
	(1, 1, 1, NULL, NULL, NULL, 0, 1795117793.955092, 1795117793.955092, 'completed', 2, 2, 'work', NULL, 0, 0, 1795117794.209099, NULL, NULL, NULL, 2, NULL, 1795117793.955092, 1795117794.006755, NULL, 1795117794.209099, 1795117794.209099, NULL, '{"order":1}', NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2),
	(2, 2, 2, NULL, NULL, NULL, 0, 1795117794.003772, 1795117794.268133, 'failed', 2, 2, 'work', NULL, 1, 0, 1795117794.268133, NULL, NULL, NULL, 2, NULL, 1795117794.003772, 1795117794.057188, NULL, 1795117794.268133, 1795117794.268133, 'ValueError: out of stock', '{}', NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2),
	(3, 3, 3, NULL, NULL, NULL, 0, 1795117794.029524, 1795117794.029524, 'parked', 2, 7, 'graph', NULL, 0, 0, 1795117794.289414, NULL, NULL, NULL, 2, NULL, 1795117794.029524, 1795117794.072469, NULL, 1795117794.289414, NULL, NULL, '{"start":"{\"at\":{\"state\":{\"input\":\"Bob\",\"output\":\"\"},\"t\":[[\"pack\",1]],\"c\":[1,0,0]}}"}', NULL, NULL, NULL, NULL, 0, 0, 'send a parcel for Bob?', NULL, 0),
	(4, 4, 4, NULL, NULL, NULL, 0, 1795117794.78575, 1795117794.78575, 'ready', 1, 2, 'other', NULL, 0, 0, 1795117794.78575, NULL, NULL, NULL, 0, NULL, 1795117794.78575, NULL, NULL, 1795117794.78575, NULL, NULL, '{"order":3}', NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2),
	(5, 5, 5, NULL, NULL, NULL, 0, 1795117794.816587, 1795117794.816587, 'running', 2, 2, 'work', NULL, 0, 0, 1795117794.950286, 'worker:4250:0de709348addd177', 1795117804.950286, 'worker:4250:dbbf27d0f12c75d2', 2, NULL, 1795117794.816587, 1795117794.8632, 1795117794.950286, 1795117794.950286, NULL, NULL, '{"order":2}', NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2);
INSERT INTO before_upgrade.lexigram_durable_sync_states VALUES
	('gitea:repo', 'abc123', 'main', '{"files":2}', 1795117794.628293);
INSERT INTO before_upgrade.lexigram_durable_uri_history VALUES
	(1, 1, 'sha256-8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8', 'create', 1, 1795117794.555236);
INSERT INTO before_upgrade.lexigram_graph_checkpoints VALUES
	('73e05a62e9824227ae5634cf3c775eeb', 0, true, '\x7b2277223a7b22696e707574223a22416461222c226f7574707574223a22227d2c2274223a5b5b227772697465222c315d5d2c2263223a5b312c302c305d7d', '[]', 1795117793.740323),
	('73e05a62e9824227ae5634cf3c775eeb', 1, false, '\x7b2274223a5b5b2261736b222c325d5d2c2263223a5b322c312c305d2c2273223a5b5b227772697465222c312c7b2274657874223a224465617220416461227d5d5d7d', '["write"]', 1795117793.7642586),
	('73e05a62e9824227ae5634cf3c775eeb', 2, true, '\x7b2277223a7b22696e707574223a22416461222c226f7574707574223a22222c2274657874223a224465617220416461227d2c2274223a5b5d2c2263223a5b322c312c305d2c2268223a5b5b5b2261736b222c325d2c2253656e6420274465617220416461273f222c7b7d2c6e756c6c5d5d7d', '[]', 1795117793.7735224);
INSERT INTO before_upgrade.lexigram_graph_runs VALUES
	('73e05a62e9824227ae5634cf3c775eeb', 'letter', 1, 'paused', 1795117793.7401726, 1795117793.7734635, NULL, NULL, NULL, NULL);
INSERT INTO before_upgrade.lexigram_idempotency VALUES
	('default', 'payment-1', 'completed', '\xa470616964', 1795117792.33845, NULL);
INSERT INTO before_upgrade.lexigram_job_edges VALUES
	('fe1036ea722b43b48a24db9b47c0c3a3', 'e28aac98b3c849f482fc6c5bb23979a8');
INSERT INTO before_upgrade.lexigram_job_progress VALUES
	('c48dc74cc92e4a868dad0047132d106f', 1, 2, 'complete', '', '', 1795117793.156528);
INSERT INTO before_upgrade.lexigram_job_submissions VALUES
	('payment-2', 'task-2', 'pay', 1795117792.360727, false, NULL);
INSERT INTO before_upgrade.lexigram_jobs VALUES
	(1, 'c48dc74cc92e4a868dad0047132d106f', 'resize', 'default', 0, '{"args":["cat"],"kwargs":{}}', 3, 20, NULL, NULL, NULL, NULL, '', 'cancel', NULL, NULL, 'completed', NULL, 1795117793.092146, 1795117793.092146, 1795117793.10575, 1795117793.139681, 0, 0, '', '', '', false, 0, false, NULL, NULL, 1, '"cat"', 1795204193.139681),
	(3, 'e28aac98b3c849f482fc6c5bb23979a8', 'album', 'default', 0, '{"args":[["cat","dog"]],"kwargs":{}}', 3, 20, NULL, NULL, NULL, NULL, 'fe1036ea722b43b48a24db9b47c0c3a3', 'cancel', NULL, NULL, 'waiting', NULL, 1795117793.357273, 1795117793.357273, NULL, NULL, 0, 0, '', '', '', false, 1, false, NULL, NULL, 0, NULL, NULL),
	(2, 'fe1036ea722b43b48a24db9b47c0c3a3', 'resize', 'default', 0, '{"args":["dog"],"kwargs":{}}', 3, 20, NULL, NULL, NULL, 'dog', '', 'cancel', NULL, NULL, 'ready', NULL, 1795117793.336633, 1795117793.336633, NULL, NULL, 0, 0, '', '', '', false, 0, true, NULL, NULL, 0, NULL, NULL);
INSERT INTO before_upgrade.lexigram_lock_fence VALUES
	(1, 2);
INSERT INTO before_upgrade.lexigram_locks VALUES
	('printer', 'desk-1', 'worker', '{}', 1, 1795117792.179471, 2110477792.179471),
	('bulk:d942f64886578d8747312e368ed92d9f6b2a8d45556f0f924e2444fe911d15af', 'worker:4250:a84cfd5ea3430c18', 'worker', '{}', 2, 1795117794.968296, 1795117824.968296);
INSERT INTO before_upgrade.lexigram_sagas VALUES
	('trip', 'running', '{"version": 1, "done": ["flight"], "undo": [], "undone": [], "undoing": null, "not_undone": {}, "failed_step": null, "error": null, "handled": [], "snapshot": {"seat": "12A"}}', 1795117794.896686, 'worker:4250:dce1ac3687981834', 1795117799.896686);
INSERT INTO before_upgrade.lexigram_schedule_firings VALUES
	('collect', 1795117793000, 0, 1795117793001, 'done', NULL, NULL, 'collect', 'worker:4250:1286ca0b509e9fb9', NULL);
INSERT INTO before_upgrade.lexigram_schedules VALUES
	('report', '{"at": null, "catch_up": 100, "cron": "30 2 * * *", "description": "", "end": null, "every": null, "grace": 60.0, "jitter": 0.0, "misfire": "fire_once", "start": null, "target": {"kind": "callback", "name": "report"}, "timezone": "Europe/Berlin"}', 'active', 'code', 'default', 1795138200000, 1795138200000, NULL, 0, NULL),
	('collect', '{"at": null, "catch_up": 100, "cron": null, "description": "", "end": null, "every": 1, "grace": 60.0, "jitter": 0.0, "misfire": "fire_once", "start": null, "target": {"kind": "callback", "name": "collect"}, "timezone": "UTC"}', 'active', 'code', 'default', 1795117794000, 1795117794000, 1795117793000, 0, NULL);
INSERT INTO before_upgrade.migrations_of_lexigram VALUES
	('0004');
INSERT INTO before_upgrade.migrations_of_lexigram_ai_workers VALUES
	('0001');
INSERT INTO before_upgrade.migrations_of_lexigram_queue VALUES
	('0001');
INSERT INTO before_upgrade.migrations_of_lexigram_workflow VALUES
	('0009');
INSERT INTO before_upgrade.workflow_content_checkpoints VALUES
	('parse|_global|6193c97585a0f731ce7b500bb69d2476816afb14c8d95ac8e6e865f680e9e438|4c8013dc8af381581573aac8ab69544d280715cf68c7e4b3a6e24c6a18ee1e3b', 'parse', '_global', '{"completed_at":"2026-01-01T00:00:00+00:00","metadata":{"by":"before"},"output":{"words":1},"output_blob_ref":null,"output_size_bytes":12,"stage_handler_version":"1"}', '1', 12, 1767225600, 1795117793.7800632);
INSERT INTO before_upgrade.workflow_state_transitions VALUES
	('door', 1, 'open', 'close', 'shut', 1795117793.7843943);
SELECT pg_catalog.setval('before_upgrade.lexigram_ai_maintenance_runs_id_seq', 1, true);
SELECT pg_catalog.setval('before_upgrade.lexigram_bus_groups_id_seq', 2, true);
SELECT pg_catalog.setval('before_upgrade.lexigram_bus_messages_seq_seq', 4, true);
SELECT pg_catalog.setval('before_upgrade.lexigram_bus_outbox_seq_seq', 1, true);
SELECT pg_catalog.setval('before_upgrade.lexigram_durable_batches_id_seq', 1, true);
SELECT pg_catalog.setval('before_upgrade.lexigram_durable_document_uris_id_seq', 1, true);
SELECT pg_catalog.setval('before_upgrade.lexigram_durable_events_id_seq', 8, true);
SELECT pg_catalog.setval('before_upgrade.lexigram_durable_groups_id_seq', 5, true);
SELECT pg_catalog.setval('before_upgrade.lexigram_durable_plans_id_seq', 5, true);
SELECT pg_catalog.setval('before_upgrade.lexigram_durable_runs_id_seq', 5, true);
SELECT pg_catalog.setval('before_upgrade.lexigram_jobs_seq_seq', 3, true);
ALTER TABLE ONLY before_upgrade.lexigram_ai_dead_letters
    ADD CONSTRAINT lexigram_ai_dead_letters_pkey PRIMARY KEY (source, id);
ALTER TABLE ONLY before_upgrade.lexigram_ai_figures
    ADD CONSTRAINT lexigram_ai_figures_pkey PRIMARY KEY (name, period);
ALTER TABLE ONLY before_upgrade.lexigram_ai_maintenance_runs
    ADD CONSTRAINT lexigram_ai_maintenance_runs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY before_upgrade.lexigram_bulk_batches
    ADD CONSTRAINT lexigram_bulk_batches_pkey PRIMARY KEY (operation_id, batch_id);
ALTER TABLE ONLY before_upgrade.lexigram_bulk_operations
    ADD CONSTRAINT lexigram_bulk_operations_pkey PRIMARY KEY (operation_id);
ALTER TABLE ONLY before_upgrade.lexigram_bus_groups
    ADD CONSTRAINT lexigram_bus_groups_pkey PRIMARY KEY (id);
ALTER TABLE ONLY before_upgrade.lexigram_bus_messages
    ADD CONSTRAINT lexigram_bus_messages_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY before_upgrade.lexigram_bus_outbox
    ADD CONSTRAINT lexigram_bus_outbox_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY before_upgrade.lexigram_cache
    ADD CONSTRAINT lexigram_cache_pkey PRIMARY KEY (namespace, key);
ALTER TABLE ONLY before_upgrade.lexigram_durable_batch_documents
    ADD CONSTRAINT lexigram_durable_batch_documents_pkey PRIMARY KEY (batch_id, uri_id);
ALTER TABLE ONLY before_upgrade.lexigram_durable_batches
    ADD CONSTRAINT lexigram_durable_batches_pkey PRIMARY KEY (id);
ALTER TABLE ONLY before_upgrade.lexigram_durable_checkins
    ADD CONSTRAINT lexigram_durable_checkins_pkey PRIMARY KEY (worker_id);
ALTER TABLE ONLY before_upgrade.lexigram_durable_document_uris
    ADD CONSTRAINT lexigram_durable_document_uris_key_key UNIQUE (key);
ALTER TABLE ONLY before_upgrade.lexigram_durable_document_uris
    ADD CONSTRAINT lexigram_durable_document_uris_pkey PRIMARY KEY (id);
ALTER TABLE ONLY before_upgrade.lexigram_durable_documents
    ADD CONSTRAINT lexigram_durable_documents_pkey PRIMARY KEY (hash);
ALTER TABLE ONLY before_upgrade.lexigram_durable_duties
    ADD CONSTRAINT lexigram_durable_duties_pkey PRIMARY KEY (name);
ALTER TABLE ONLY before_upgrade.lexigram_durable_events
    ADD CONSTRAINT lexigram_durable_events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY before_upgrade.lexigram_durable_groups
    ADD CONSTRAINT lexigram_durable_groups_pkey PRIMARY KEY (id);
ALTER TABLE ONLY before_upgrade.lexigram_durable_history
    ADD CONSTRAINT lexigram_durable_history_pkey PRIMARY KEY (run_id, fence);
ALTER TABLE ONLY before_upgrade.lexigram_durable_lifecycle
    ADD CONSTRAINT lexigram_durable_lifecycle_pkey PRIMARY KEY (event_id, handler_no);
ALTER TABLE ONLY before_upgrade.lexigram_durable_plan_steps
    ADD CONSTRAINT lexigram_durable_plan_steps_pkey PRIMARY KEY (plan_id, step_no);
ALTER TABLE ONLY before_upgrade.lexigram_durable_plans
    ADD CONSTRAINT lexigram_durable_plans_digest_key UNIQUE (digest);
ALTER TABLE ONLY before_upgrade.lexigram_durable_plans
    ADD CONSTRAINT lexigram_durable_plans_pkey PRIMARY KEY (id);
ALTER TABLE ONLY before_upgrade.lexigram_durable_runs
    ADD CONSTRAINT lexigram_durable_runs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY before_upgrade.lexigram_durable_sync_states
    ADD CONSTRAINT lexigram_durable_sync_states_pkey PRIMARY KEY (source_id);
ALTER TABLE ONLY before_upgrade.lexigram_durable_uri_history
    ADD CONSTRAINT lexigram_durable_uri_history_pkey PRIMARY KEY (uri_id, version);
ALTER TABLE ONLY before_upgrade.lexigram_graph_checkpoints
    ADD CONSTRAINT lexigram_graph_checkpoints_pkey PRIMARY KEY (run_id, seq);
ALTER TABLE ONLY before_upgrade.lexigram_graph_runs
    ADD CONSTRAINT lexigram_graph_runs_pkey PRIMARY KEY (run_id);
ALTER TABLE ONLY before_upgrade.lexigram_idempotency
    ADD CONSTRAINT lexigram_idempotency_pkey PRIMARY KEY (namespace, key);
ALTER TABLE ONLY before_upgrade.lexigram_job_edges
    ADD CONSTRAINT lexigram_job_edges_pkey PRIMARY KEY (depends_on, job_id);
ALTER TABLE ONLY before_upgrade.lexigram_job_progress
    ADD CONSTRAINT lexigram_job_progress_pkey PRIMARY KEY (task_id);
ALTER TABLE ONLY before_upgrade.lexigram_job_submissions
    ADD CONSTRAINT lexigram_job_submissions_pkey PRIMARY KEY (key);
ALTER TABLE ONLY before_upgrade.lexigram_jobs
    ADD CONSTRAINT lexigram_jobs_id_key UNIQUE (id);
ALTER TABLE ONLY before_upgrade.lexigram_jobs
    ADD CONSTRAINT lexigram_jobs_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY before_upgrade.lexigram_lock_fence
    ADD CONSTRAINT lexigram_lock_fence_pkey PRIMARY KEY (id);
ALTER TABLE ONLY before_upgrade.lexigram_locks
    ADD CONSTRAINT lexigram_locks_pkey PRIMARY KEY (resource_key);
ALTER TABLE ONLY before_upgrade.lexigram_sagas
    ADD CONSTRAINT lexigram_sagas_pkey PRIMARY KEY (saga_id);
ALTER TABLE ONLY before_upgrade.lexigram_schedule_firings
    ADD CONSTRAINT lexigram_schedule_firings_pkey PRIMARY KEY (schedule, tick, manual);
ALTER TABLE ONLY before_upgrade.lexigram_schedules
    ADD CONSTRAINT lexigram_schedules_pkey PRIMARY KEY (name);
ALTER TABLE ONLY before_upgrade.migrations_of_lexigram_ai_workers
    ADD CONSTRAINT migrations_of_lexigram_ai_workers_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY before_upgrade.migrations_of_lexigram
    ADD CONSTRAINT migrations_of_lexigram_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY before_upgrade.migrations_of_lexigram_queue
    ADD CONSTRAINT migrations_of_lexigram_queue_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY before_upgrade.migrations_of_lexigram_workflow
    ADD CONSTRAINT migrations_of_lexigram_workflow_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY before_upgrade.lexigram_bus_deliveries
    ADD CONSTRAINT pk_lexigram_bus_deliveries PRIMARY KEY (group_id, message);
ALTER TABLE ONLY before_upgrade.lexigram_bus_inbox
    ADD CONSTRAINT pk_lexigram_bus_inbox PRIMARY KEY (group_name, message_id);
ALTER TABLE ONLY before_upgrade.lexigram_bus_seen
    ADD CONSTRAINT pk_lexigram_bus_seen PRIMARY KEY (topic, id);
ALTER TABLE ONLY before_upgrade.lexigram_bus_groups
    ADD CONSTRAINT uq_lexigram_bus_groups_topic_name UNIQUE (topic, name);
ALTER TABLE ONLY before_upgrade.workflow_content_checkpoints
    ADD CONSTRAINT workflow_content_checkpoints_pkey PRIMARY KEY (key_str);
ALTER TABLE ONLY before_upgrade.workflow_state_transitions
    ADD CONSTRAINT workflow_state_transitions_pkey PRIMARY KEY (machine_id, version);
CREATE INDEX ix_lexigram_ai_dead_letters_id ON before_upgrade.lexigram_ai_dead_letters USING btree (id);
CREATE INDEX ix_lexigram_ai_dead_letters_latest ON before_upgrade.lexigram_ai_dead_letters USING btree (last_failure);
CREATE INDEX ix_lexigram_ai_dead_letters_state ON before_upgrade.lexigram_ai_dead_letters USING btree (state, next_retry);
CREATE INDEX ix_lexigram_ai_figures_period ON before_upgrade.lexigram_ai_figures USING btree (period);
CREATE INDEX ix_lexigram_ai_maintenance_runs_task ON before_upgrade.lexigram_ai_maintenance_runs USING btree (task, id);
CREATE INDEX ix_lexigram_bus_deliveries_died ON before_upgrade.lexigram_bus_deliveries USING btree (group_id, due_at, message) WHERE ((state)::text = 'dead'::text);
CREATE INDEX ix_lexigram_bus_deliveries_due ON before_upgrade.lexigram_bus_deliveries USING btree (group_id, due_at) WHERE (state IN ('delayed', 'leased'));
CREATE INDEX ix_lexigram_bus_deliveries_key ON before_upgrade.lexigram_bus_deliveries USING btree (group_id, ordering_key, message) WHERE ((ordering_key IS NOT NULL) AND ((state)::text <> 'dead'::text));
CREATE INDEX ix_lexigram_bus_deliveries_lane ON before_upgrade.lexigram_bus_deliveries USING btree (group_id, lane, rank) WHERE (((state)::text = 'ready'::text) AND (lane IS NOT NULL));
CREATE INDEX ix_lexigram_bus_deliveries_ready ON before_upgrade.lexigram_bus_deliveries USING btree (group_id, rank, queued_at, message) WHERE ((state)::text = 'ready'::text);
CREATE INDEX ix_lexigram_bus_deliveries_running ON before_upgrade.lexigram_bus_deliveries USING btree (group_id, ordering_key) WHERE ((ordering_key IS NOT NULL) AND ((state)::text = 'leased'::text));
CREATE INDEX ix_lexigram_bus_groups_patterns ON before_upgrade.lexigram_bus_groups USING btree (id) WHERE (matches IS NOT NULL);
CREATE INDEX ix_lexigram_bus_inbox_handled_at ON before_upgrade.lexigram_bus_inbox USING btree (handled_at);
CREATE INDEX ix_lexigram_bus_messages_backlog ON before_upgrade.lexigram_bus_messages USING btree (topic, seq) WHERE (copies = 0);
CREATE INDEX ix_lexigram_bus_messages_done ON before_upgrade.lexigram_bus_messages USING btree (seq) WHERE ((remaining <= 0) AND (copies > 0));
CREATE INDEX ix_lexigram_bus_outbox_key ON before_upgrade.lexigram_bus_outbox USING btree (queue, ordering_key, seq) WHERE (ordering_key IS NOT NULL);
CREATE INDEX ix_lexigram_bus_outbox_queue ON before_upgrade.lexigram_bus_outbox USING btree (queue, seq);
CREATE INDEX ix_lexigram_bus_seen_seen_at ON before_upgrade.lexigram_bus_seen USING btree (seen_at);
CREATE INDEX ix_lexigram_cache_expires_at ON before_upgrade.lexigram_cache USING btree (expires_at);
CREATE INDEX ix_lexigram_durable_batch_documents_doc_hash ON before_upgrade.lexigram_durable_batch_documents USING btree (doc_hash);
CREATE INDEX ix_lexigram_durable_batch_documents_uri_id ON before_upgrade.lexigram_durable_batch_documents USING btree (uri_id);
CREATE INDEX ix_lexigram_durable_document_uris_doc_hash ON before_upgrade.lexigram_durable_document_uris USING btree (doc_hash);
CREATE INDEX ix_lexigram_durable_document_uris_source ON before_upgrade.lexigram_durable_document_uris USING btree (source);
CREATE INDEX ix_lexigram_durable_events_due ON before_upgrade.lexigram_durable_events USING btree (id) WHERE (delivered_at IS NULL);
CREATE INDEX ix_lexigram_durable_events_handlers ON before_upgrade.lexigram_durable_events USING btree (id) WHERE ((delivered_at IS NULL) AND ((audience)::text = 'handler'::text));
CREATE INDEX ix_lexigram_durable_groups_batch ON before_upgrade.lexigram_durable_groups USING btree (batch_id) WHERE (batch_id IS NOT NULL);
CREATE INDEX ix_lexigram_durable_groups_ended ON before_upgrade.lexigram_durable_groups USING btree (completed_at);
CREATE INDEX ix_lexigram_durable_lifecycle_group_id ON before_upgrade.lexigram_durable_lifecycle USING btree (group_id);
CREATE INDEX ix_lexigram_durable_runs_children ON before_upgrade.lexigram_durable_runs USING btree (parent_id, id) WHERE (parent_id IS NOT NULL);
CREATE INDEX ix_lexigram_durable_runs_delayed ON before_upgrade.lexigram_durable_runs USING btree (available_at) WHERE ((status)::text = 'delayed'::text);
CREATE INDEX ix_lexigram_durable_runs_group ON before_upgrade.lexigram_durable_runs USING btree (group_id, status);
CREATE INDEX ix_lexigram_durable_runs_keyed ON before_upgrade.lexigram_durable_runs USING btree (resource_key, status, rank, id) WHERE (resource_key IS NOT NULL);
CREATE INDEX ix_lexigram_durable_runs_leased ON before_upgrade.lexigram_durable_runs USING btree (lease_until) WHERE ((status)::text = 'running'::text);
CREATE INDEX ix_lexigram_durable_runs_parked ON before_upgrade.lexigram_durable_runs USING btree (id) WHERE ((parked IS NOT NULL) AND (completed_at IS NULL));
CREATE INDEX ix_lexigram_durable_runs_ready ON before_upgrade.lexigram_durable_runs USING btree (step_type, rank, id) WHERE ((status)::text = 'ready'::text);
CREATE INDEX ix_lexigram_durable_runs_ready_all ON before_upgrade.lexigram_durable_runs USING btree (rank, id, step_type) WHERE ((status)::text = 'ready'::text);
CREATE INDEX ix_lexigram_durable_runs_tenant ON before_upgrade.lexigram_durable_runs USING btree (tenant, turn) WHERE ((tenant IS NOT NULL) AND (completed_at IS NULL));
CREATE INDEX ix_lexigram_graph_runs_status ON before_upgrade.lexigram_graph_runs USING btree (status, updated_at);
CREATE INDEX ix_lexigram_idempotency_expires_at ON before_upgrade.lexigram_idempotency USING btree (expires_at);
CREATE INDEX ix_lexigram_job_progress_updated_at ON before_upgrade.lexigram_job_progress USING btree (updated_at);
CREATE INDEX ix_lexigram_job_submissions_created_at ON before_upgrade.lexigram_job_submissions USING btree (created_at);
CREATE INDEX ix_lexigram_jobs_delayed ON before_upgrade.lexigram_jobs USING btree (available_at) WHERE ((state)::text = 'delayed'::text);
CREATE INDEX ix_lexigram_jobs_ended ON before_upgrade.lexigram_jobs USING btree (completed_at) WHERE (state IN ('completed', 'cancelled'));
CREATE INDEX ix_lexigram_jobs_failed ON before_upgrade.lexigram_jobs USING btree (completed_at DESC) WHERE ((state)::text = 'failed'::text);
CREATE INDEX ix_lexigram_jobs_leased ON before_upgrade.lexigram_jobs USING btree (lease_until) WHERE ((state)::text = 'running'::text);
CREATE INDEX ix_lexigram_jobs_ready ON before_upgrade.lexigram_jobs USING btree (queue, priority DESC, available_at, seq) WHERE ((state)::text = 'ready'::text);
CREATE INDEX ix_lexigram_jobs_ready_all ON before_upgrade.lexigram_jobs USING btree (priority DESC, available_at, seq) WHERE ((state)::text = 'ready'::text);
CREATE INDEX ix_lexigram_locks_expires_at ON before_upgrade.lexigram_locks USING btree (expires_at);
CREATE INDEX ix_lexigram_sagas_state ON before_upgrade.lexigram_sagas USING btree (state, updated_at);
CREATE INDEX ix_lexigram_schedule_firings_fired ON before_upgrade.lexigram_schedule_firings USING btree (fired);
CREATE INDEX ix_lexigram_schedule_firings_lease ON before_upgrade.lexigram_schedule_firings USING btree (lease) WHERE (lease IS NOT NULL);
CREATE INDEX ix_lexigram_schedules_due ON before_upgrade.lexigram_schedules USING btree (due);
CREATE INDEX ix_workflow_content_checkpoints_stage ON before_upgrade.workflow_content_checkpoints USING btree (stage_id, tenant_id, completed_at);
CREATE UNIQUE INDEX uq_lexigram_bus_deliveries_dead ON before_upgrade.lexigram_bus_deliveries USING btree (group_id, id) WHERE ((state)::text = 'dead'::text);
CREATE UNIQUE INDEX uq_lexigram_durable_events_once ON before_upgrade.lexigram_durable_events USING btree (group_id, kind, run_id, ending, audience);
CREATE UNIQUE INDEX uq_lexigram_durable_groups_key ON before_upgrade.lexigram_durable_groups USING btree (idempotency_key) WHERE (idempotency_key IS NOT NULL);
CREATE UNIQUE INDEX uq_lexigram_durable_runs_key ON before_upgrade.lexigram_durable_runs USING btree (idempotency_key) WHERE (idempotency_key IS NOT NULL);
CREATE UNIQUE INDEX uq_lexigram_jobs_idempotency_key ON before_upgrade.lexigram_jobs USING btree (idempotency_key) WHERE (idempotency_key IS NOT NULL);
CREATE UNIQUE INDEX uq_lexigram_jobs_unique_key ON before_upgrade.lexigram_jobs USING btree (unique_key) WHERE ((unique_key IS NOT NULL) AND (state IN ('ready', 'delayed', 'waiting', 'running')));
ALTER TABLE ONLY before_upgrade.lexigram_durable_batch_documents
    ADD CONSTRAINT lexigram_durable_batch_documents_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES before_upgrade.lexigram_durable_batches(id);
ALTER TABLE ONLY before_upgrade.lexigram_durable_batch_documents
    ADD CONSTRAINT lexigram_durable_batch_documents_doc_hash_fkey FOREIGN KEY (doc_hash) REFERENCES before_upgrade.lexigram_durable_documents(hash);
ALTER TABLE ONLY before_upgrade.lexigram_durable_batch_documents
    ADD CONSTRAINT lexigram_durable_batch_documents_uri_id_fkey FOREIGN KEY (uri_id) REFERENCES before_upgrade.lexigram_durable_document_uris(id);
ALTER TABLE ONLY before_upgrade.lexigram_durable_document_uris
    ADD CONSTRAINT lexigram_durable_document_uris_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES before_upgrade.lexigram_durable_batches(id);
ALTER TABLE ONLY before_upgrade.lexigram_durable_document_uris
    ADD CONSTRAINT lexigram_durable_document_uris_doc_hash_fkey FOREIGN KEY (doc_hash) REFERENCES before_upgrade.lexigram_durable_documents(hash);
ALTER TABLE ONLY before_upgrade.lexigram_durable_uri_history
    ADD CONSTRAINT lexigram_durable_uri_history_uri_id_fkey FOREIGN KEY (uri_id) REFERENCES before_upgrade.lexigram_durable_document_uris(id);
