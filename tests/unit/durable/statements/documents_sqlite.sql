-- ADD_BATCH
INSERT INTO lexigram_durable_batches (name, source, params, created_at) VALUES (?, ?, ?, ?)
RETURNING id;

-- ADD_DOCUMENTS
INSERT INTO lexigram_durable_documents (hash, mime_type, file_size, metadata, created_at)
SELECT hash, mime_type, file_size, metadata, CAST(? AS double precision) FROM (SELECT value ->> 'hash' AS hash, value ->> 'mime_type' AS mime_type, value ->> 'file_size' AS file_size, value ->> 'metadata' AS metadata FROM json_each(?)) AS v WHERE true ORDER BY hash
ON CONFLICT (hash) DO UPDATE SET file_size = excluded.file_size RETURNING hash, created_at;

-- ADD_HISTORY
INSERT INTO lexigram_durable_uri_history (uri_id, version, doc_hash, action, batch_id, created_at)
SELECT uri_id, version, doc_hash, action, CAST(? AS bigint), CAST(? AS double precision) FROM (SELECT value ->> 'uri_id' AS uri_id, value ->> 'version' AS version, value ->> 'doc_hash' AS doc_hash, value ->> 'action' AS action FROM json_each(?)) AS v WHERE true
ON CONFLICT DO NOTHING;

-- ADD_MEMBERS
INSERT INTO lexigram_durable_batch_documents (batch_id, uri_id, doc_hash)
SELECT CAST(? AS bigint), uri_id, doc_hash FROM (SELECT value ->> 'uri_id' AS uri_id, value ->> 'doc_hash' AS doc_hash FROM json_each(?)) AS v WHERE true ORDER BY uri_id
ON CONFLICT (batch_id, uri_id) DO UPDATE SET doc_hash = excluded.doc_hash;

-- ADD_URIS
INSERT INTO lexigram_durable_document_uris
    (key, uri, source, doc_hash, version, batch_id, metadata, updated_at)
SELECT key, uri, source, doc_hash, 1, CAST(? AS bigint), metadata, CAST(? AS double precision) FROM (SELECT value ->> 'key' AS key, value ->> 'uri' AS uri, value ->> 'source' AS source, value ->> 'doc_hash' AS doc_hash, value ->> 'metadata' AS metadata FROM json_each(?)) AS v WHERE true ORDER BY key
ON CONFLICT (key) DO UPDATE SET
    version = lexigram_durable_document_uris.version + CASE
        WHEN lexigram_durable_document_uris.doc_hash = excluded.doc_hash THEN 0 ELSE 1 END,
    doc_hash = excluded.doc_hash, batch_id = excluded.batch_id, metadata = excluded.metadata,
    updated_at = excluded.updated_at
RETURNING id, key, version;

-- BATCH
SELECT b.id, b.name, b.source, b.params, b.created_at, 
CASE WHEN EXISTS (SELECT 1 FROM lexigram_durable_groups g WHERE g.batch_id = b.id) THEN
    CASE WHEN EXISTS (SELECT 1 FROM lexigram_durable_groups g
                      WHERE g.batch_id = b.id AND g.completed_at IS NULL) THEN NULL
         ELSE (SELECT max(g.completed_at) FROM lexigram_durable_groups g WHERE g.batch_id = b.id)
    END ELSE b.completed_at END AS completed_at,
    (SELECT count(*) FROM lexigram_durable_batch_documents d WHERE d.batch_id = b.id)
        AS document_count
FROM lexigram_durable_batches b WHERE b.id = ?;

-- BATCHES
SELECT b.id, b.name, b.source, b.params, b.created_at, 
CASE WHEN EXISTS (SELECT 1 FROM lexigram_durable_groups g WHERE g.batch_id = b.id) THEN
    CASE WHEN EXISTS (SELECT 1 FROM lexigram_durable_groups g
                      WHERE g.batch_id = b.id AND g.completed_at IS NULL) THEN NULL
         ELSE (SELECT max(g.completed_at) FROM lexigram_durable_groups g WHERE g.batch_id = b.id)
    END ELSE b.completed_at END AS completed_at,
    (SELECT count(*) FROM lexigram_durable_batch_documents d WHERE d.batch_id = b.id)
        AS document_count
FROM lexigram_durable_batches b ORDER BY b.id DESC LIMIT ? OFFSET ?;

