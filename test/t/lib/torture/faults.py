"""Faults that the judge must find. Each function plants one, and returns the expected reports."""

import json

from truth import Truth

FAULTS = []


def breaks(promise, order="over"):
    """Names the promise that the fault breaks, and the order at which the judge must report it."""
    def register(plant):
        FAULTS.append((promise, order, plant))
        return plant
    return register


# Events that were never written.

@breaks("phantom")
def the_log_has_an_event_without_a_writer(scene):
    scene.insert("fault-1")
    return ["fault-1 is in the log"]


@breaks("phantom", "recovered")
def a_rolled_back_event_is_in_the_log(scene):
    scene.insert(scene.never)
    return [f"{scene.never} is in the log"]


@breaks("phantom")
def an_event_without_a_writer_was_delivered(scene):
    scene.claim("plain", "fault-1")
    scene.add("record", json.dumps({"answer": "200", "id": "1", "body": json.dumps({"event": "fault-2"})}))
    scene.rewrite("kafka", lambda lines: [*lines, 'fault\t{"event": "fault-3"}\tce_id=1\n'])
    return ["plain got fault-1", "hook got fault-2", "stream got fault-3"]


@breaks("phantom")
def a_refused_commit_happened(scene):
    scene.attempt("undone")
    scene.happen()
    return ["fault was refused"]


# Losses.

@breaks("lost")
def a_commit_is_only_in_the_ledger(scene):
    scene.attempt("done", events=[{"event": "fault-1"}])
    return ["fault"]


@breaks("lost", "recovered")
def a_commit_is_only_in_the_ledger_after_a_crash(scene):
    scene.attempt("done", events=[{"event": "fault-1"}])
    return ["fault-1 of fault"]


@breaks("lost")
def the_only_event_of_a_commit_is_deleted(scene):
    scene.delete(scene.event)
    return [scene.account.name]


@breaks("torn")
def one_event_of_a_commit_is_deleted(scene):
    scene.delete(scene.changed_event)
    return [f"{scene.changed_event} of {scene.changed.name}, which happened"]


@breaks("torn")
def only_the_events_of_a_commit_are_there(scene):
    scene.sql("DELETE FROM happened WHERE attempt = %s", scene.changed.name)
    return [f"{scene.changed_event} of {scene.changed.name}, which did not happen"]


@breaks("torn", "recovered")
def an_aggregate_has_changed_without_an_event(scene):
    scene.sql("UPDATE aggregates SET version = version + 1 WHERE id = 'order-1'")
    return ["order-1 has version"]


@breaks("taken back")
def a_delivered_event_is_deleted(scene):
    scene.delete(scene.asynchronous)
    return [f"got {scene.asynchronous}"]


@breaks("taken back", "recovered")
def a_delivered_event_is_deleted_after_a_crash(scene):
    scene.delete(scene.asynchronous)
    return [f"got {scene.asynchronous}"]


@breaks("undelivered")
def the_receiver_never_got_an_event(scene):
    scene.rewrite("record", lambda lines: [line for line in lines if not scene.has(line, scene.event)])
    return [f"hook: {scene.event}"]


@breaks("undelivered")
def kafka_never_got_an_event(scene):
    scene.rewrite("kafka", lambda lines: [line for line in lines if not scene.has(line, scene.event)])
    return [f"stream: {scene.event}"]


@breaks("undelivered")
def the_work_of_a_consumer_is_deleted(scene):
    scene.sql("DELETE FROM consumed WHERE event = %s", scene.event)
    scene.sql("DELETE FROM handled WHERE event = %s", scene.event)
    return [f"books: {scene.event}", f"the inbox: {scene.event}"]


@breaks("undelivered")
def an_event_reached_no_consumer(scene):
    scene.attempt("done", events=[{"event": "fault-1"}])
    scene.happen()
    scene.insert("fault-1")
    return [f"{consumer}: fault-1" for consumer in ("plain", "parted", "ordered", "books", "hook", "stream", "the inbox")]


