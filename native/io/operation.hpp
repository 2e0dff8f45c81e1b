// One pending message of a runtime, as its caller holds it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/endpoint.hpp"

namespace dlcp {

// One send or receive. Everything but `over` is constant once `over` is true, and not to be read before.
struct Operation {
    std::atomic<bool> over{false};
    bool sending = false;
    CommandError error = CommandError::none;
    PeerId peer;
    std::uint32_t rank = UINT32_MAX;  // the peer's; UINT32_MAX: a receive from anyone that nobody answered
    std::uint64_t tag = 0;
    Duration waited{0};                    // from the command to the final event
    MessageOutcome outcome;                // its `abandoned` points into `abandoned` below
    std::vector<std::uint64_t> abandoned;  // a bit per block

private:
    friend class Runtime;
    MessageId message;
    std::uint64_t watch = 0;  // 0: not watched; otherwise what Runtime::next_finished answers
};
using OperationPtr = std::shared_ptr<Operation>;

}  // namespace dlcp
