#include "io/xdp/driver.hpp"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <xdp/libxdp.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "io/driver_config.hpp"
#include "io/driver_table.hpp"
#include "io/xdp/claim.hpp"

namespace dlcp::xdp {

namespace {

constexpr std::uint32_t send_chunks = 2048;
// Frames that may wait unread in a queue: of 1472 bytes, 3 MB, which is more than the engine's default receive credit.
constexpr std::uint32_t receive_chunks_default = 2048;
constexpr std::uint32_t receive_chunks_min = 64, receive_chunks_max = 16'384;
// Memory is locked, so that many queues have less each.
constexpr std::uint32_t receive_chunks_all_max = 32'768;
// The bit of Poller's answer for news of the link, behind those of the queues.
constexpr unsigned link_index = 62;
static_assert(link_index > Options::queues_max);
constexpr std::int64_t link_check_ns = 50'000'000;
// A card's driver may restart the card for our program, which then has no link for a second or two.
constexpr std::int64_t link_wait_ns = 3'000'000'000;
// The kernel had no room for a frame, or has given no buffer back: how soon to look again.
constexpr std::int64_t kernel_wait_ns = 100'000;
constexpr std::int64_t starvation_ns = 1'000'000'000;
// What a closing driver gives the card to send what it has: a full queue of 2048 frames of 1500 bytes takes 25 Gbit/s a
// millisecond. A frame that waits at a slower one is lost, as it may be anywhere on the way.
constexpr std::int64_t linger_ns = 2'000'000;
constexpr timespec linger_step = {0, 20'000};

std::uint32_t headers_bytes(const ipstack::IpAddress& address) {
    return (address.is_v6() ? ipstack::ipv6_bytes : ipstack::ipv4_bytes) + ipstack::udp_bytes;
}

// What libxdp says goes nowhere: our own sentences say it.
int say_nothing(libxdp_print_level, const char*, va_list) { return 0; }

}  // namespace

int Driver::open(const dlcp_io_config& config, std::unique_ptr<Driver>& out, ErrorText error) {
    std::unique_ptr<Driver> driver(new Driver);
    if (const int result = check_config(config, error); result < 0) return result;
    if (const int result = driver->configure(config, error); result < 0) return result;
    const auto printed_before = libxdp_set_print(say_nothing);
    int result = driver->open_queues(config, error);
    libxdp_set_print(printed_before);
    if (result == 0) result = driver->attach(error);
    if (result == 0) result = driver->watch_queues(error);
    if (result == 0) result = driver->claim(error);
    if (result == 0) out = std::move(driver);
    return result;
}

Driver::~Driver() {
    if (transmitter_) linger();  // else open() failed
}

// With zero copy, and where the kernel had no room, frames are still in our memory when tx_put returns, and go with it:
// a last acknowledgement, a goodbye.
void Driver::linger() {
    const std::int64_t until_ns = monotonic_ns() + linger_ns;
    for (;;) {
        const std::int64_t now_ns = monotonic_ns();
        transmitter_->serve({now_ns});
        queues_.front()->poll_card();
        if (!transmitter_->sending() || link_state_ != LinkWatch::State::up || now_ns >= until_ns) return;
        nanosleep(&linger_step, nullptr);
    }
}

int Driver::configure(const dlcp_io_config& config, ErrorText error) {
    if (const int result = parse_options(config, options_, error); result < 0) return result;
    if (const int result = find_device(options_.interface, device_, error); result < 0) return result;
    const char* const name = device_.name.c_str();
    if (!device_.ethernet)
        return error.fail(EINVAL, "interface %s carries no Ethernet frames: choose another one", name);
    if (!device_.up) return error.fail(ENETDOWN, "interface %s is down: ip link set dev %s up", name, name);
    paths_ = config.paths;
    if (const int result = choose_size(config, error); result < 0) return result;

    const ipstack::InterfaceConfig interface = {
        .mac = device_.mac,
        .address = options_.address,
        .prefix_bits = options_.prefix_bits,
        .gateway = options_.gateway,
        .vlan = options_.vlan,
        .mtu_bytes = std::min(device_.mtu_bytes, mtu_bytes_max),
        .port = config.port != 0 ? config.port : draw_port(paths_),
        .ports = paths_,
        .answers_echo = true,
        .neighbours = options_.neighbours,
    };
    local_ = ipstack::to_dlcp({interface.address, interface.port});
    const std::vector<udp::Interface> interfaces = udp::list_interfaces();
    const udp::Interface* const owner = udp::find_owner(interfaces, local_);
    if (owner != nullptr) {
        return error.fail(
            EADDRINUSE,
            "the kernel has %s on interface %s: give the xdp driver an address of its own, of the same "
            "network, which no host has",
            ipstack::to_text(options_.address).c_str(), owner->name.c_str());
    }
    interface_.emplace(interface);
    datagram_bytes_ = std::min(datagram_bytes_, interface_->max_datagram_bytes());
    return 0;
}

int Driver::choose_size(const dlcp_io_config& config, ErrorText error) {
    const std::uint32_t overhead = headers_bytes(options_.address);
    const std::uint32_t largest = mtu_bytes_max - overhead;
    if (device_.mtu_bytes > mtu_bytes_max &&
        (config.max_datagram_bytes == 0 || config.max_datagram_bytes > largest)) {
        return error.fail(
            EMSGSIZE,
            "interface %s has an MTU of %u, and a frame of AF_XDP lies in one page: ip link set dev %s mtu "
            "%u, or max_datagram_bytes of at most %u",
            device_.name.c_str(), device_.mtu_bytes, device_.name.c_str(), mtu_bytes_max, largest);
    }
    datagram_bytes_ = std::min(device_.mtu_bytes, mtu_bytes_max) - overhead;
    if (config.max_datagram_bytes != 0) datagram_bytes_ = std::min(datagram_bytes_, config.max_datagram_bytes);
    if (datagram_bytes_ < datagram_bytes_min) {
        return error.fail(EMSGSIZE, "interface %s has an MTU of %u: at least %u are needed", device_.name.c_str(),
                          device_.mtu_bytes, datagram_bytes_min + overhead);
    }
    return 0;
}

int Driver::open_queues(const dlcp_io_config& config, ErrorText error) {
    if (options_.queues > device_.queues) {
        return error.fail(EDOM, "queues=%u: interface %s has %u (ethtool -l %s)", options_.queues,
                          device_.name.c_str(), device_.queues, device_.name.c_str());
    }
    const std::uint32_t queues =
        std::min<std::uint32_t>(options_.queues != 0 ? options_.queues : device_.queues, Options::queues_max);
    if (queues < device_.queues) {
        warnings_ += "interface " + device_.name + " has " + std::to_string(device_.queues) +
                     " queues and frames are read from the first " + std::to_string(queues) +
                     " only: see that ours arrive there (ethtool -X or -L), or leave queues= out\n";
    }
    receive_chunks_ = receive_chunks_default;
    if (config.socket_buffer_bytes != 0) {
        receive_chunks_ = std::bit_ceil(
            std::clamp(config.socket_buffer_bytes / chunk_bytes, receive_chunks_min, receive_chunks_max));
    }
    while (receive_chunks_ > receive_chunks_min && receive_chunks_ * queues > receive_chunks_all_max)
        receive_chunks_ /= 2;
    for (std::uint32_t index = 0; index < queues; ++index) {
        std::unique_ptr<Queue> queue;
        const int result = Queue::open({.interface = device_.name,
                                        .index = index,
                                        .receive_chunks = receive_chunks_,
                                        .send_chunks = index == 0 ? send_chunks : 0,
                                        .zero_copy = options_.zero_copy,
                                        .busy_poll = options_.busy_poll},
                                       queue, error);
        if (result < 0) return result;
        queues_.push_back(std::move(queue));
    }
    transmitter_.emplace(*queues_.front(), *interface_, options_.checksums, paths_, datagram_bytes_, counters_);
    receiver_.emplace(queues_, *interface_, counters_);
    return 0;
}

int Driver::attach(ErrorText error) {
    std::vector<int> sockets;
    for (const auto& queue : queues_) sockets.push_back(queue->descriptor());
    const FilterRule rule = {options_.address, interface_->config().port, paths_, options_.vlan};
    const int result = filter_.attach(rule, sockets, device_.index, device_.name, options_.mode, error);
    if (result < 0) return result;
    if (options_.mode == AttachMode::automatic && !filter_.native()) {
        warnings_ +=
            "the driver of interface " + device_.name +
            " does not run XDP programs (or not with its present MTU and queues); the kernel does it later, at "
            "the cost of a copy more (mode=generic)\n";
    }
    warn_of_vlan();
    return groups_.join(device_, options_.address, interface_->groups(), error);
}

void Driver::warn_of_vlan() {
    if (options_.vlan == 0) return;
    const std::string& name = device_.name;
    if (device_.takes_vlan_tags) {
        warnings_ += "interface " + name +
                     " may take the VLAN tag off a frame before our program sees it, which then is none of ours: "
                     "ethtool -K " +
                     name + " rxvlan off\n";
    }
    if (device_.filters_vlans) {
        const std::string vlan = std::to_string(options_.vlan);
        warnings_ += "interface " + name + " may drop frames of VLAN " + vlan +
                     ", for which the kernel has to have a VLAN device: ethtool -K " + name +
                     " rx-vlan-filter off, or ip link add link " + name + " name " + name + "." + vlan +
                     " type vlan id " + vlan + "\n";
    }
}

int Driver::watch_queues(ErrorText error) {
    if (const int result = poller_.open(error); result < 0) return result;
    for (std::size_t index = 0; index < queues_.size(); ++index) {
        const int result = poller_.add(queues_[index]->descriptor(), static_cast<unsigned>(index), error);
        if (result < 0) return result;
    }
    if (const int result = link_.open(device_, error); result < 0) return result;
    if (const int result = poller_.add(link_.descriptor(), link_index, error); result < 0) return result;
    link_state_ = link_.await_up(device_.running ? link_wait_ns : 0);
    transmitter_->set_link(link_state_ == LinkWatch::State::up);
    if (link_state_ != LinkWatch::State::up)
        warnings_ += "interface " + device_.name + " has no link: nothing is sent or received until it has one\n";
    return 0;
}

int Driver::claim(ErrorText error) {
    if (link_state_ != LinkWatch::State::up) return 0;  // nobody would hear it; announced when there is a link
    const auto work = [this] {
        dlcp_packet early[32];  // of peers that are told our address before it is ours: they send again
        const int count = rx(early, static_cast<int>(std::size(early)));
        rx_done(early, count);
        if (count == 0) wait(link_check_ns);  // no longer than the interface has to wait for an answer
    };
    return claim_address(*interface_, device_.name, options_.address_probe, work, error);
}

void Driver::check_link(std::int64_t now_ns) {
    link_checked_ns_ = now_ns;
    const LinkWatch::State state = link_.read();
    if (state == link_state_ || link_state_ == LinkWatch::State::gone) return;
    link_state_ = state;
    transmitter_->set_link(state == LinkWatch::State::up);
    const char* const name = device_.name.c_str();
    switch (state) {
        case LinkWatch::State::up:
            events_.tell(now_ns, DLCP_IO_LINK_UP, "interface %s has a link again", name);
            interface_->announce({now_ns});
            break;
        case LinkWatch::State::down:
            events_.tell(now_ns, DLCP_IO_LINK_DOWN, "interface %s has lost its link", name);
            break;
        case LinkWatch::State::gone:
            events_.tell(now_ns, DLCP_IO_DEVICE_GONE, "interface %s was taken away", name);
            // Their sockets report an error for ever after, and wait() would not sleep.
            for (const auto& queue : queues_) poller_.unwatch(queue->descriptor());
            break;
    }
}

// An empty free list is ordinary when the link is slower than the engine; one that stays empty is a card that stands.
void Driver::note_starvation(std::int64_t now_ns) {
    const std::int64_t since_ns = transmitter_->starved_since_ns();
    if (since_ns == 0) {
        starvation_told_ = false;
    } else if (!starvation_told_ && now_ns - since_ns > starvation_ns) {
        starvation_told_ = true;
        events_.tell(now_ns, DLCP_IO_NO_BUFFERS, "interface %s has given no buffer back for a second",
                     device_.name.c_str());
    }
}

void Driver::tell_of(const ipstack::InterfaceEvent& event, std::int64_t now_ns) {
    using enum ipstack::InterfaceEvent::Kind;
    const std::string ip = ipstack::to_text(event.ip), mac = ipstack::to_text(event.mac);
    const char* const name = device_.name.c_str();
    switch (event.kind) {
        case neighbour_lost:
            return events_.tell(now_ns, DLCP_IO_NEIGHBOUR_LOST, "neighbour %s on %s does not answer", ip.c_str(),
                                name);
        case neighbour_found:
            return events_.tell(now_ns, DLCP_IO_NEIGHBOUR_FOUND, "neighbour %s on %s answers again: it is %s",
                                ip.c_str(), name, mac.c_str());
        case address_taken:
            return events_.tell(now_ns, DLCP_IO_ADDRESS_TAKEN, "station %s on %s says that it has %s", mac.c_str(),
                                name, ip.c_str());
    }
}

dlcp_io_capabilities Driver::capabilities() const {
    dlcp_io_capabilities out = {};
    out.max_datagram_bytes = datagram_bytes_;
    out.max_burst_packets = Transmitter::burst_packets_max;
    // Of one queue: the packets of one peer may all come by it.
    out.receive_buffer_bytes = receive_chunks_ * datagram_bytes_;
    out.reports_ecn = 1;
    out.pollable = 1;
    return out;
}

int Driver::resolve(const char* text, dlcp_address& out, ErrorText error) const {
    const std::string own(text, strcspn(text, "+"));
    return udp::resolve_endpoint(own.c_str(), udp::family_of(local_), out, error);
}

int Driver::tx_get(dlcp_packet* packets, int count) noexcept {
    const std::int64_t now_ns = monotonic_ns();
    const int lent = transmitter_->get({now_ns}, packets, count);
    note_starvation(now_ns);
    return lent;
}

int Driver::tx_put(dlcp_packet* packets, int count) noexcept {
    return transmitter_->put({monotonic_ns()}, packets, count);
}

int Driver::rx(dlcp_packet* packets, int count) noexcept {
    if (count <= 0) return 0;
    const std::int64_t now_ns = monotonic_ns();
    const int received = receiver_->receive({now_ns}, packets, count);
    if (now_ns - link_checked_ns_ >= link_check_ns) check_link(now_ns);
    serve(now_ns);
    return received;
}

void Driver::wait(std::int64_t timeout_ns) noexcept {
    if (receiver_->has_work()) return;
    const std::int64_t now_ns = monotonic_ns();
    serve(now_ns);
    // One wait, so that who takes no events sleeps all the same.
    if (events_.take_news()) return;
    const auto shorten = [&](std::int64_t ns) {
        if (timeout_ns < 0 || ns < timeout_ns) timeout_ns = std::max<std::int64_t>(ns, 0);
    };
    if (const Time deadline = interface_->next_deadline(); deadline != time_never)
        shorten(deadline.value - now_ns);
    if (transmitter_->waits_for_kernel() && link_state_ == LinkWatch::State::up) shorten(kernel_wait_ns);
    const std::uint64_t readable = poller_.wait(timeout_ns);
    if ((readable >> link_index & 1) != 0) check_link(monotonic_ns());
    events_.take_news();  // this wait has ended for it
}

void Driver::serve(std::int64_t now_ns) {
    transmitter_->serve({now_ns});
    while (const auto event = interface_->next_event()) tell_of(*event, now_ns);
}

dlcp_io_counters Driver::counters() const {
    dlcp_io_counters out = counters_;
    for (const auto& queue : queues_) {
        const xdp_statistics statistics = queue->statistics();
        out.rx_dropped_datagrams += statistics.rx_dropped + statistics.rx_ring_full;
    }
    return out;
}

}  // namespace dlcp::xdp

const dlcp_io_table* dlcp_io_driver() {
    static constexpr dlcp_io_table table = dlcp::driver_table<dlcp::xdp::Driver>("xdp");
    return &table;
}
