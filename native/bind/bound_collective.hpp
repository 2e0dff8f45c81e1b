// A collective as Python holds it, and how one is started. Memory crosses as an address and a length; `keep` is whatever
// object must live until the collective is over: the Collective holds it, or kept_objects() once Python has dropped that.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bind/bound_runtime.hpp"
#include "bind/collective_values.hpp"

namespace dlcp::bind {

// (address, nbytes). Throws BufferError: no such pair, or a null pointer.
inline ChunkMemory chunk_memory(nb::handle pair) {
    std::pair<std::uintptr_t, std::uint64_t> span;
    const auto refuse = [&](const std::string& why) {
        throw BufferError("memory is " + std::string(nb::repr(pair).c_str()) + why);
    };
    if (!nb::try_cast(pair, span)) refuse("; accepted: a Span, whose address and nbytes are 0 or more");
    if (span.second > 0 && span.first == 0) refuse(", a null pointer; accepted: the address of memory");
    return {reinterpret_cast<std::uint8_t*>(span.first), span.second};
}

// None, (address, nbytes) to partition, or a list of (address, nbytes).
inline std::vector<ChunkMemory> memory_of(nb::handle given, std::uint32_t chunks, DataType type) {
    std::vector<ChunkMemory> out;
    if (given.is_none()) return out;
    out.reserve(chunks);
    if (nb::isinstance<nb::list>(given)) {
        for (const nb::handle each : nb::cast<nb::list>(given)) out.push_back(chunk_memory(each));
        return out;
    }
    return partition(chunk_memory(given), chunks, type);
}

// Objects of collectives that nobody holds. Touched with the GIL held.
struct KeptObjects {
    std::vector<std::pair<CollectivePtr, nb::object>> list;
    void sweep() {
        std::erase_if(list, [](const auto& each) { return each.first->over.load(); });
    }
};

class Collective {
public:
    // `runtime`: the Python object, which this one keeps.
    Collective(CollectivePtr operation, nb::object runtime, nb::object keep, std::shared_ptr<KeptObjects> kept)
        : operation_(std::move(operation)),
          runtime_(std::move(runtime)),
          keep_(std::move(keep)),
          kept_(std::move(kept)) {}
    Collective(Collective&&) = default;
    ~Collective() {
        if (operation_ != nullptr && !over()) kept_->list.emplace_back(operation_, std::move(keep_));
    }
    bool over() const { return operation_->over.load(std::memory_order_acquire); }
    const CollectiveResult& result() const {
        if (!over()) throw nb::value_error("the collective is not over");
        return operation_->result;
    }
    // (waited_s, sent_bytes, received_bytes); None: it has failed.
    nb::object completion() const {
        const CollectiveResult& r = result();
        if (r.error != CollectiveError::none) return nb::none();
        return nb::make_tuple(in_seconds(r.waited), r.sent_bytes, r.received_bytes);
    }
    bool wait(std::optional<double> timeout_s) {
        const bool ended = over() || runtime().in_slices(timeout_s, [&](Duration slice) {
            return runtime().runtime().wait(operation_, slice);
        });
        if (ended) keep_.reset();
        return ended;
    }
    bool watch(std::uint64_t id) {
        return runtime().unlocked([&] { return runtime().runtime().watch(operation_, id); });
    }

private:
    BoundRuntime& runtime() const { return nb::cast<BoundRuntime&>(runtime_); }

    CollectivePtr operation_;
    nb::object runtime_;
    nb::object keep_;
    std::shared_ptr<KeptObjects> kept_;
};

inline std::shared_ptr<KeptObjects> kept_objects() {
    // For all runtimes of the process; leaked, since it may be needed while the interpreter ends.
    static auto* kept = new std::shared_ptr<KeptObjects>(std::make_shared<KeptObjects>());
    return *kept;
}

// What a call says besides its memory: the attributes of dlcp.transport.call_options.CallOptions.
struct CallOptions {
    std::uint8_t traffic_class;
    nb::object timeout_s;
    Duration timeout;
    bool wait_follows;
    nb::object label;

    explicit CallOptions(nb::handle given)
        : traffic_class(nb::cast<std::uint8_t>(given.attr("traffic_class"))),
          timeout_s(given.attr("timeout_s")),
          timeout(timeout_of(nb::cast<std::optional<double>>(timeout_s))),
          wait_follows(nb::cast<bool>(given.attr("wait_follows"))),
          label(given.attr("label")) {}
};

using RuntimeHandle = nb::handle_t<BoundRuntime>;

template <class Command>
Collective start(RuntimeHandle self, const Command& command, bool wait_follows, nb::object keep) {
    auto kept = kept_objects();
    kept->sweep();
    auto& runtime = nb::cast<BoundRuntime&>(self);
    CollectivePtr operation = runtime.unlocked([&] { return runtime.runtime().start(command, wait_follows); });
    return {std::move(operation), nb::borrow(self), std::move(keep), std::move(kept)};
}

// `prepared`: the command as its plan has it; a call brings what differs. Memory: as memory_of has it.
Collective start_collective(RuntimeHandle runtime, const CollectiveCommand& prepared, std::uint32_t sequence,
                            nb::handle input, nb::handle output, const CallOptions& call, nb::object keep,
                            const BoundLossRules* loss, const CodedRules* coded, const UpdateRules* update);

}  // namespace dlcp::bind
