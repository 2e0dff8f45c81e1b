// Collectives of a runtime: the executor, and what callers hold of those that are pending.
//
// Called with the runtime's mutex held, by any thread. Invariant: an operation becomes over once, after the executor
// has let go of its memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "collective/executor.hpp"

namespace dlcp {

// One collective, or one message of a group. `result` is constant once `over` is true, and not to be read before.
struct CollectiveOperation {
    std::atomic<bool> over{false};
    CollectiveResult result;

private:
    friend class Runtime;
    std::uint64_t watch = 0;  // 0: not watched; otherwise what Runtime::next_finished answers
};
using CollectivePtr = std::shared_ptr<CollectiveOperation>;

class Collectives {
public:
    Collectives(Endpoint& endpoint, Bytes max_copied) : executor_(endpoint, max_copied) {}

    template <class Command>
    CollectivePtr start(Time now, const Command& command) {
        auto operation = std::make_shared<CollectiveOperation>();
        const CollectiveId id = executor_.start(now, command);
        under_way_.emplace(key_of(id), operation);
        return operation;
    }
    // What has ended since the last call: its results are set, `over` is the caller's to set.
    std::vector<CollectivePtr> take_over();
    // What is still pending, as aborted; its `over` is the caller's to set. Only after the endpoint was closed.
    std::vector<CollectivePtr> give_up();
    std::size_t under_way() const { return under_way_.size(); }

    CollectiveExecutor& executor() { return executor_; }

private:
    static std::uint64_t key_of(CollectiveId id) { return std::uint64_t{id.generation} << 32 | id.slot; }

    CollectiveExecutor executor_;
    std::unordered_map<std::uint64_t, CollectivePtr> under_way_;
};

}  // namespace dlcp
