#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace outbox::sink {

// FIFO queue whose items keep their addresses. Most queues have one item, some have thousands: an
// empty queue allocates nothing, and removal from the front is cheap.
template <typename Item>
class StableQueue {
public:
    bool empty() const { return first_ == items_.size(); }
    std::size_t size() const { return items_.size() - first_; }

    // Returns item i, counted from the front. i must be below size().
    Item& operator[](std::size_t i) const { return *items_[first_ + i]; }

    Item& front() const { return (*this)[0]; }
    void push(std::unique_ptr<Item> item) { items_.push_back(std::move(item)); }

    // Removes and returns item i, which must be below size().
    std::unique_ptr<Item> extract(std::size_t i)
    {
        std::unique_ptr<Item> item = std::move(items_[first_ + i]);
        if (i > 0) {
            items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(first_ + i));
            return item;
        }
        ++first_;
        // Compacts only when more than half is empty: constant amortized cost at the front.
        if (first_ * 2 > items_.size()) {
            items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
            first_ = 0;
        }
        return item;
    }

private:
    std::vector<std::unique_ptr<Item>> items_;
    std::size_t first_ = 0; // index of the first item; slots below it are empty
};

} // namespace outbox::sink
