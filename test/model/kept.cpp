#include "kept.hpp"

namespace outbox::model {

namespace {

void append(std::string& key, std::uint64_t number)
{
    key.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void append(std::string& key, const KeptPosition& position)
{
    append(key, static_cast<std::uint64_t>(position.seq));
    append(key, position.running.size());
    for (const RunningRange& range : position.running) {
        append(key, range.from);
        append(key, range.upto);
        append(key, static_cast<std::uint64_t>(range.above));
    }
}

KeptPosition keep(const Position& position)
{
    return {position.seq, {position.running.begin(), position.running.end()}};
}

} // namespace

std::string key_of(const KeptCursor& cursor)
{
    std::string key;
    append(key, cursor.passed);
    append(key, cursor.has_target);
    append(key, cursor.target);
    append(key, static_cast<std::uint64_t>(cursor.last_id));
    return key;
}

std::string key_of(const KeptSnapshot& snapshot)
{
    std::string key;
    append(key, snapshot.xmax);
    append(key, snapshot.cursor);
    for (const Xid xid : snapshot.running)
        append(key, xid);
    return key;
}

KeptCursor keep(const Cursor& cursor)
{
    KeptCursor kept;
    kept.passed = keep(cursor.passed);
    kept.has_target = cursor.target.has_value();
    if (cursor.target)
        kept.target = keep(*cursor.target);
    kept.last_id = cursor.last_id;
    return kept;
}

Kept<KeptCursor>& cursors()
{
    static Kept<KeptCursor> kept;
    if (kept.size() == 0)
        kept.number_of({});
    return kept;
}

Kept<KeptSnapshot>& snapshots()
{
    static Kept<KeptSnapshot> kept;
    return kept;
}

} // namespace outbox::model
