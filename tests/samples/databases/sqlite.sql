-- Written by tests/samples/databases/fill.py at commit 25c098f.
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE migrations_of_lexigram (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT migrations_of_lexigram_pkc PRIMARY KEY (version_num)
);
INSERT INTO migrations_of_lexigram VALUES('0004');
CREATE TABLE lexigram_locks (
	resource_key VARCHAR(255) NOT NULL,
	holder_id VARCHAR(255) NOT NULL,
	holder_kind VARCHAR(32) NOT NULL,
	holder_meta TEXT NOT NULL,
	fence BIGINT NOT NULL,
	acquired_at DOUBLE NOT NULL,
	expires_at DOUBLE NOT NULL,
	PRIMARY KEY (resource_key)
);
INSERT INTO lexigram_locks VALUES('printer','desk-1','worker','{}',1,1795117783.8625097274,2110477783.8625097274);
INSERT INTO lexigram_locks VALUES('bulk:d942f64886578d8747312e368ed92d9f6b2a8d45556f0f924e2444fe911d15af','worker:3906:9563dcd3df92b177','worker','{}',2,1795117785.2735939026,1795117815.2735939025);
CREATE TABLE lexigram_lock_fence (
	id INTEGER NOT NULL,
	last BIGINT NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO lexigram_lock_fence VALUES(1,2);
CREATE TABLE lexigram_cache (
	namespace VARCHAR(128) NOT NULL,
	"key" TEXT NOT NULL,
	value BLOB NOT NULL,
	expires_at DOUBLE,
	PRIMARY KEY (namespace, "key")
);
INSERT INTO lexigram_cache VALUES('default','color',X'81a46e616d65a4626c7565',NULL);
CREATE TABLE lexigram_idempotency (
	namespace VARCHAR(128) NOT NULL,
	"key" TEXT NOT NULL,
	status VARCHAR(16) NOT NULL,
	value BLOB,
	created_at DOUBLE NOT NULL,
	expires_at DOUBLE,
	PRIMARY KEY (namespace, "key")
);
INSERT INTO lexigram_idempotency VALUES('default','payment-1','completed',X'a470616964',1795117783.9163789749,NULL);
CREATE TABLE lexigram_schedules (
	name VARCHAR(200) NOT NULL,
	definition TEXT NOT NULL,
	state VARCHAR(16) NOT NULL,
	origin VARCHAR(16) NOT NULL,
	owner VARCHAR(200) NOT NULL,
	next_tick BIGINT,
	due BIGINT,
	last_tick BIGINT,
	failures INTEGER NOT NULL,
	last_error TEXT,
	PRIMARY KEY (name)
);
INSERT INTO lexigram_schedules VALUES('report','{"at": null, "catch_up": 100, "cron": "30 2 * * *", "description": "", "end": null, "every": null, "grace": 60.0, "jitter": 0.0, "misfire": "fire_once", "start": null, "target": {"kind": "callback", "name": "report"}, "timezone": "Europe/Berlin"}','active','code','default',1795138200000,1795138200000,NULL,0,NULL);
INSERT INTO lexigram_schedules VALUES('collect','{"at": null, "catch_up": 100, "cron": null, "description": "", "end": null, "every": 1, "grace": 60.0, "jitter": 0.0, "misfire": "fire_once", "start": null, "target": {"kind": "callback", "name": "collect"}, "timezone": "UTC"}','active','code','default',1795117786000,1795117786000,1795117785000,0,NULL);
CREATE TABLE lexigram_schedule_firings (
	schedule VARCHAR(200) NOT NULL,
	tick BIGINT NOT NULL,
	manual INTEGER NOT NULL,
	fired BIGINT NOT NULL,
	state VARCHAR(16) NOT NULL,
	reference TEXT,
	error TEXT,
	callback VARCHAR(200),
	holder VARCHAR(255),
	lease BIGINT,
	PRIMARY KEY (schedule, tick, manual)
);
INSERT INTO lexigram_schedule_firings VALUES('collect',1795117785000,0,1795117785005,'done',NULL,NULL,'collect','worker:3906:e1861691284afb0a',NULL);
CREATE TABLE lexigram_jobs (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	id VARCHAR(512) NOT NULL,
	name VARCHAR(512) NOT NULL,
	queue VARCHAR(512) NOT NULL,
	priority INTEGER NOT NULL,
	payload TEXT NOT NULL,
	max_retries INTEGER NOT NULL,
	max_deliveries INTEGER NOT NULL,
	timeout DOUBLE,
	result_ttl DOUBLE,
	unique_key VARCHAR(512),
	idempotency_key VARCHAR(512),
	depends_on TEXT NOT NULL,
	on_dependency_failure VARCHAR(16) NOT NULL,
	correlation_id VARCHAR(512),
	causation_id VARCHAR(512),
	state VARCHAR(16) NOT NULL,
	scheduled_at DOUBLE,
	available_at DOUBLE NOT NULL,
	created_at DOUBLE NOT NULL,
	started_at DOUBLE,
	completed_at DOUBLE,
	retry_count INTEGER DEFAULT 0 NOT NULL,
	lost_count INTEGER DEFAULT 0 NOT NULL,
	error TEXT DEFAULT '' NOT NULL,
	reason VARCHAR(255) DEFAULT '' NOT NULL,
	notes TEXT DEFAULT '' NOT NULL,
	cancel_requested BOOLEAN DEFAULT false NOT NULL,
	waits INTEGER DEFAULT 0 NOT NULL,
	is_awaited BOOLEAN DEFAULT false NOT NULL,
	lease VARCHAR(255),
	lease_until DOUBLE,
	fence INTEGER DEFAULT 0 NOT NULL,
	result TEXT,
	result_until DOUBLE,
	UNIQUE (id)
);
INSERT INTO lexigram_jobs VALUES(1,'d884b0f7134543c48674192c34690ed5','resize','default',0,'{"args":["cat"],"kwargs":{}}',3,20,NULL,NULL,NULL,NULL,'','cancel',NULL,NULL,'completed',NULL,1795117785.0097124575,1795117785.0097124575,1795117785.0102195739,1795117785.0230131149,0,0,'','','',0,0,0,NULL,NULL,1,'"cat"',1795204185.0230131148);
INSERT INTO lexigram_jobs VALUES(2,'5b5d9716d5234fd3a2cec74f9fd35890','resize','default',0,'{"args":["dog"],"kwargs":{}}',3,20,NULL,NULL,NULL,'dog','','cancel',NULL,NULL,'ready',NULL,1795117785.0372641086,1795117785.0372641086,NULL,NULL,0,0,'','','',0,0,1,NULL,NULL,0,NULL,NULL);
INSERT INTO lexigram_jobs VALUES(3,'14f50d0645bf47b88f02babbe3211179','album','default',0,'{"args":[["cat","dog"]],"kwargs":{}}',3,20,NULL,NULL,NULL,NULL,'5b5d9716d5234fd3a2cec74f9fd35890','cancel',NULL,NULL,'waiting',NULL,1795117785.0381298064,1795117785.0381298064,NULL,NULL,0,0,'','','',0,1,0,NULL,NULL,0,NULL,NULL);
CREATE TABLE lexigram_job_edges (
	depends_on VARCHAR(512) NOT NULL,
	job_id VARCHAR(512) NOT NULL,
	PRIMARY KEY (depends_on, job_id)
);
INSERT INTO lexigram_job_edges VALUES('5b5d9716d5234fd3a2cec74f9fd35890','14f50d0645bf47b88f02babbe3211179');
CREATE TABLE lexigram_job_progress (
	task_id VARCHAR(512) NOT NULL,
	done BIGINT NOT NULL,
	total BIGINT NOT NULL,
	status VARCHAR(16) NOT NULL,
	message TEXT NOT NULL,
	error TEXT NOT NULL,
	updated_at DOUBLE NOT NULL,
	PRIMARY KEY (task_id)
);
INSERT INTO lexigram_job_progress VALUES('d884b0f7134543c48674192c34690ed5',1,2,'complete','','',1795117785.0234074592);
CREATE TABLE lexigram_job_submissions (
	"key" VARCHAR(512) NOT NULL,
	task_id VARCHAR(512) NOT NULL,
	task_name VARCHAR(512) NOT NULL,
	created_at DOUBLE NOT NULL,
	is_completed BOOLEAN NOT NULL,
	result TEXT,
	PRIMARY KEY ("key")
);
INSERT INTO lexigram_job_submissions VALUES('payment-2','task-2','pay',1795117783.9187040329,0,NULL);
CREATE TABLE migrations_of_lexigram_ai_workers (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT migrations_of_lexigram_ai_workers_pkc PRIMARY KEY (version_num)
);
INSERT INTO migrations_of_lexigram_ai_workers VALUES('0001');
CREATE TABLE lexigram_ai_dead_letters (
	source VARCHAR(32) NOT NULL,
	id TEXT NOT NULL,
	payload TEXT NOT NULL,
	failure_count INTEGER NOT NULL,
	first_failure DOUBLE NOT NULL,
	last_failure DOUBLE NOT NULL,
	last_error TEXT NOT NULL,
	category VARCHAR(16) NOT NULL,
	state VARCHAR(12) NOT NULL,
	retry_count INTEGER NOT NULL,
	max_retries INTEGER NOT NULL,
	next_retry DOUBLE NOT NULL,
	retried_at DOUBLE,
	notified BOOLEAN NOT NULL,
	notes TEXT NOT NULL,
	PRIMARY KEY (source, id)
);
INSERT INTO lexigram_ai_dead_letters VALUES('jobs','7','{"name":"mail"}',1,1000.0,1000.0,'boom','unknown','waiting',0,2,1060.0,NULL,0,'{"topic":"orders"}');
CREATE TABLE lexigram_ai_figures (
	name VARCHAR(200) NOT NULL,
	period BIGINT NOT NULL,
	value DOUBLE NOT NULL,
	PRIMARY KEY (name, period)
);
INSERT INTO lexigram_ai_figures VALUES('dead_letters.dlq.retried',0,1.0);
INSERT INTO lexigram_ai_figures VALUES('maintenance.runs',20000,1.0);
CREATE TABLE lexigram_ai_maintenance_runs (
	id INTEGER NOT NULL,
	task VARCHAR(200) NOT NULL,
	task_type VARCHAR(32) NOT NULL,
	status VARCHAR(16) NOT NULL,
	started_at DOUBLE NOT NULL,
	completed_at DOUBLE NOT NULL,
	items_processed BIGINT NOT NULL,
	items_deleted BIGINT NOT NULL,
	error TEXT,
	notes TEXT NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO lexigram_ai_maintenance_runs VALUES(1,'vacuum','index_optimization','completed',1767225600.0,1795117785.0492889881,1,0,NULL,'{}');
CREATE TABLE migrations_of_lexigram_queue (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT migrations_of_lexigram_queue_pkc PRIMARY KEY (version_num)
);
INSERT INTO migrations_of_lexigram_queue VALUES('0001');
CREATE TABLE lexigram_bus_groups (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	topic TEXT NOT NULL,
	name TEXT NOT NULL,
	matches TEXT,
	paused BOOLEAN DEFAULT false NOT NULL,
	"temporary" BOOLEAN DEFAULT false NOT NULL,
	used_at DOUBLE NOT NULL,
	CONSTRAINT uq_lexigram_bus_groups_topic_name UNIQUE (topic, name)
);
INSERT INTO lexigram_bus_groups VALUES(1,'orders','billing',NULL,0,0,1795117785.0410397052);
INSERT INTO lexigram_bus_groups VALUES(2,'returns','desk',NULL,0,0,1795117785.0439307689);
CREATE TABLE lexigram_bus_messages (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	id TEXT NOT NULL,
	topic TEXT NOT NULL,
	body BLOB NOT NULL,
	headers TEXT NOT NULL,
	sent_at DOUBLE NOT NULL,
	ttl DOUBLE,
	priority INTEGER NOT NULL,
	guarantee VARCHAR(16) NOT NULL,
	retry_count INTEGER NOT NULL,
	max_retries INTEGER NOT NULL,
	due_at DOUBLE NOT NULL,
	ordering_key TEXT,
	lane TEXT,
	copies INTEGER NOT NULL,
	remaining INTEGER NOT NULL
);
INSERT INTO lexigram_bus_messages VALUES(1,'e5103a8f-e786-4c06-966b-e6bc4903aadf','orders',X'7b226e756d626572223a317d','{"content-type":"application/json"}',1795117785.0428204536,NULL,0,'at_least_once',0,3,1795117785.0428638458,NULL,NULL,1,1);
INSERT INTO lexigram_bus_messages VALUES(2,'3fcc10f8-c0c9-45ea-9574-4bfec5229961','orders',X'7b226e756d626572223a327d','{"content-type":"application/json"}',1795117785.0434608459,NULL,0,'at_least_once',0,3,1795117785.0434873104,NULL,NULL,1,1);
INSERT INTO lexigram_bus_messages VALUES(3,'c17cdef1-5a0e-4e46-905f-47d22f067475','nobody',X'7b226e756d626572223a337d','{"content-type":"application/json"}',1795117785.0436747073,NULL,0,'at_least_once',0,3,1795117785.0436940193,NULL,NULL,0,0);
INSERT INTO lexigram_bus_messages VALUES(4,'6a67e180-9088-4eaf-9049-0f9e6dd31990','returns',X'7b226e756d626572223a347d','{"content-type":"application/json"}',1795117785.0442168712,NULL,0,'at_least_once',0,0,1795117785.0443098544,NULL,NULL,1,1);
CREATE TABLE lexigram_bus_deliveries (
	group_id BIGINT NOT NULL,
	message BIGINT NOT NULL,
	id TEXT NOT NULL,
	state VARCHAR(8) NOT NULL,
	due_at DOUBLE NOT NULL,
	rank BIGINT NOT NULL,
	queued_at DOUBLE NOT NULL,
	ordering_key TEXT,
	lane TEXT,
	fence INTEGER DEFAULT 0 NOT NULL,
	delivery_count INTEGER DEFAULT 0 NOT NULL,
	envelope TEXT,
	body BLOB,
	dead TEXT,
	CONSTRAINT pk_lexigram_bus_deliveries PRIMARY KEY (group_id, message)
);
INSERT INTO lexigram_bus_deliveries VALUES(1,1,'e5103a8f-e786-4c06-966b-e6bc4903aadf','ready',1795117785.0428638458,0,1795117785.0428638458,NULL,NULL,0,0,NULL,NULL,NULL);
INSERT INTO lexigram_bus_deliveries VALUES(1,2,'3fcc10f8-c0c9-45ea-9574-4bfec5229961','ready',1795117785.0434873104,0,1795117785.0434873104,NULL,NULL,0,0,NULL,NULL,NULL);
INSERT INTO lexigram_bus_deliveries VALUES(2,4,'6a67e180-9088-4eaf-9049-0f9e6dd31990','dead',1795117785.0462141037,0,1795117785.0443098544,NULL,NULL,1,1,'{"ce-specversion":"1.0","ce-source":"/lexigram","ce-type":"returns","content-type":"application/json","ce-id":"6a67e180-9088-4eaf-9049-0f9e6dd31990","ce-time":"2026-11-19T19:49:45.044217+00:00","ce-lextopic":"returns","ce-lextimestamp":"1795117785.0442169","ce-lexmaxretries":"0"}',NULL,'{"error":"ValueError: no stock","failed_at":"2026-11-19T19:49:45.046214+00:00","retry_count":0,"reason":"retries_exhausted","traceback":"Traceback (most recent call last):\n  File \"lexigram_queue/src/lexigram/queue/subscription.py\", line 471, in _attempt\n    await self._attempts.run(delivery, message)\n  File \"fill.py\", line 129, in refuse\n    raise ValueError(\"no stock\")\nValueError: no stock\n","attempts":1,"group":"desk"}');
CREATE TABLE lexigram_bus_seen (
	topic TEXT NOT NULL,
	id TEXT NOT NULL,
	seen_at DOUBLE NOT NULL,
	CONSTRAINT pk_lexigram_bus_seen PRIMARY KEY (topic, id)
);
INSERT INTO lexigram_bus_seen VALUES('orders','e5103a8f-e786-4c06-966b-e6bc4903aadf',1795117785.0428638458);
INSERT INTO lexigram_bus_seen VALUES('orders','3fcc10f8-c0c9-45ea-9574-4bfec5229961',1795117785.0434873104);
INSERT INTO lexigram_bus_seen VALUES('nobody','c17cdef1-5a0e-4e46-905f-47d22f067475',1795117785.0436940193);
INSERT INTO lexigram_bus_seen VALUES('returns','6a67e180-9088-4eaf-9049-0f9e6dd31990',1795117785.0443098544);
CREATE TABLE lexigram_bus_outbox (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	queue TEXT NOT NULL,
	owner VARCHAR(255) NOT NULL,
	id TEXT NOT NULL,
	topic TEXT NOT NULL,
	body BLOB NOT NULL,
	envelope TEXT NOT NULL,
	ordering_key TEXT,
	due_at DOUBLE NOT NULL,
	holder VARCHAR(255),
	attempts INTEGER DEFAULT 0 NOT NULL,
	error TEXT
);
INSERT INTO lexigram_bus_outbox VALUES(1,'sql','worker:3906:d5177a99c7057976','66c75e3a-d778-4586-97ec-c137ebd43e36','orders',X'7b226e756d626572223a357d','{"ce-specversion":"1.0","ce-source":"/lexigram","ce-type":"orders","content-type":"application/json","ce-id":"66c75e3a-d778-4586-97ec-c137ebd43e36","ce-time":"2026-11-19T19:49:45.047126+00:00","ce-lextopic":"orders","ce-lextimestamp":"1795117785.047126"}',NULL,0.0,NULL,0,NULL);
CREATE TABLE lexigram_bus_inbox (
	group_name TEXT NOT NULL,
	message_id TEXT NOT NULL,
	handled_at DOUBLE NOT NULL,
	CONSTRAINT pk_lexigram_bus_inbox PRIMARY KEY (group_name, message_id)
);
INSERT INTO lexigram_bus_inbox VALUES('billing','message-1',1795117785.0475497245);
CREATE TABLE migrations_of_lexigram_workflow (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT migrations_of_lexigram_workflow_pkc PRIMARY KEY (version_num)
);
INSERT INTO migrations_of_lexigram_workflow VALUES('0009');
CREATE TABLE lexigram_graph_runs (
	run_id VARCHAR(255) NOT NULL,
	graph VARCHAR(255) NOT NULL,
	version INTEGER NOT NULL,
	status VARCHAR(16) NOT NULL,
	created_at DOUBLE NOT NULL,
	updated_at DOUBLE NOT NULL,
	due_at DOUBLE,
	error TEXT,
	parent_run VARCHAR(255),
	parent_seq BIGINT,
	PRIMARY KEY (run_id)
);
INSERT INTO lexigram_graph_runs VALUES('a84a77a7dbf3405bac5d5d7cbb8efbf9','letter',1,'paused',1795117785.0479488372,1795117785.0484826564,NULL,NULL,NULL,NULL);
CREATE TABLE lexigram_graph_checkpoints (
	run_id VARCHAR(255) NOT NULL,
	seq BIGINT NOT NULL,
	whole BOOLEAN NOT NULL,
	data BLOB NOT NULL,
	nodes TEXT NOT NULL,
	created_at DOUBLE NOT NULL,
	PRIMARY KEY (run_id, seq)
);
INSERT INTO lexigram_graph_checkpoints VALUES('a84a77a7dbf3405bac5d5d7cbb8efbf9',0,1,X'7b2277223a7b22696e707574223a22416461222c226f7574707574223a22227d2c2274223a5b5b227772697465222c315d5d2c2263223a5b312c302c305d7d','[]',1795117785.0480823516);
INSERT INTO lexigram_graph_checkpoints VALUES('a84a77a7dbf3405bac5d5d7cbb8efbf9',1,0,X'7b2274223a5b5b2261736b222c325d5d2c2263223a5b322c312c305d2c2273223a5b5b227772697465222c312c7b2274657874223a224465617220416461227d5d5d7d','["write"]',1795117785.0483472347);
INSERT INTO lexigram_graph_checkpoints VALUES('a84a77a7dbf3405bac5d5d7cbb8efbf9',2,1,X'7b2277223a7b22696e707574223a22416461222c226f7574707574223a22222c2274657874223a224465617220416461227d2c2274223a5b5d2c2263223a5b322c312c305d2c2268223a5b5b5b2261736b222c325d2c2253656e6420274465617220416461273f222c7b7d2c6e756c6c5d5d7d','[]',1795117785.0485045909);
CREATE TABLE lexigram_sagas (
	saga_id VARCHAR(255) NOT NULL,
	state VARCHAR(16) NOT NULL,
	data TEXT NOT NULL,
	updated_at DOUBLE NOT NULL,
	owner VARCHAR(255),
	leased_until DOUBLE,
	PRIMARY KEY (saga_id)
);
INSERT INTO lexigram_sagas VALUES('trip','running','{"version": 1, "done": ["flight"], "undo": [], "undone": [], "undoing": null, "not_undone": {}, "failed_step": null, "error": null, "handled": [], "snapshot": {"seat": "12A"}}',1795117785.2731785774,'worker:3906:ce4c16ba1ac3a375',1795117790.2731785773);
CREATE TABLE workflow_content_checkpoints (
	key_str VARCHAR(512) NOT NULL,
	stage_id VARCHAR(255) NOT NULL,
	tenant_id VARCHAR(255) NOT NULL,
	entry_json TEXT NOT NULL,
	stage_handler_version VARCHAR(255) NOT NULL,
	output_size_bytes BIGINT NOT NULL,
	completed_at DOUBLE NOT NULL,
	created_at DOUBLE NOT NULL,
	PRIMARY KEY (key_str)
);
INSERT INTO workflow_content_checkpoints VALUES('parse|_global|6193c97585a0f731ce7b500bb69d2476816afb14c8d95ac8e6e865f680e9e438|4c8013dc8af381581573aac8ab69544d280715cf68c7e4b3a6e24c6a18ee1e3b','parse','_global','{"completed_at":"2026-01-01T00:00:00+00:00","metadata":{"by":"before"},"output":{"words":1},"output_blob_ref":null,"output_size_bytes":12,"stage_handler_version":"1"}','1',12,1767225600.0,1795117785.0487775802);
CREATE TABLE lexigram_bulk_operations (
	operation_id VARCHAR(255) NOT NULL,
	batch_size INTEGER NOT NULL,
	created_at DOUBLE NOT NULL,
	PRIMARY KEY (operation_id)
);
INSERT INTO lexigram_bulk_operations VALUES('import',2,1795117785.2737102508);
CREATE TABLE lexigram_bulk_batches (
	operation_id VARCHAR(255) NOT NULL,
	batch_id BIGINT NOT NULL,
	failed TEXT NOT NULL,
	PRIMARY KEY (operation_id, batch_id)
);
INSERT INTO lexigram_bulk_batches VALUES('import',0,'[]');
INSERT INTO lexigram_bulk_batches VALUES('import',1,'[]');
CREATE TABLE workflow_state_transitions (
	machine_id VARCHAR(255) NOT NULL,
	version BIGINT NOT NULL,
	from_state VARCHAR(255) NOT NULL,
	event VARCHAR(255) NOT NULL,
	to_state VARCHAR(255) NOT NULL,
	transitioned_at DOUBLE NOT NULL,
	PRIMARY KEY (machine_id, version)
);
INSERT INTO workflow_state_transitions VALUES('door',1,'open','close','shut',1795117785.0488774776);
CREATE TABLE lexigram_durable_plans (
	id INTEGER NOT NULL,
	digest VARCHAR(64) NOT NULL,
	workflow_id VARCHAR(255) NOT NULL,
	param_id VARCHAR(255),
	body TEXT NOT NULL,
	created_at DOUBLE NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (digest)
);
INSERT INTO lexigram_durable_plans VALUES(1,'fdf6a215b69f4d1b2d945a167638a0234c674b957fbd94798fe258ac22646d6c','charge-ship',NULL,'{"lifecycle":{"group_end":[{"handler":"log","name":"log","params":{},"retries":1}]},"param_id":null,"steps":[{"backoff":0.0,"backoff_cap":300.0,"handler":"charge","name":"charge","params":{},"resource_key":null,"retries":1,"step_type":"work","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"ship","name":"ship","params":{},"resource_key":null,"retries":1,"step_type":"work","timeout":null}],"workflow_id":"charge-ship"}',1795117785.0616118908);
INSERT INTO lexigram_durable_plans VALUES(2,'967d3f56755eae7bd0c192cb7fb4a3d7650e7fc2dcee78b47d9f1be130e63b8d','charge-refuse',NULL,'{"lifecycle":{"group_end":[{"handler":"log","name":"log","params":{},"retries":1}]},"param_id":null,"steps":[{"backoff":0.0,"backoff_cap":300.0,"handler":"charge","name":"charge","params":{},"resource_key":null,"retries":1,"step_type":"work","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"refuse","name":"refuse","params":{},"resource_key":null,"retries":1,"step_type":"work","timeout":null}],"workflow_id":"charge-refuse"}',1795117785.0639510154);
INSERT INTO lexigram_durable_plans VALUES(3,'e0b0d28c53132a8df42f2933f20e1ce066095d4b36bf048ccc527c4c7890d5d0','parcel',NULL,'{"param_id":null,"steps":[{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"turn 1","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"turn 2","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"turn 3","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"turn 4","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"turn 5","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"turn 6","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"orchestrated.turn","name":"(end)","params":{"kind":"graph","orchestration":"parcel","shape":"2eaf3f89d896d45ff3c00256128109d318829e82ab03f6f37ecd1cdafeafa8a0","version":1},"resource_key":null,"retries":1,"step_type":"graph","timeout":null}],"workflow_id":"parcel"}',1795117785.0677165984);
INSERT INTO lexigram_durable_plans VALUES(4,'2bde9e65e7a6aff558906e7e08e33d0cd58b098c82a3b56f5812cbb1642c7cb9','later-ship',NULL,'{"lifecycle":{"group_end":[{"handler":"log","name":"log","params":{},"retries":1}]},"param_id":null,"steps":[{"backoff":0.0,"backoff_cap":300.0,"handler":"later","name":"later","params":{},"resource_key":null,"retries":1,"step_type":"other","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"ship","name":"ship","params":{},"resource_key":null,"retries":1,"step_type":"other","timeout":null}],"workflow_id":"later-ship"}',1795117785.2706332207);
INSERT INTO lexigram_durable_plans VALUES(5,'534f58418a39044f796c2411e3ed182597e28ce140358ee2a5f43557bb726968','charge-hang',NULL,'{"lifecycle":{"group_end":[{"handler":"log","name":"log","params":{},"retries":1}]},"param_id":null,"steps":[{"backoff":0.0,"backoff_cap":300.0,"handler":"charge","name":"charge","params":{},"resource_key":null,"retries":1,"step_type":"work","timeout":null},{"backoff":0.0,"backoff_cap":300.0,"handler":"hang","name":"hang","params":{},"resource_key":null,"retries":1,"step_type":"work","timeout":null}],"workflow_id":"charge-hang"}',1795117785.2712328433);
CREATE TABLE lexigram_durable_plan_steps (
	plan_id BIGINT NOT NULL,
	step_no INTEGER NOT NULL,
	name VARCHAR(255) NOT NULL,
	step_type VARCHAR(255) NOT NULL,
	retries INTEGER NOT NULL,
	backoff DOUBLE NOT NULL,
	backoff_cap DOUBLE NOT NULL,
	resource_key VARCHAR(255), pool VARCHAR(255), resource_shared BOOLEAN DEFAULT false NOT NULL,
	PRIMARY KEY (plan_id, step_no)
);
INSERT INTO lexigram_durable_plan_steps VALUES(1,1,'charge','work',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(1,2,'ship','work',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(2,1,'charge','work',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(2,2,'refuse','work',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(3,1,'turn 1','graph',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(3,2,'turn 2','graph',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(3,3,'turn 3','graph',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(3,4,'turn 4','graph',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(3,5,'turn 5','graph',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(3,6,'turn 6','graph',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(3,7,'(end)','graph',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(4,1,'later','other',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(4,2,'ship','other',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(5,1,'charge','work',1,0.0,300.0,NULL,NULL,0);
INSERT INTO lexigram_durable_plan_steps VALUES(5,2,'hang','work',1,0.0,300.0,NULL,NULL,0);
CREATE TABLE lexigram_durable_groups (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name VARCHAR(255),
	workflow_id VARCHAR(255) NOT NULL,
	param_id VARCHAR(255),
	batch_id BIGINT,
	status VARCHAR(16) NOT NULL,
	total INTEGER NOT NULL,
	remaining INTEGER NOT NULL,
	failed INTEGER DEFAULT 0 NOT NULL,
	cancelled INTEGER DEFAULT 0 NOT NULL,
	endings INTEGER DEFAULT 0 NOT NULL,
	created_at DOUBLE NOT NULL,
	started_at DOUBLE,
	completed_at DOUBLE,
	idempotency_key VARCHAR(255)
, plan_id BIGINT, events INTEGER DEFAULT 0 NOT NULL);
INSERT INTO lexigram_durable_groups VALUES(1,'done','charge-ship',NULL,NULL,'completed',1,0,0,0,1,1795117785.0616118908,1795117785.0642459393,1795117785.0768489837,NULL,1,2);
INSERT INTO lexigram_durable_groups VALUES(2,'failed','charge-refuse',NULL,NULL,'failed',1,0,1,0,1,1795117785.0639510154,1795117785.0642459393,1795117785.0753235816,NULL,2,2);
INSERT INTO lexigram_durable_groups VALUES(3,'parcel','parcel',NULL,NULL,'running',1,1,0,0,0,1795117785.0677165984,1795117785.0692303181,NULL,NULL,3,0);
INSERT INTO lexigram_durable_groups VALUES(4,'waits','later-ship',NULL,NULL,'pending',1,1,0,0,0,1795117785.2706332207,NULL,NULL,NULL,4,2);
INSERT INTO lexigram_durable_groups VALUES(5,'cut off','charge-hang',NULL,NULL,'running',1,1,0,0,0,1795117785.2712328433,1795117785.272046566,NULL,NULL,5,2);
CREATE TABLE lexigram_durable_runs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	group_id BIGINT NOT NULL,
	plan_id BIGINT NOT NULL,
	doc_id VARCHAR(255),
	batch_id BIGINT,
	tenant VARCHAR(255),
	priority INTEGER NOT NULL,
	turn DOUBLE NOT NULL,
	rank DOUBLE NOT NULL,
	status VARCHAR(16) NOT NULL,
	step_no INTEGER NOT NULL,
	n_steps INTEGER NOT NULL,
	step_type VARCHAR(255) NOT NULL,
	resource_key VARCHAR(255),
	retry INTEGER DEFAULT 0 NOT NULL,
	lost INTEGER DEFAULT 0 NOT NULL,
	available_at DOUBLE NOT NULL,
	lease VARCHAR(255),
	lease_until DOUBLE,
	worker_id VARCHAR(255),
	fence INTEGER DEFAULT 0 NOT NULL,
	wanted VARCHAR(16),
	created_at DOUBLE NOT NULL,
	started_at DOUBLE,
	step_started_at DOUBLE,
	status_at DOUBLE NOT NULL,
	completed_at DOUBLE,
	message TEXT,
	params TEXT NOT NULL,
	idempotency_key VARCHAR(255)
, parent_id BIGINT, parent_step INTEGER, fan INTEGER, children INTEGER DEFAULT 0 NOT NULL, children_failed INTEGER DEFAULT 0 NOT NULL, parked TEXT, answer TEXT, events INTEGER DEFAULT 0 NOT NULL);
INSERT INTO lexigram_durable_runs VALUES(1,1,1,NULL,NULL,NULL,0,1795117785.0616118908,1795117785.0616118908,'completed',2,2,'work',NULL,0,0,1795117785.0768489837,NULL,NULL,NULL,2,NULL,1795117785.0616118908,1795117785.0642459393,NULL,1795117785.0768489837,1795117785.0768489837,NULL,'{"order":1}',NULL,NULL,NULL,NULL,0,0,NULL,NULL,2);
INSERT INTO lexigram_durable_runs VALUES(2,2,2,NULL,NULL,NULL,0,1795117785.0639510154,1795117785.0753235816,'failed',2,2,'work',NULL,1,0,1795117785.0753235816,NULL,NULL,NULL,2,NULL,1795117785.0639510154,1795117785.0642459393,NULL,1795117785.0753235816,1795117785.0753235816,'ValueError: out of stock','{}',NULL,NULL,NULL,NULL,0,0,NULL,NULL,2);
INSERT INTO lexigram_durable_runs VALUES(3,3,3,NULL,NULL,NULL,0,1795117785.0677165984,1795117785.0677165984,'parked',2,7,'graph',NULL,0,0,1795117785.0768489837,NULL,NULL,NULL,2,NULL,1795117785.0677165984,1795117785.0692303181,NULL,1795117785.0768489837,NULL,NULL,'{"start":"{\"at\":{\"state\":{\"input\":\"Bob\",\"output\":\"\"},\"t\":[[\"pack\",1]],\"c\":[1,0,0]}}"}',NULL,NULL,NULL,NULL,0,0,'send a parcel for Bob?',NULL,0);
INSERT INTO lexigram_durable_runs VALUES(4,4,4,NULL,NULL,NULL,0,1795117785.2706332207,1795117785.2706332207,'ready',1,2,'other',NULL,0,0,1795117785.2706332207,NULL,NULL,NULL,0,NULL,1795117785.2706332207,NULL,NULL,1795117785.2706332207,NULL,NULL,'{"order":3}',NULL,NULL,NULL,NULL,0,0,NULL,NULL,2);
INSERT INTO lexigram_durable_runs VALUES(5,5,5,NULL,NULL,NULL,0,1795117785.2712328433,1795117785.2712328433,'running',2,2,'work',NULL,0,0,1795117785.2729554175,'worker:3906:69e6678ab030f30f',1795117795.2729554176,'worker:3906:fa51a0e525f23083',2,NULL,1795117785.2712328433,1795117785.272046566,1795117785.2729554175,1795117785.2729554175,NULL,NULL,'{"order":2}',NULL,NULL,NULL,NULL,0,0,NULL,NULL,2);
CREATE TABLE lexigram_durable_history (
	run_id BIGINT NOT NULL,
	fence INTEGER NOT NULL,
	step_no INTEGER NOT NULL,
	retry INTEGER NOT NULL,
	status VARCHAR(16) NOT NULL,
	worker_id VARCHAR(255),
	started_at DOUBLE,
	finished_at DOUBLE NOT NULL,
	message TEXT,
	meta TEXT,
	PRIMARY KEY (run_id, fence)
);
INSERT INTO lexigram_durable_history VALUES(2,1,1,0,'COMPLETED','worker:3906:09f6255822ce1421',1795117785.0642459393,1795117785.0730013847,'success','{"charged":1}');
INSERT INTO lexigram_durable_history VALUES(1,1,1,0,'COMPLETED','worker:3906:09f6255822ce1421',1795117785.0642459393,1795117785.0741314888,'success','{"charged":1}');
INSERT INTO lexigram_durable_history VALUES(3,1,1,0,'COMPLETED','worker:3906:09f6255822ce1421',1795117785.0692303181,1795117785.0741314888,'success','{"ran":["pack"],"kept":"{\"at\":{\"state\":{\"input\":\"Bob\",\"output\":\"\",\"parcel\":\"a parcel for Bob\"},\"t\":[[\"ask\",2]],\"c\":[2,1,0]}}"}');
INSERT INTO lexigram_durable_history VALUES(2,2,2,1,'FAILED','worker:3906:09f6255822ce1421',1795117785.0730013847,1795117785.0753235816,'ValueError: out of stock','{"error":"ValueError","text":"out of stock","worker_id":"worker:3906:09f6255822ce1421","doc_id":null,"attempt":1}');
INSERT INTO lexigram_durable_history VALUES(1,2,2,0,'COMPLETED','worker:3906:09f6255822ce1421',1795117785.0741314888,1795117785.0768489837,'success','{"shipped":1}');
INSERT INTO lexigram_durable_history VALUES(3,2,2,0,'PENDING','worker:3906:09f6255822ce1421',1795117785.0741314888,1795117785.0768489837,'send a parcel for Bob?','{"asks":"ask","kept":"{\"at\":{\"state\":{\"input\":\"Bob\",\"output\":\"\",\"parcel\":\"a parcel for Bob\"},\"t\":[[\"ask\",2]],\"c\":[2,1,0]},\"pause\":{\"id\":\"d940bb85cf054e8cbbe0eb93bfdf9e55\",\"key\":2,\"name\":\"ask\",\"prompt\":\"send a parcel for Bob?\",\"remember\":{},\"due_at\":null}}"}');
INSERT INTO lexigram_durable_history VALUES(5,1,1,0,'COMPLETED','worker:3906:fa51a0e525f23083',1795117785.272046566,1795117785.2729554175,'success','{"charged":1}');
CREATE TABLE lexigram_durable_events (
	id INTEGER NOT NULL,
	kind VARCHAR(32) NOT NULL,
	group_id BIGINT NOT NULL,
	ending INTEGER NOT NULL,
	status VARCHAR(16) NOT NULL,
	created_at DOUBLE NOT NULL,
	lease VARCHAR(255),
	lease_until DOUBLE,
	tries INTEGER DEFAULT 0 NOT NULL,
	delivered_at DOUBLE, run_id BIGINT DEFAULT 0 NOT NULL, step_no INTEGER DEFAULT 0 NOT NULL, audience VARCHAR(16) DEFAULT 'listener' NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO lexigram_durable_events VALUES(1,'group_start',1,0,'running',1795117785.0642459393,NULL,NULL,0,NULL,0,0,'listener');
INSERT INTO lexigram_durable_events VALUES(2,'group_start',2,0,'running',1795117785.0642459393,NULL,NULL,0,NULL,0,0,'listener');
INSERT INTO lexigram_durable_events VALUES(3,'group_start',3,0,'running',1795117785.0692303181,NULL,NULL,0,NULL,0,0,'listener');
INSERT INTO lexigram_durable_events VALUES(4,'group_end',2,1,'failed',1795117785.0753235816,NULL,NULL,0,NULL,0,0,'listener');
INSERT INTO lexigram_durable_events VALUES(5,'group_end',2,1,'failed',1795117785.0753235816,NULL,NULL,1,1795117785.094978094,0,0,'handler');
INSERT INTO lexigram_durable_events VALUES(6,'group_end',1,1,'completed',1795117785.0768489837,NULL,NULL,0,NULL,0,0,'listener');
INSERT INTO lexigram_durable_events VALUES(7,'group_end',1,1,'completed',1795117785.0768489837,NULL,NULL,1,1795117785.1254954338,0,0,'handler');
INSERT INTO lexigram_durable_events VALUES(8,'group_start',5,0,'running',1795117785.272046566,NULL,NULL,0,NULL,0,0,'listener');
CREATE TABLE lexigram_durable_checkins (
	worker_id VARCHAR(255) NOT NULL,
	first_checkin DOUBLE NOT NULL,
	last_checkin DOUBLE NOT NULL,
	expires_at DOUBLE NOT NULL,
	PRIMARY KEY (worker_id)
);
INSERT INTO lexigram_durable_checkins VALUES('worker:3906:fa51a0e525f23083',1795117785.2693426608,1795117785.2693426608,1795117795.2693426609);
CREATE TABLE lexigram_durable_lifecycle (
	event_id BIGINT NOT NULL,
	handler_no INTEGER NOT NULL,
	handler_name VARCHAR(255) NOT NULL,
	kind VARCHAR(32) NOT NULL,
	group_id BIGINT NOT NULL,
	run_id BIGINT NOT NULL,
	step_no INTEGER NOT NULL,
	status VARCHAR(16) NOT NULL,
	attempts INTEGER NOT NULL,
	worker_id VARCHAR(255),
	started_at DOUBLE NOT NULL,
	finished_at DOUBLE,
	message TEXT,
	meta TEXT,
	PRIMARY KEY (event_id, handler_no)
);
INSERT INTO lexigram_durable_lifecycle VALUES(5,1,'log','group_end',2,0,0,'COMPLETED',1,'worker:3906:09f6255822ce1421',1795117785.0809741019,1795117785.0908617973,'success','{"logged":true}');
INSERT INTO lexigram_durable_lifecycle VALUES(7,1,'log','group_end',1,0,0,'COMPLETED',1,'worker:3906:09f6255822ce1421',1795117785.0817873478,1795117785.0950775146,'success','{"logged":true}');
CREATE TABLE lexigram_durable_duties (
	name VARCHAR(64) NOT NULL,
	due_at DOUBLE NOT NULL,
	PRIMARY KEY (name)
);
INSERT INTO lexigram_durable_duties VALUES('sweep',1795117845.058442831);
INSERT INTO lexigram_durable_duties VALUES('prune',1795118385.0601563454);
CREATE TABLE lexigram_durable_batches (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name VARCHAR(255),
	source VARCHAR(255) NOT NULL,
	params TEXT NOT NULL,
	created_at DOUBLE NOT NULL,
	completed_at DOUBLE
);
INSERT INTO lexigram_durable_batches VALUES(1,'folder','mail','{}',1795117785.1893577575,NULL);
CREATE TABLE lexigram_durable_documents (
	hash VARCHAR(80) NOT NULL,
	mime_type VARCHAR(255) NOT NULL,
	file_size BIGINT NOT NULL,
	metadata TEXT NOT NULL,
	created_at DOUBLE NOT NULL,
	PRIMARY KEY (hash)
);
INSERT INTO lexigram_durable_documents VALUES('sha256-8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8','text/plain',5,'{}',1795117785.2280409335);
CREATE TABLE lexigram_durable_document_uris (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	"key" VARCHAR(64) NOT NULL,
	uri TEXT NOT NULL,
	source VARCHAR(255) NOT NULL,
	doc_hash VARCHAR(80) NOT NULL,
	version INTEGER NOT NULL,
	batch_id BIGINT,
	metadata TEXT NOT NULL,
	updated_at DOUBLE NOT NULL,
	UNIQUE ("key"),
	FOREIGN KEY(doc_hash) REFERENCES lexigram_durable_documents (hash),
	FOREIGN KEY(batch_id) REFERENCES lexigram_durable_batches (id)
);
INSERT INTO lexigram_durable_document_uris VALUES(1,'ecfbc157a67914c8a122340c39398f90eb0286cb09c440c33167aefa206c6ca5','a.txt','folder','sha256-8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8',1,1,'{}',1795117785.2280409335);
CREATE TABLE lexigram_durable_uri_history (
	uri_id BIGINT NOT NULL,
	version INTEGER NOT NULL,
	doc_hash VARCHAR(80) NOT NULL,
	action VARCHAR(16) NOT NULL,
	batch_id BIGINT,
	created_at DOUBLE NOT NULL,
	PRIMARY KEY (uri_id, version),
	FOREIGN KEY(uri_id) REFERENCES lexigram_durable_document_uris (id)
);
INSERT INTO lexigram_durable_uri_history VALUES(1,1,'sha256-8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8','create',1,1795117785.2280409335);
CREATE TABLE lexigram_durable_batch_documents (
	batch_id BIGINT NOT NULL,
	uri_id BIGINT NOT NULL,
	doc_hash VARCHAR(80) NOT NULL,
	PRIMARY KEY (batch_id, uri_id),
	FOREIGN KEY(batch_id) REFERENCES lexigram_durable_batches (id),
	FOREIGN KEY(uri_id) REFERENCES lexigram_durable_document_uris (id),
	FOREIGN KEY(doc_hash) REFERENCES lexigram_durable_documents (hash)
);
INSERT INTO lexigram_durable_batch_documents VALUES(1,1,'sha256-8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8');
CREATE TABLE lexigram_durable_sync_states (
	source_id VARCHAR(255) NOT NULL,
	commit_sha VARCHAR(255),
	branch VARCHAR(255) NOT NULL,
	metadata TEXT NOT NULL,
	synced_at DOUBLE NOT NULL,
	PRIMARY KEY (source_id)
);
INSERT INTO lexigram_durable_sync_states VALUES('gitea:repo','abc123','main','{"files":2}',1795117785.2520854473);
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('lexigram_jobs',3);
INSERT INTO sqlite_sequence VALUES('lexigram_bus_groups',2);
INSERT INTO sqlite_sequence VALUES('lexigram_bus_messages',4);
INSERT INTO sqlite_sequence VALUES('lexigram_bus_outbox',1);
INSERT INTO sqlite_sequence VALUES('lexigram_durable_groups',5);
INSERT INTO sqlite_sequence VALUES('lexigram_durable_runs',5);
INSERT INTO sqlite_sequence VALUES('lexigram_durable_batches',1);
INSERT INTO sqlite_sequence VALUES('lexigram_durable_document_uris',1);
CREATE INDEX ix_lexigram_locks_expires_at ON lexigram_locks (expires_at);
CREATE INDEX ix_lexigram_cache_expires_at ON lexigram_cache (expires_at);
CREATE INDEX ix_lexigram_idempotency_expires_at ON lexigram_idempotency (expires_at);
CREATE INDEX ix_lexigram_schedules_due ON lexigram_schedules (due);
CREATE INDEX ix_lexigram_schedule_firings_lease ON lexigram_schedule_firings (lease) WHERE lease IS NOT NULL;
CREATE INDEX ix_lexigram_schedule_firings_fired ON lexigram_schedule_firings (fired);
CREATE INDEX ix_lexigram_jobs_ready ON lexigram_jobs (queue, priority DESC, available_at, seq) WHERE state = 'ready';
CREATE INDEX ix_lexigram_jobs_ready_all ON lexigram_jobs (priority DESC, available_at, seq) WHERE state = 'ready';
CREATE INDEX ix_lexigram_jobs_delayed ON lexigram_jobs (available_at) WHERE state = 'delayed';
CREATE INDEX ix_lexigram_jobs_leased ON lexigram_jobs (lease_until) WHERE state = 'running';
CREATE UNIQUE INDEX uq_lexigram_jobs_unique_key ON lexigram_jobs (unique_key) WHERE unique_key IS NOT NULL AND state IN ('ready', 'delayed', 'waiting', 'running');
CREATE UNIQUE INDEX uq_lexigram_jobs_idempotency_key ON lexigram_jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ix_lexigram_jobs_ended ON lexigram_jobs (completed_at) WHERE state IN ('completed', 'cancelled');
CREATE INDEX ix_lexigram_jobs_failed ON lexigram_jobs (completed_at DESC) WHERE state = 'failed';
CREATE INDEX ix_lexigram_job_progress_updated_at ON lexigram_job_progress (updated_at);
CREATE INDEX ix_lexigram_job_submissions_created_at ON lexigram_job_submissions (created_at);
CREATE INDEX ix_lexigram_ai_dead_letters_state ON lexigram_ai_dead_letters (state, next_retry);
CREATE INDEX ix_lexigram_ai_dead_letters_id ON lexigram_ai_dead_letters (id);
CREATE INDEX ix_lexigram_ai_dead_letters_latest ON lexigram_ai_dead_letters (last_failure);
CREATE INDEX ix_lexigram_ai_figures_period ON lexigram_ai_figures (period);
CREATE INDEX ix_lexigram_ai_maintenance_runs_task ON lexigram_ai_maintenance_runs (task, id);
CREATE INDEX ix_lexigram_bus_groups_patterns ON lexigram_bus_groups (id) WHERE matches IS NOT NULL;
CREATE INDEX ix_lexigram_bus_messages_backlog ON lexigram_bus_messages (topic, seq) WHERE copies = 0;
CREATE INDEX ix_lexigram_bus_messages_done ON lexigram_bus_messages (seq) WHERE remaining <= 0 AND copies > 0;
CREATE INDEX ix_lexigram_bus_deliveries_ready ON lexigram_bus_deliveries (group_id, rank, queued_at, message) WHERE state = 'ready';
CREATE INDEX ix_lexigram_bus_deliveries_due ON lexigram_bus_deliveries (group_id, due_at) WHERE state IN ('delayed', 'leased');
CREATE INDEX ix_lexigram_bus_deliveries_lane ON lexigram_bus_deliveries (group_id, lane, rank) WHERE state = 'ready' AND lane IS NOT NULL;
CREATE INDEX ix_lexigram_bus_deliveries_key ON lexigram_bus_deliveries (group_id, ordering_key, message) WHERE ordering_key IS NOT NULL AND state <> 'dead';
CREATE INDEX ix_lexigram_bus_deliveries_running ON lexigram_bus_deliveries (group_id, ordering_key) WHERE ordering_key IS NOT NULL AND state = 'leased';
CREATE UNIQUE INDEX uq_lexigram_bus_deliveries_dead ON lexigram_bus_deliveries (group_id, id) WHERE state = 'dead';
CREATE INDEX ix_lexigram_bus_deliveries_died ON lexigram_bus_deliveries (group_id, due_at, message) WHERE state = 'dead';
CREATE INDEX ix_lexigram_bus_seen_seen_at ON lexigram_bus_seen (seen_at);
CREATE INDEX ix_lexigram_bus_outbox_queue ON lexigram_bus_outbox (queue, seq);
CREATE INDEX ix_lexigram_bus_outbox_key ON lexigram_bus_outbox (queue, ordering_key, seq) WHERE ordering_key IS NOT NULL;
CREATE INDEX ix_lexigram_bus_inbox_handled_at ON lexigram_bus_inbox (handled_at);
CREATE INDEX ix_lexigram_graph_runs_status ON lexigram_graph_runs (status, updated_at);
CREATE INDEX ix_lexigram_sagas_state ON lexigram_sagas (state, updated_at);
CREATE INDEX ix_workflow_content_checkpoints_stage ON workflow_content_checkpoints (stage_id, tenant_id, completed_at);
CREATE INDEX ix_lexigram_durable_groups_ended ON lexigram_durable_groups (completed_at);
CREATE UNIQUE INDEX uq_lexigram_durable_groups_key ON lexigram_durable_groups (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ix_lexigram_durable_runs_delayed ON lexigram_durable_runs (available_at) WHERE status = 'delayed';
CREATE INDEX ix_lexigram_durable_runs_group ON lexigram_durable_runs (group_id, status);
CREATE INDEX ix_lexigram_durable_runs_keyed ON lexigram_durable_runs (resource_key, status, rank, id) WHERE resource_key IS NOT NULL;
CREATE INDEX ix_lexigram_durable_runs_leased ON lexigram_durable_runs (lease_until) WHERE status = 'running';
CREATE INDEX ix_lexigram_durable_runs_ready ON lexigram_durable_runs (step_type, rank, id) WHERE status = 'ready';
CREATE INDEX ix_lexigram_durable_runs_ready_all ON lexigram_durable_runs (rank, id, step_type) WHERE status = 'ready';
CREATE INDEX ix_lexigram_durable_runs_tenant ON lexigram_durable_runs (tenant, turn) WHERE tenant IS NOT NULL AND completed_at IS NULL;
CREATE UNIQUE INDEX uq_lexigram_durable_runs_key ON lexigram_durable_runs (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ix_lexigram_durable_events_due ON lexigram_durable_events (id) WHERE delivered_at IS NULL;
CREATE VIEW workercheckin AS
SELECT worker_id AS id, strftime('%Y-%m-%d %H:%M:%f', first_checkin, 'unixepoch') AS first_checkin, strftime('%Y-%m-%d %H:%M:%f', last_checkin, 'unixepoch') AS last_checkin
FROM lexigram_durable_checkins;
CREATE INDEX ix_lexigram_durable_runs_children ON lexigram_durable_runs (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE UNIQUE INDEX uq_lexigram_durable_events_once ON lexigram_durable_events (group_id, kind, run_id, ending, audience);
CREATE INDEX ix_lexigram_durable_events_handlers ON lexigram_durable_events (id) WHERE delivered_at IS NULL AND audience = 'handler';
CREATE INDEX ix_lexigram_durable_lifecycle_group_id ON lexigram_durable_lifecycle (group_id);
CREATE VIEW lifecyclehistory AS
SELECT event_id * 100 + handler_no AS id, kind AS event, group_id AS run_group_id,
    CASE WHEN run_id > 0 THEN run_id END AS workflow_run_id,
    CASE WHEN step_no > 0 THEN run_id * 10000 + step_no END AS step_id,
    handler_name AS handler_name, status AS status, attempts AS attempts, strftime('%Y-%m-%d %H:%M:%f', started_at, 'unixepoch') AS start_date,
    strftime('%Y-%m-%d %H:%M:%f', finished_at, 'unixepoch') AS completed_date, message AS status_message, meta AS status_meta,
    worker_id AS worker_id
FROM lexigram_durable_lifecycle;
CREATE INDEX ix_lexigram_durable_groups_batch ON lexigram_durable_groups (batch_id) WHERE batch_id IS NOT NULL;
CREATE INDEX ix_lexigram_durable_document_uris_doc_hash ON lexigram_durable_document_uris (doc_hash);
CREATE INDEX ix_lexigram_durable_document_uris_source ON lexigram_durable_document_uris (source);
CREATE INDEX ix_lexigram_durable_batch_documents_doc_hash ON lexigram_durable_batch_documents (doc_hash);
CREATE INDEX ix_lexigram_durable_batch_documents_uri_id ON lexigram_durable_batch_documents (uri_id);
CREATE VIEW resourcelock AS
SELECT l.resource_key AS resource_key, l.holder_id AS holder_id, l.holder_kind AS holder_kind,
    (SELECT min(r.id * 10000 + r.step_no) FROM lexigram_durable_runs r
     WHERE r.resource_key = l.resource_key AND r.status = 'running' AND r.lease = l.holder_id)
        AS step_id,
    strftime('%Y-%m-%d %H:%M:%f', l.acquired_at, 'unixepoch') AS acquired_at, strftime('%Y-%m-%d %H:%M:%f', l.expires_at, 'unixepoch') AS expires_at,
    l.holder_meta AS holder_meta
FROM lexigram_locks l;
CREATE INDEX ix_lexigram_durable_runs_parked ON lexigram_durable_runs (id) WHERE parked IS NOT NULL AND completed_at IS NULL;
CREATE VIEW runstep AS
SELECT r.id * 10000 + p.step_no AS id, r.id AS workflow_run_id,
    p.step_no AS workflow_step_number, p.name AS workflow_step_name,
    p.plan_id * 10000 + p.step_no AS step_config_id, p.step_type AS step_type,
    p.step_no = r.n_steps AS is_last_step, strftime('%Y-%m-%d %H:%M:%f', r.created_at, 'unixepoch') AS created_date, r.priority AS priority,
    strftime('%Y-%m-%d %H:%M:%f', CASE WHEN p.step_no = r.step_no AND r.status = 'running' THEN r.step_started_at WHEN p.step_no = r.step_no AND r.retry = 0 AND h.status <> 'PENDING' AND r.status NOT IN ('running', 'completed', 'failed', 'cancelled') THEN NULL ELSE h.started_at END, 'unixepoch') AS start_date, strftime('%Y-%m-%d %H:%M:%f', CASE WHEN p.step_no = r.step_no AND r.status = 'running' THEN r.step_started_at WHEN p.step_no = r.step_no AND r.retry = 0 AND h.status <> 'PENDING' AND r.status NOT IN ('running', 'completed', 'failed', 'cancelled') THEN r.status_at ELSE h.finished_at END, 'unixepoch') AS status_date, strftime('%Y-%m-%d %H:%M:%f', CASE WHEN h.status IN ('COMPLETED', 'FAILED') AND (p.step_no < r.step_no OR r.status IN ('completed', 'failed')) THEN h.finished_at END, 'unixepoch') AS completed_date,
    CASE WHEN p.step_no = r.step_no THEN r.retry ELSE coalesce(h.retry, 0) END AS retry,
    p.retries AS retries,
    CASE WHEN p.step_no < r.step_no OR r.status = 'completed' THEN 'COMPLETED'
         WHEN p.step_no > r.step_no THEN
            CASE WHEN r.status IN ('failed', 'cancelled') THEN 'CANCELLED' ELSE 'PENDING' END
         WHEN r.status = 'running' THEN 'RUNNING'
         WHEN r.status = 'failed' THEN 'FAILED'
         WHEN r.status = 'cancelled' THEN 'CANCELLED'
         WHEN r.retry > 0 THEN 'ERROR' ELSE 'PENDING' END AS status,
    CASE WHEN p.step_no > r.step_no AND r.status = 'failed' THEN 'cancelled: prior step failed'
         WHEN p.step_no = r.step_no AND r.status = 'running' OR p.step_no = r.step_no AND r.retry = 0 AND h.status <> 'PENDING' AND r.status NOT IN ('running', 'completed', 'failed', 'cancelled') THEN NULL
         WHEN p.step_no < r.step_no AND h.run_id IS NULL THEN 'skipped'
         ELSE h.message END AS status_message,
    CASE WHEN p.step_no = r.step_no AND r.status = 'running' OR p.step_no = r.step_no AND r.retry = 0 AND h.status <> 'PENDING' AND r.status NOT IN ('running', 'completed', 'failed', 'cancelled') THEN NULL
         WHEN p.step_no < r.step_no AND h.run_id IS NULL THEN '{"skipped": true}'
         ELSE h.meta END AS status_meta,
    CASE WHEN p.step_no = r.step_no AND r.status = 'running' THEN r.worker_id
         WHEN h.status = 'PENDING' OR p.step_no = r.step_no AND r.retry = 0 AND h.status <> 'PENDING' AND r.status NOT IN ('running', 'completed', 'failed', 'cancelled') THEN NULL ELSE h.worker_id END AS worker_id,
    CASE WHEN p.step_no = r.step_no THEN r.lease END AS lease_token,
    p.resource_key AS resource_key
FROM lexigram_durable_runs r
JOIN lexigram_durable_plan_steps p ON p.plan_id = r.plan_id
LEFT JOIN lexigram_durable_history h ON h.run_id = r.id AND h.fence = (
    SELECT max(x.fence) FROM lexigram_durable_history x
    WHERE x.run_id = r.id AND x.step_no = p.step_no);
COMMIT;
