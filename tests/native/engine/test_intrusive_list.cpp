// IntrusiveList: lists of slab objects, linked through members of the objects.
#include <doctest/doctest.h>

#include <vector>

#include "engine/intrusive_list.hpp"

namespace dlcp {
namespace {

struct Item {
    Link link;
    Link other_link;
};
using List = IntrusiveList<Item, &Item::link>;
using OtherList = IntrusiveList<Item, &Item::other_link>;

struct Items {
    Items() {
        for (std::uint32_t& slot : slots) slot = slab.take();
    }
    std::vector<std::uint32_t> order() const {
        std::vector<std::uint32_t> out;
        for (std::uint32_t slot = list.front(); slot != Link::none; slot = List::next(slab, slot))
            out.push_back(slot);
        return out;
    }
    Slab<Item> slab;
    List list;
    std::uint32_t slots[3];
};

TEST_CASE("intrusive list: the front and the back") {
    Items items;
    items.list.push_back(items.slab, items.slots[1]);
    items.list.push_back(items.slab, items.slots[2]);
    items.list.push_front(items.slab, items.slots[0]);
    CHECK(items.order() == std::vector(items.slots, items.slots + 3));
    CHECK(items.list.size() == 3);
}

TEST_CASE("intrusive list: any object can be removed") {
    for (std::uint32_t removed = 0; removed < 3; ++removed) {
        CAPTURE(removed);
        Items items;
        for (const std::uint32_t slot : items.slots) items.list.push_back(items.slab, slot);
        items.list.remove(items.slab, items.slots[removed]);
        std::vector<std::uint32_t> rest(items.slots, items.slots + 3);
        rest.erase(rest.begin() + removed);
        CHECK(items.order() == rest);
        items.list.push_back(items.slab, items.slots[removed]);
        rest.push_back(items.slots[removed]);
        CHECK(items.order() == rest);
    }
}

TEST_CASE("intrusive list: removing what is in no list does nothing") {
    Items items;
    items.list.push_back(items.slab, items.slots[0]);
    items.list.remove(items.slab, items.slots[1]);
    CHECK(items.list.size() == 1);
}

TEST_CASE("intrusive list: an object may be in several lists, by several links") {
    Items items;
    OtherList other;
    items.list.push_back(items.slab, items.slots[0]);
    other.push_back(items.slab, items.slots[0]);
    items.list.remove(items.slab, items.slots[0]);
    CHECK(items.list.empty());
    CHECK(other.front() == items.slots[0]);
}

}  // namespace
}  // namespace dlcp