-- COUNT_BATCHES
SELECT count(*) AS n FROM lexigram_durable_batches;

-- DOCUMENT
SELECT * FROM lexigram_durable_documents WHERE hash = ?;

-- DOCUMENT_OF_RUN
SELECT d.hash, d.mime_type, d.file_size, d.metadata, u.metadata AS uri_metadata
FROM lexigram_durable_documents d
LEFT JOIN lexigram_durable_document_uris u ON u.key = ? AND u.doc_hash = d.hash
WHERE d.hash = ?;

-- DOCUMENT_URIS
SELECT u.id, u.uri, u.source, u.doc_hash, u.version, u.batch_id, u.metadata, u.updated_at,
    d.mime_type, d.file_size
FROM lexigram_durable_document_uris u JOIN lexigram_durable_documents d ON d.hash = u.doc_hash WHERE u.doc_hash = ? ORDER BY u.id;

-- DONE_BEFORE
SELECT DISTINCT m.doc_hash FROM lexigram_durable_batch_documents m
JOIN lexigram_durable_groups g ON g.batch_id = m.batch_id
JOIN lexigram_durable_runs r
    ON r.group_id = g.id AND r.status = 'completed' AND r.doc_id = m.doc_hash
        AND r.parent_id IS NULL
WHERE m.doc_hash IN (SELECT value FROM json_each(?)) AND g.workflow_id = ? AND coalesce(g.param_id, '') = ?;

-- DROP_ATTEMPTS
DELETE FROM lexigram_durable_history WHERE run_id IN (SELECT value FROM json_each(?));

-- DROP_BATCH
DELETE FROM lexigram_durable_batches WHERE id = ?;

-- DROP_DOCUMENT
DELETE FROM lexigram_durable_documents WHERE hash = ?;

-- DROP_EVENTS
DELETE FROM lexigram_durable_events WHERE group_id IN (SELECT value FROM json_each(?)) AND run_id IN (SELECT value FROM json_each(?));

-- DROP_LIFECYCLE
DELETE FROM lexigram_durable_lifecycle WHERE group_id IN (SELECT value FROM json_each(?)) AND run_id IN (SELECT value FROM json_each(?));

-- DROP_MEMBERS
DELETE FROM lexigram_durable_batch_documents WHERE uri_id = ?;

-- DROP_MEMBERS_OF_BATCH
DELETE FROM lexigram_durable_batch_documents WHERE batch_id = ?;

-- DROP_MEMBERS_OF_DOCUMENT
DELETE FROM lexigram_durable_batch_documents WHERE doc_hash = ?;

-- DROP_RUNS
DELETE FROM lexigram_durable_runs WHERE id IN (SELECT value FROM json_each(?));

-- DROP_URI
DELETE FROM lexigram_durable_document_uris WHERE id = ?;

-- DROP_URI_HISTORY
DELETE FROM lexigram_durable_uri_history WHERE uri_id = ?;

-- FIND_GROUP
SELECT id FROM lexigram_durable_groups WHERE idempotency_key = ?;

-- FIND_URI
SELECT id, doc_hash FROM lexigram_durable_document_uris WHERE key = ?;

-- FORGET_BATCH_OF_URIS
UPDATE lexigram_durable_document_uris SET batch_id = NULL WHERE batch_id = ?;

-- HASHES_OF_SOURCE
SELECT id, uri, doc_hash FROM lexigram_durable_document_uris
WHERE source = ? AND id > ? ORDER BY id LIMIT 500;

-- HISTORY
SELECT version, doc_hash, action, batch_id, created_at FROM lexigram_durable_uri_history
WHERE uri_id = ? ORDER BY version;

-- KNOWN_URIS
SELECT id, key, doc_hash, version FROM lexigram_durable_document_uris WHERE key IN (SELECT value FROM json_each(?));

-- LOCK_BATCH
SELECT id FROM lexigram_durable_batches WHERE id = ?;

-- LOCK_DOCUMENT
SELECT hash FROM lexigram_durable_documents WHERE hash = ?;

-- MEMBERS
SELECT m.doc_hash, u.uri, u.source, u.key
FROM lexigram_durable_batch_documents m JOIN lexigram_durable_document_uris u ON u.id = m.uri_id
WHERE m.batch_id = ? ORDER BY m.uri_id;

