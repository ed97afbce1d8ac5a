// A quick look at whether a value fits a schema that valijson has read. It allocates nothing, where
// valijson notes for each property the way to it, which takes several times as long as all the
// rest.
#pragma once

#include "core/schema/valijson_adapter.hpp"

#include <valijson/constraints/concrete_constraints.hpp>
#include <valijson/constraints/constraint_visitor.hpp>
#include <valijson/subschema.hpp>

namespace outbox::schema {

// Says yes only if the value fits. No can mean that it does not know: then valijson is asked.
class FastPathValidator : public valijson::constraints::ConstraintVisitor {
public:
    static bool fits(const json::Value& value, const valijson::Subschema& schema);

    bool visit(const AllOfConstraint& constraint) override;
    bool visit(const ConstConstraint& constraint) override;
    bool visit(const EnumConstraint& constraint) override;
    bool visit(const MaximumConstraint& constraint) override;
    bool visit(const MaxItemsConstraint& constraint) override;
    bool visit(const MaxLengthConstraint& constraint) override;
    bool visit(const MinimumConstraint& constraint) override;
    bool visit(const MinItemsConstraint& constraint) override;
    bool visit(const MinLengthConstraint& constraint) override;
    bool visit(const PolyConstraint& constraint) override;
    bool visit(const PropertiesConstraint& constraint) override;
    bool visit(const RequiredConstraint& constraint) override;
    bool visit(const SingularItemsConstraint& constraint) override;
    bool visit(const TypeConstraint& constraint) override;

    bool visit(const AnyOfConstraint&) override { return false; }
    bool visit(const ConditionalConstraint&) override { return false; }
    bool visit(const ContainsConstraint&) override { return false; }
    bool visit(const DependenciesConstraint&) override { return false; }
    bool visit(const FormatConstraint&) override { return false; }
    bool visit(const LinearItemsConstraint&) override { return false; }
    bool visit(const MaxPropertiesConstraint&) override { return false; }
    bool visit(const MinPropertiesConstraint&) override { return false; }
    bool visit(const MultipleOfDoubleConstraint&) override { return false; }
    bool visit(const MultipleOfIntConstraint&) override { return false; }
    bool visit(const NotConstraint&) override { return false; }
    bool visit(const OneOfConstraint&) override { return false; }
    bool visit(const PatternConstraint&) override { return false; }
    bool visit(const PropertyNamesConstraint&) override { return false; }
    bool visit(const UniqueItemsConstraint&) override { return false; }

private:
    explicit FastPathValidator(const json::Value& value) : value_(value) {}

    bool is(json::Value::Kind kind) const { return value_.kind == kind; }

    const json::Value& value_;
};

} // namespace outbox::schema
