----------------------------------------------------------------------------------------------------
-- The hash chain over the audit log. Maintenance adds rows to it after their commit, so writers do not wait for it.
----------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION _outbox.audit_next_xid() RETURNS xid8
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_next_xid';
COMMENT ON FUNCTION _outbox.audit_next_xid() IS 'internal: next transaction id, greater than all that are assigned';

CREATE OR REPLACE FUNCTION _outbox.audit_content(recorded audit_log) RETURNS bytea
LANGUAGE c STABLE STRICT PARALLEL SAFE COST 10 AS 'MODULE_PATHNAME', 'audit_content';
COMMENT ON FUNCTION _outbox.audit_content(audit_log)
IS 'internal: SHA-256 of all columns of a row, independent of the settings of the session';

CREATE OR REPLACE FUNCTION _outbox.audit_link(previous bytea, entry _outbox.audit_chain) RETURNS bytea
LANGUAGE c STABLE PARALLEL SAFE COST 10 AS 'MODULE_PATHNAME', 'audit_link';
COMMENT ON FUNCTION _outbox.audit_link(bytea, _outbox.audit_chain)
IS 'internal: hash that an entry of the chain must have';

-- The text form of a multirange is canonical ASCII, so the hash does not depend on settings or encoding.
CREATE OR REPLACE FUNCTION _outbox.audit_content(removed int8multirange) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT sha256(convert_to(removed::text, 'SQL_ASCII'))
$$;
COMMENT ON FUNCTION _outbox.audit_content(int8multirange) IS 'internal: SHA-256 of the ids of removed rows';

CREATE OR REPLACE FUNCTION _outbox.audit_period(occurred_at timestamptz) RETURNS date
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT date_trunc('month', occurred_at AT TIME ZONE 'UTC')::date
$$;
COMMENT ON FUNCTION _outbox.audit_period(timestamptz) IS 'internal: month of the chain that a row belongs to';

-- Returns a made-up entry at position 0 if the chain of the month is empty.
CREATE OR REPLACE FUNCTION _outbox.audit_newest(period date) RETURNS _outbox.audit_chain
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT c FROM _outbox.audit_chain c WHERE c.period = audit_newest.period
                      ORDER BY c.position DESC LIMIT 1),
                    ROW(period, 0, NULL, NULL, '', NULL, '-infinity')::_outbox.audit_chain)
$$;
COMMENT ON FUNCTION _outbox.audit_newest(date) IS 'internal: newest entry in the chain of a month';

-- An entry is about a row (id) or about removed rows (removed); the other argument is NULL.
CREATE OR REPLACE FUNCTION _outbox.audit_append(
    newest _outbox.audit_chain, id bigint, removed int8multirange, content bytea) RETURNS _outbox.audit_chain
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    entry _outbox.audit_chain := newest;
BEGIN
    entry.position := newest.position + 1;
    entry.id := id;
    entry.removed := removed;
    entry.content := content;
    entry.chained_at := clock_timestamp();
    entry.hash := _outbox.audit_link(newest.hash, entry);
    INSERT INTO _outbox.audit_chain SELECT entry.*;
    RETURN entry;
END $$;
COMMENT ON FUNCTION _outbox.audit_append(_outbox.audit_chain, bigint, int8multirange, bytea)
IS 'internal: appends an entry to the chain of a month';

-- Rows to add: committed, not yet in the chain, and with an xid below the xmin of the snapshot. All
-- transactions below xmin have ended, so a row of theirs that is invisible now stays invisible.
--
-- Starting id: a writer gets its xid before it draws an id. If the sequence is read before the next xid,
-- every id up to the one read belongs to an xid below that xid. As soon as all these transactions have ended,
-- no row with such an id can appear. pending_id and pending_xid are that pair; afterwards pending_id becomes
-- settled_id.
--
-- xids of another cluster are meaningless here. In a database that was copied or restored, the audit log is
-- locked against writers once instead: every row is visible then.
CREATE OR REPLACE FUNCTION _outbox.audit_chain_rows(max_rows integer) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' SET enable_seqscan = off SET jit = off AS $$
DECLARE
    progress _outbox.audit_progress;
    is_home  boolean;
    last_id  bigint;
    next_xid xid8;
    ended    xid8;
    recorded @extschema@.audit_log;
    newest   _outbox.audit_chain;
    period   date;
    count    integer := 0;
