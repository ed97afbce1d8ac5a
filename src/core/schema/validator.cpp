#include "core/schema/validator.hpp"

#include "core/error.hpp"
#include "core/json/json_pointer.hpp"
#include "core/schema/valijson_adapter.hpp"

#include <valijson/constraint_builder.hpp>
#include <valijson/constraints/concrete_constraints.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

#include <cmath>

namespace outbox::schema {

namespace {

using valijson::ValidationResults;
using valijson::constraints::PolyConstraint;

// The type of the path to a value, deduced because valijson 1.0 and 1.1 differ in it.
template <typename Path>
Path path_of(bool (PolyConstraint::*)(const valijson::adapters::Adapter&, const Path&,
                                      ValidationResults*) const);
using Path = decltype(path_of(&PolyConstraint::validate));

constexpr const char* interrupt_check_keyword = "outbox-pause";

// Base class of the custom constraints: the copying that valijson requires.
template <typename Self>
class CustomConstraint : public PolyConstraint {
    Constraint* cloneInto(void* memory) const override
    {
        return new (memory) Self(static_cast<const Self&>(*this));
    }
    std::size_t sizeOf() const override { return sizeof(Self); }

protected:
    // Returns false, after it has added the error to `results` unless that is nullptr.
    static bool fails(const Path& path, ValidationResults* results, const char* reason)
    {
        if (results != nullptr)
            results->pushError(path, reason);
        return false;
    }
};

// Pattern that the server's regex engine matches. A value that is no string is valid.
class RegexConstraint : public CustomConstraint<RegexConstraint> {
public:
    RegexConstraint(const valijson::adapters::Adapter& value, const Callbacks& callbacks)
        : pattern_(value.asString()), match_(callbacks.match)
    {}

    bool validate(const valijson::adapters::Adapter& target, const Path& path,
                  ValidationResults* results) const override
    {
        return !target.isString() || match_(pattern_, target.asString()) ||
               fails(path, results, "The string does not match the pattern.");
    }

private:
    std::string pattern_;
    RegexMatch match_;
};

// multipleOf with a tolerance for rounding. A value that is no number is valid.
class MultipleOf : public CustomConstraint<MultipleOf> {
public:
    MultipleOf(const valijson::adapters::Adapter& value, const Callbacks&) : of_(value.asDouble())
    {}

    bool validate(const valijson::adapters::Adapter& target, const Path& path,
                  ValidationResults* results) const override
    {
        return !target.isNumber() || is_multiple(target.asDouble()) ||
               fails(path, results, "The number is not a multiple of multipleOf.");
    }

private:
    // Tolerates rounding: 0.3 is a multiple of 0.1, although the quotient of the doubles is not an
    // integer.
    bool is_multiple(double number) const
    {
        constexpr double tolerance = 1e-9;
        const double times = number / of_;
        return std::abs(times - std::round(times)) <= tolerance;
    }

    double of_;
};

// Accepts every value; the callback ends the validation by an exception.
class InterruptCheck : public CustomConstraint<InterruptCheck> {
public:
    InterruptCheck(const valijson::adapters::Adapter&, const Callbacks& callbacks)
        : check_interrupts_(callbacks.check_interrupts)
    {}

    bool validate(const valijson::adapters::Adapter&, const Path&,
                  ValidationResults*) const override
    {
        check_interrupts_();
        return true;
    }

private:
    void (*check_interrupts_)();
};

template <typename Custom>
class CustomConstraintBuilder : public valijson::ConstraintBuilder {
public:
    explicit CustomConstraintBuilder(const Callbacks& callbacks) : callbacks_(callbacks) {}

