"""Arguments of every kind, as SQL expressions: valid and invalid ones."""

import json

from documents import Documents
from oddities import BY_TYPE, HUGE_BY_TYPE, ONLY, SENSIBLE, SENSIBLE_BY_TYPE, TEXTS


def quoted(text):
    return "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Values:
    """Generates values. Accepted values are remembered by the argument's name, as they are
    likely to be valid again."""

    REMEMBERED = 20

    def __init__(self, chance, corpus=None):
        self.chance = chance
        self.documents = Documents(chance, corpus)
        self.accepted = {}
        self.present = {}  # by type: values that occur in the tables now
        self.files = []

    def remember(self, arguments):
        for argument, expression in arguments:
            if len(expression) < 300:
                known = self.accepted.setdefault((argument.name, argument.type.name), [])
                if expression not in known:
                    known.append(expression)
                    del known[:-self.REMEMBERED]

    def of(self, argument, is_wild):
        if argument.name in ONLY:
            return f"({self.chance.choice(ONLY[argument.name])})::{argument.type.name}"
        return self.any(argument.type) if is_wild else self.sensible(argument)

    def sensible(self, argument):
        choices = [SENSIBLE.get(argument.name), self.files if argument.name == "file" else None,
                   self.accepted.get((argument.name, argument.type.name)), self.present.get(argument.type.name),
                   SENSIBLE_BY_TYPE.get(argument.type.name)]
        choices = [choice for choice in choices if choice]
        if argument.type.name in ("json", "jsonb") or argument.name in Documents.TEXTS:
            document = self.documents.sensible(argument.name)
            if self.chance.random() < 0.4:
                document = self.documents.spoiled(document)
            choices += [[quoted(json.dumps(document))]] * 2
            if argument.name in self.documents.corpus:
                choices += [[quoted(self.documents.mangled(argument.name))]] * 4
        if not choices:
            return self.any(argument.type)
        expression = self.chance.choice(self.chance.choice(choices))
        return expression if expression.endswith(f"::{argument.type.name}") else f"({expression})::{argument.type.name}"

    def any(self, type):
        """Returns a random value of the type."""
        if self.chance.random() < 0.08:
            return f"NULL::{type.name}"
        if type.name in HUGE_BY_TYPE and self.chance.random() < 0.02:
            return f"({self.chance.choice(HUGE_BY_TYPE[type.name])})::{type.name}"
        if type.element:
            return self.array(type)
        if type.columns:
            return self.row(type)
        if type.name in ("json", "jsonb") and self.chance.random() < 0.6:
            return f"{quoted(self.documents.odd())}::{type.name}"
        if type.name == "text":
            return f"({self.text()})::text"
        return f"({self.chance.choice(BY_TYPE[type.name])})::{type.name}"

    def text(self):
        kind = self.chance.random()
        if kind < 0.12:
            return quoted("".join(self.character() for _ in range(self.chance.choice([1, 2, 5, 20, 63, 64, 255, 256]))))
        if kind < 0.22:
            # Bytes that are not valid text. prepare.sql makes the cast.
            return f"CAST(decode('{self.chance.choice(['ff', 'c3', '80', 'f09f98', 'eda080', '61ff62', 'c080'])}', 'hex') AS text)"
        return self.chance.choice(TEXTS)

    def character(self):
        while True:
            code = self.chance.choice([self.chance.randint(1, 0x7F), self.chance.randint(0x80, 0xFFFF), self.chance.randint(0x10000, 0x10FFFF)])
            # U+FFFD stands for invalid text in error messages.
            if not 0xD800 <= code <= 0xDFFF and code != 0xFFFD:
                return chr(code)

    def array(self, type):
        kind = self.chance.random()
        if kind < 0.1:
            return f"'{{}}'::{type.name}"
        one = self.any(type.element)
        if kind < 0.2:
            return f"array_fill({one}, ARRAY[2, 2])::{type.name}"
        if kind < 0.25:
            return f"array_fill({one}, ARRAY[3, 1, 2])::{type.name}"
        if kind < 0.3:
            return f"array_fill({one}, ARRAY[2], ARRAY[2147483645])::{type.name}"
        if kind < 0.35:
            return f"array_fill({one}, ARRAY[3], ARRAY[-5])::{type.name}"
        if kind < 0.37:
            return f"array_fill({self.any(type.element)}, ARRAY[{self.chance.choice([1000, 100001])}])::{type.name}"
        return f"ARRAY[{', '.join(self.any(type.element) for _ in range(self.chance.randint(1, 5)))}]::{type.name}"

    def row(self, type):
        if self.chance.random() < 0.4:
            return f"(SELECT x FROM {type.name} x LIMIT 1 OFFSET {self.chance.randint(0, 5)})"
        return f"ROW({', '.join(self.any(column) for column in type.columns)})::{type.name}"
