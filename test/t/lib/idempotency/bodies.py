"""Compares the server's hash of thousands of requests with a hash made here.

Bodies in ASCII without fractions are hashed with json.dumps, as Python programs do; others with an
RFC 8785 implementation that is independent of the one in C++. Prints the number of requests, and
the differing ones. Fails if there is one."""

import argparse
import hashlib
import json
import random
import struct
import sys

import psycopg2

ASCII = [chr(c) for c in range(1, 0x7F)]  # json.dumps escapes U+007F, RFC 8785 does not
UNICODE = ASCII + [chr(c) for c in (0x7F, 0x80, 0xE4, 0xDF, 0x7FF, 0x800, 0x20AC, 0x2028, 0x4E2D, 0xD7FF, 0xE000, 0xFB33, 0xFEFF, 0xFFFD,
                                    0xFFFF, 0x10000, 0x1F600, 0x1F601, 0xFFFFF, 0x10FFFF)] * 4


def es_number(value):
    """ECMAScript's Number::toString, from the digits of Python's repr, which are the shortest,
    too."""
    if value == 0:
        return "0"
    if value < 0:
        return "-" + es_number(-value)
    mantissa, _, exponent = repr(float(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent or 0)
    point -= len(digits) - len(digits.lstrip("0"))
    digits = digits.strip("0")
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    rest = "." + digits[1:] if count > 1 else ""
    return f"{digits[0]}{rest}e{point - 1:+d}"


SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def rfc8785(value):
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return es_number(value)
    if isinstance(value, str):
        return '"' + "".join(SHORT.get(c) or (c if c >= " " else f"\\u{ord(c):04x}") for c in value) + '"'
    if isinstance(value, list):
        return "[" + ",".join(map(rfc8785, value)) + "]"
    keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
    return "{" + ",".join(f"{rfc8785(key)}:{rfc8785(value[key])}" for key in keys) + "}"


def in_python(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class Bodies:
    def __init__(self, chance, alphabet, with_fractions):
        self.chance = chance
        self.alphabet = alphabet
        self.with_fractions = with_fractions

    def string(self, longest):
        return "".join(self.chance.choices(self.alphabet, k=self.chance.randrange(longest)))

    def integer(self):
        limit = self.chance.choice([10, 1000, 2**31, 10**14, 2**53 - 1])
        return self.chance.randint(-limit, limit)

    def fraction(self):
        kind = self.chance.randrange(4)
        if kind == 0:
            return self.chance.randint(-10**6, 10**6) / 100
        if kind == 1:
            return self.chance.random() * 10.0 ** self.chance.randint(-30, 30)
        if kind == 2:
            return self.chance.choice([1e21, 1e-6, 1e-7, 123456789012345680000.0, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, -0.0])
        while True:
            value, = struct.unpack(">d", self.chance.randbytes(8))
            if value - value == 0:  # finite
                return value

    def value(self, depth):
        kind = self.chance.randrange(8 if depth else 6)
        if kind < 2:
            return self.string(20)
        if kind == 2 and self.with_fractions:
            return self.fraction()
        if kind < 5:
            return self.integer()
        if kind == 5:
            return self.chance.choice([None, True, False])
        size = self.chance.choice([0, 1, 2, 3, 10])
        if kind == 6:
            return [self.value(depth - 1) for _ in range(size)]
        return {self.string(5): self.value(depth - 1) for _ in range(size)}

    def body(self):
        return {self.string(8): self.value(5) for _ in range(self.chance.randrange(12))}


def hashes(cursor, texts):
    cursor.execute("SELECT idempotency_hash(body::jsonb), idempotency_hash(body) FROM unnest(%s::text[]) WITH ORDINALITY t (body, n) ORDER BY n",
                   (texts,))
    return cursor.fetchall()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    connection = psycopg2.connect(application_name="bodies")
    connection.set_client_encoding("UTF8")
    cursor = connection.cursor()
    wrong = []
    for name, bodies, canonical in (("ascii", Bodies(chance, ASCII, False), in_python), ("unicode", Bodies(chance, UNICODE, True), rfc8785)):
        if name == "ascii":
            assert all(in_python(body) == rfc8785(body) for body in (bodies.body() for _ in range(200)))
        different = set()
        for _ in range(options.count // 500):
            batch = [bodies.body() for _ in range(500)]
            # One of several spellings of the same document.
            texts = [json.dumps(body, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, 1])) for body in batch]
            for body, text, found in zip(batch, texts, hashes(cursor, texts)):
                wanted = hashlib.sha256(canonical(body).encode()).hexdigest()
                different.add(wanted)
                if found != (wanted, wanted):
                    wrong.append(text)
        print(f"{len(different)} {name}")
    # Integers that a double cannot hold are refused; all others have Python's digits.
    refused = equal = 0
    for _ in range(300):
        number = chance.randint(1, 9) * 10 ** chance.randint(15, 20) if chance.random() < 0.3 else chance.randint(2**53, 10**21 - 1)
        try:
            cursor.execute("SELECT idempotency_hash(%s::text)", (str(number),))
            found, = cursor.fetchone()
            equal += 1
            if found != hashlib.sha256(str(number).encode()).hexdigest():
                wrong.append(str(number))
        except psycopg2.errors.NumericValueOutOfRange:
            refused += 1
            if int(es_number(number)) == number:
                wrong.append(f"refused: {number}")
        connection.rollback()
    print(f"{equal} big, {refused} refused")
    for text in wrong[:5]:
        print(f"seed {options.seed}: {text}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


main()
