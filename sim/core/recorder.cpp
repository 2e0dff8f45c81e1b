#include "sim/core/recorder.hpp"

#include <algorithm>

namespace dlcp::sim {

std::vector<PortSample> Recorder::samples() const {
    std::vector<PortSample> all;
    for (const Records& records : domains) all.insert(all.end(), records.samples.begin(), records.samples.end());
    std::stable_sort(all.begin(), all.end(), [](const PortSample& a, const PortSample& b) {
        return a.time_ps != b.time_ps ? a.time_ps < b.time_ps : a.port < b.port;
    });
    return all;
}

std::vector<PacketRecord> Recorder::packets() const {
    std::vector<PacketRecord> all;
    for (const Records& records : domains) all.insert(all.end(), records.packets.begin(), records.packets.end());
    std::stable_sort(all.begin(), all.end(), [](const PacketRecord& a, const PacketRecord& b) {
        return a.time_ps != b.time_ps ? a.time_ps < b.time_ps : a.port < b.port;
    });
    return all;
}

}  // namespace dlcp::sim
