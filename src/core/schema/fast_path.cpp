#include "core/schema/fast_path.hpp"

#include <algorithm>
#include <cstdint>

namespace outbox::schema {

namespace {

using Kind = json::Value::Kind;

bool is_number(const json::Value& value)
{
    return value.kind == Kind::integer || value.kind == Kind::number;
}

double number_of(const json::Value& value)
{
    return value.kind == Kind::integer ? static_cast<double>(value.integer) : value.number;
}

std::uint64_t characters_of(const json::Value& value)
{
    const std::string_view text = value.string();
    return static_cast<std::uint64_t>(
        std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

} // namespace

bool FastPathValidator::fits(const json::Value& value, const valijson::Subschema& schema)
{
    if (schema.getAlwaysInvalid())
        return false;
    FastPathValidator glance(value);
    valijson::Subschema::ApplyFunction accept =
        [&glance](const valijson::constraints::Constraint& constraint) {
            return constraint.accept(glance);
        };
    return schema.applyStrict(accept);
}

bool FastPathValidator::visit(const AllOfConstraint& constraint)
{
    bool fit = true;
    constraint.applyToSubschemas(
        [&](unsigned, const valijson::Subschema* schema) { return fit = fits(value_, *schema); });
    return fit;
}

bool FastPathValidator::visit(const ConstConstraint& constraint)
{
    return constraint.getValue()->equalTo(json::Adapter(value_), true);
}

bool FastPathValidator::visit(const EnumConstraint& constraint)
{
    bool found = false;
    const json::Adapter target(value_);
    constraint.applyToValues([&](const valijson::adapters::FrozenValue& value) {
        found = value.equalTo(target, true);
        return !found;
    });
    return found;
}

bool FastPathValidator::visit(const MaximumConstraint& constraint)
{
    if (!is_number(value_))
        return true;
    const double number = number_of(value_);
    return constraint.getExclusiveMaximum() ? number < constraint.getMaximum()
                                            : number <= constraint.getMaximum();
}

bool FastPathValidator::visit(const MinimumConstraint& constraint)
{
    if (!is_number(value_))
        return true;
    const double number = number_of(value_);
    return constraint.getExclusiveMinimum() ? number > constraint.getMinimum()
                                            : number >= constraint.getMinimum();
}

bool FastPathValidator::visit(const MaxItemsConstraint& constraint)
{
    return !is(Kind::array) || value_.count <= constraint.getMaxItems();
}

bool FastPathValidator::visit(const MinItemsConstraint& constraint)
{
    return !is(Kind::array) || value_.count >= constraint.getMinItems();
}

bool FastPathValidator::visit(const MaxLengthConstraint& constraint)
{
    return !is(Kind::string) || value_.count <= constraint.getMaxLength() ||
           characters_of(value_) <= constraint.getMaxLength();
}

bool FastPathValidator::visit(const MinLengthConstraint& constraint)
{
    return !is(Kind::string) || characters_of(value_) >= constraint.getMinLength();
}

bool FastPathValidator::visit(const PolyConstraint& constraint)
{
    return constraint.validate(json::Adapter(value_), {}, nullptr);
}

bool FastPathValidator::visit(const PropertiesConstraint& constraint)
{
    if (!is(Kind::object))
        return true;
    constexpr std::size_t most = 64;
    if (value_.count > most)
        return false;
    std::uint64_t seen = 0; // a bit for each member
    bool fit = true;
    constraint.applyToProperties([&](const auto& name, const valijson::Subschema* schema) {
        const json::Member* member = value_.find({name.data(), name.size()});
        if (member == nullptr)
            return true;
        seen |= std::uint64_t{1} << (member - value_.members);
        return fit = fits(member->value, *schema);
    });
    constraint.applyToPatternProperties([&](const auto&, const auto*) { return fit = false; });
    const valijson::Subschema* others = constraint.getAdditionalPropertiesSubschema();
    for (std::size_t i = 0; fit && i < value_.count; ++i)
        if ((seen >> i & 1) == 0)
            fit = others != nullptr && fits(value_.members[i].value, *others);
    return fit;
}

bool FastPathValidator::visit(const RequiredConstraint& constraint)
{
    if (!is(Kind::object))
        return true;
    bool fit = true;
    constraint.applyToRequiredProperties([&](const auto& name) {
        return fit = value_.find({name.data(), name.size()}) != nullptr;
    });
    return fit;
}

bool FastPathValidator::visit(const SingularItemsConstraint& constraint)
{
    return !is(Kind::array) || std::ranges::all_of(value_.array(), [&](const json::Value& element) {
        return fits(element, *constraint.getItemsSubschema());
    });
}

bool FastPathValidator::visit(const TypeConstraint& constraint)
{
    bool fit = false;
    constraint.applyToNamedTypes([&](TypeConstraint::JsonType type) {
        switch (type) {
        case TypeConstraint::kArray:
            fit = is(Kind::array);
            break;
        case TypeConstraint::kBoolean:
            fit = is(Kind::boolean);
            break;
        case TypeConstraint::kInteger:
            fit = is(Kind::integer);
            break;
        case TypeConstraint::kNull:
            fit = is(Kind::null);
            break;
        case TypeConstraint::kNumber:
            fit = is_number(value_);
            break;
        case TypeConstraint::kObject:
            fit = is(Kind::object);
            break;
        case TypeConstraint::kString:
            fit = is(Kind::string);
            break;
        default:
            break;
        }
        return !fit;
    });
    return fit;
}

} // namespace outbox::schema
