"""Idempotency keys from Python, with psycopg2.

Needs Python 3, psycopg2, and a database with the extension, as PGHOST etc. name it."""

import json
import threading
import time

import psycopg2

LEASE_LOST = "OB001"
NO_KEY = "22004"


def begin(cursor, scope, key, body, wait=None, lease=None):
    cursor.execute("SELECT decision, token, http_hint, response FROM idempotency_begin(%s, %s, %s, wait => %s, lease => %s)",
                   (scope, key, json.dumps(body), wait, lease))
    return cursor.fetchone()


def finish(cursor, scope, key, token, status, response, failed=False):
    cursor.execute("SELECT idempotency_finish(%s, %s, %s, %s, %s, failed => %s)",
                   (scope, key, token, status, json.dumps(response), failed))


def create_order(connection, key, body, wait=None):
    """POST /orders: all work is in the database, so one transaction is enough."""
    try:
        with connection, connection.cursor() as cursor:  # commits; rolls back if there is an exception
            decision, token, status, response = begin(cursor, "order.create", key, body, wait)
            if decision != "execute":
                return status, response
            cursor.execute("INSERT INTO example_orders (item) VALUES (%s) RETURNING id", (body["item"],))
            order = {"order": cursor.fetchone()[0]}
            cursor.execute("SELECT outbox_enqueue('Order', %s, 'OrderCreated', %s)", (order["order"], json.dumps(order)))
            finish(cursor, "order.create", key, token, 201, order)
            return 201, order
    except psycopg2.Error as error:
        if error.pgcode == NO_KEY:
            return 400, {"error": "Idempotency-Key is missing"}
        raise


def capture_payment(connection, provider, key, body, lease=None):
    """POST /payments: calls the provider between two transactions, without a lock."""
    with connection, connection.cursor() as cursor:
        decision, token, status, response = begin(cursor, "payment.capture", key, body, lease=lease)
    if decision != "execute":
        return status, response
    approved = provider.charge(key, body["amount"])
    status, answer = (200, {"paid": body["amount"]}) if approved else (402, {"error": "card declined"})
    with connection, connection.cursor() as cursor:
        finish(cursor, "payment.capture", key, token, status, answer, failed=not approved)
    return status, answer


# ---- Demonstration.


class Provider:
    """A payment provider. It supports idempotency keys: a repeated charge is made once."""

    def __init__(self):
        self.calls = 0
        self.charges = {}
        self.crash = False

    def charge(self, key, amount):
        self.calls += 1
        self.charges[key] = amount
        if self.crash:
            raise ConnectionError("the caller crashed")
        return amount < 1000


def count_orders(connection, item):
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM example_orders WHERE item = %s", (item,))
        return cursor.fetchone()[0]


def connect():
    return psycopg2.connect("")


def main():
    one, two = connect(), connect()
    run = str(time.time_ns())  # makes keys unique to this run

    first = create_order(one, run + "-a", {"item": run + "-a", "count": 1})
    second = create_order(two, run + "-a", {"count": 1, "item": run + "-a"})
    assert first == second
    print(f"twice: {first[0]} and {second[0]}, {count_orders(one, run + '-a')} order")
    print(f"another request: {create_order(two, run + '-a', {'item': 'x'})[0]}")
    print(f"no key: {create_order(two, None, {'item': 'x'})[0]}")

    answers = []

    def client():
        connection = connect()
        answers.append(create_order(connection, run + "-b", {"item": run + "-b"}, wait="30 s"))
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answer == answers[0] for answer in answers) and len(answers) == 8
    print(f"eight at once: {answers[0][0]}, {count_orders(one, run + '-b')} order")

    # The first attempt has not committed. Then its client crashes.
    begin(one.cursor(), "order.create", run + "-c", {"item": run + "-c"})
    print(f"while it runs: {create_order(two, run + '-c', {'item': run + '-c'})[0]}")
    one.close()
    answer = create_order(two, run + "-c", {"item": run + "-c"}, wait="30 s")
    print(f"after a crash: {answer[0]}, {count_orders(two, run + '-c')} order")

    one, provider = connect(), Provider()
    statuses = [capture_payment(one, provider, run + "-d", {"amount": 5000})[0] for _ in range(2)]
    print(f"declined twice: {statuses[0]} and {statuses[1]}, {provider.calls} call")

    # The payment is made, but the client crashes before the second transaction.
    provider = Provider()
    provider.crash = True
    try:
        capture_payment(one, provider, run + "-e", {"amount": 10}, lease="1 s")
    except ConnectionError:
        pass
    provider.crash = False
    at_once = capture_payment(two, provider, run + "-e", {"amount": 10})[0]
    time.sleep(1.1)
    with one, one.cursor() as cursor:
        old_token = begin(cursor, "payment.capture", run + "-e", {"amount": 10}, lease="1 s")[1]  # the client crashes again
    time.sleep(1.1)
    later = capture_payment(two, provider, run + "-e", {"amount": 10})[0]
    print(f"after a crash between: {at_once}, then {later}, {len(provider.charges)} charge")
    try:
        with one, one.cursor() as cursor:
            finish(cursor, "payment.capture", run + "-e", old_token, 200, {})
    except psycopg2.Error as error:
        assert error.pgcode == LEASE_LOST
        print(f"the crashed one comes back: {error.pgcode}")


with connect() as setup, setup.cursor() as cursor:
    cursor.execute("CREATE TABLE IF NOT EXISTS example_orders (id bigint GENERATED ALWAYS AS IDENTITY, item text)")
main()
