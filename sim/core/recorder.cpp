// Samples of ports and traces of packets, collected per domain and put in order.
#include "sim/core/recorder.hpp"

#include <algorithm>
#include <cstddef>

namespace dlcp::sim {

void Recorder::end_samples(std::int64_t at_ps) {
    for (Records& records : domains)
        while (!records.samples.empty() && records.samples.back().time_ps > at_ps) records.samples.pop_back();
}

Recorder::Series Recorder::series() const {
    constexpr std::size_t classes = switching::traffic_classes;
    Series all;
    all.ports = sampled_ports;
    std::sort(all.ports.begin(), all.ports.end());
    all.ports.erase(std::unique(all.ports.begin(), all.ports.end()), all.ports.end());

    // Every domain samples the same ports in the same order each time, so that the first time shows their places.
    std::vector<std::vector<std::size_t>> places(domains.size());
    std::size_t moments = SIZE_MAX;
    bool any = false;
    for (std::size_t d = 0; d < domains.size(); ++d) {
        const std::vector<PortSample>& samples = domains[d].samples;
        for (std::size_t i = 0; i < samples.size() && samples[i].time_ps == samples[0].time_ps; ++i)
            places[d].push_back(static_cast<std::size_t>(
                std::lower_bound(all.ports.begin(), all.ports.end(), samples[i].port) - all.ports.begin()));
        if (places[d].empty()) continue;  // none of its ports
        moments = std::min(moments, samples.size() / places[d].size());
        any = true;
    }
    if (!any) moments = 0;

    const std::size_t row = all.ports.size() * classes;
    all.time_ps.resize(moments);
    all.depth_bytes.resize(moments * row);
    all.bytes_sent.resize(moments * row);
    for (std::size_t d = 0; d < domains.size(); ++d) {
        const std::size_t width = places[d].size();
        for (std::size_t m = 0; m < moments && width != 0; ++m) {
            const PortSample* sample = domains[d].samples.data() + m * width;
            all.time_ps[m] = sample->time_ps;
            for (std::size_t i = 0; i < width; ++i, ++sample) {
                const std::size_t at = m * row + places[d][i] * classes;
                std::copy_n(sample->depth_bytes, classes,
                            all.depth_bytes.begin() + static_cast<std::ptrdiff_t>(at));
                std::copy_n(sample->bytes_sent, classes, all.bytes_sent.begin() + static_cast<std::ptrdiff_t>(at));
            }
        }
    }
    return all;
}

std::vector<PacketRecord> Recorder::packets() const {
    std::vector<PacketRecord> all;
    std::size_t count = 0;
    for (const Records& records : domains) count += records.packets.size();
    all.reserve(count);
    for (const Records& records : domains) all.insert(all.end(), records.packets.begin(), records.packets.end());
    std::stable_sort(all.begin(), all.end(), [](const PacketRecord& a, const PacketRecord& b) {
        return a.time_ps != b.time_ps ? a.time_ps < b.time_ps : a.port < b.port;
    });
    if (all.size() > trace_limit) all.resize(trace_limit);
    return all;
}

}  // namespace dlcp::sim
