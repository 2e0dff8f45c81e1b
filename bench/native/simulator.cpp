// The simulator without Python around it: one workload on a k-ary fat-tree, and what it cost.
//
// For counting instructions (valgrind, perf) and for measuring set-up in a process that holds nothing else. The workload
// comes from a file of lines `source destination bytes`, so that the study (dlcp/study/network/speed.py) and this program
// run the same flows. Links: 100 Gb/s, 1 microsecond, as the shared workloads have them. Switches: data beyond
// `queue-packets` is trimmed, or waits if that is 0.
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "clock.hpp"
#include "json.hpp"
#include "sim/core/simulation.hpp"

using namespace dlcp;

namespace {

// A line of this process's status, in bytes: "VmRSS:" now, "VmHWM:" at its peak. getrusage() would count what the
// process was a copy of before it became this program.
double memory_bytes(const std::string& name) {
    std::ifstream file("/proc/self/status");
    std::string line;
    while (std::getline(file, line))
        if (line.rfind(name, 0) == 0) return std::stod(line.substr(name.size())) * 1024;
    return 0;
}

sim::Clos fat_tree(std::uint32_t k) {
    constexpr std::uint64_t rate_bps = 100'000'000'000;
    constexpr std::int64_t delay_ps = 1'000'000;
    return {k, k / 2, k / 2, k / 2, k * k / 4, rate_bps, rate_bps, rate_bps, delay_ps, delay_ps, delay_ps};
}

switching::Policy trimming(std::uint32_t queue_packets, std::uint32_t wire_bytes) {
    switching::Policy policy;
    policy.path_choice = switching::PathChoice::path_id;
    if (queue_packets != 0)
        for (switching::ClassPolicy& one : policy.classes)
            for (switching::Thresholds& at : one.level) at.trim_above_bytes = (queue_packets - 1) * wire_bytes;
    return policy;
}

// "window_packets=50,paths=64"
std::map<std::string, double> settings(const std::string& text) {
    std::map<std::string, double> values;
    std::stringstream words(text);
    for (std::string word; std::getline(words, word, ',');) {
        const std::size_t equals = word.find('=');
        if (equals == std::string::npos) bench::die("--settings: name=value,name=value");
        values[word.substr(0, equals)] = std::stod(word.substr(equals + 1));
    }
    return values;
}

}  // namespace

int main(int argc, char** argv) {
    const bench::Arguments arguments(argc, argv,
                                     {{"k", "8"},
                                      {"flows", ""},
                                      {"transport", "ndp"},
                                      {"settings", ""},
                                      {"queue-packets", "35"},
                                      {"wire-bytes", "4160"},
                                      {"threads", "1"},
                                      {"seed", "1"},
                                      {"until-us", "-1"}});
    std::ifstream file(arguments.text("flows"));
    if (!file) bench::die("--flows FILE: lines of source, destination, bytes");
    std::vector<sim::Flow> flows;
    for (sim::Flow flow; file >> flow.source >> flow.destination >> flow.bytes;) flows.push_back(flow);

    const double rss_before = memory_bytes("VmRSS:"), before_s = bench::process_cpu_s();
    sim::SimulationSettings run_settings;
    run_settings.seed = static_cast<std::uint64_t>(arguments.integer("seed"));
    run_settings.threads = static_cast<std::uint32_t>(arguments.integer("threads"));
    sim::Simulation simulation(
        sim::Fabric(fat_tree(static_cast<std::uint32_t>(arguments.integer("k")))),
        trimming(static_cast<std::uint32_t>(arguments.integer("queue-packets")),
                 static_cast<std::uint32_t>(arguments.integer("wire-bytes"))),
        sim::make_transport(arguments.text("transport"), settings(arguments.text("settings"))), run_settings);
    for (const sim::Flow& flow : flows) simulation.add_flow(flow);
    simulation.run(0, -1);  // prepares, and stops before the first event
    const double setup_s = bench::process_cpu_s() - before_s, rss_ready = memory_bytes("VmRSS:");

    const double wall_s = bench::wall_s();
    const std::int64_t until_us = arguments.integer("until-us");
    const bool over = simulation.run(until_us < 0 ? -1 : until_us * 1'000'000, -1);
    const double took_s = bench::wall_s() - wall_s;

    double sum_us = 0, max_us = 0;
    std::uint64_t finished = 0, sent_again = 0;
    for (const sim::FlowResult& result : simulation.results()) {
        sent_again += result.retransmitted_packets;
        if (result.delivered_ps < 0) continue;
        const double us = static_cast<double>(result.delivered_ps - result.started_ps) * 1e-6;
        sum_us += us;
        max_us = std::max(max_us, us);
        ++finished;
    }
    bench::Json()
        .add("over", static_cast<int>(over))
        .add("flows", flows.size())
        .add("finished", finished)
        .add("sent_again", sent_again)
        .add("hops", simulation.hops())
        .add("events", simulation.events())
        .add("cpu_s", simulation.cpu_s())
        .add("wall_s", took_s)
        .add("ns_per_hop", simulation.cpu_s() * 1e9 / static_cast<double>(simulation.hops()))
        .add("completion_mean_us", sum_us / static_cast<double>(finished))
        .add("completion_max_us", max_us)
        .add("setup_cpu_s", setup_s)
        .add("setup_bytes", rss_ready - rss_before)
        .add("rss_bytes", memory_bytes("VmHWM:"))
        .print();
    return over || until_us >= 0 ? 0 : 1;
}
