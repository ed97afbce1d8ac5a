"""The cost of the catalog for the producer: a schema with 20 properties, and a payload with all of
them."""

import json

from enqueue import turn
from lab import fresh_database, sql, take_turns
from report import Report

KINDS = [({"type": "string", "maxLength": 40}, "as agreed"), ({"type": "integer", "minimum": 0}, 4711),
         ({"type": "number", "maximum": 1e6}, 99.5), ({"enum": ["EUR", "USD", "GBP"]}, "EUR")]
NAMES = [f"property_{number}" for number in range(20)]
SCHEMA = {"type": "object", "required": NAMES, "additionalProperties": False,
          "properties": {name: KINDS[number % 4][0] for number, name in enumerate(NAMES)}}
PAYLOAD = {name: KINDS[number % 4][1] for number, name in enumerate(NAMES)}

ENQUEUE = f"""\\set id random(1, 1000000)
SELECT outbox_enqueue('Order', :id, 'OrderConfirmed', '{json.dumps(PAYLOAD)}'::jsonb);
"""


def catalog(report: Report) -> None:
    fresh_database()
    sql(f"SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{json.dumps(SCHEMA)}')")
    for commit, suffix in (("on", "sync"), ("off", "async")):
        def enqueue(mode: str):
            return lambda: turn(ENQUEUE, options=f"-c synchronous_commit={commit} -c outbox.catalog_mode={mode}")

        runs = take_turns({"enforce": enqueue("enforce"), "off": enqueue("off"), "off again": enqueue("off")})
        against = (runs["enforce"], runs["off"], "outbox.catalog_mode = off")
        report.add(f"catalog_{suffix}", "rate", *against, 0.8, runs["off again"])
        report.add(f"catalog_{suffix}_cpu", "cpu", *against, None, runs["off again"])


MEASURES = {
    "catalog": catalog,
}