BEGIN
    SELECT * INTO progress FROM _outbox.audit_progress;
    is_home := FOUND AND progress.identity = _outbox.database_identity();
    IF NOT is_home THEN
        LOCK TABLE @extschema@.audit_log IN SHARE MODE;
    END IF;
    -- The relcache must have every partition: rows of one attached meanwhile would be passed, and never added.
    PERFORM _outbox.refresh_partitions('@extschema@.audit_log');
    last_id := coalesce(pg_sequence_last_value('_outbox.audit_log_id_seq'), 0);
    next_xid := _outbox.audit_next_xid();
    ended := pg_snapshot_xmin(pg_current_snapshot());
    IF is_home AND ended <= progress.horizon THEN
        RETURN 0;
    END IF;

    FOR recorded IN SELECT * FROM @extschema@.audit_log a
                     WHERE a.id > coalesce(progress.settled_id, 0) AND (a.xid < ended OR NOT is_home)
                       AND NOT EXISTS (SELECT FROM _outbox.audit_chain c WHERE c.id = a.id)
                     ORDER BY a.id LIMIT max_rows LOOP
        period := _outbox.audit_period(recorded.occurred_at);
        IF newest.period IS DISTINCT FROM period THEN
            newest := _outbox.audit_newest(period);
        END IF;
        newest := _outbox.audit_append(newest, recorded.id, NULL, _outbox.audit_content(recorded));
        count := count + 1;
    END LOOP;
    IF count = max_rows THEN
        RETURN count;
    END IF;

    IF is_home THEN
        UPDATE _outbox.audit_progress p SET
            horizon = ended,
            settled_id = CASE WHEN ended >= p.pending_xid THEN p.pending_id ELSE p.settled_id END,
            pending_id = CASE WHEN ended >= p.pending_xid THEN last_id ELSE p.pending_id END,
            pending_xid = CASE WHEN ended >= p.pending_xid THEN next_xid ELSE p.pending_xid END;
    ELSE
        DELETE FROM _outbox.audit_progress;
        INSERT INTO _outbox.audit_progress VALUES (_outbox.database_identity(), last_id, ended, last_id, next_xid);
    END IF;
    RETURN count;
END $$;
COMMENT ON FUNCTION _outbox.audit_chain_rows(integer)
IS 'internal: adds up to max_rows rows of the audit log to the chain; returns their number';

-- The recursive query is a loose index scan: it reads one entry per month.
CREATE OR REPLACE FUNCTION _outbox.audit_periods() RETURNS SETOF date
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    spare CONSTANT regclass := (SELECT p.partition FROM _outbox.partitions('@extschema@.audit_log') p
                                 WHERE p.is_default);
BEGIN
    RETURN QUERY
    WITH RECURSIVE chained(period) AS (
        (SELECT c.period FROM _outbox.audit_chain c ORDER BY 1 LIMIT 1)
         UNION ALL
        SELECT (SELECT c.period FROM _outbox.audit_chain c WHERE c.period > d.period ORDER BY 1 LIMIT 1) FROM chained d
         WHERE d.period IS NOT NULL)
    SELECT d.period FROM chained d WHERE d.period IS NOT NULL
     UNION
    SELECT _outbox.audit_period(p.lower_bound) FROM _outbox.partitions('@extschema@.audit_log') p
     WHERE NOT p.is_default AND pg_relation_size(p.partition) > 0;
    IF spare IS NOT NULL THEN
        RETURN QUERY EXECUTE format('SELECT DISTINCT %s(occurred_at) FROM %s', '_outbox.audit_period', spare);
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.audit_periods() IS 'internal: months that have rows or a chain, possibly with duplicates';

