// A resizable array in a memory context. It has no destructor, so a longjmp may cross its frame:
// the context frees the memory.
#pragma once

#include "pg/postgres.hpp"

#include <span>
#include <type_traits>

namespace outbox::pg {

// The first allocation chooses CurrentMemoryContext. Elements must be trivially copyable.
template <typename T>
class PallocVector {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

public:
    void push(const T& value)
    {
        reserve(size_ + 1);
        data_[size_++] = value;
    }

    // Makes room for `wanted` elements in total and returns the array. size() stays.
    T* reserve(std::size_t wanted)
    {
        if (wanted > capacity_) {
            const std::size_t grown = Max(Max(wanted, capacity_ * 2), std::size_t{16});
            const Size bytes = grown * sizeof(T);
            data_ = static_cast<T*>(data_ == nullptr
                                        ? MemoryContextAllocHuge(CurrentMemoryContext, bytes)
                                        : repalloc_huge(data_, bytes));
            capacity_ = grown;
        }
        return data_;
    }

    // Changes size() only. The caller has reserved the room and sets new elements.
    void set_size(std::size_t size) { size_ = size; }
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T* data() { return data_; }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    T* begin() { return data_; }
    T* end() { return data_ + size_; }
    const T* begin() const { return data_; }
    const T* end() const { return data_ + size_; }
    std::span<const T> view() const { return {data_, size_}; }

private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

} // namespace outbox::pg
