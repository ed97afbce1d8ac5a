"""Calls every function and procedure of the extension with arguments of every kind, in several roles and states of a transaction.

Prints what happened, how often, and what must not have. Fails if there was anything of the kind."""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "load"))

from caller import Caller
from memory import ROUNDS, Repeats, copied
from session import Session
from states import COMMIT, ROLLBACK


def find_leaks(caller, options):
    """In calls that are rolled back. Those that lose something only when they are committed lose nothing here."""
    repeats = Repeats(caller.connect("postgres"), ROLLBACK, options.repeat, options.contexts_only)
    planted = {(statement, "planted"): statement for statement in options.planted + options.planted_at_commit}
    found = 0
    for kind, statement in sorted((caller.corpus.statements | planted).items()):
        found += has_leaked(caller, repeats, kind, statement, options.planted)
    repeats.session.connection.close()
    return {"kinds of calls that were repeated": len(caller.corpus.statements), "planted leaks that were found": found}


def find_leaks_at_commit(caller, options):
    """In calls that are committed: those that were accepted, in a copy of the database, which they may spoil as they like."""
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
                other.rows("SELECT prepare_for_calls()")  # what it has taken away
    return {"kinds of calls that were committed again and again": committed, "planted leaks that were found at commit": found}


def has_leaked(caller, repeats, kind, statement, planted):
    """Whether it was planted and was found. Others are somebody's fault."""
    bytes = repeats.leak(statement)
    if bytes and statement not in planted:
        caller.judge.accuse("calls that lose memory", f"{bytes:.0f} bytes by each of {' '.join(kind)}, {repeats.ending}", statement)
    return bool(bytes) and statement in planted


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, help="so many, or")
    parser.add_argument("--seconds", type=float, help="for so long")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--files", required=True, help="outbox.cold_storage_dir")
    parser.add_argument("--only", help="the function of this name, in all its forms")
    parser.add_argument("--events", type=Path, help="a folder of arrays of events, to start from")
    parser.add_argument("--watch", type=int, default=20, help="look at all tables before and after one in so many calls; 0: never")
    parser.add_argument("--repeat", type=int, default=0, help="how often a call of each kind is repeated to see whether the session grows")
    parser.add_argument("--planted", action="append", default=[], help="a statement that loses memory, which has to be found")
    parser.add_argument("--planted-at-commit", action="append", default=[], help="one that loses memory if it is committed, and only then")
    parser.add_argument("--planted-change", action="append", default=[], help="a statement that changes something during a call that fails, which has to be seen")
    parser.add_argument("--contexts-only", action="store_true", help="memory is that of the server's contexts")
    parser.add_argument("--bytes", action="store_true", help="bytes that are no text may stay in tables")
    parser.add_argument("--examples", action="store_true", help="show one of each kind of error")
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
