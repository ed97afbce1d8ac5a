"""Calls every function and procedure of the extension with arguments of every kind, in several
roles and transaction states.

Prints how often each thing happened, and every violation. Fails if there was one."""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "load"))

from caller import Caller
from memory import ROUNDS, Repeats, copied
from session import Session
from states import COMMIT, ROLLBACK


def find_leaks(caller, options):
    """Repeats calls in transactions that roll back. Leaks at commit are not found here."""
    repeats = Repeats(caller.connect("postgres"), ROLLBACK, options.repeat, options.contexts_only)
    planted = {(statement, "planted"): statement for statement in options.planted + options.planted_at_commit}
    found = 0
    for kind, statement in sorted((caller.corpus.statements | planted).items()):
        found += has_leaked(caller, repeats, kind, statement, options.planted)
    repeats.session.connection.close()
    return {"kinds of calls that were repeated": len(caller.corpus.statements), "planted leaks that were found": found}


def find_leaks_at_commit(caller, options):
    """Repeats calls in transactions that commit: calls that were accepted, in a copy of the
    database."""
    caller.hang_up()
    kinds = caller.corpus.accepted() | {(round, "a round"): round for round in ROUNDS} | {(statement, "planted"): statement for statement in options.planted_at_commit}
    found = committed = 0
    with copied(caller.database) as copy:
        repeats = Repeats(caller.connect("postgres", dbname=copy), COMMIT, options.repeat, options.contexts_only)
        other = Session("prepares", user="postgres", dbname=copy)
        other.rows("SELECT prepare_for_calls()")
        for kind, statement in sorted(kinds.items()):
            found += has_leaked(caller, repeats, kind, statement, options.planted_at_commit)
            committed += not repeats.error
            if statement in ROUNDS and repeats.error:
                caller.judge.accuse("rounds that come to an end", repeats.error, statement)
            if repeats.error:
                other.rows("SELECT prepare_for_calls()")  # restores what the call has removed
    return {"kinds of calls that were committed again and again": committed, "planted leaks that were found at commit": found}


def has_leaked(caller, repeats, kind, statement, planted):
    """Returns whether a planted leak was found. Reports any other leak."""
    bytes = repeats.leak(statement)
    if bytes and statement not in planted:
        caller.judge.accuse("calls that lose memory", f"{bytes:.0f} bytes by each of {' '.join(kind)}, {repeats.ending}", statement)
    return bool(bytes) and statement in planted


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, help="number of calls, or")
    parser.add_argument("--seconds", type=float, help="duration of the run")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--files", required=True, help="outbox.cold_storage_dir")
    parser.add_argument("--only", help="a function, with all its signatures")
    parser.add_argument("--events", type=Path, help="a folder of arrays of events, to start from")
    parser.add_argument("--watch", type=int, default=20, help="compare all tables before and after every Nth call; 0: never")
    parser.add_argument("--repeat", type=int, default=0, help="repetitions of each kind of call in the search for leaks")
    parser.add_argument("--planted", action="append", default=[], help="a statement with a leak, which must be found")
    parser.add_argument("--planted-at-commit", action="append", default=[], help="a statement with a leak at commit only")
    parser.add_argument("--planted-change", action="append", default=[], help="a statement that writes during a failing call, which must be seen")
    parser.add_argument("--contexts-only", action="store_true", help="measure the memory contexts of the server only")
    parser.add_argument("--bytes", action="store_true", help="keep invalid text in tables")
    parser.add_argument("--examples", action="store_true", help="print an example of each error")
    options = parser.parse_args()
    caller = Caller(options)
    caller.run()

    judge = caller.judge
    happened = caller.happened | judge.wrong
    happened["functions"] = len(caller.routines)
    happened["functions that were called"] = len(caller.called)
    happened["canceled"] = sum(judge.canceled.values())
    happened["planted changes that were seen"] = sum(map(caller.sees, options.planted_change))
    if options.repeat:
        happened |= find_leaks(caller, options)
        happened |= find_leaks_at_commit(caller, options)
        happened |= judge.wrong
    print(f"seed {options.seed}: " + ", ".join(f"{count} {what}" for what, count in sorted(happened.items())))
    print("errors: " + ", ".join(f"{code} {count}x" for code, count in judge.codes.most_common()))
    print("canceled: " + ", ".join(f"{name} {count}x" for name, count in judge.canceled.most_common()))
    if options.examples:
        for (code, signature), example in sorted(judge.examples.items()):
            print(f"{code} {signature}: {example}")
    for report in judge.reports[:20]:
        print(f"UNEXPECTED {report}", file=sys.stderr)
    sys.exit(1 if judge.reports else 0)


main()
