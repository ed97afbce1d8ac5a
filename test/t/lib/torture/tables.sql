-- Tables that clients change beside the log.

-- A writer locks the row of an aggregate until commit, and each event names its predecessor: a
-- writer sees the commit before its own.
CREATE TABLE aggregates (id text PRIMARY KEY, version integer NOT NULL DEFAULT 0, last text) WITH (fillfactor = 20);
INSERT INTO aggregates (id) SELECT 'order-' || i FROM generate_series(1, 16) i;

-- A client whose commit had no answer is resolved here at the end.
CREATE TABLE happened (attempt text PRIMARY KEY);

-- Results of outbox_consume() and inbox_accept(): without a constraint, so that duplicates show.
CREATE TABLE consumed (event text NOT NULL);
CREATE TABLE handled (event text NOT NULL);

-- Effects of idempotency keys.
CREATE TABLE effects (key text NOT NULL, event text NOT NULL);
