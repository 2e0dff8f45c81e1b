#include "io/dpdk/dpdk_driver.hpp"

#include <errno.h>
#include <rte_mbuf.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <thread>

#include "io/dpdk/claim.hpp"
#include "io/dpdk/eal.hpp"
#include "io/dpdk/port_setup.hpp"
#include "io/driver_config.hpp"
#include "io/driver_table.hpp"

namespace dlcp::dpdk {

namespace {

// How long what was sent last, an engine's goodbyes, has to leave before a port is stopped. A card needs a tenth of it for
// a full queue. Out of a memif ring the peer has to take it, and it may not have a core just now.
constexpr std::int64_t linger_ns = 2'000'000;
constexpr std::int64_t memif_linger_ns = 20'000'000;

// The device of the only port may be named as interfaces of the kernel are, instead of by an option.
int take_interface_name(const char* name, Options& options, ErrorText error) {
    if (name == nullptr || *name == '\0') return 0;
    if (!options.ports[0].device.empty()) {
        return error.fail(EDOM, "interface is %s, and port=%s is named as well: name ports in one place", name,
                          options.ports[0].device.c_str());
    }
    options.ports[0].device = name;
    return 0;
}

}  // namespace

int Driver::configure(const dlcp_io_config& config, ErrorText error) {
    if (const int result = check_config(config, error); result < 0) return result;
    Options options;
    if (const int result = parse_options(config.extra, config.bind_host, options, error); result < 0)
        return result;
    if (const int result = take_interface_name(config.interface_name, options, error); result < 0) return result;
    if (const int result = start_eal(options.eal_arguments, error); result < 0) return result;
    lcore_.take();
    const Lcore::Use use(lcore_);
    udp_port_ = config.port != 0 ? config.port : draw_port(config.paths);
    if (const int result = open_uplinks(options, config, error); result < 0) return result;

    max_datagram_bytes_ = config.max_datagram_bytes != 0 ? std::min(config.max_datagram_bytes, datagram_bytes_max)
                                                         : datagram_bytes_max;
    for (const Uplink& uplink : uplinks_) {
        const std::uint32_t bytes = uplink.interface->max_datagram_bytes();
        if (bytes < datagram_bytes_min) {
            return error.fail(
                EMSGSIZE,
                "port %s: an MTU of %u leaves %u bytes for a datagram, and %u are needed: raise it (mtu=)",
                uplink.port->name().c_str(), uplink.port->abilities().mtu_bytes, bytes, datagram_bytes_min);
        }
        max_datagram_bytes_ = std::min(max_datagram_bytes_, bytes);
    }
    for (const Uplink& uplink : uplinks_) {
        const ipstack::UdpAddress address{uplink.interface->config().address, udp_port_};
        if (text_.empty())
            local_ = to_dlcp(address);
        else
            text_ += AddressPairs::separator;
        text_ += to_text(address);
    }
    pairs_ = std::make_unique<AddressPairs>(uplinks_);
    transmitter_ = std::make_unique<Transmitter>(uplinks_, *pairs_,
                                                 TransmitConfig{.udp_port = udp_port_,
                                                                .paths = config.paths,
                                                                .max_datagram_bytes = max_datagram_bytes_,
                                                                .payload = options.payload},
                                                 counters_, events_);
    receiver_ = std::make_unique<Receiver>(uplinks_, counters_);
    if (const int result = waiter_.open(options.poll, uplinks_, error); result < 0) return result;
    has_memif_ = std::any_of(uplinks_.begin(), uplinks_.end(),
                             [](const Uplink& uplink) { return uplink.port->driver() == "net_memif"; });
    if (has_memif_) memif_due_ns_ = 0;
    // In isolation answers go to the kernel, whose address it is.
    return claim_addresses(options.address_probe && !options.flow_isolation, error);
}

int Driver::claim_addresses(bool probe, ErrorText error) {
    {
        const auto guard = alone();
        const Time now{monotonic_ns()};
        begin_claims(uplinks_, probe, now);
        look_after(now.value);
    }
    while (are_probing(uplinks_))
        if (!drop_early()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return check_claims(uplinks_, error);
}

// Peers may send to the address before it is ours, to who had it before us: they send again. All that has come is read
// before timers run, so that who answered is heard even if this process was not run for as long as answers are awaited.
bool Driver::drop_early() {
    constexpr int rounds_max = 128;  // of 64: more than lies in the queues, but not for as long as somebody sends
    std::array<dlcp_packet, 64> early;
    const auto guard = alone();
    const Time now{monotonic_ns()};
    bool found = false;
    for (int round = 0; round < rounds_max; ++round) {
        const int count = receiver_->receive(now, early.data(), static_cast<int>(early.size()));
        receiver_->done(early.data(), count);
        if (count == 0 && !receiver_->take_handled()) break;
        found = true;
    }
    if (found && has_memif_) hold_memif(now.value);
    look_after(now.value);
    return found;
}

int Driver::open_uplinks(const Options& options, const dlcp_io_config& config, ErrorText error) {
    const bool sleeps = options.poll == PollMode::automatic || options.poll == PollMode::sleep;
    for (const PortOptions& given : options.ports) {
        Uplink uplink;
        const PortConfig port_config = {.device = given.device,
                                        .queues = options.queues,
                                        .mtu_bytes = options.mtu_bytes,
                                        .buffer_bytes = config.socket_buffer_bytes,
                                        .checksum = options.checksum,
                                        .payload = options.payload,
                                        .wants_interrupts = sleeps,
                                        .flow_isolation = options.flow_isolation,
                                        .udp_port = udp_port_,
                                        .paths = config.paths,
                                        .vlan = options.vlan,
                                        // Any port's buffers leave through any port.
                                        .one_pool = options.ports.size() == 1,
                                        .address = given.address};
        if (const int result = Port::open(port_config, uplink.port, error); result < 0) return result;
        const PortAbilities& abilities = uplink.port->abilities();
        uplink.interface =
            std::make_unique<ipstack::Interface>(ipstack::InterfaceConfig{.mac = uplink.port->mac(),
                                                                          .address = given.address,
                                                                          .prefix_bits = given.prefix_bits,
                                                                          .gateway = given.gateway,
                                                                          .vlan = options.vlan,
                                                                          .mtu_bytes = abilities.mtu_bytes,
                                                                          .port = udp_port_,
                                                                          .ports = config.paths,
                                                                          .answers_echo = true,
                                                                          .neighbours = options.neighbours});
        if (const int result = uplink.port->listen_to(uplink.interface->groups(), error); result < 0)
            return result;
        uplink.checksums = abilities.checksums;
        uplink.was_up = uplink.port->up();
        warnings_ += uplink.port->warnings();
        uplinks_.push_back(std::move(uplink));
    }
    return 0;
}

Driver::~Driver() {
    const Lcore::Use use(lcore_);
    if (receiver_) linger();  // else open() failed
    // Here, since they give back buffers.
    receiver_.reset();
    transmitter_.reset();
    pairs_.reset();
    hold_.reset();
    uplinks_.clear();
}

void Driver::linger() {
    {
        const auto guard = alone();
        // What an interface still had to say, so that a neighbour that asked just now is answered.
        for (Uplink& uplink : uplinks_) transmitter_->send_own_frames(uplink);
    }
    // A card that is stopped drops what is in its queue, and so does a memif peer. Nobody is kept from bursts meanwhile:
    // the peer may be of this process.
    const std::int64_t left_ns = sent_ns_ + (has_memif_ ? memif_linger_ns : linger_ns) - monotonic_ns();
    if (left_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left_ns));
}

dlcp_io_capabilities Driver::capabilities() const {
    dlcp_io_capabilities out = {};
    out.max_datagram_bytes = max_datagram_bytes_;
    out.max_burst_packets = Transmitter::burst_packets_max;
    // All of a peer's packets may land in one queue of one port, whoever spreads them. A packet takes a descriptor however
    // short it is: half, so that packets of half the length fit as well.
    std::uint32_t receive_bytes = UINT32_MAX;
    for (const Uplink& uplink : uplinks_) {
        const std::uint32_t room_bytes =
            rte_pktmbuf_data_room_size(uplink.port->receive_pool()) - RTE_PKTMBUF_HEADROOM;
        receive_bytes = std::min(receive_bytes, uplink.port->abilities().rx_descriptors *
                                                    std::min(room_bytes, max_datagram_bytes_) / 2);
    }
    out.receive_buffer_bytes = receive_bytes;
    out.wants_runs = 0;  // another path with each packet costs 4 %: 395 cycles for 380 (driver_rate --run 1, 16)
    out.reports_ecn = 1;
    out.pollable = waiter_.sleeps();
    out.is_loopback = 0;
    return out;
}

int Driver::resolve(const char* text, dlcp_address& out, ErrorText error) {
    const Lcore::Use use(lcore_);
    // Looking up a name may take seconds; others' bursts go on meanwhile.
    const int result = pairs_->resolve(Time{monotonic_ns()}, text, out, error);
    const auto guard = alone();
    look_after(monotonic_ns());  // the question leaves now
    return result;
}

std::string Driver::format(const dlcp_address& address) const {
    const bool own =
        address.length == local_.length && memcmp(address.bytes, local_.bytes, sizeof address.bytes) == 0;
    return own ? text_ : ipstack::to_text(ipstack::from_dlcp(address));
}

int Driver::tx_put(const dlcp_packet* packets, int count) {
    const Lcore::Use use(lcore_);
    const auto guard = alone();
    const std::int64_t now_ns = monotonic_ns();
    const int sent = transmitter_->put(Time{now_ns}, packets, count);
    if (!transmitter_->pending().empty()) {
        look_after(now_ns);             // the question for the next hop leaves now
        receiver_->poll(Time{now_ns});  // and its answer is seen even if the caller only sends
    }
    if (sent > 0) {
        sent_ns_ = now_ns;
        waiter_.note_activity(now_ns);
    }
    look_after_if_due(now_ns);
    return sent;
}

int Driver::rx(dlcp_packet* packets, int count) {
    const Lcore::Use use(lcore_);
    const auto guard = alone();
    const std::int64_t now_ns = monotonic_ns();
    const int received = receiver_->receive(Time{now_ns}, packets, count);
    if (received > 0) waiter_.note_activity(now_ns);
    if (received > 0 && has_memif_) hold_memif(now_ns);
    look_after_if_due(now_ns);
    return received;
}

bool Driver::poll(std::int64_t now_ns) {
    const auto guard = alone();
    const bool found = receiver_->poll(Time{now_ns});
    if (found && has_memif_) hold_memif(now_ns);
    look_after_if_due(now_ns);
    // An event ends a wait too, one wait: an idle endpoint would hear of it at its next packet, and who takes no events
    // must sleep all the same.
    return events_.take_news() || found;
}

void Driver::look_after(std::int64_t now_ns) noexcept {
    try {
        look_after_all(now_ns);
    } catch (const std::exception&) {
        due_ns_ = now_ns + Port::link_check_ns;
    }
}

void Driver::look_after_all(std::int64_t now_ns) {
    const Time now{now_ns};
    bool can_go = false;  // some of the packets that wait for their neighbour
    due_ns_ = now_ns + Port::link_check_ns;
    lcore_.run_timers();
    if (now_ns >= memif_due_ns_) handle_memif(now_ns);
    due_ns_ = std::min(due_ns_, memif_due_ns_);
    for (Uplink& uplink : uplinks_) {
        ipstack::Interface& interface = *uplink.interface;
        uplink.port->watch_link(now_ns, events_);
        uplink.port->watch_buffers(now_ns, events_);
        if (uplink.port->up() && !uplink.was_up) {
            interface.announce(now);
            can_go = true;
        }
        uplink.was_up = uplink.port->up();
        if (uplink.probing && uplink.was_up) transmitter_->probe(now, uplink);
        if (interface.next_deadline() <= now) interface.handle_timer(now);
        while (const auto event = interface.next_event()) tell_of(uplink, *event, now_ns);
        transmitter_->send_own_frames(uplink);
        if (interface.resolutions() != uplink.resolutions_seen) {
            uplink.resolutions_seen = interface.resolutions();
            can_go = true;
        }
        due_ns_ = std::min(due_ns_, interface.next_deadline().value);
    }
    if (can_go || transmitter_->pending().deadline_ns() <= now_ns) transmitter_->handle_pending(now);
}

// Interrupts pass as often as links are looked at; more often while one is missing, since a connection takes a few
// messages. While all are, there is no memory that could be unmapped, and nothing to hold them for.
void Driver::handle_memif(std::int64_t now_ns) {
    constexpr std::int64_t connecting_ns = 2'000'000;
    const auto links =
        std::count_if(uplinks_.begin(), uplinks_.end(), [](const Uplink& uplink) { return uplink.port->up(); });
    if (links == 0) {
        if (now_ns - heard_ns_ > 2 * Port::link_check_ns) hold_.reset();
    } else if (hold_ == nullptr) {
        hold_ = std::make_unique<InterruptHold>();
    } else {
        let_interrupts_pass();
    }
    const bool all = links == static_cast<std::ptrdiff_t>(uplinks_.size());
    memif_due_ns_ = now_ns + (all || links == 0 ? Port::link_check_ns : connecting_ns);
}

void Driver::tell_of(const Uplink& uplink, const ipstack::InterfaceEvent& event, std::int64_t now_ns) {
    const std::string ip = ipstack::to_text(event.ip);
    const char* const port = uplink.port->name().c_str();
    switch (event.kind) {
        case ipstack::InterfaceEvent::Kind::neighbour_lost:
            return events_.tell(now_ns, DLCP_IO_NEIGHBOUR_LOST, "%s on port %s does not say its Ethernet address",
                                ip.c_str(), port);
        case ipstack::InterfaceEvent::Kind::neighbour_found:
            return events_.tell(now_ns, DLCP_IO_NEIGHBOUR_FOUND, "%s on port %s answers again: it is %s",
                                ip.c_str(), port, ipstack::to_text(event.mac).c_str());
        case ipstack::InterfaceEvent::Kind::address_taken:
            return events_.tell(now_ns, DLCP_IO_ADDRESS_TAKEN, "%s says that it has the address %s of port %s",
                                ipstack::to_text(event.mac).c_str(), ip.c_str(), port);
    }
}

dlcp_io_counters Driver::counters() const {
    dlcp_io_counters out = counters_;
    for (const Uplink& uplink : uplinks_) out.rx_dropped_datagrams += uplink.port->rx_dropped();
    return out;
}

}  // namespace dlcp::dpdk

const dlcp_io_table* dlcp_io_driver() {
    static constexpr dlcp_io_table table = dlcp::driver_table<dlcp::dpdk::Driver>("dpdk");
    return &table;
}
