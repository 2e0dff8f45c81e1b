// Sends UDP frames by a packet socket as fast as asked, or as it can: the load of the software switch's benchmark.
//
// sendmmsg in batches; frames are of `flows` UDP flows in turn. Sent at a pace, late ones are made good.
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

double seconds_of(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments(
        argc, argv,
        {{"interface", "eth0"}, {"bytes", "100"}, {"kpps", "0"}, {"seconds", "2"}, {"flows", "16"}, {"tos", "0"}});
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
    for (unsigned i = 0; i < flows; ++i)
        frames.push_back(frame(static_cast<std::size_t>(arguments.integer("bytes")), i,
                               static_cast<unsigned>(arguments.integer("tos"))));
    std::vector<iovec> pieces(batch);
    std::vector<mmsghdr> messages(batch);
    for (std::size_t i = 0; i < batch; ++i) {
        pieces[i] = {frames[i % flows].data(), frames[i % flows].size()};
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    const double rate = 1e3 * arguments.real("kpps");
    const double start = seconds_of(CLOCK_MONOTONIC), end = start + arguments.real("seconds");
    const double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    std::uint64_t sent = 0;
    double now = start;
    while (now < end) {
        if (rate > 0 && start + static_cast<double>(sent) / rate > now) {
            usleep(100);
        } else {
            const int count = sendmmsg(raw, messages.data(), batch, 0);
            if (count > 0) sent += static_cast<std::uint64_t>(count);
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