    valijson::constraints::Constraint* make(const valijson::adapters::Adapter& value) const override
    {
        return new Custom(value, callbacks_);
    }

private:
    Callbacks callbacks_;
};

// Builds the document that valijson compiles. An interrupt check stands before each definition,
// because only recursion, which passes through a definition, can make validation long or deep.
Json to_document(NormalizedSchema normalized)
{
    Json document = std::move(normalized.root);
    if (normalized.definitions.empty())
        return document;
    Json definitions = Json::object();
    for (std::size_t i = 0; i < normalized.definitions.size(); ++i) {
        definitions[std::to_string(i)] = {
            {"allOf", {{{interrupt_check_keyword, true}}, std::move(normalized.definitions[i])}}};
    }
    if (document.contains("$ref")) // keywords beside $ref are ignored
        document = {{"allOf", {std::move(document)}}};
    document["definitions"] = std::move(definitions);
    return document;
}

// valijson reports a violation as text only. The beginning of the text identifies the keyword.
struct ErrorPrefix {
    std::string_view text;
    const char* keyword;
};

constexpr ErrorPrefix error_prefixes[] = {
    {"Value type not permitted", "type"},
    {"Missing required property", "required"},
    {"Object contains a property", "additionalProperties"},
    {"Failed to validate against additional properties", "additionalProperties"},
    {"Failed to validate against schema associated with property", "properties"},
    {"Failed to match against any enum", "enum"},
    {"Failed to match expected value set by 'const'", "const"},
    {"The string does not match", "pattern"},
    {"The number is not a multiple", "multipleOf"},
    {"Expected number less than or equal to", "maximum"},
    {"Expected number less than", "exclusiveMaximum"},
    {"Expected number greater than or equal to", "minimum"},
    {"Expected number greater than", "exclusiveMinimum"},
    {"String should be no more than", "maxLength"},
    {"String should be no fewer than", "minLength"},
    {"Array should contain no more than", "maxItems"},
    {"Array should contain no fewer than", "minItems"},
    {"Array contains more items than allowed", "additionalItems"},
    {"Cannot validate item", "additionalItems"},
    {"Failed to validate item", "items"},
    {"Elements at indexes", "uniqueItems"},
    {"Object should have no more than", "maxProperties"},
    {"Object should have no fewer than", "minProperties"},
    {"Failed to any values against subschema in 'contains'", "contains"},
    {"Missing dependency", "dependencies"},
    {"Failed to validate against dependent schema", "dependencies"},
    {"Target should not validate", "not"},
    {"Failed to validate against any schemas allowed by anyOf", "anyOf"},
    {"Failed to validate against any child schemas allowed by oneOf", "oneOf"},
    {"Failed to validate against exactly one", "oneOf"},
    {"Failed to validate against a conditional", "if"},
    {"Failed to validate against child schema", "allOf"},
};

// Returns the keyword of a violation by its text; "schema" for an unknown text.
const char* keyword_of(std::string_view reason)
{
    for (const ErrorPrefix& prefix : error_prefixes)
        if (reason.starts_with(prefix.text))
            return prefix.keyword;
    return "schema";
}

// Returns true for anyOf and oneOf: an error inside one alternative does not explain the violation.
bool is_alternative(const ValidationResults::Error& error)
{
    const std::string_view keyword = keyword_of(error.description);
    return keyword == "anyOf" || keyword == "oneOf";
}

// Returns true if `inner` is at the location of `outer` or below it.
bool is_within(const ValidationResults::Error& inner, const ValidationResults::Error& outer)
{
    return inner.context.size() >= outer.context.size() &&
           std::equal(outer.context.begin(), outer.context.end(), inner.context.begin());
}

// Returns the error to report: the first one, or the outermost anyOf or oneOf around it. valijson
// lists inner errors before outer ones.
const ValidationResults::Error& first_error(const ValidationResults& results)
{
    const ValidationResults::Error* first = &*results.begin();
    for (const ValidationResults::Error& error : results)
        if (is_alternative(error) && is_within(*first, error))
            first = &error;
    return *first;
}

// Returns the JSON pointer of an error. valijson 1.0 has only the steps of its context: "<root>",
// "[lines]", "[0]" become /lines/0.
template <typename Error>
std::string pointer_of(const Error& error)
{
    if constexpr (requires { error.jsonPointer; })
        return error.jsonPointer;
    std::string pointer;
    for (std::size_t i = 1; i < error.context.size(); ++i) {
        const std::string_view step = error.context[i];
        json::append_to_pointer(pointer, step.substr(1, step.size() - 2));
    }
    return pointer;
}

} // namespace

struct CompiledSchema::Impl {
    valijson::Schema schema;
    mutable valijson::Validator validator{valijson::Validator::kStrongTypes};
};

CompiledSchema::CompiledSchema(std::string_view text, const Callbacks& callbacks)
    : impl_(std::make_unique<Impl>())
{
    const Json document = to_document(normalize(text, callbacks.match));
    valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
    parser.addConstraintBuilder(pattern_keyword,
                                new CustomConstraintBuilder<RegexConstraint>(callbacks));
    parser.addConstraintBuilder(multiple_keyword,
                                new CustomConstraintBuilder<MultipleOf>(callbacks));
    parser.addConstraintBuilder(interrupt_check_keyword,
                                new CustomConstraintBuilder<InterruptCheck>(callbacks));
    try {
        parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(document), impl_->schema);
    } catch (const std::runtime_error& error) {
        throw Error("22023", std::string("json_schema cannot be used: ") + error.what());
    }
}

CompiledSchema::~CompiledSchema() = default;

std::optional<Violation> CompiledSchema::validate(const json::Value& value) const
{
    // The first pass collects no errors; only an invalid value pays for a second pass.
    const json::Adapter target(value);
    if (impl_->validator.validate(impl_->schema, target, nullptr))
        return std::nullopt;
    ValidationResults results;
    (void)impl_->validator.validate(impl_->schema, target, &results);
    if (results.numErrors() == 0)
        return Violation{"", "schema", "The value is not allowed."};
    const ValidationResults::Error& first = first_error(results);
    return Violation{pointer_of(first), keyword_of(first.description), first.description};
}

} // namespace outbox::schema
