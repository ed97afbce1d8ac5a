#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace outbox::sink {

// Things that stay where they are while they wait in line. Most lines have one, some have
// thousands.
template <typename Item>
class StableQueue {
public:
    bool empty() const { return first_ == items_.size(); }
    std::size_t size() const { return items_.size() - first_; }
    Item& operator[](std::size_t i) const { return *items_[first_ + i]; }
    Item& front() const { return (*this)[0]; }
    void push(std::unique_ptr<Item> item) { items_.push_back(std::move(item)); }

    std::unique_ptr<Item> extract(std::size_t i)
    {
        std::unique_ptr<Item> item = std::move(items_[first_ + i]);
        if (i > 0) {
            items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(first_ + i));
            return item;
        }
        ++first_;
        // Moved together now and then, so that taking from the front costs little.
        if (first_ * 2 > items_.size()) {
            items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
            first_ = 0;
        }
        return item;
    }

private:
    std::vector<std::unique_ptr<Item>> items_;
    std::size_t first_ = 0; // those before it are gone
};

} // namespace outbox::sink