@breaks("undelivered")
def an_ack_was_rolled_back(scene):
    for ack in scene.accounts.handled["plain"][scene.event].acks:
        scene.sql("DELETE FROM happened WHERE attempt = %s", ack.name)
    return [f"plain: {scene.event}"]


@breaks("archived", "recovered")
def an_unread_event_is_in_the_archive(scene):
    scene.archive(1 << 60)
    return [f"{consumer} has not read {1 << 60}" for consumer in ("plain", "parted", "ordered", "books", "hook", "stream")]


@breaks("archived", "recovered")
def a_leased_event_is_in_the_archive(scene):
    scene.sql("""INSERT INTO _outbox.batches (token, consumer_id, partition, attempts, deliveries, from_retries, ids)
                 SELECT -1, consumer_id, 0, 0, 1, false, '{[1,2)}' FROM outbox_consumers WHERE name = 'plain'""")
    scene.sql("""INSERT INTO _outbox.leases (token, root, first_id, consumer_id, partition, size)
                 SELECT -1, -1, 1, consumer_id, 0, 1 FROM outbox_consumers WHERE name = 'plain'""")
    scene.archive(1)
    return ["somebody has 1 of plain in hand"]


# Duplicates and wrong identities.

@breaks("identity", "recovered")
def a_token_is_used_twice(scene):
    token = scene.accounts.handled["plain"][scene.event].token
    scene.claim("plain", scene.event, token)
    return [f"token {token} was given out twice"]


@breaks("identity", "recovered")
def an_event_was_claimed_with_another_tracking_id(scene):
    scene.claim("plain", scene.event, tracking_id="fault")
    return [f"plain got {scene.event} as"]


@breaks("identity")
def an_event_was_sent_with_another_tracking_id(scene):
    scene.add("record", json.dumps({"answer": "200", "id": "fault", "body": json.dumps({"event": scene.event})}))
    scene.rewrite("kafka", lambda lines: [*lines, f'fault\t{{"event": "{scene.event}"}}\tce_id=fault\n'])
    return [f"{sink} got {scene.event} as" for sink in ("hook", "stream")]


@breaks("identity")
def an_event_has_another_tracking_id_in_the_log(scene):
    scene.sql("UPDATE outbox_messages SET tracking_id = _outbox.new_tracking_id() WHERE payload->>'event' = %s", scene.event)
    return [f"{scene.event} is there as"]


@breaks("identity")
def an_event_has_another_id_in_the_log(scene):
    scene.sql("UPDATE outbox_messages SET id = -1 WHERE payload->>'event' = %s", scene.event)
    return [f"{scene.event} is there as"]


@breaks("identity")
def two_events_have_one_id(scene):
    id = scene.sql("SELECT id FROM outbox_messages WHERE payload->>'event' = %s", scene.event)[0][0]
    # The unique index is per partition.
    scene.insert("fault-1", id=id, occurred_at="tomorrow")
    return ["fault-1"]


@breaks("identity")
def an_event_has_another_tracking_id_in_cold_storage(scene):
    frozen = scene.sql("SELECT j->'payload'->>'event' FROM outbox_cold_files f, _outbox.read_cold_file(f.file) line, CAST(line AS jsonb) j LIMIT 1")
    if not frozen:
        return []  # a short run may have no cold storage
    scene.insert(frozen[0][0])
    return [f"{frozen[0][0]} is in cold storage as"]


@breaks("twice")
def an_event_is_in_the_log_twice(scene):
    scene.insert(scene.event)
    return [f"{scene.event} is there as"]


@breaks("twice", "recovered")
def an_event_was_consumed_twice(scene):
    scene.sql("INSERT INTO consumed VALUES (%s)", scene.event)
    return [f"consumed {scene.event}"]


@breaks("twice", "recovered")
def the_inbox_let_an_event_pass_twice(scene):
    scene.sql("INSERT INTO handled VALUES (%s)", scene.event)
    return [f"handled {scene.event}"]