-- ORPHANS
SELECT d.hash FROM lexigram_durable_documents d
WHERE d.created_at <= CAST(? AS double precision)
    AND NOT EXISTS (SELECT 1 FROM lexigram_durable_document_uris u WHERE u.doc_hash = d.hash)
ORDER BY d.created_at LIMIT 500;

-- OTHER_URIS
SELECT count(*) AS n FROM lexigram_durable_document_uris WHERE doc_hash = ? AND id <> ?;

-- PLANS
SELECT body FROM lexigram_durable_plans;

-- RUNS_OF_DOCUMENT
SELECT r.id, r.group_id, r.completed_at FROM lexigram_durable_runs r
WHERE r.doc_id = ? AND r.group_id IN (
    SELECT g.id FROM lexigram_durable_groups g WHERE g.batch_id IN (
        SELECT batch_id FROM lexigram_durable_batch_documents WHERE doc_hash = ?));

-- SETTLE
UPDATE lexigram_durable_batches AS b SET completed_at = 
CASE WHEN EXISTS (SELECT 1 FROM lexigram_durable_groups g WHERE g.batch_id = b.id) THEN
    CASE WHEN EXISTS (SELECT 1 FROM lexigram_durable_groups g
                      WHERE g.batch_id = b.id AND g.completed_at IS NULL) THEN NULL
         ELSE (SELECT max(g.completed_at) FROM lexigram_durable_groups g WHERE g.batch_id = b.id)
    END ELSE b.completed_at END
WHERE EXISTS (SELECT 1 FROM lexigram_durable_groups g WHERE g.batch_id = b.id)
    AND b.completed_at IS DISTINCT FROM 
CASE WHEN EXISTS (SELECT 1 FROM lexigram_durable_groups g WHERE g.batch_id = b.id) THEN
    CASE WHEN EXISTS (SELECT 1 FROM lexigram_durable_groups g
                      WHERE g.batch_id = b.id AND g.completed_at IS NULL) THEN NULL
         ELSE (SELECT max(g.completed_at) FROM lexigram_durable_groups g WHERE g.batch_id = b.id)
    END ELSE b.completed_at END;

-- SETTLE_ONE
UPDATE lexigram_durable_batches AS b SET completed_at = 
CASE WHEN EXISTS (SELECT 1 FROM lexigram_durable_groups g WHERE g.batch_id = b.id) THEN
    CASE WHEN EXISTS (SELECT 1 FROM lexigram_durable_groups g
                      WHERE g.batch_id = b.id AND g.completed_at IS NULL) THEN NULL
         ELSE (SELECT max(g.completed_at) FROM lexigram_durable_groups g WHERE g.batch_id = b.id)
    END ELSE b.completed_at END
WHERE b.id = (SELECT batch_id FROM lexigram_durable_groups WHERE id = ?);

-- SIZES
SELECT hash, file_size FROM lexigram_durable_documents WHERE hash IN (SELECT value FROM json_each(?));

-- URI
SELECT u.id, u.uri, u.source, u.doc_hash, u.version, u.batch_id, u.metadata, u.updated_at,
    d.mime_type, d.file_size
FROM lexigram_durable_document_uris u JOIN lexigram_durable_documents d ON d.hash = u.doc_hash WHERE u.key = ?;

-- URIS_OF_BATCH
SELECT u.id, u.uri, u.source, u.doc_hash, u.version, u.batch_id, u.metadata, u.updated_at,
    d.mime_type, d.file_size
FROM lexigram_durable_document_uris u JOIN lexigram_durable_documents d ON d.hash = u.doc_hash WHERE u.id IN (
    SELECT uri_id FROM lexigram_durable_batch_documents WHERE batch_id = ?)
ORDER BY u.id LIMIT ? OFFSET ?;

-- URIS_OF_SOURCE
SELECT u.id, u.uri, u.source, u.doc_hash, u.version, u.batch_id, u.metadata, u.updated_at,
    d.mime_type, d.file_size
FROM lexigram_durable_document_uris u JOIN lexigram_durable_documents d ON d.hash = u.doc_hash WHERE u.source = ? ORDER BY u.id LIMIT ? OFFSET ?;

-- URI_AT_HAND
SELECT id, doc_hash FROM lexigram_durable_document_uris WHERE key = ?;
