// The bytes of an engine's packet, beside the simulator's packet: its header, a control packet's frames, and in
// co-simulation the payload.
//
// A body goes where its packet goes (PacketExtra::engine), also to another thread, and is given back where the packet
// ends. All are the depot's, which frees them with the transport;
// pools only remember which are free, one per region, so that a thread takes no lock but when its pool runs dry or over.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "sim/core/packet.hpp"

namespace dlcp::sim {

struct EngineBody {
    EngineBody* next;        // in a pool
    std::uint16_t capacity;  // of bytes()
    std::uint16_t length;    // bytes used
    std::uint8_t tos;        // as the engine wrote it: DSCP and ECN
    bool is_virtual;         // PacketExtra::engine.virtual_bytes of payload stand behind the bytes
    std::uint8_t unused[2];

    std::uint8_t* bytes() { return reinterpret_cast<std::uint8_t*>(this + 1); }
    const std::uint8_t* bytes() const { return reinterpret_cast<const std::uint8_t*>(this + 1); }
};
static_assert(sizeof(EngineBody) == 16);

inline EngineBody* body_of(const PacketExtra& extra) { return static_cast<EngineBody*>(extra.engine.body); }

class BodyDepot {
public:
    // Header and a usual acknowledgement; a frame with a block of 4 KB; or the largest datagram there is.
    static constexpr std::uint16_t sizes[] = {176, 4256, 9232};
    static constexpr std::size_t classes = 3;
    static std::size_t class_for(std::uint32_t bytes) { return bytes <= sizes[0] ? 0 : bytes <= sizes[1] ? 1 : 2; }
    static std::size_t class_of(const EngineBody& body) { return class_for(body.capacity); }

    // A chain of so many bodies, new if none were left here.
    static constexpr std::uint32_t batches[] = {128, 16, 8};
    EngineBody* take_batch(std::size_t size_class) {
        const std::lock_guard lock(mutex_);
        if (!free_[size_class].empty()) {
            EngineBody* chain = free_[size_class].back();
            free_[size_class].pop_back();
            return chain;
        }
        const std::size_t stride = sizeof(EngineBody) + sizes[size_class];
        slabs_.emplace_back(new (std::align_val_t{64}) std::uint8_t[stride * batches[size_class]]);
        EngineBody* chain = nullptr;
        for (std::size_t i = batches[size_class]; i-- > 0;) {
            auto* body = new (slabs_.back().get() + i * stride) EngineBody{};
            body->capacity = sizes[size_class];
            body->next = chain;
            chain = body;
        }
        return chain;
    }
    void give_batch(std::size_t size_class, EngineBody* chain) {
        const std::lock_guard lock(mutex_);
        free_[size_class].push_back(chain);
    }
    // One, from wherever: for what is rare.
    void give_back(EngineBody* body) {
        const std::size_t size_class = class_of(*body);
        const std::lock_guard lock(mutex_);
        body->next = loose_[size_class];
        loose_[size_class] = body;
        if (++loose_count_[size_class] < batches[size_class]) return;
        free_[size_class].push_back(loose_[size_class]);
        loose_[size_class] = nullptr;
        loose_count_[size_class] = 0;
    }

private:
    struct Delete {
        void operator()(std::uint8_t* slab) const { ::operator delete[](slab, std::align_val_t{64}); }
    };
    std::mutex mutex_;
    std::vector<std::unique_ptr<std::uint8_t[], Delete>> slabs_;
    std::vector<EngineBody*> free_[classes];
    EngineBody* loose_[classes] = {};
    std::uint32_t loose_count_[classes] = {};
};

class BodyPool {
public:
    explicit BodyPool(BodyDepot& depot) : depot_(&depot) {}

    EngineBody* take(std::uint32_t bytes) {
        const std::size_t size_class = BodyDepot::class_for(bytes);
        List& list = lists_[size_class];
        if (list.head == nullptr) {
            list.head = depot_->take_batch(size_class);
            list.count = BodyDepot::batches[size_class];
        }
        EngineBody* body = list.head;
        list.head = body->next;
        --list.count;
        return body;
    }
    void give_back(EngineBody* body) {
        const std::size_t size_class = BodyDepot::class_of(*body);
        List& list = lists_[size_class];
        body->next = list.head;
        list.head = body;
        const std::uint32_t batch = BodyDepot::batches[size_class];
        if (++list.count == 2 * batch) {
            EngineBody* chain = list.head;
            EngineBody* last = chain;
            for (std::uint32_t i = 1; i < batch; ++i) last = last->next;
            list.head = last->next;
            last->next = nullptr;
            list.count -= batch;
            depot_->give_batch(size_class, chain);
        }
    }

private:
    struct List {
        EngineBody* head = nullptr;
        std::uint32_t count = 0;
    };
    List lists_[BodyDepot::classes];
    BodyDepot* depot_;
};

}  // namespace dlcp::sim
