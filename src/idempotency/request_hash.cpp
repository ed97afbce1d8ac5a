#include "idempotency/request_hash.hpp"

#include "core/json/canonical_json.hpp"
#include "pg/arguments.hpp"
#include "pg/datum.hpp"
#include "pg/exceptions.hpp"
#include "pg/jsonb_reader.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace outbox {

namespace {

// A member of an object with its key in UTF-8.
struct RequestMember {
    std::string_view key;
    pg::JsonbEntry value;
};

// Levels of nesting allowed in a request; their recursion fits into the default max_stack_depth.
constexpr int max_depth = 1000;

// A double represents every integer of up to 15 digits exactly.
constexpr std::size_t exact_digits_of_double = 15;

// Raises numeric_value_out_of_range. The message has at most 60 digits of the number.
[[noreturn]] void raise_bad_number(std::string_view number, const char* reason)
{
    const int shown = static_cast<int>(std::min(number.size(), std::size_t{60}));
    ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                    errmsg("request has a number that %s: %.*s", reason, shown, number.data()),
                    errhint("Send it as a string.")));
    pg_unreachable();
}

// Removes a fraction of zeros, because 1.0 and 1 are the same number.
std::string_view without_zero_fraction(std::string_view digits)
{
    const auto point = digits.find('.');
    const bool are_zeros = point != std::string_view::npos &&
                           digits.find_first_not_of('0', point + 1) == std::string_view::npos;
    return are_zeros ? digits.substr(0, point) : digits;
}

// Returns true if the canonical form of a double denotes this integer. The canonical form may have
// an exponent instead of trailing zeros.
bool has_same_digits(std::string_view canonical, std::string_view integer)
{
    std::string_view mantissa = canonical.substr(0, canonical.find('e'));
    std::size_t at = 0;
    for (const char c : mantissa) {
        if (c == '.')
            continue;
        if (at == integer.size() || integer[at++] != c)
            return false;
    }
    return integer.find_first_not_of('0', at) == std::string_view::npos;
}

// Writes a jsonb in the canonical form of RFC 8785, into a StringInfo in the current context.
class CanonicalWriter {
public:
    CanonicalWriter() { initStringInfo(&text_); }

    // Appends an object, an array or the scalar of a root container. Raises statement_too_complex
    // for more than max_depth levels.
    void write(const JsonbContainer* container);
    std::string_view text() const { return {text_.data, static_cast<std::size_t>(text_.len)}; }

private:
    void write(const pg::JsonbEntry& value);
    void write_string(std::string_view string);
    // Appends a number and frees `digits`. Raises numeric_value_out_of_range if a double cannot
    // hold it.
    void write_number(char* digits);
    // Appends the canonical form of a double. Raises numeric_value_out_of_range for a number beyond
    // the range of a double and for an integer that a double changes.
    void write_double(std::string_view text, bool is_integer);
    void write_object(const JsonbContainer* container);
    void write_array(const JsonbContainer* container);
    void append(char c) { appendStringInfoCharMacro(&text_, c); }

    // reserve() makes room for `size` bytes and returns the end of the text; set_end() sets that
    // end after bytes were written there.
    char* reserve(std::size_t size)
    {
        enlargeStringInfo(&text_, static_cast<int>(size));
        return text_.data + text_.len;
    }
    void set_end(const char* end)
    {
        text_.len = static_cast<int>(end - text_.data);
        text_.data[text_.len] = '\0';
    }

    StringInfoData text_;
    int depth_ = 0;
};

void CanonicalWriter::write_string(std::string_view string)
{
    set_end(json::write_string(reserve(json::quoted_size(string)), string));
}

void CanonicalWriter::write_number(char* digits)
{
    const std::string_view text = without_zero_fraction(digits);
    const bool is_integer = text.find('.') == std::string_view::npos;
    if (is_integer && text.size() <= exact_digits_of_double)
        appendBinaryStringInfo(&text_, text.data(), static_cast<int>(text.size()));
    else
        write_double(text, is_integer);
    // Freed at once: a number such as 1e9999 has few bytes in JSON and thousands of digits here.
    pfree(digits);
}

void CanonicalWriter::write_double(std::string_view text, bool is_integer)
{
    double value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{})
        raise_bad_number(text, "is beyond the range of a double");
    const int before = text_.len;
    set_end(json::write_number(reserve(json::max_number_size), value));
    const std::string_view canonical(text_.data + before,
                                     static_cast<std::size_t>(text_.len - before));
    if (is_integer && !has_same_digits(canonical, text))
        raise_bad_number(text, "a double cannot hold");
}

