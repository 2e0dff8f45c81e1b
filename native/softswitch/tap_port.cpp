#include "softswitch/tap_port.hpp"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

#include "softswitch/interface.hpp"

namespace dlcp::softswitch {
namespace {

constexpr std::uint32_t ethernet_bytes = 14;
constexpr std::uint32_t tag_bytes = 4;

}  // namespace

TapPort::TapPort(const std::string& name) : tap_(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)) {
    if (name.empty() || name.size() >= IFNAMSIZ)
        throw PortError(EINVAL, "port tap:" + name + ": accepted: a name of 1 to 15 characters");
    if (tap_.get() < 0) fail_port(name, "/dev/net/tun", errno);
    ifreq request{};
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
    if (ioctl(tap_.get(), TUNSETIFF, &request) != 0) fail_port(name, "a TAP interface", errno);
    bring_interface_up(name);
    index_ = interface_index(name);
    frame_bytes_ = interface_mtu(name) + ethernet_bytes + tag_bytes;
    memory_.resize(batch_frames * (frame_bytes_ + 1));
}

bool TapPort::link() const { return interface_runs(index_); }

std::span<const Arrival> TapPort::receive(Time now) {
    std::size_t count = 0;
    while (count < batch_frames) {
        std::uint8_t* bytes = memory_.data() + count * (frame_bytes_ + 1);
        const ssize_t size = read(tap_.get(), bytes, frame_bytes_ + 1);
        if (size <= 0) break;
        if (static_cast<std::size_t>(size) > frame_bytes_) {  // and cut: the MTU has been changed
            ++statistics_.oversize_packets;
            continue;
        }
        arrivals_[count++] = {{bytes, static_cast<std::size_t>(size)}, now};
    }
    return {arrivals_.data(), count};
}

std::size_t TapPort::send(std::span<const Departure> frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
        if (write(tap_.get(), frames[i].data, frames[i].bytes) >= 0) continue;
        if (errno == EAGAIN) return i;
        ++statistics_.refused_packets;
    }
    return frames.size();
}

}  // namespace dlcp::softswitch
