// Bytes of result per second of the reduction kernels, a += b, against memcpy of the same bytes.
//
// Rows take turns, so that another program's turn on the processor spreads over all of them; a figure is the best of
// all turns, in processor time, as what is shared only ever takes away. Usage: see Arguments below; one line of JSON,
// with a figure per row in GB/s.
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
#include "collective/reduce.hpp"
#include "json.hpp"

using namespace dlcp;

namespace {

struct Row {
    std::string name;
    std::function<void()> once;  // over all bytes
    double best_s = 1e9;
};

void keep(const void* bytes) { asm volatile("" : : "r"(bytes) : "memory"); }

struct FreeMemory {
    void operator()(std::uint8_t* p) const { std::free(p); }
};
using Memory = std::unique_ptr<std::uint8_t[], FreeMemory>;

// Ones of each type would do, but zeros are ones that never overflow.
Memory allocate(std::size_t bytes) {
    Memory memory(static_cast<std::uint8_t*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory.get(), 0, bytes);
    return memory;
}

}  // namespace

int main(int argc, char** argv) {
    const bench::Arguments arguments(argc, argv,
                                     {{"bytes", "524288"},   // of one operand
                                      {"block-bytes", "0"},  // > 0: a call per block; 0: one call
                                      {"offset", "0"},       // of b against its alignment
                                      {"turns", "21"},       // of every row
                                      {"turn-bytes", "0"},   // least work per turn; 0: 16 MiB
                                      {"variant", ""},       // only this; empty: all
                                      {"operation", ""},     // only this; empty: sum, min, average, multiply
                                      {"type", ""}});        // only this; empty: all
    const auto bytes = static_cast<std::size_t>(arguments.integer("bytes"));
    const auto offset = static_cast<std::size_t>(arguments.integer("offset"));
    auto block_bytes = static_cast<std::size_t>(arguments.integer("block-bytes"));
    if (block_bytes == 0) block_bytes = bytes;
    auto turn_bytes = static_cast<std::size_t>(arguments.integer("turn-bytes"));
    if (turn_bytes == 0) turn_bytes = std::size_t{16} << 20;
    const std::size_t per_turn = std::max<std::size_t>(1, turn_bytes / bytes);

    const Memory a = allocate(bytes);
    const Memory b_memory = allocate(bytes + offset);
    std::uint8_t* const out = a.get();
    const std::uint8_t* const b = b_memory.get() + offset;

    std::vector<Row> rows;
    const auto add = [&](const std::string& name, auto block) {
        rows.push_back({name, [=] {
                            for (std::size_t at = 0; at < bytes; at += block_bytes)
                                block(at, std::min(block_bytes, bytes - at));
                            keep(out);
                        }});
    };
    add("memcpy", [=](std::size_t at, std::size_t n) { std::memcpy(out + at, b + at, n); });
    const auto wanted = [&](const char* what, const char* name) {
        return arguments.text(what).empty() || arguments.text(what) == name;
    };
    for (const Variant variant : available_variants()) {
        if (!wanted("variant", name(variant))) continue;
        for (std::size_t t = 0; t < data_types; ++t) {
            const auto type = static_cast<DataType>(t);
            if (!wanted("type", name(type))) continue;
            const std::size_t size = element_bytes(type);
            const std::string start = std::string(name(variant)) + ' ' + name(type) + ' ';
            for (std::size_t o = 0; o < reduce_ops; ++o) {
                const auto op = static_cast<ReduceOp>(o);
                const auto kernel = find_reduce(type, op, variant);
                const bool usual = op == ReduceOp::sum || op == ReduceOp::min;
                if (kernel == nullptr ||
                    (arguments.text("operation").empty() ? !usual : !wanted("operation", name(op))))
                    continue;
                add(start + name(op),
                    [=](std::size_t at, std::size_t n) { kernel(out + at, out + at, b + at, n / size); });
            }
            for (const std::uint32_t divisor : {4u, 3u}) {
                if (!wanted("operation", "average")) continue;
                const auto kernel = find_average(type, variant);
                add(start + "average over " + std::to_string(divisor),
                    [=](std::size_t at, std::size_t n) { kernel(out + at, n / size, divisor); });
            }
            if (wanted("operation", "multiply")) {
                const auto kernel = find_multiply(type, variant);
                add(start + "multiply",
                    [=](std::size_t at, std::size_t n) { kernel(out + at, b + at, n / size, 0.3); });
            }
        }
    }

    for (std::int64_t turn = -1; turn < arguments.integer("turns"); ++turn) {  // the first warms up
        for (Row& row : rows) {
            const double start_s = bench::thread_cpu_s();
            for (std::size_t i = 0; i < per_turn; ++i) row.once();
            const double took_s = bench::thread_cpu_s() - start_s;
            if (turn >= 0) row.best_s = std::min(row.best_s, took_s);
        }
    }
    std::vector<bench::Json> found;
    for (const Row& row : rows)
        found.push_back(bench::Json()
                            .add("name", row.name)
                            .add("gigabytes_per_s", static_cast<double>(bytes * per_turn) / row.best_s * 1e-9));
    bench::Json().add("best_variant", std::string(name(available_variants().back()))).add("rows", found).print();
    return 0;
}
