// Adapter by which valijson validates a json::Value (core/json/json_tree.hpp) without converting it
// to another JSON library's type. valijson's templates require the names in camel case.
#pragma once

#include "core/json/json_tree.hpp"

#include <valijson/adapters/nlohmann_json_adapter.hpp>

#include <optional>

namespace outbox::json {

class Adapter;
using NamedAdapter = std::pair<std::string, Adapter>;

namespace detail {

// Iterator over elements or members, which are wrapped in adapters when dereferenced.
template <typename Item, typename Result>
class Iterator {
public:
    using iterator_category = std::bidirectional_iterator_tag;
    using value_type = Result;
    using difference_type = std::ptrdiff_t;
    using pointer = Result*;
    using reference = Result&;

    explicit Iterator(const Item* at) : at_(at) {}

    Result operator*() const;
    valijson::adapters::DerefProxy<Result> operator->() const
    {
        return valijson::adapters::DerefProxy<Result>(**this);
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }
    const Iterator& operator++()
    {
        ++at_;
        return *this;
    }
    Iterator operator++(int) { return Iterator(at_++); }
    const Iterator& operator--()
    {
        --at_;
        return *this;
    }
    void advance(std::ptrdiff_t steps) { at_ += steps; }

private:
    const Item* at_;
};

// Range of elements or members.
template <typename Item, typename Result>
class Sequence {
public:
    using const_iterator = Iterator<Item, Result>;
    using iterator = const_iterator;

    Sequence() = default;
    explicit Sequence(std::span<const Item> items) : items_(items) {}

    const_iterator begin() const { return const_iterator(items_.data()); }
    const_iterator end() const { return const_iterator(items_.data() + items_.size()); }
    std::size_t size() const { return items_.size(); }

protected:
    std::span<const Item> items_;
};

} // namespace detail

using ArrayOfAdapters = detail::Sequence<Value, Adapter>;

class ObjectOfAdapters : public detail::Sequence<Member, NamedAdapter> {
public:
    ObjectOfAdapters() = default;
    explicit ObjectOfAdapters(const Value& object) : Sequence(object.object()), object_(&object) {}

    const_iterator find(const std::string& name) const
    {
        const Member* found = object_ == nullptr ? nullptr : object_->find(name);
        return found == nullptr ? end() : const_iterator(found);
    }

private:
    const Value* object_ = nullptr;
};

// Type tests and conversions of one value: the interface that BasicAdapter requires.
class WrappedValue {
public:
    WrappedValue() : value_(&nothing) {}
    explicit WrappedValue(const Value& value) : value_(&value) {}

    // valijson freezes parts of schemas only, and schemas are never read through this adapter.
    valijson::adapters::FrozenValue* freeze() const
    {
        throw std::logic_error("a payload cannot be frozen");
    }

    // Defined below, because their results contain adapters.
    std::optional<ArrayOfAdapters> getArrayOptional() const;
    std::optional<ObjectOfAdapters> getObjectOptional() const;
    bool getArraySize(std::size_t& result) const { return get(isArray(), result, value_->count); }
    bool getObjectSize(std::size_t& result) const { return get(isObject(), result, value_->count); }
    bool getBool(bool& result) const { return get(isBool(), result, value_->boolean); }
    bool getDouble(double& result) const { return get(isDouble(), result, value_->number); }
    bool getInteger(std::int64_t& result) const
    {
        return get(isInteger(), result, value_->integer);
    }
    bool getString(std::string& result) const
    {
        if (isString())
            result.assign(value_->text, value_->count);
        return isString();
    }

    static bool hasStrictTypes() { return true; }

    bool isArray() const { return value_->kind == Value::Kind::array; }
    bool isBool() const { return value_->kind == Value::Kind::boolean; }
    bool isDouble() const { return value_->kind == Value::Kind::number; }
    bool isInteger() const { return value_->kind == Value::Kind::integer; }
    bool isNull() const { return value_->kind == Value::Kind::null; }
    bool isNumber() const { return isInteger() || isDouble(); }
    bool isObject() const { return value_->kind == Value::Kind::object; }
    bool isString() const { return value_->kind == Value::Kind::string; }

private:
    // Stores `value` in `result` if `is_such`, which it returns.
    template <typename Result>
    static bool get(bool is_such, Result& result, Result value)
    {
        if (is_such)
            result = value;
        return is_such;
    }

    static constexpr Value nothing{};
    const Value* value_;
};

// Adapter of one value.
class Adapter : public valijson::adapters::BasicAdapter<Adapter, ArrayOfAdapters, NamedAdapter,
                                                        ObjectOfAdapters, WrappedValue> {
public:
    Adapter() = default;
    explicit Adapter(const Value& value) : BasicAdapter(WrappedValue(value)) {}
};

namespace detail {

template <>
inline Adapter Iterator<Value, Adapter>::operator*() const
{
    return Adapter(*at_);
}

template <>
inline NamedAdapter Iterator<Member, NamedAdapter>::operator*() const
{
    return {std::string(at_->name), Adapter(at_->value)};
}

} // namespace detail

inline std::optional<ArrayOfAdapters> WrappedValue::getArrayOptional() const
{
    return isArray() ? std::make_optional(ArrayOfAdapters(value_->array())) : std::nullopt;
}

inline std::optional<ObjectOfAdapters> WrappedValue::getObjectOptional() const
{
    return isObject() ? std::make_optional(ObjectOfAdapters(*value_)) : std::nullopt;
}

} // namespace outbox::json
