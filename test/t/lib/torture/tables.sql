-- What the clients change beside the log.

-- Whoever writes an event of an aggregate has its row until its commit, and names the event before it: what comes after
-- another has seen it committed.
CREATE TABLE aggregates (id text PRIMARY KEY, version integer NOT NULL DEFAULT 0, last text) WITH (fillfactor = 20);
INSERT INTO aggregates (id) SELECT 'order-' || i FROM generate_series(1, 16) i;

-- A client that never heard of its commit finds here, when all is over, what became of it.
CREATE TABLE happened (attempt text PRIMARY KEY);

-- What outbox_consume() brought, and what inbox_accept() let pass: nothing here refuses a second one.
CREATE TABLE consumed (event text NOT NULL);
CREATE TABLE handled (event text NOT NULL);

-- What was done for an idempotency key.
CREATE TABLE effects (key text NOT NULL, event text NOT NULL);
