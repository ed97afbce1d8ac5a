#include "launcher/utility_hook.hpp"

#include "ipc/wakeup.hpp"
#include "ipc/worker_registry.hpp"

extern "C" {
#include "commands/dbcommands.h"
#include "commands/defrem.h"
}

#include <cstring>

namespace outbox {

namespace {

ProcessUtility_hook_type next_hook = nullptr;

constexpr const char* extension = "outbox";

bool names_outbox(const List* objects)
{
    ListCell* cell;
    foreach (cell, objects)
        if (std::strcmp(strVal(lfirst(cell)), extension) == 0)
            return true;
    return false;
}

// Returns the value of an option; nullptr if the command does not have it.
const char* string_option(List* options, const char* name)
{
    ListCell* cell;
    foreach (cell, options) {
        auto* element = static_cast<DefElem*>(lfirst(cell));
        if (std::strcmp(element->defname, name) == 0 && element->arg != nullptr)
            return defGetString(element);
    }
    return nullptr;
}

// Returns the database in which the command tolerates no other session; nullptr: none.
const char* database_needed_exclusively(Node* command)
{
    switch (nodeTag(command)) {
    case T_DropdbStmt:
        return reinterpret_cast<DropdbStmt*>(command)->dbname;
    case T_CreatedbStmt:
        return string_option(reinterpret_cast<CreatedbStmt*>(command)->options, "template");
    case T_AlterDatabaseStmt: {
        auto* alter = reinterpret_cast<AlterDatabaseStmt*>(command);
        return string_option(alter->options, "tablespace") != nullptr ? alter->dbname : nullptr;
    }
    case T_RenameStmt: {
        auto* rename = reinterpret_cast<RenameStmt*>(command);
        return rename->renameType == OBJECT_DATABASE ? rename->subname : nullptr;
    }
    default:
        return nullptr;
    }
}

// Blocks the workers of the database that the command needs until the end of the transaction, and
// waits up to 5 s until they have exited. Does nothing if the user does not own the database: a
// command that the server will reject must not stop them.
void stop_workers_for_command(Node* command)
{
    if (const char* name = database_needed_exclusively(command)) {
        const Oid database = get_database_oid(name, true);
        if (OidIsValid(database) && pg::owns_database(database))
            ipc::block_workers(database);
    } else if (IsA(command, DropStmt)) {
        auto* drop = reinterpret_cast<DropStmt*>(command);
        if (drop->removeType == OBJECT_EXTENSION && names_outbox(drop->objects) &&
            pg::owns_database(MyDatabaseId))
            ipc::block_workers(MyDatabaseId);
    }
}

// How a successful command affects the workers. Determined before the command runs, because some
// commands free their parse tree.
enum class CommandEffect { none, changes_databases, commits_prepared };

CommandEffect effect_of(Node* command)
{
    switch (nodeTag(command)) {
    case T_CreateExtensionStmt:
        return std::strcmp(reinterpret_cast<CreateExtensionStmt*>(command)->extname, extension) == 0
                   ? CommandEffect::changes_databases
                   : CommandEffect::none;
    case T_CreatedbStmt:
        return CommandEffect::changes_databases;
    case T_TransactionStmt:
        return reinterpret_cast<TransactionStmt*>(command)->kind == TRANS_STMT_COMMIT_PREPARED
                   ? CommandEffect::commits_prepared
                   : CommandEffect::none;
    default:
        return CommandEffect::none;
    }
}

// ProcessUtility hook: stops workers before the command, runs it, and reports its effect to
// launcher and relay.
void process_utility(PlannedStmt* statement, const char* text, bool read_only_tree,
                     ProcessUtilityContext context, ParamListInfo parameters,
                     QueryEnvironment* environment, DestReceiver* destination,
                     QueryCompletion* completion)
{
    const CommandEffect effect = effect_of(statement->utilityStmt);
    stop_workers_for_command(statement->utilityStmt);
    // COMMIT PREPARED runs no xact callback of the prepared transaction. The first call invalidates
    // the relay's cache before the locks are released; the second one wakes sessions that then see
    // the rows.
    if (effect == CommandEffect::commits_prepared)
        ipc::wake_all_now();
    const auto next = next_hook != nullptr ? next_hook : standard_ProcessUtility;
    next(statement, text, read_only_tree, context, parameters, environment, destination,
         completion);
    if (effect == CommandEffect::changes_databases)
        ipc::notify_launcher_at_commit();
    else if (effect == CommandEffect::commits_prepared)
        ipc::wake_all_now();
}

} // namespace

void set_up_utility_hook()
{
    next_hook = ProcessUtility_hook;
    ProcessUtility_hook = process_utility;
}

} // namespace outbox