@breaks("cancelled")
def a_cancelled_event_is_in_the_log(scene):
    scene.attempt("done", cancels=[scene.event])
    scene.happen()
    return [f"{scene.event} by fault"]


# Consumers.

@breaks("again", "recovered")
def an_acked_event_was_delivered_again(scene):
    scene.claim("another", scene.event, -1)
    scene.attempt("done", settles=[["another", -1, "ack", [scene.event]]])
    scene.claim("another", scene.event, -2)
    return [f"another: {scene.event} by token -2, after fault had acked it"]


@breaks("again")
def an_event_was_delivered_again_after_an_ack_without_an_answer(scene):
    scene.claim("another", scene.event, -1)
    scene.attempt("lost", settles=[["another", -1, "ack", [scene.event]]])
    scene.happen()
    scene.claim("another", scene.event, -2)
    return [f"another: {scene.event} by token -2, after fault had acked it"]


@breaks("shared", "recovered")
def a_leased_event_was_delivered_again(scene):
    scene.claim("plain", scene.event, -1, lease=1)
    scene.claim("plain", scene.event, -2)
    return [f"plain: {scene.event} by token -2, 1.000 s before token -1 expired"]


@breaks("shared", "recovered")
def an_event_was_delivered_again_after_a_refused_release(scene):
    scene.claim("plain", scene.event, -1, lease=1)
    scene.attempt("undone", settles=[["plain", -1, "release", [scene.event]]])
    scene.claim("plain", scene.event, -2)
    return [f"plain: {scene.event} by token -2, 1.000 s before token -1 expired"]


@breaks("shared")
def an_event_was_delivered_again_after_a_crash_undid_its_failure(scene):
    scene.claim("plain", scene.event, -1, lease=1)
    scene.attempt("done", durable=False, settles=[["plain", -1, "fail", [scene.event]]])
    scene.claim("plain", scene.event, -2)
    return [f"plain: {scene.event} by token -2, 1.000 s before token -1 expired"]


@breaks("shared", "before")
def two_live_leases_have_one_event(scene):
    scene.sql("""INSERT INTO _outbox.batches (token, consumer_id, partition, attempts, deliveries, from_retries, ids)
                 SELECT token, 1, 0, 0, 1, false, '{[1,2)}' FROM generate_series(-2, -1) token""")
    scene.sql("""INSERT INTO _outbox.leases (token, root, first_id, consumer_id, partition, size)
                 SELECT token, token, 1, 1, 0, 1 FROM generate_series(-2, -1) token""")
    return ["has [1,2), and so has another"]


@breaks("fenced", "recovered")
def an_old_token_settled(scene):
    scene.claim("plain", scene.event, -1)
    scene.claim("plain", scene.event, -2)
    scene.attempt("done", settles=[["plain", -1, "ack", [scene.event]]])
    return [f"plain: {scene.event} by token -1 in fault, though token -2 had it"]


@breaks("fenced")
def an_old_token_settled_without_an_answer(scene):
    scene.claim("plain", scene.event, -1)
    scene.claim("plain", scene.event, -2)
    scene.attempt("lost", settles=[["plain", -1, "ack", [scene.event]]])
    scene.happen()
    return [f"plain: {scene.event} by token -1 in fault, though token -2 had it"]


@breaks("disorder", "recovered")
def an_event_was_delivered_before_its_predecessor(scene):
    scene.claim("ordered", scene.event, after="fault-1", ordered=True)
    return [f"ordered: {scene.event} before fault-1"]


@breaks("disorder")
def an_event_was_delivered_after_a_crash_undid_the_ack_of_its_predecessor(scene):
    scene.claim("another", scene.event, -1)
    scene.attempt("done", durable=False, settles=[["another", -1, "ack", [scene.event]]])
    scene.claim("another", scene.changed_event, -2, after=scene.event, ordered=True)
    return [f"another: {scene.changed_event} before {scene.event}"]


