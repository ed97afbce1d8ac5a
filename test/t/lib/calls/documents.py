"""JSON documents: valid ones, ones with a single error, and ones that are barely JSON."""

import copy
import json

SCHEMA = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "required": ["n"],
          "properties": {"n": {"type": "integer", "minimum": 0}, "s": {"type": "string", "pattern": "^a*$", "maxLength": 5},
                         "o": {"$ref": "#/$defs/o"}, "l": {"type": "array", "items": {"enum": [1, "a", None]}}},
          "$defs": {"o": {"type": "object", "additionalProperties": False, "properties": {"x": {"type": ["number", "null"]}}}}}
EVENT = {"aggregate_type": "Order", "aggregate_id": "1", "event_type": "OrderConfirmed", "payload": {"n": 1}}

# Valid documents. Nothing listens at the addresses of the sinks.
SENSIBLE = {
    "config": [{"url": "http://127.0.0.1:9/", "timeout": 1}, {"url": "http://127.0.0.1:9/", "batch": {"max": 10}, "headers": {"X-A": "b"}},
               {"bootstrap.servers": "127.0.0.1:9", "topic": "events"},
               {"bootstrap.servers": "127.0.0.1:9", "topic": "{aggregate_type}", "message.timeout.ms": 1000}],
    "json_schema": [SCHEMA, {"type": "object"}, True, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "null"}}}],
    "payload_versions": [{"OrderConfirmed": 1}, {"OrderConfirmed": "stored"}, {}],
    "events": [[EVENT], [EVENT, dict(EVENT, dedup_key="k", tenant_id=1)], [dict(EVENT, available_at="2100-01-01")], []],
    "known": [{}, {"2026-01": "0" * 64}],
    "metadata": [{}, {"a": 1}],
    "context": [{}, {"ip": "::1"}],
}
PAYLOADS = [{"n": 1}, {"n": 1, "s": "aaa", "o": {"x": None}, "l": [1, "a"]}, None, 1, "x", [1, 2], {"a": {"b": {"c": [{}]}}}]

ODD_NUMBERS = ["-0", "0.1", "1e400", "-1e-400", "1E+131000", "9007199254740993", "18446744073709551616", "1e22", "0." + "3" * 400, "1" * 1000]
ODD_STRINGS = ["", "\u0000", "a\u0000b", "\ud800", "\udc00\ud800", "\U0001f600", "\ufffe", "\x7f", "\u202e", "x" * 300, "'", '"', "\\", "$ref", "../x",
               "-infinity", "2026-02-30", "http://[::1", "http://user:pw@127.0.0.1:9/", "file:///etc/passwd", "{x}", "%s%n", "a\r\nb: c", "(((", "\\p{", "#/%-1", "#/%ff", "#/%2"]
ODD_KEYS = ["", "a", "__proto__", "$ref", "$schema", "type", "\u0000", "x" * 300, "a/b~c", "é", "properties", "id", "url", "tenant_id"]
TOKENS = ["[", "]", "{", "}", ",", ":", '"', "\\", "\\u0000", "\\ud800", "\\u", "null", "true", "-", "1e400", "0.", "[[[[", '"payload":', '"tenant_id":', '"dedup_key":', "x" * 1000, *ODD_NUMBERS]


class Documents:
    TEXTS = {"events", "config", "payload", "request", "response"}  # also if their type is text

    def __init__(self, chance, corpus=None):
        self.chance = chance
        self.corpus = corpus or {}  # name of an argument -> texts to start from

    def sensible(self, name):
        return copy.deepcopy(self.chance.choice(SENSIBLE.get(name, PAYLOADS)))

    def mangled(self, name):
        """Of a text, and perhaps the end of another: some characters are gone, there twice, or others."""
        text = self.chance.choice(self.corpus[name])
        if self.chance.random() < 0.2:
            other = self.chance.choice(self.corpus[name])
            text = text[:self.chance.randint(0, len(text))] + other[self.chance.randint(0, len(other)):]
        for _ in range(self.chance.choice([0, 1, 1, 2, 5])):
            at = self.chance.randint(0, len(text))
            end = min(len(text), at + self.chance.choice([0, 1, 1, 2, 8, 40]))
            text = text[:at] + self.chance.choice(["", text[at:end] * 2, self.chance.choice(TOKENS), chr(self.chance.randint(1, 255))]) + text[end:]
        return text

    def leaf(self):
        return self.chance.choice([None, True, False, 0, -1, 1.5, 2**31, 2**63, 1e308, [], {}, "x"] + ODD_STRINGS)

    def spoiled(self, document):
        """One place in it is something else, is missing, or is one too many."""
        if not isinstance(document, (dict, list)) or not document or self.chance.random() < 0.15:
            return self.leaf()
        at = self.chance.choice(list(document) if isinstance(document, dict) else range(len(document)))
        change = self.chance.random()
        if change < 0.2:
            del document[at]
        elif change < 0.4 and isinstance(document, dict):
            document[self.chance.choice(ODD_KEYS)] = self.leaf()
        elif change < 0.4:
            document.append(self.leaf())
        else:
            document[at] = self.spoiled(document[at])
        return document

    def odd(self):
        """As text: not everything that is JSON can be said with structures of Python."""
        kind = self.chance.random()
        if kind < 0.1:
            depth = self.chance.choice([100, 1000, 3000])
            return self.chance.choice(["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth])
        if kind < 0.2:
            return '{"a": 1, "a": {"b": 2, "b": [' + ",".join(str(i) for i in range(self.chance.choice([1, 5000]))) + "]}}"
        return self.branch(4)

    def branch(self, depth):
        kind = self.chance.random()
        if depth == 0 or kind < 0.3:
            return self.chance.choice(["null", "true", "[]", "{}"] + ODD_NUMBERS + [json.dumps(text) for text in ODD_STRINGS])
        inner = [self.branch(depth - 1) for _ in range(self.chance.randint(0, 3))]
        if kind < 0.6:
            return "[" + ", ".join(inner) + "]"
        return "{" + ", ".join(f"{json.dumps(self.chance.choice(ODD_KEYS))}: {value}" for value in inner) + "}"
