// Times of an optimizer fused with the sum of its contributions, of the same in separate passes, and of a bare addition,
// over a model that is cut into keys. Contributions come as to a hub's core: key by key, and of each contribution block by
// block, from packets that are in a near cache.
//
// fused     what the core does (native/collective/dataflow.cpp, update.cpp): a block is added to the sum so far. A
//           block of the last contribution is added, averaged and applied in one pass. The weights are copied into the
//           reply, which lies where the sum was.
// separate  blocks are added to a sum of the whole model; then pass after pass over it: the average; the optimizer. Weights
//           are sent from where they are.
// add       sum += contribution, key by key, over as much memory.
//
// Rows take turns, so that another program's turn on the processor spreads over all of them. Usage: see Arguments
// below; one line of JSON with the processor time of each turn, and the bytes that a row reads and writes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "clock.hpp"
#include "collective/optimizer.hpp"
#include "collective/reduce.hpp"
#include "json.hpp"

using namespace dlcp;

namespace {

struct FreeMemory {
    void operator()(float* p) const { std::free(p); }
};
using Memory = std::unique_ptr<float[], FreeMemory>;

Memory allocate(std::size_t count) {
    Memory memory(static_cast<float*>(std::aligned_alloc(4096, (count * sizeof(float) + 4095) / 4096 * 4096)));
    if (memory == nullptr) throw std::bad_alloc();
    for (std::size_t i = 0; i < count; ++i) memory[i] = static_cast<float>(i % 17 + 1) * 0.01f;
    return memory;
}

struct Row {
    std::string name;
    std::size_t bytes;  // that it reads and writes
    std::function<void()> once;
    std::vector<double> times_s = {};
};

OptimizerRule rule_of(const std::string& name) {
    if (name == "nesterov")
        return Sgd{.learning_rate = 1e-3, .momentum = 0.9, .weight_decay = 1e-4, .nesterov = true};
    if (name == "adamw") return Adam{.learning_rate = 1e-3, .weight_decay = 1e-2, .decoupled = true};
    throw std::invalid_argument("optimizer " + name + "; accepted: nesterov, adamw");
}

// A model's weights, and what they are changed by.
struct Model {
    Memory weights;
    Memory states[optimizer_states_max];
};

}  // namespace

int main(int argc, char** argv) {
    const bench::Arguments arguments(argc, argv,
                                     {{"bytes", "67108864"},  // of the model
                                      {"key-bytes", "32768"},
                                      {"block-bytes", "1424"},  // that a packet carries over Ethernet
                                      {"contributions", "2"},
                                      {"optimizer", "nesterov"},  // or adamw
                                      {"turns", "11"}});
    const auto count = static_cast<std::size_t>(arguments.integer("bytes")) / sizeof(float);
    const auto key = static_cast<std::size_t>(arguments.integer("key-bytes")) / sizeof(float);
    const auto block = static_cast<std::size_t>(arguments.integer("block-bytes")) / sizeof(float);
    const auto parts = static_cast<std::size_t>(arguments.integer("contributions"));
    const auto divisor = static_cast<std::uint32_t>(parts);
    const OptimizerRule rule = rule_of(arguments.text("optimizer"));
    const std::size_t states = optimizer_states(rule);
    const OptimizerStep step(rule, 10);  // none of the first, which are different
    const SquareRoot root;

    std::vector<Memory> packets;  // of one key, per contribution
    for (std::size_t k = 0; k < parts; ++k) packets.push_back(allocate(key));
    const Memory bare_memory = allocate(count);
    const float* const bare = bare_memory.get();
    const Memory reply_memory = allocate(key);
    float* const reply = reply_memory.get();
    const Memory sum_memory = allocate(count);
    float* const sum = sum_memory.get();
    Model model{.weights = allocate(count), .states = {}};
    for (std::size_t i = 0; i < states; ++i) model.states[i] = allocate(count);

    const auto memory_of = [&](std::span<const float* const> from, std::size_t at, std::size_t n) {
        OptimizerMemory memory{.contributions = from,
                               .count = n,
                               .weights = model.weights.get() + at,
                               .next_weights = model.weights.get() + at};
        for (std::size_t i = 0; i < states; ++i) memory.states[i] = model.states[i].get() + at;
        return memory;
    };
    const auto for_each_key = [&](auto work) {
        for (std::size_t at = 0; at < count; at += key) work(at, std::min(key, count - at));
    };
    // work(contribution, place in the model, place in the key, elements)
    const auto for_each_block = [&](auto work) {
        for_each_key([&](std::size_t begin, std::size_t elements) {
            for (std::size_t k = 0; k < parts; ++k)
                for (std::size_t at = 0; at < elements; at += block)
                    work(k, begin + at, at, std::min(block, elements - at));
        });
    };
    const std::size_t array = count * sizeof(float);
    const std::size_t updated = (2 + 2 * states) * array;  // weights and states, read and written

    std::vector<Row> rows;
    for (const Variant variant : available_variants()) {
        const std::string start = std::string(name(variant)) + ' ';
        const ReduceFunction add = find_reduce(DataType::f32, ReduceOp::sum, variant);
        const AverageFunction average = find_average(DataType::f32, variant);
        const auto take = [=](float* target, const float* packet, std::size_t k, std::size_t n) {
            if (k == 0)
                std::memcpy(target, packet, n * sizeof(float));
            else
                add(target, target, packet, n);
        };
        rows.push_back({start + "add", 3 * array, [=] {
                            for_each_key(
                                [&](std::size_t at, std::size_t n) { add(sum + at, sum + at, bare + at, n); });
                        }});
        rows.push_back({start + "fused", updated, [=, &packets] {
                            for_each_block([&](std::size_t k, std::size_t at, std::size_t in_key, std::size_t n) {
                                const float* const packet = packets[k].get() + in_key;
                                if (k + 1 < parts) return take(reply + in_key, packet, k, n);
                                const float* const from[] = {reply + in_key, packet};
                                OptimizerMemory memory =
                                    memory_of(std::span(from).subspan(parts == 1 ? 1 : 0), at, n);
                                memory.divisor = divisor;
                                apply(step, memory, root, variant);
                                std::memcpy(reply + in_key, memory.next_weights, n * sizeof(float));
                            });
                        }});
        const std::size_t averaged = parts == 1 ? 0 : 2 * array;
        rows.push_back({start + "separate", array + averaged + array + updated, [=, &packets] {
                            for_each_block([&](std::size_t k, std::size_t at, std::size_t in_key, std::size_t n) {
                                take(sum + at, packets[k].get() + in_key, k, n);
                            });
                            if (parts != 1) average(sum, count, divisor);
                            const float* const from[] = {sum};
                            apply(step, memory_of(from, 0, count), root, variant);
                        }});
    }
    for (std::int64_t turn = -1; turn < arguments.integer("turns"); ++turn) {  // the first warms up
        for (Row& row : rows) {
            const double start_s = bench::thread_cpu_s();
            row.once();
            if (turn >= 0) row.times_s.push_back(bench::thread_cpu_s() - start_s);
        }
    }
    std::vector<bench::Json> found;
    for (const Row& row : rows)
        found.push_back(bench::Json().add("name", row.name).add("bytes", row.bytes).add("times_s", row.times_s));
    bench::Json().add("rows", found).print();
    return 0;
}
