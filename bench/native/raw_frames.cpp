// Sends UDP frames by a packet socket as fast as asked, or as it can: the load of the software switch's benchmark.
//
// sendmmsg in batches; frames are of `flows` UDP flows in turn. Sent at a pace, late ones are made good. With `lanes` they
// are contributions of job 7's workers 0 and 1 in turn, block after block, to slots 0 to `slots` - 1.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "aggregation/packet.hpp"
#include "arguments.hpp"
#include "json.hpp"

using namespace dlcp::bench;

namespace {

constexpr std::size_t batch = 32;

void put16(unsigned char* p, unsigned value) {
    p[0] = static_cast<unsigned char>(value >> 8);
    p[1] = static_cast<unsigned char>(value);
}

// From 02:00:00:00:00:01 to …:02, over IPv4 and UDP, all sums right.
std::vector<unsigned char> frame(std::size_t bytes, unsigned flow, unsigned tos) {
    std::vector<unsigned char> out(bytes);
    out[0] = out[6] = 2;
    out[5] = 2;
    out[11] = 1;
    put16(&out[12], 0x0800);
    unsigned char* ip = &out[14];
    ip[0] = 0x45;
    ip[1] = static_cast<unsigned char>(tos);
    put16(ip + 2, static_cast<unsigned>(bytes - 14));
    ip[8] = 64;
    ip[9] = 17;
    ip[12] = ip[16] = 10;
    ip[15] = 1;
    ip[19] = 2;
    unsigned sum = 0;
    for (int i = 0; i < 20; i += 2) sum += ip[i] * 256u + ip[i + 1];
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    put16(ip + 10, ~sum);
    put16(ip + 20, 40'000 + flow);
    put16(ip + 22, 9);  // discard: RFC 863
    put16(ip + 24, static_cast<unsigned>(bytes - 34));
    return out;
}

namespace aggregation = dlcp::aggregation;
constexpr std::size_t payload_at = 14 + 20 + 8;

std::vector<unsigned char> contribution(std::uint32_t lanes, unsigned worker, unsigned tos) {
    std::vector<unsigned char> out = frame(payload_at + aggregation::packet_bytes(lanes), worker, tos);
    unsigned char* p = &out[payload_at];
    aggregation::write32(p, aggregation::magic);
    p[aggregation::at_version] = aggregation::version;
    p[aggregation::at_kind] = static_cast<unsigned char>(aggregation::Kind::contribution);
    aggregation::write32(p + aggregation::at_job, 7);
    aggregation::write16(p + aggregation::at_generation, 1);
    p[aggregation::at_worker] = static_cast<unsigned char>(worker);
    for (std::uint32_t lane = 0; lane < lanes; ++lane)
        aggregation::write32(p + aggregation::header_bytes + 4 * lane, lane * 2654435761U >> 4);
    return out;
}

// The UDP checksum's sum of all that `contribution` wrote, with its pseudo header.
std::uint32_t checksum_base(const std::vector<unsigned char>& bytes) {
    std::uint32_t sum = 17 + static_cast<std::uint32_t>(bytes.size() - 34);
    for (std::size_t i = 26; i < bytes.size(); i += 2) sum += bytes[i] * 256u + bytes[i + 1];
    return sum;
}

// Makes it one of this block: key, slot, checksum.
void address_block(std::vector<unsigned char>& bytes, std::uint32_t base, std::uint64_t key, std::uint32_t slots) {
    unsigned char* p = &bytes[payload_at];
    aggregation::write32(p + aggregation::at_message, static_cast<std::uint32_t>(key >> 32));
    aggregation::write32(p + aggregation::at_block, static_cast<std::uint32_t>(key));
    aggregation::write16(p + aggregation::at_slot, static_cast<std::uint32_t>(key % slots));
    std::uint32_t sum = base;
    for (std::size_t i = aggregation::at_message; i < aggregation::at_generation; i += 2)
        sum += p[i] * 256u + p[i + 1];
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    put16(&bytes[40], ~sum & 0xffff);
}

double seconds_of(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments(argc, argv,
                              {{"interface", "eth0"},
                               {"bytes", "100"},
                               {"kpps", "0"},
                               {"seconds", "2"},
                               {"flows", "16"},
                               {"tos", "0"},
                               {"lanes", "0"},
                               {"slots", "256"}});
    const int raw = socket(AF_PACKET, SOCK_RAW, 0);
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_ifindex = static_cast<int>(if_nametoindex(arguments.text("interface").c_str()));
    if (raw < 0 || address.sll_ifindex == 0 ||
        bind(raw, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        std::perror("raw_frames");
        return 1;
    }
    const int buffer_bytes = 4 << 20;
    setsockopt(raw, SOL_SOCKET, SO_SNDBUFFORCE, &buffer_bytes, sizeof buffer_bytes);

    const auto flows = static_cast<unsigned>(arguments.integer("flows"));
    std::vector<std::vector<unsigned char>> frames;
    const auto lanes = static_cast<std::uint32_t>(arguments.integer("lanes"));
    const auto slots = static_cast<std::uint32_t>(arguments.integer("slots"));
    const auto tos = static_cast<unsigned>(arguments.integer("tos"));
    const std::size_t different = lanes == 0 ? flows : batch;
    std::vector<std::uint32_t> bases;
    for (unsigned i = 0; i < different; ++i) {
        frames.push_back(lanes == 0 ? frame(static_cast<std::size_t>(arguments.integer("bytes")), i, tos)
                                    : contribution(lanes, i % 2, tos));
        bases.push_back(checksum_base(frames.back()));
    }
    auto key = static_cast<std::uint64_t>(1e9 * seconds_of(CLOCK_REALTIME));  // later runs use later keys
    std::vector<iovec> pieces(batch);
    std::vector<mmsghdr> messages(batch);
    for (std::size_t i = 0; i < batch; ++i) {
        pieces[i] = {frames[i % different].data(), frames[i % different].size()};
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    const double rate = 1e3 * arguments.real("kpps");
    const double start = seconds_of(CLOCK_MONOTONIC), end = start + arguments.real("seconds");
    const double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    std::uint64_t sent = 0;
    std::size_t first = 0;
    double now = start;
    while (now < end) {
        if (rate > 0 && start + static_cast<double>(sent) / rate > now) {
            usleep(100);
        } else {
            // A batch of which the kernel took a part goes on: a block with one contribution would keep its slot.
            if (first == 0) {
                for (std::size_t i = 0; lanes != 0 && i < batch; ++i)
                    address_block(frames[i], bases[i], key + i / 2, slots);
                key += batch / 2;
            }
            const int count = sendmmsg(raw, messages.data() + first, static_cast<unsigned>(batch - first), 0);
            if (count > 0) {
                sent += static_cast<std::uint64_t>(count);
                first = (first + static_cast<std::size_t>(count)) % batch;
            }
        }
        now = seconds_of(CLOCK_MONOTONIC);
    }
    Json()
        .add("sent", sent)
        .add("seconds", now - start)
        .add("cpu_s", seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu)
        .print();
    close(raw);
}
