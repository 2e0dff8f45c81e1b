// Times of an optimizer fused with the sum of its contributions, of the same in separate passes, and of a bare addition,
// over a model that is cut into keys.
//
// fused     key by key: contributions are added, averaged and applied, each read once.
// separate  pass after pass over the whole model: the sum, contribution by contribution; the average; the optimizer.
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
                                      {"contributions", "2"},
                                      {"optimizer", "nesterov"},  // or adamw
                                      {"turns", "11"}});
    const auto count = static_cast<std::size_t>(arguments.integer("bytes")) / sizeof(float);
    const auto key = static_cast<std::size_t>(arguments.integer("key-bytes")) / sizeof(float);
    const auto parts = static_cast<std::size_t>(arguments.integer("contributions"));
    const auto divisor = static_cast<std::uint32_t>(parts);
    const OptimizerRule rule = rule_of(arguments.text("optimizer"));
    const std::size_t states = optimizer_states(rule);
    constexpr std::uint64_t step = 10;  // none of the first, which are different
    const SquareRoot root;

    std::vector<Memory> contributions;
    for (std::size_t k = 0; k < parts; ++k) contributions.push_back(allocate(count));
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
    const std::size_t array = count * sizeof(float);
    const std::size_t updated = (2 + 2 * states) * array;  // weights and states, read and written

    std::vector<Row> rows;
    for (const Variant variant : available_variants()) {
        const std::string start = std::string(name(variant)) + ' ';
        const ReduceFunction add = find_reduce(DataType::f32, ReduceOp::sum, variant);
        const AverageFunction average = find_average(DataType::f32, variant);
        rows.push_back({start + "add", 3 * array, [=, &contributions] {
                            for_each_key([&](std::size_t at, std::size_t n) {
                                add(sum + at, sum + at, contributions[0].get() + at, n);
                            });
                        }});
        rows.push_back({start + "fused", parts * array + updated, [=, &contributions] {
                            std::vector<const float*> from(parts);
                            for_each_key([&](std::size_t at, std::size_t n) {
                                for (std::size_t k = 0; k < parts; ++k) from[k] = contributions[k].get() + at;
                                OptimizerMemory memory = memory_of(from, at, n);
                                memory.divisor = divisor;
                                apply(rule, step, memory, root, variant);
                            });
                        }});
        const std::size_t summed = parts == 1 ? 0 : 3 * (parts - 1) * array + 2 * array;
        rows.push_back({start + "separate", summed + array + updated, [=, &contributions] {
                            const float* from = parts == 1 ? contributions[0].get() : sum;
                            for (std::size_t k = 1; k < parts; ++k)
                                add(sum, k == 1 ? contributions[0].get() : sum, contributions[k].get(), count);
                            if (parts != 1) average(sum, count, divisor);
                            apply(rule, step, memory_of({&from, 1}, 0, count), root, variant);
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
