-- The second enqueue with the same key enqueues nothing and returns the first one's tracking_id.
SELECT outbox_enqueue('Payment', 1, 'PaymentTaken', '{"n": 1}', dedup_key => 'pay-1') AS first \gset
SELECT outbox_enqueue('Payment', 1, 'PaymentTaken', '{"n": 2}', dedup_key => 'pay-1') = :'first' AS same;
SELECT payload FROM outbox_messages WHERE aggregate_type = 'Payment';

-- Per tenant.
SELECT outbox_enqueue('Payment', 1, 'PaymentTaken', '{"n": 3}', tenant_id => 2, dedup_key => 'pay-1') <> :'first' AS other;

-- A rollback forgets the key.
BEGIN;
SELECT outbox_enqueue('Payment', 2, 'PaymentTaken', '{"n": 4}', dedup_key => 'pay-2') IS NOT NULL AS ok;
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT outbox_enqueue('Payment', 2, 'PaymentTaken', '{"n": 5}', dedup_key => 'pay-2') IS NOT NULL AS ok;
ROLLBACK TO s;
SELECT outbox_enqueue('Payment', 2, 'PaymentTaken', '{"n": 6}', dedup_key => 'pay-2') AS second \gset
SELECT outbox_enqueue('Payment', 2, 'PaymentTaken', '{"n": 7}', dedup_key => 'pay-2') = :'second' AS same;
COMMIT;
SELECT payload FROM outbox_messages WHERE aggregate_type = 'Payment' ORDER BY id;

-- Also for scheduled events, and after these are cancelled: a late retry must not bring one back.
SELECT outbox_enqueue('Payment', 3, 'PaymentDue', '{}', available_at => now() + interval '1 day', dedup_key => 'pay-3') AS third \gset
SELECT outbox_enqueue('Payment', 3, 'PaymentDue', '{}', available_at => now() + interval '1 day', dedup_key => 'pay-3') = :'third' AS same;
SELECT count(*) FROM outbox_scheduled;
SELECT outbox_cancel(:'third');
SELECT outbox_enqueue('Payment', 3, 'PaymentDue', '{}', dedup_key => 'pay-3') = :'third' AS same;

-- Remembered for outbox.dedup_window, from the first enqueue on; then the key is new again.
SET outbox.dedup_window = '1h';
SELECT outbox_enqueue('Payment', 4, 'PaymentTaken', '{}', dedup_key => 'pay-4') AS fourth \gset
SELECT outbox_enqueue('Payment', 4, 'PaymentTaken', '{}', dedup_key => 'pay-4') = :'fourth' AS same;
SELECT expires_at BETWEEN now() + interval '50 min' AND now() + interval '1 h' AS an_hour FROM _outbox.dedup_keys WHERE dedup_key = 'pay-4';
UPDATE _outbox.dedup_keys SET expires_at = now() WHERE dedup_key = 'pay-4';
SELECT outbox_enqueue('Payment', 4, 'PaymentTaken', '{}', dedup_key => 'pay-4') AS fifth \gset
SELECT :'fourth' <> :'fifth' AS new_again;
RESET outbox.dedup_window;
SELECT outbox_enqueue('Payment', 4, 'PaymentTaken', '{}', dedup_key => 'pay-4') = :'fifth' AS same;
SELECT count(*) FROM outbox_messages WHERE aggregate_id = '4' AND aggregate_type = 'Payment';
SELECT count(*) FROM _outbox.dedup_keys WHERE dedup_key = 'pay-4';

-- A table that somebody has changed still does its work, and what they added works.
ALTER TABLE _outbox.dedup_keys ADD COLUMN note text DEFAULT 'none';
CREATE INDEX ON _outbox.dedup_keys (lower(dedup_key));
CREATE INDEX ON _outbox.dedup_keys (expires_at) WHERE dedup_key LIKE 'a%';
ALTER TABLE _outbox.dedup_keys ADD CONSTRAINT no_bad CHECK (dedup_key <> 'bad') NOT VALID;
SELECT outbox_enqueue('Payment', 5, 'PaymentTaken', '{}', dedup_key => 'pay-5') AS sixth \gset
SELECT outbox_enqueue('Payment', 5, 'PaymentTaken', '{}', dedup_key => 'pay-5') = :'sixth' AS same;
DO $$
BEGIN
    PERFORM outbox_enqueue('Payment', 5, 'PaymentTaken', '{}', dedup_key => 'bad');
EXCEPTION WHEN check_violation THEN
    RAISE NOTICE 'refused by the new constraint';
END $$;
SELECT note FROM _outbox.dedup_keys WHERE dedup_key = 'pay-5';
UPDATE _outbox.dedup_keys SET expires_at = now() WHERE dedup_key = 'pay-5';
SELECT outbox_enqueue('Payment', 5, 'PaymentTaken', '{}', dedup_key => 'pay-5') <> :'sixth' AS new_again;
ALTER TABLE _outbox.dedup_keys DROP COLUMN note, DROP CONSTRAINT no_bad;
ALTER TABLE _outbox.dedup_keys DROP CONSTRAINT dedup_keys_pkey;
\set VERBOSITY sqlstate
SELECT outbox_enqueue('Payment', 6, 'PaymentTaken', '{}', dedup_key => 'pay-6');
\set VERBOSITY default
ALTER TABLE _outbox.dedup_keys ADD PRIMARY KEY (tenant_id, dedup_key);
SELECT outbox_enqueue('Payment', 6, 'PaymentTaken', '{}', dedup_key => 'pay-6') IS NOT NULL AS ok;
