"""The queues that are compared. Each is used as by a worker: in one session that stays open, with
prepared statements, BATCH events per step, and a commit after every step."""

from enqueue import PAYLOAD

BATCH = 100

# The same typed events for all queues, so that none pays for parsing input of the client.
EVENTS = f"""
CREATE TABLE event AS
SELECT 'Order' AS aggregate_type, gen_random_uuid() AS aggregate_id, 'OrderConfirmed' AS event_type,
       '{PAYLOAD}'::jsonb AS payload FROM generate_series(1, {BATCH});
CREATE TABLE batch AS SELECT jsonb_agg(to_jsonb(event)) AS events FROM event;
ANALYZE event, batch;
"""


class Queue:
    schema: str             # run once in a database that has EVENTS
    statements: str

    def __init__(self, cursor) -> None:
        self.cursor = cursor
        cursor.execute(self.statements)

    def fetch(self, statement: str, *arguments) -> list[tuple]:
        self.cursor.execute(statement, arguments)
        return self.cursor.fetchall()

    def enqueue(self) -> None:
        self.cursor.execute("EXECUTE enqueue")

    def consume(self) -> int:
        """Claims a batch and acks it; returns its number of events."""
        raise NotImplementedError

    def archive(self) -> None:
        """Archives settled events, if the queue does not do so by itself."""


class Outbox(Queue):
    schema = "SELECT outbox_create_consumer('worker')"

    def __init__(self, cursor, consumer: str = "worker") -> None:
        self.statements = f"""
            PREPARE enqueue AS SELECT cardinality(outbox_enqueue_many(events)) FROM batch;
            PREPARE claim AS SELECT * FROM outbox_claim('{consumer}', {BATCH});
            PREPARE ack(bigint) AS SELECT outbox_ack($1);
        """
        super().__init__(cursor)

    def consume(self) -> int:
        events = self.fetch("EXECUTE claim")
        if events:
            token = events[0][-2]
            self.cursor.execute("EXECUTE ack(%s)", (int(token),))
        return len(events)


class Seed(Queue):
    """Lease, mark, archive. The table has the partitions that pg_partman makes for p_premake => 7,
    and only the indexes that the statements need."""

    schema = """
        CREATE TABLE outbox (
            id              bigserial,
            tracking_id     uuid NOT NULL DEFAULT gen_random_uuid(),
            aggregate_id    uuid NOT NULL,
            aggregate_type  text NOT NULL,
            event_type      text NOT NULL,
            payload         jsonb NOT NULL,
            metadata        jsonb DEFAULT '{}',
            created_at      timestamptz NOT NULL DEFAULT now(),
            processed_at    timestamptz,
            status          text NOT NULL DEFAULT 'PENDING',
            retry_count     int NOT NULL DEFAULT 0,
            max_retries     int NOT NULL DEFAULT 5,
            locked_until    timestamptz,
            lock_token      bigint,
            last_error      text,
            PRIMARY KEY (id, created_at)
        ) PARTITION BY RANGE (created_at);
        CREATE INDEX ON outbox (created_at, id) WHERE status = 'PENDING';
        CREATE INDEX ON outbox (locked_until) WHERE status = 'PROCESSING';
        CREATE TABLE outbox_archive (LIKE outbox INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
            PARTITION BY RANGE (created_at);
        CREATE TABLE outbox_archive_p PARTITION OF outbox_archive DEFAULT;
        CREATE TABLE outbox_default PARTITION OF outbox DEFAULT;
        DO $$
        BEGIN
            FOR day IN -7..7 LOOP
                EXECUTE format('CREATE TABLE outbox_p%s PARTITION OF outbox FOR VALUES FROM (%L) TO (%L)',
                               day + 7, current_date + day, current_date + day + 1);
            END LOOP;
        END $$
    """

    # Plans as for a large, analyzed table, although the table is empty at first.
    statements = f"""
        SET enable_seqscan = off;
        SET enable_bitmapscan = off;
        SET enable_hashjoin = off;
        SET enable_mergejoin = off;
        SET jit = off;
        PREPARE enqueue AS
        INSERT INTO outbox (aggregate_id, aggregate_type, event_type, payload)
        SELECT aggregate_id, aggregate_type, event_type, payload FROM event;
        PREPARE claim(bigint) AS
        UPDATE outbox
           SET status = 'PROCESSING', locked_until = now() + interval '30 seconds', lock_token = $1
         WHERE id IN (SELECT id FROM outbox WHERE status = 'PENDING'
                       ORDER BY created_at LIMIT {BATCH} FOR UPDATE SKIP LOCKED)
        RETURNING *;
        PREPARE ack(bigint[], bigint) AS
        UPDATE outbox SET status = 'COMPLETED', processed_at = now(), locked_until = NULL
         WHERE id = ANY ($1) AND lock_token = $2;
        PREPARE archive AS
        WITH moved AS (
            DELETE FROM outbox WHERE processed_at IS NOT NULL AND processed_at < now() RETURNING *
        )
        INSERT INTO outbox_archive SELECT * FROM moved;
    """

    def __init__(self, cursor) -> None:
        super().__init__(cursor)
        self.token = 0

    def consume(self) -> int:
        self.token += 1
        events = self.fetch("EXECUTE claim(%s)", self.token)
        ids = [int(event[0]) for event in events]
        self.cursor.execute("EXECUTE ack(%s, %s)", (ids, self.token))
        return len(events)

    def archive(self) -> None:
        self.cursor.execute("EXECUTE archive")


class Pgq(Queue):
    """The ticker is called after each transaction, which is as often as it can help."""

    schema = """
        CREATE EXTENSION pgq;
        SELECT pgq.create_queue('events'), pgq.register_consumer('events', 'worker'),
               pgq.set_queue_config('events', 'ticker_max_count', '1')
    """
    statements = """
        PREPARE enqueue AS
        SELECT count(pgq.insert_event('events', event_type, payload::text, aggregate_type,
                                      aggregate_id::text, NULL, NULL)) FROM event;
        PREPARE tick AS SELECT pgq.ticker('events');
        PREPARE claim AS SELECT pgq.next_batch('events', 'worker');
        PREPARE read(bigint) AS SELECT * FROM pgq.get_batch_events($1);
        PREPARE ack(bigint) AS SELECT pgq.finish_batch($1);
    """

    def enqueue(self) -> None:
        super().enqueue()
        self.cursor.execute("EXECUTE tick")

    def consume(self) -> int:
        [(batch,)] = self.fetch("EXECUTE claim")
        events = self.fetch("EXECUTE read(%s)", int(batch))
        self.cursor.execute("EXECUTE ack(%s)", (int(batch),))
        return len(events)
