-- Records of the load. Each row is written in the transaction that it describes, so that a
-- committed row has happened.
CREATE SEQUENCE turn;

-- Rows that writers lock and update. An event of type Order has the version that its change led to,
-- so that versions follow the order of commits.
CREATE TABLE aggregates (id text PRIMARY KEY, version integer NOT NULL DEFAULT 0);

CREATE TABLE written (tracking_id uuid PRIMARY KEY, aggregate text NOT NULL, version integer);

CREATE TABLE claims (
    consumer     text        NOT NULL,
    token        bigint      NOT NULL,
    id           bigint      NOT NULL,
    tracking_id  uuid        NOT NULL,
    aggregate    text        NOT NULL,
    attempts     integer     NOT NULL,
    claimed_at   timestamptz NOT NULL,
    locked_until timestamptz NOT NULL,
    n            bigint      NOT NULL DEFAULT nextval('turn'),
    PRIMARY KEY (consumer, id, token)
);

-- How a worker settled or returned a message.
CREATE TABLE endings (
    consumer text   NOT NULL,
    token    bigint NOT NULL,
    id       bigint NOT NULL,
    how      text   NOT NULL CHECK (how IN ('acked', 'dead', 'failed', 'parked', 'released')),
    n        bigint NOT NULL DEFAULT nextval('turn'),
    PRIMARY KEY (consumer, id, token)
);
-- A message is settled once.
CREATE UNIQUE INDEX ON endings (consumer, id) WHERE how IN ('acked', 'dead');

CREATE TABLE heartbeats (token bigint NOT NULL, locked_until timestamptz NOT NULL, n bigint NOT NULL DEFAULT nextval('turn'));

-- Checks after the load; each view has violations of one promise.

CREATE VIEW events AS
SELECT m.id, m.tracking_id, m.aggregate_id AS aggregate, w.version,
       lag(m.id) OVER (PARTITION BY m.aggregate_id ORDER BY w.version) AS earlier_id
  FROM outbox_messages m JOIN written w USING (tracking_id);

CREATE VIEW dead AS SELECT c.name AS consumer, d.id, d.died_at FROM outbox_messages_dlq d JOIN outbox_consumers c USING (consumer_id);

CREATE VIEW neither_or_both AS
SELECT coalesce(w.tracking_id, m.tracking_id) AS tracking_id, m.id FROM written w FULL JOIN outbox_messages m USING (tracking_id)
 WHERE w.tracking_id IS NULL OR m.tracking_id IS NULL;

CREATE VIEW unsettled AS
SELECT c.name AS consumer, m.id FROM outbox_consumers c CROSS JOIN outbox_messages m
EXCEPT (SELECT consumer, id FROM endings WHERE how = 'acked' UNION ALL SELECT consumer, id FROM dead);

CREATE VIEW acked_and_dead AS
SELECT consumer, id FROM endings WHERE how = 'acked' INTERSECT SELECT consumer, id FROM dead;

-- Delivered, but never committed.
CREATE VIEW phantoms AS
SELECT c.* FROM claims c WHERE NOT EXISTS (SELECT FROM written w WHERE w.tracking_id = c.tracking_id);

-- Delivered to the transaction that wrote them, before its commit.
CREATE VIEW handed_to_their_writer AS
SELECT c.consumer, c.token, c.id FROM claims c JOIN outbox_messages m USING (id)
 WHERE c.xmin::text::bigint = m.xid::text::bigint & x'FFFFFFFF'::bigint;

CREATE VIEW claimed_after_the_end AS
SELECT c.*, e.how, e.token AS ended_by FROM claims c JOIN endings e USING (consumer, id) WHERE e.how IN ('acked', 'dead') AND c.n > e.n;

-- Claimed again although the earlier batch had neither returned the message nor expired.
CREATE VIEW in_two_leases AS
SELECT * FROM (
    SELECT c.*, lead(c.token) OVER w AS next_token, lead(c.n) OVER w AS next_n, lead(c.claimed_at) OVER w AS next_claimed_at
      FROM claims c WINDOW w AS (PARTITION BY consumer, id ORDER BY n)) c
 WHERE next_n IS NOT NULL
   AND NOT EXISTS (SELECT FROM endings e WHERE (e.consumer, e.id, e.token) = (c.consumer, c.id, c.token) AND e.n < c.next_n)
   AND next_claimed_at <= greatest(locked_until, (SELECT max(h.locked_until) FROM heartbeats h WHERE h.token = c.token AND h.n < c.next_n));

-- Settled by a token that was not the newest.
CREATE VIEW settled_by_the_wrong_one AS
SELECT e.*, c.token AS newest FROM endings e
  JOIN (SELECT DISTINCT ON (consumer, id) consumer, id, token FROM claims ORDER BY consumer, id, n DESC) c USING (consumer, id)
 WHERE e.how IN ('acked', 'dead') AND e.token <> c.token;

-- For ordered consumers: acked before an earlier version of the aggregate was settled, …
CREATE VIEW acked_out_of_order AS
SELECT * FROM (
    SELECT x.consumer, e.*, x.n, max(x.n) OVER (PARTITION BY x.consumer, e.aggregate ORDER BY e.version ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier_n
      FROM endings x JOIN outbox_consumers c ON c.name = x.consumer AND c.ordered JOIN events e USING (id)
     WHERE x.how = 'acked' AND e.version IS NOT NULL) s
 WHERE earlier_n > n;

-- … or delivered while the earlier version was neither settled nor in front of it in the same
-- batch.
CREATE VIEW claimed_out_of_order AS
SELECT c.*, e.version, e.earlier_id FROM claims c JOIN outbox_consumers o ON o.name = c.consumer AND o.ordered JOIN events e USING (id)
 WHERE e.version > 1
   AND NOT EXISTS (SELECT FROM endings x WHERE (x.consumer, x.id) = (c.consumer, e.earlier_id) AND x.how IN ('acked', 'dead') AND x.n < c.n)
   AND NOT EXISTS (SELECT FROM claims b WHERE (b.consumer, b.id, b.token) = (c.consumer, e.earlier_id, c.token) AND b.n < c.n)
   AND NOT EXISTS (SELECT FROM dead d WHERE (d.consumer, d.id) = (c.consumer, e.earlier_id) AND d.died_at <= c.claimed_at);