void CanonicalWriter::write(const pg::JsonbEntry& value)
{
    CHECK_FOR_INTERRUPTS();
    switch (value.type()) {
    case JENTRY_ISNULL:
        appendBinaryStringInfo(&text_, "null", 4);
        break;
    case JENTRY_ISBOOL_TRUE:
        appendBinaryStringInfo(&text_, "true", 4);
        break;
    case JENTRY_ISBOOL_FALSE:
        appendBinaryStringInfo(&text_, "false", 5);
        break;
    case JENTRY_ISSTRING:
        write_string(pg::to_utf8(value.bytes));
        break;
    case JENTRY_ISNUMERIC:
        write_number(value.number_text());
        break;
    case JENTRY_ISCONTAINER:
        write(value.container());
        break;
    default:
        elog(ERROR, "unexpected entry %u in jsonb", value.entry);
    }
}

void CanonicalWriter::write_array(const JsonbContainer* container)
{
    const bool is_scalar = JsonContainerIsScalar(container);
    pg::JsonbEntryReader elements = pg::entries_of(container);
    if (!is_scalar)
        append('[');
    for (uint32 i = 0; i < JsonContainerSize(container); ++i) {
        if (i > 0)
            append(',');
        write(elements.next());
    }
    if (!is_scalar)
        append(']');
}

// Members are sorted again: RFC 8785 orders keys by UTF-16 code units, jsonb by length first.
void CanonicalWriter::write_object(const JsonbContainer* container)
{
    const uint32 count = JsonContainerSize(container);
    auto* members = static_cast<RequestMember*>(palloc(sizeof(RequestMember) * Max(count, 1)));
    pg::JsonbEntryReader keys = pg::entries_of(container);
    pg::JsonbEntryReader values = keys;
    values.skip(count);
    for (uint32 i = 0; i < count; ++i)
        members[i] = {pg::to_utf8(keys.next().bytes), values.next()};
    std::sort(members, members + count, [](const RequestMember& a, const RequestMember& b) {
        return json::is_before_in_utf16(a.key, b.key);
    });
    append('{');
    for (uint32 i = 0; i < count; ++i) {
        if (i > 0)
            append(',');
        write_string(members[i].key);
        append(':');
        write(members[i].value);
    }
    append('}');
    pfree(members);
}

void CanonicalWriter::write(const JsonbContainer* container)
{
    check_stack_depth();
    if (++depth_ > max_depth)
        ereport(ERROR, (errcode(ERRCODE_STATEMENT_TOO_COMPLEX),
                        errmsg("request is nested too deeply: more than %d levels", max_depth)));
    if (JsonContainerIsObject(container))
        write_object(container);
    else
        write_array(container);
    --depth_;
}

// Writes the SHA-256 of `text` to the 32 bytes at `hash`; raises an error if OpenSSL fails. The
// algorithm is fetched once per backend, because OpenSSL takes longer to fetch it than to hash a
// small request.
void sha256(std::string_view text, unsigned char* hash)
{
    static EVP_MD_CTX* context = nullptr;
    static EVP_MD* algorithm = nullptr;
    if (context == nullptr)
        context = EVP_MD_CTX_new();
    if (algorithm == nullptr)
        algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    if (context == nullptr || algorithm == nullptr ||
        EVP_DigestInit_ex2(context, algorithm, nullptr) != 1 ||
        EVP_DigestUpdate(context, text.data(), text.size()) != 1 ||
        EVP_DigestFinal_ex(context, hash, nullptr) != 1)
        elog(ERROR, "could not compute SHA-256");
}

} // namespace

RequestHash hash_of_request(const Jsonb* request)
{
    CanonicalWriter writer;
    writer.write(&request->root);
    RequestHash hash;
    sha256({writer.text().data(), writer.text().size()}, hash.bytes);
    return hash;
}

char* to_hex(const RequestHash& hash)
{
    auto* text = static_cast<char*>(palloc(2 * RequestHash::size + 1));
    hex_encode(reinterpret_cast<const char*>(hash.bytes), RequestHash::size, text);
    text[2 * RequestHash::size] = '\0';
    return text;
}

RequestHash from_hex(Datum text)
{
    const std::string_view digits = pg::to_view(text);
    RequestHash hash;
    bool fits = digits.size() == 2 * RequestHash::size;
    for (std::size_t i = 0; fits && i < RequestHash::size; ++i) {
        const char* at = digits.data() + 2 * i;
        const auto [end, error] = std::from_chars(at, at + 2, hash.bytes[i], 16);
        fits = error == std::errc{} && end == at + 2;
    }
    if (!fits)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("request_hash must be 64 hex digits"),
                        errhint("For example encode(sha256(body), 'hex').")));
    return hash;
}

} // namespace outbox

// Returns the hash of a request as hex digits; touches no table.
OUTBOX_SQL_FUNCTION(idempotency_hash)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        const Datum given = pg::required_argument(fcinfo, 0, "request");
        const Datum request = pg::to_jsonb(given, pg::declared_argument_type(fcinfo, 0));
        return CStringGetTextDatum(to_hex(hash_of_request(DatumGetJsonbP(request))));
    });
}