@breaks("disorder")
def an_event_was_delivered_although_its_predecessor_is_not_dead(scene):
    scene.claim("another", scene.event, -1)
    scene.attempt("lost", settles=[["another", -1, "dead", [scene.event]]])
    scene.claim("another", scene.changed_event, -2, after=scene.event, ordered=True)
    return [f"another: {scene.changed_event} before {scene.event}"]


@breaks("disorder")
def sinks_got_events_in_another_order(scene):
    said = []
    for sink, name in (("hook", "record"), ("stream", "kafka")):
        later, earlier = scene.two_in_order(sink)
        # Copied to the front; the original line stays.
        scene.rewrite(name, lambda lines: [next(line for line in lines if scene.has(line, later)), *lines])
        said.append(f"{sink}: {later} before {earlier}")
    return said


# Keys and the audit log.

@breaks("key", "recovered")
def a_dedup_key_was_enqueued_twice(scene):
    key = scene.sql("SELECT aggregate_id FROM outbox_messages WHERE aggregate_type = 'Keyed' ORDER BY id LIMIT 1")[0][0]
    scene.insert("fault-1", aggregate_type="Keyed", aggregate_id=key)
    return [f"enqueued {key}"]


@breaks("key")
def a_dedup_key_was_used_without_an_event(scene):
    scene.attempt("done", alone=[True], events=[{"event": "fault-1", "key": "fault"}])
    return ["fault was used, and nothing is there"]


@breaks("key", "recovered")
def an_idempotency_key_was_executed_twice(scene):
    scene.sql("INSERT INTO effects VALUES (%s, 'fault')", scene.key)
    return [f"executed {scene.key}"]


@breaks("key", "recovered")
def an_idempotency_key_had_two_answers(scene):
    scene.note("told", key=scene.key, event="fault-1")
    return [f"{scene.key} answered {scene.answer}, then fault-1"]


@breaks("key")
def an_idempotency_key_executed_something_else(scene):
    scene.sql("UPDATE effects SET event = 'fault-1' WHERE key = %s", scene.key)
    return [f"{scene.key} answered {scene.answer}, but did fault-1", f"and {scene.key} disagree"]


@breaks("audit")
def a_row_of_the_audit_log_is_deleted(scene):
    scene.sql("SELECT _outbox.audit_begin_removal()")
    audited = scene.sql("DELETE FROM audit_log WHERE id = (SELECT min(id) FROM audit_log) RETURNING entity_id")[0][0]
    return [f"the row of {audited} is missing", ": the row is missing"]


@breaks("audit")
def the_audit_log_has_a_row_without_a_commit(scene):
    scene.sql("SELECT audit_record('fault', 'change', 'Order', 'fault')")
    return ["the row of fault should not be", "the row of fault is not in the chain"]


@breaks("audit")
def the_audit_log_has_a_row_twice(scene):
    scene.sql("SELECT audit_record('fault', 'change', 'Order', entity_id) FROM audit_log WHERE id = (SELECT min(id) FROM audit_log)")
    return ["a row is there twice"]


@breaks("audit", "recovered")
def a_crash_undid_the_end_of_the_chain(scene):
    scene.judge.chain, _ = Truth(scene.session).verify_audit({})
    scene.sql("SELECT _outbox.audit_begin_removal()")
    id = scene.sql("DELETE FROM _outbox.audit_chain WHERE (period, position) = (SELECT period, position FROM _outbox.audit_chain ORDER BY position DESC, period LIMIT 1)"
                   " RETURNING id")[0][0]
    scene.sql("DELETE FROM audit_log WHERE id = %s", id)
    return [": no entry of the chain has the known hash"]


# The last fault: no rollback undoes the statistics.
@breaks("changed", "before")
def rows_of_the_log_were_updated_and_deleted(scene):
    scene.sql("SET track_counts = on")
    scene.sql("UPDATE outbox_messages SET metadata = '{}' WHERE payload->>'event' = %s", scene.event)
    scene.delete(scene.changed_event)
    # Statistics count rolled-back changes, too.
    scene.sql("ROLLBACK")
    scene.sql("SELECT pg_stat_force_next_flush()")
    return [" updates and "]