-- One statement per month: rows and chain are read under one snapshot.
CREATE OR REPLACE FUNCTION _outbox.audit_verify_period(
    period date, known text, OUT rows_checked bigint, OUT not_yet_chained bigint, OUT broken_id bigint,
    OUT problem text, OUT last_position bigint, OUT last_hash text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH ended AS (
        -- The chain is checked from the last entry for a dropped partition on.
        SELECT max(c.position) AS position, max(c.chained_at) AS at FROM _outbox.audit_chain c
         WHERE c.period = $1 AND c.removed IS NOT NULL AND c.removed = '{(,)}'
    ), gone AS (
        SELECT range_agg(c.removed) AS ids FROM _outbox.audit_chain c, ended e
         WHERE c.period = $1 AND c.removed IS NOT NULL AND c.position > coalesce(e.position, 0)
    ), links AS (
        SELECT c AS entry, c.position, c.id, c.removed, c.content, c.hash,
               lag(c.hash) OVER (ORDER BY c.position) AS previous,
               lag(c.position, 1, 0::bigint) OVER (ORDER BY c.position) AS previous_position,
               c.position = e.position AS is_end
          FROM _outbox.audit_chain c, ended e WHERE c.period = $1 AND c.position >= coalesce(e.position, 0)
    ), recorded AS (
        SELECT a.id, _outbox.audit_content(a) AS content FROM @extschema@.audit_log a
         WHERE a.occurred_at >= $1::timestamp AT TIME ZONE 'UTC'
           AND a.occurred_at <= CASE WHEN isfinite($1) THEN $1 + interval '1 month' - interval '1 microsecond'
                                     ELSE $1::timestamp END AT TIME ZONE 'UTC'
    ), judged AS (
        SELECT l.position, coalesce(l.id, r.id) AS id, r.id IS NOT NULL AND l.position IS NOT NULL AS is_checked,
               r.id IS NOT NULL AND l.position IS NULL
               AND r.id > coalesce((SELECT p.settled_id FROM _outbox.audit_progress p), 0) AS is_new,
               CASE WHEN l.position IS NULL THEN
                         CASE WHEN r.id <= (SELECT p.settled_id FROM _outbox.audit_progress p)
                              THEN 'the row is not in the chain' END
                    WHEN l.is_end THEN NULL
                    WHEN l.previous_position <> l.position - 1 THEN 'the previous entry of the chain is missing'
                    WHEN l.hash <> _outbox.audit_link(l.previous, l.entry) THEN 'its entry in the chain was changed'
                    WHEN l.id IS NULL THEN
                         CASE WHEN l.removed IS NULL OR l.content <> _outbox.audit_content(l.removed)
                              THEN 'an entry about retention was changed' END
                    WHEN r.id IS NULL THEN CASE WHEN l.id <@ g.ids THEN NULL ELSE 'the row is missing' END
                    WHEN l.content <> r.content THEN 'the row was changed' END AS problem
          FROM links l FULL JOIN recorded r ON r.id = l.id CROSS JOIN gone g
    ), compared AS (
        SELECT NULL::bigint AS position, NULL::bigint AS id, 'no entry of the chain has the known hash' AS problem
         WHERE known IS NOT NULL AND NOT EXISTS (SELECT FROM links l WHERE encode(l.hash, 'hex') = known)
           AND NOT EXISTS (SELECT FROM ended e WHERE e.position IS NOT NULL)
    ), first AS (
        SELECT x.id, x.problem FROM (SELECT j.position, j.id, j.problem FROM judged j WHERE j.problem IS NOT NULL
                                      UNION ALL TABLE compared) x
         ORDER BY x.position NULLS LAST, x.id NULLS LAST LIMIT 1
    ), newest AS (
        SELECT l.position, l.hash FROM links l ORDER BY l.position DESC LIMIT 1
    )
    SELECT (SELECT count(*) FROM judged j WHERE j.is_checked), (SELECT count(*) FROM judged j WHERE j.is_new),
           (SELECT f.id FROM first f), (SELECT f.problem FROM first f),
           (SELECT n.position FROM newest n), (SELECT encode(n.hash, 'hex') FROM newest n)
$$;
COMMENT ON FUNCTION _outbox.audit_verify_period(date, text) IS 'internal: audit_verify() for one month';

CREATE OR REPLACE FUNCTION audit_verify(since timestamptz DEFAULT NULL, known jsonb DEFAULT '{}')
RETURNS TABLE (
    month text, ok boolean, rows_checked bigint, not_yet_chained bigint, broken_id bigint, problem text,
    last_position bigint, last_hash text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    period date;
    wrong  text;
BEGIN
    PERFORM _outbox.require_no_tenant('audit_verify()');
    IF known IS NULL OR jsonb_typeof(known) <> 'object' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'known must be a JSON object of months and hashes',
            HINT = 'Use the result of SELECT jsonb_object_agg(month, last_hash) FROM audit_verify().';
    END IF;
    SELECT k.key INTO wrong FROM jsonb_each(known) k
     WHERE k.key !~ '^(\d{4,}-\d\d|-?infinity)$' OR jsonb_typeof(k.value) <> 'string'
        OR k.value #>> '{}' !~ '^[0-9a-f]{64}$' LIMIT 1;
    IF FOUND THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('known must map months to hashes, but its key %L does not', wrong),
            HINT = 'Use the form {"2026-01": "..."}, with the 64 hexadecimal digits of last_hash as returned by'
                   ' audit_verify().';
    END IF;
    PERFORM _outbox.refresh_partitions('@extschema@.audit_log');
    FOR period IN SELECT DISTINCT p FROM _outbox.audit_periods() p
                   WHERE since IS NULL OR p >= _outbox.audit_period(since) ORDER BY p LOOP
        month := CASE WHEN isfinite(period) THEN to_char(period, 'YYYY-MM') ELSE period::text END;
        SELECT v.rows_checked, v.not_yet_chained, v.broken_id, v.problem, v.last_position, v.last_hash
          INTO rows_checked, not_yet_chained, broken_id, problem, last_position, last_hash
          FROM _outbox.audit_verify_period(period, known ->> month) v;
        ok := problem IS NULL;
        known := known - month;
        RETURN NEXT;
    END LOOP;
    -- A known hash of a month without rows and chain. Months before `since` are skipped.
    FOR month IN SELECT k FROM jsonb_object_keys(known) k
                  WHERE since IS NULL OR k >= to_char(_outbox.audit_period(since), 'YYYY-MM') ORDER BY k LOOP
        ok := false;
        rows_checked := 0;
        not_yet_chained := 0;
        broken_id := NULL;
        problem := 'there is no chain for this month';
        last_position := NULL;
        last_hash := NULL;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION audit_verify(timestamptz, jsonb)
IS 'checks the audit log against its chain; returns the first broken row and the last hash of each month';

