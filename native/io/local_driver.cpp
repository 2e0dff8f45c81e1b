#include "io/local_driver.hpp"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "io/driver_registry.hpp"
#include "io/error_text.hpp"
#include "io/host_error.hpp"
#include "io/shm_channel.hpp"
#include "io/shm_rendezvous.hpp"
#include "io/udp_driver.hpp"

namespace dlcp::local {

namespace {

using shm::Channel;

// Two of them per pair of ranks that talk. Processor time of a side for 64 MiB each way at once (shm_bench, cores with
// 2 MiB of second-level cache): 256 KiB 22.6 ms, 512 KiB 18.6, 1 MiB 17.0, 2 MiB 16.7, 4 MiB 15.2, 8 MiB 15.1. Beyond
// 2 MiB the memory of many ranks that all talk to each other weighs more.
constexpr std::uint32_t ring_bytes_default = 2 * 1024 * 1024;
// The engine has at most as many packets in flight as the acknowledged window is wide (engine/packet_window.hpp), and a
// packet takes up to 71 bytes of the ring beyond its own; control packets, which are not counted in flight, get what an
// acknowledgement of the whole window takes, some forty times.
constexpr std::uint32_t packets_in_flight_max = 8192;
constexpr std::uint32_t slot_overhead_bytes_max = 71;
constexpr std::uint32_t control_reserve_bytes = 48 * 1024;

// Read at once from one ring, so that its room is given back while the rest is waiting.
constexpr std::uint32_t rx_share = 8;
// Shown to the reader while the rest of a burst is still being written, so that both work at once.
constexpr std::uint64_t publish_bytes = 64 * 1024;
// While the rings have packets, the sockets are asked every so many calls, and for new channels.
constexpr std::uint32_t rx_calls_between_sockets = 16;
constexpr std::uint32_t rx_calls_between_accepts = 64;
// When a connection is there and its greeting is not.
constexpr std::int64_t greeting_wait_ns = 1'000'000;

constexpr std::string_view inner_word = "inner=";

constexpr std::uint64_t ring_cookie = std::uint64_t{1} << 63;
constexpr std::uint64_t word_cookie = std::uint64_t{1} << 62;  // not a packet: nothing to give back

// A process reached, or that was reached, through shared memory.
struct Neighbour {
    shm::Name name{};
    dlcp_address address{};
    std::string text;                    // for people
    std::uint32_t sending = UINT32_MAX;  // slot of the channel that packets leave by; UINT32_MAX: none
    std::uint32_t opened = UINT32_MAX;   // slot of the channel that this side opened
    std::uint32_t taken = UINT32_MAX;    // … and of the one that the other side opened
    bool told_gone = false;
};

struct Slot {
    std::unique_ptr<Channel> channel;  // nullptr: free
    std::uint32_t neighbour = 0;
    bool unheard = false;  // opened by this side, and nothing has come out of it yet
    bool retired = false;  // to be freed when nothing of it is lent
};

// A dlcp_io is one of these (see udp_driver.cpp).
struct Driver {
    const dlcp_io_table* inner = dlcp_udp_driver();
    dlcp_io* inner_io = nullptr;
    std::uint32_t ring_bytes = ring_bytes_default;
    std::string identity;  // of this host; empty: no shared memory
    std::unique_ptr<shm::Rendezvous> rendezvous;
    std::uint8_t listener_readable = 0;
    std::string text;  // the address in full
    dlcp_address local{};
    std::string warnings;

    std::vector<std::unique_ptr<Neighbour>> neighbours;  // addresses are lent out: they stay where they are
    std::map<shm::Name, std::uint32_t> by_name;
    std::vector<Slot> slots;
    std::vector<std::uint32_t> open_slots;  // of channels, in the order they are read
    std::size_t first_read = 0;             // rotates, so that all are read alike
    std::uint32_t unheard = 0;              // slots with that mark
    std::vector<std::uint32_t> gone;        // neighbours to be told of as gone
    std::vector<std::uint32_t> written;     // slots with packets not yet shown
    std::uint32_t rx_calls_to_sockets = 0;
    std::uint32_t rx_calls_to_accept = 0;
    dlcp_io_counters counters{};  // of channels

    ~Driver() {
        if (inner_io == nullptr) return;
        for (const Slot& slot : slots)
            if (slot.channel) forget(*slot.channel);
        if (rendezvous) inner->unwatch(inner_io, rendezvous->descriptor());
        inner->close(inner_io);
    }

    // ---- channels ----

    void forget(const Channel& channel) const {
        inner->unwatch(inner_io, channel.bell());
        inner->unwatch(inner_io, channel.socket.number());
    }
    Neighbour& neighbour_named(const shm::Name& name);
    bool add(std::unique_ptr<Channel> channel, std::uint32_t neighbour, std::uint32_t& place);
    void retire(std::uint32_t slot);
    void free_retired();
    void choose_sending(Neighbour& neighbour) const {
        // The smaller name's channel, if both are there: both sides choose alike.
        const bool own = rendezvous->name() < neighbour.name;
        neighbour.sending = own && neighbour.opened != UINT32_MAX ? neighbour.opened
                            : neighbour.taken != UINT32_MAX       ? neighbour.taken
                                                                  : neighbour.opened;
    }
    void accept_all();
    void look_for_ends();
    bool connect(const shm::Name& name, const std::string& address_text, dlcp_address& out);

    // ---- packets ----

    const Neighbour* neighbour_at(const dlcp_address& address) const;
    bool put(const dlcp_packet& packet);
    void show_written();
    void hear_of_others_first();
    bool comes_later(std::uint32_t slot) const;
    int read_rings(dlcp_packet* packets, int count);
    bool anything_to_read() const;
};

Driver* driver_of(dlcp_io* io) { return reinterpret_cast<Driver*>(io); }

// An address names a neighbour by its place and, against mistakes, by its name.
dlcp_address address_of(std::uint32_t index, const shm::Name& name) {
    dlcp_address out{};
    memcpy(out.bytes, &index, sizeof index);
    memcpy(out.bytes + sizeof index, name.data(), name.size());
    out.length = sizeof index + name.size();
    out.flags = DLCP_ADDRESS_TRUSTED;
    return out;
}

Neighbour& Driver::neighbour_named(const shm::Name& name) {
    const auto [found, is_new] = by_name.try_emplace(name, static_cast<std::uint32_t>(neighbours.size()));
    if (is_new) {
        auto neighbour = std::make_unique<Neighbour>();
        neighbour->name = name;
        neighbour->address = address_of(found->second, name);
        neighbour->text = "shm:" + identity + "/" + shm::to_text(name);
        neighbours.push_back(std::move(neighbour));
    }
    return *neighbours[found->second];
}

bool Driver::add(std::unique_ptr<Channel> channel, std::uint32_t neighbour, std::uint32_t& place) {
    // Both first, so that there is nothing to undo but these.
    if (inner->watch(inner_io, channel->bell(), &channel->bell_readable) < 0 ||
        inner->watch(inner_io, channel->socket.number(), &channel->socket_readable) < 0) {
        forget(*channel);
        return false;
    }
    std::uint32_t slot = 0;
    while (slot < slots.size() && slots[slot].channel) ++slot;
    if (slot == slots.size()) slots.emplace_back();
    slots[slot] = {std::move(channel), neighbour, false, false};
    open_slots.push_back(slot);
    place = slot;
    neighbours[neighbour]->told_gone = false;
    ++counters.channels;
    return true;
}

// Its packets that are lent out stay valid until they come back.
void Driver::retire(std::uint32_t slot) {
    forget(*slots[slot].channel);
    slots[slot].retired = true;
    std::erase(open_slots, slot);
    std::erase(written, slot);
    unheard -= slots[slot].unheard;
    slots[slot].unheard = false;
    Neighbour& neighbour = *neighbours[slots[slot].neighbour];
    if (neighbour.opened == slot) neighbour.opened = UINT32_MAX;
    if (neighbour.taken == slot) neighbour.taken = UINT32_MAX;
    choose_sending(neighbour);
    if (neighbour.sending == UINT32_MAX && !neighbour.told_gone) {
        neighbour.told_gone = true;
        gone.push_back(slots[slot].neighbour);
    }
    --counters.channels;
    // The socket now, so that the other side hears of it; the memory when nothing of it is lent.
    slots[slot].channel->socket = shm::Descriptor();
    free_retired();
}

void Driver::free_retired() {
    for (Slot& slot : slots)
        if (slot.retired && slot.channel && slot.channel->reader.lent() == 0) slot = Slot();
}

void Driver::accept_all() {
    listener_readable = 0;
    rx_calls_to_accept = 0;
    shm::Greeting greeting;
    while (auto channel = rendezvous->accept(greeting)) {
        Neighbour& neighbour = neighbour_named(greeting.from);
        const std::uint32_t index = by_name[greeting.from];
        if (!greeting.address.empty()) neighbour.text = greeting.address;
        const std::uint32_t old = neighbour.taken;
        if (!add(std::move(channel), index, neighbour.taken)) continue;
        choose_sending(neighbour);
        if (old != UINT32_MAX) retire(old);
        // Sent through by nobody from now on: the other side, whose name is smaller, has never sent through it.
        if (neighbour.opened != UINT32_MAX && neighbour.sending == neighbour.taken) retire(neighbour.opened);
    }
}

// Channels whose other side has closed its socket, once everything in their ring has been read.
void Driver::look_for_ends() {
    for (std::size_t i = 0; i < open_slots.size(); ++i) {
        Channel& channel = *slots[open_slots[i]].channel;
        if (channel.socket_readable != 0) {
            channel.socket_readable = 0;
            std::uint8_t nothing;
            const ssize_t result = recv(channel.socket.number(), &nothing, 1, MSG_DONTWAIT);
            channel.ended = result == 0 || (result < 0 && errno != EAGAIN && errno != EINTR);
        }
        const bool over =
            (channel.ended && !channel.reader.readable()) || channel.reader.broken() || channel.writer.broken();
        if (!over) continue;
        retire(open_slots[i]);
        --i;
    }
}

bool Driver::connect(const shm::Name& name, const std::string& address_text, dlcp_address& out) {
    accept_all();  // it may have been faster
    Neighbour& neighbour = neighbour_named(name);
    if (neighbour.sending == UINT32_MAX) {
        int error = 0;
        auto channel = rendezvous->connect(name, text, error);
        const std::uint32_t index = by_name[name];
        if (!channel || !add(std::move(channel), index, neighbour.opened)) return false;
        slots[neighbour.opened].unheard = true;
        ++unheard;
        choose_sending(neighbour);
    }
    neighbour.text = address_text;
    out = neighbour.address;
    return true;
}

const Neighbour* Driver::neighbour_at(const dlcp_address& address) const {
    std::uint32_t index = 0;
    memcpy(&index, address.bytes, sizeof index);
    if (index >= neighbours.size()) return nullptr;
    const Neighbour& neighbour = *neighbours[index];
    return memcmp(address.bytes + sizeof index, neighbour.name.data(), neighbour.name.size()) == 0 ? &neighbour
                                                                                                   : nullptr;
}

// Copies one packet into its ring.
bool Driver::put(const dlcp_packet& packet) {
    const Neighbour* neighbour = neighbour_at(*packet.address);
    if (neighbour == nullptr || neighbour->sending == UINT32_MAX) return false;
    Channel& channel = *slots[neighbour->sending].channel;
    if (packet.head_bytes > DLCP_HEAD_CAPACITY || packet.tail_bytes > DLCP_HEAD_CAPACITY - packet.head_bytes ||
        packet.body_bytes > DLCP_HEAD_CAPACITY - packet.head_bytes - packet.tail_bytes ||
        (packet.body == nullptr && packet.body_bytes != 0)) {
        return false;
    }
    const std::uint32_t bytes = packet.head_bytes + packet.body_bytes + packet.tail_bytes;
    std::uint8_t* to = channel.writer.reserve(bytes);
    if (to == nullptr) return false;
    memcpy(to, packet.head, packet.head_bytes);
    if (packet.body_bytes != 0) memcpy(to + packet.head_bytes, packet.body, packet.body_bytes);
    if (packet.tail_bytes != 0)
        memcpy(to + packet.head_bytes + packet.body_bytes, packet.head + packet.head_bytes, packet.tail_bytes);
    channel.writer.commit(bytes, packet.tos);
    if (written.empty() || written.back() != neighbour->sending) written.push_back(neighbour->sending);
    if (channel.writer.unpublished_bytes() >= publish_bytes && channel.writer.publish()) channel.ring();
    ++counters.tx_packets;
    counters.tx_bytes += bytes;
    return true;
}

void Driver::show_written() {
    for (const std::uint32_t slot : written)
        if (slots[slot].channel->writer.publish()) slots[slot].channel->ring();
    written.clear();
}

// The other side of a channel opened here may have opened one itself and written into that first. It may be waiting to
// be taken: taken it is before anything is read out of this one, so that packets stay in order.
void Driver::hear_of_others_first() {
    bool heard = false;
    for (const std::uint32_t slot : open_slots) {
        if (!slots[slot].unheard || !slots[slot].channel->reader.readable()) continue;
        slots[slot].unheard = false;
        --unheard;
        heard = true;
    }
    if (heard) accept_all();
}

// For the same reason its own channel is read to the end first. Looked at in this order: once something is in this one,
// nothing more is written into the other.
bool Driver::comes_later(std::uint32_t slot) const {
    const Neighbour& neighbour = *neighbours[slots[slot].neighbour];
    if (slot != neighbour.opened) return false;
    if (slots[slot].unheard) return true;
    return neighbour.taken != UINT32_MAX &&
           (!slots[slot].channel->reader.readable() || slots[neighbour.taken].channel->reader.readable());
}

int Driver::read_rings(dlcp_packet* packets, int count) {
    int filled = 0;
    if (unheard > 0) hear_of_others_first();
    const std::size_t channels = open_slots.size();
    if (channels == 0) return 0;
    first_read = (first_read + 1) % channels;
    for (std::size_t i = 0; i < channels && filled < count; ++i) {
        const std::uint32_t slot = open_slots[(first_read + i) % channels];
        if (comes_later(slot)) continue;
        shm::RingReader& reader = slots[slot].channel->reader;
        const dlcp_address& source = neighbours[slots[slot].neighbour]->address;
        shm::RingReader::Packet packet;
        std::uint32_t bytes = 0;
        while (filled < count && bytes < ring_bytes / rx_share && reader.next(packet)) {
            bytes += packet.length;
            packets[filled++] = {.head = packet.bytes,
                                 .body = nullptr,
                                 .address = &source,
                                 .head_bytes = packet.length,
                                 .body_bytes = 0,
                                 .tail_bytes = 0,
                                 .path = 0,
                                 .tos = packet.tos,
                                 .flags = DLCP_PACKET_TRUSTED,
                                 .arrival_ns = 0,
                                 .cookie = ring_cookie | slot};
            ++counters.rx_packets;
            counters.rx_bytes += packet.length;
        }
    }
    return filled;
}

bool Driver::anything_to_read() const {
    if (listener_readable != 0 || !gone.empty()) return true;
    return std::any_of(open_slots.begin(), open_slots.end(), [&](std::uint32_t slot) {
        const Channel& channel = *slots[slot].channel;
        return channel.socket_readable != 0 || channel.reader.readable() || channel.ended;
    });
}

// What the word after `key` says, if `words` begins with that key; takes it off.
std::string_view take_word(std::string_view& words, std::string_view key) {
    if (!words.starts_with(key)) return {};
    const std::string_view word = words.substr(0, words.find(' '));
    words.remove_prefix(std::min(words.size(), word.size() + 1));
    return word.substr(key.size());
}

// "inner=NAME" first: the driver for other hosts, udp if there is no such word. Then "ring_bytes=N". What follows is for
// a driver that was named; the UDP driver takes no words.
int parse_extra(const char* extra, Driver& driver, std::string& inner_extra, ErrorText error) {
    const std::string_view given = extra != nullptr ? extra : "";
    std::string_view rest = given;
    const std::string inner(take_word(rest, inner_word));
    if (!inner.empty()) driver.inner = &find_driver(inner);
    bool understood = rest.empty() || !inner.empty();
    if (const std::string_view number = take_word(rest, "ring_bytes="); !number.empty()) {
        const char* const end = number.data() + number.size();
        const auto parsed = std::from_chars(number.data(), end, driver.ring_bytes);
        understood = parsed.ec == std::errc() && parsed.ptr == end && driver.ring_bytes >= shm::ring_bytes_min &&
                     driver.ring_bytes <= shm::ring_bytes_max &&
                     (driver.ring_bytes & (driver.ring_bytes - 1)) == 0 && (rest.empty() || !inner.empty());
    }
    if (!understood) {
        return error.fail(
            EDOM,
            "datapath_options is '%s'; the local datapath takes ring_bytes=N, a power of two from %u to %u, "
            "and no more",
            extra, shm::ring_bytes_min, shm::ring_bytes_max);
    }
    inner_extra = rest;
    return 0;
}

int open_driver(const dlcp_io_config& config, Driver& driver, char* text, size_t text_bytes) {
    std::string inner_extra;
    if (const int result = parse_extra(config.extra, driver, inner_extra, {text, text_bytes}); result < 0)
        return result;
    dlcp_io_config inner_config = config;
    inner_config.extra = inner_extra.empty() ? nullptr : inner_extra.c_str();
    if (const int result = driver.inner->open(&inner_config, &driver.inner_io, text, text_bytes); result < 0)
        return result;
    driver.warnings = driver.inner->warnings(driver.inner_io);
    driver.inner->local_address(driver.inner_io, &driver.local);
    char own[1024];  // as many addresses as there are ports
    driver.inner->format(driver.inner_io, &driver.local, own, sizeof own);
    driver.text = own;

    // Without shared memory it is the inner driver: said, and no reason to fail.
    const auto without = [&](const std::string& why) {
        driver.warnings += "no shared memory between the ranks of this host (" + why + "): they use the network\n";
        driver.rendezvous.reset();
        return 0;
    };
    if (driver.inner->watch == nullptr)
        return without(std::string("the driver ") + driver.inner->name + " watches no descriptors");
    driver.identity = shm::host_identity();
    if (driver.identity.empty()) return without("/proc does not say which host this is");
    driver.rendezvous = std::make_unique<shm::Rendezvous>(driver.ring_bytes, DLCP_HEAD_CAPACITY);
    if (const int result = driver.rendezvous->open(); result < 0) return without(strerror(-result));
    const int result =
        driver.inner->watch(driver.inner_io, driver.rendezvous->descriptor(), &driver.listener_readable);
    if (result < 0) return without(strerror(-result));
    driver.text += "+shm:" + driver.identity + "/" + shm::to_text(driver.rendezvous->name());
    return 0;
}

// The functions of the table. None lets an exception out; all take a null dlcp_io for a closed one.

int open(const dlcp_io_config* config, dlcp_io** out, char* text, size_t text_bytes) {
    const ErrorText error = {text, text_bytes};
    if (config == nullptr || out == nullptr)
        return error.fail(EINVAL, "open needs a configuration and a place for the result");
    *out = nullptr;
    try {
        auto driver = std::make_unique<Driver>();
        if (const int result = open_driver(*config, *driver, text, text_bytes); result < 0) return result;
        *out = reinterpret_cast<dlcp_io*>(driver.release());
        return 0;
    } catch (const HostError& refused) {  // there is no such inner driver
        return error.fail(ENOSYS, "%s", refused.what());
    } catch (const std::bad_alloc&) {
        return error.fail(ENOMEM, "not enough memory for the driver");
    }
}

void capabilities(dlcp_io* io, dlcp_io_capabilities* out) {
    if (out == nullptr) return;
    *out = {};
    if (io == nullptr) return;
    const Driver& driver = *driver_of(io);
    driver.inner->capabilities(driver.inner_io, out);
    if (!driver.rendezvous) return;
    constexpr std::uint32_t reserve = packets_in_flight_max * slot_overhead_bytes_max + control_reserve_bytes;
    // A ring too small for that many small packets holds them only if they are not the smallest; losing some is
    // repaired.
    out->channel_buffer_bytes =
        std::max(driver.ring_bytes - std::min(driver.ring_bytes, reserve), driver.ring_bytes / 2);
}

int resolve(dlcp_io* io, const char* text, dlcp_address* out, char* error_text, size_t error_bytes) {
    const ErrorText error = {error_text, error_bytes};
    if (io == nullptr) return error.fail(EBADF, "the driver is closed");
    Driver& driver = *driver_of(io);
    const int result = driver.inner->resolve(driver.inner_io, text, out, error_text, error_bytes);
    if (result < 0 || !driver.rendezvous) return result;
    try {
        const std::string_view given = text;
        const std::string prefix = "+shm:" + driver.identity + "/";
        const std::size_t at = given.find(prefix);
        shm::Name name;
        if (at == std::string_view::npos) return 0;
        std::string_view rest = given.substr(at + prefix.size());
        rest = rest.substr(0, rest.find('+'));
        if (!shm::from_text(rest, name))
            return error.fail(EINVAL,
                              "'%s' names no endpoint in shared memory: take the address as the endpoint gives it",
                              text);
        if (name == driver.rendezvous->name()) return 0;
        driver.connect(name, std::string(given), *out);
        return 0;
    } catch (const std::bad_alloc&) {
        return error.fail(ENOMEM, "not enough memory to open a channel to '%s'", text);
    }
}

void format(dlcp_io* io, const dlcp_address* address, char* text, size_t text_bytes) {
    if (text == nullptr || text_bytes == 0) return;
    const Driver* driver = io != nullptr ? driver_of(io) : nullptr;
    const std::string* known = nullptr;
    if (driver != nullptr && address != nullptr) {
        if (address->flags & DLCP_ADDRESS_TRUSTED) {
            const Neighbour* neighbour = driver->neighbour_at(*address);
            if (neighbour != nullptr) known = &neighbour->text;
        } else if (address->length == driver->local.length &&
                   memcmp(address->bytes, driver->local.bytes, sizeof address->bytes) == 0) {
            known = &driver->text;
        }
    }
    if (known == nullptr) {
        const dlcp_io_table& table = driver != nullptr ? *driver->inner : *dlcp_udp_driver();
        table.format(driver != nullptr ? driver->inner_io : nullptr, address, text, text_bytes);
        return;
    }
    const std::size_t copied_bytes = std::min(known->size(), text_bytes - 1);
    memcpy(text, known->data(), copied_bytes);
    text[copied_bytes] = '\0';
}

void local_address(dlcp_io* io, dlcp_address* out) {
    if (out != nullptr) *out = io != nullptr ? driver_of(io)->local : dlcp_address{};
}

int tx_get(dlcp_io* io, dlcp_packet* packets, int count) {
    return io != nullptr ? driver_of(io)->inner->tx_get(driver_of(io)->inner_io, packets, count) : 0;
}

// Packets for rings are copied and then left out of what the sockets send.
int tx_put(dlcp_io* io, dlcp_packet* packets, int count) {
    if (io == nullptr) return 0;
    Driver& driver = *driver_of(io);
    int taken = 0;
    for (int i = 0; i < count; ++i) {
        dlcp_packet& packet = packets[i];
        if (packet.head_bytes == 0 || packet.address == nullptr || !(packet.address->flags & DLCP_ADDRESS_TRUSTED))
            continue;
        if (driver.put(packet))
            ++taken;
        else
            ++driver.counters.tx_dropped_packets;
        packet.head_bytes = 0;
    }
    driver.show_written();
    return taken + driver.inner->tx_put(driver.inner_io, packets, count);
}

int rx(dlcp_io* io, dlcp_packet* packets, int count) {
    if (io == nullptr || count <= 0) return 0;
    Driver& driver = *driver_of(io);
    if (!driver.rendezvous) return driver.inner->rx(driver.inner_io, packets, count);
    if (driver.listener_readable != 0 || driver.rendezvous->expecting() ||
        ++driver.rx_calls_to_accept >= rx_calls_between_accepts) {
        driver.accept_all();
    }
    int received = driver.read_rings(packets, count);
    if (received == 0) driver.look_for_ends();
    while (!driver.gone.empty() && received < count) {
        packets[received] = {};
        packets[received].address = &driver.neighbours[driver.gone.back()]->address;
        packets[received].flags = DLCP_PACKET_TRUSTED | DLCP_PACKET_GONE;
        packets[received++].cookie = word_cookie;
        driver.gone.pop_back();
    }
    if (received > 0 && ++driver.rx_calls_to_sockets < rx_calls_between_sockets) return received;
    driver.rx_calls_to_sockets = 0;
    if (received == count) return received;
    const int more = driver.inner->rx(driver.inner_io, packets + received, count - received);
    return more > 0 ? received + more : received;
}

void rx_done(dlcp_io* io, dlcp_packet* packets, int count) {
    if (io == nullptr) return;
    Driver& driver = *driver_of(io);
    for (int i = 0; i < count;) {
        const int first = i;
        const std::uint64_t cookie = packets[i].cookie;
        if ((cookie & ring_cookie) != 0) {
            while (i < count && packets[i].cookie == cookie) ++i;
            const std::uint64_t slot = cookie & ~ring_cookie;
            if (slot < driver.slots.size() && driver.slots[slot].channel)
                driver.slots[slot].channel->reader.give_back(static_cast<std::uint32_t>(i - first));
        } else if (cookie == word_cookie) {
            ++i;
        } else {
            while (i < count && (packets[i].cookie & (ring_cookie | word_cookie)) == 0) ++i;
            driver.inner->rx_done(driver.inner_io, packets + first, i - first);
        }
    }
    driver.free_retired();
}

void wait(dlcp_io* io, int64_t timeout_ns) {
    if (io == nullptr) return;
    Driver& driver = *driver_of(io);
    if (driver.anything_to_read()) return;
    // Announced to all, then looked at all again (shm_ring.hpp). It stays announced after waking: a writer that finds it
    // so rings once in vain, which costs less than touching every ring at every sleep.
    for (const std::uint32_t slot : driver.open_slots)
        if (!driver.slots[slot].channel->reader.arm()) return;
    if (driver.rendezvous && driver.rendezvous->expecting() && (timeout_ns < 0 || timeout_ns > greeting_wait_ns))
        timeout_ns = greeting_wait_ns;
    driver.inner->wait(driver.inner_io, timeout_ns);
}

void wake(dlcp_io* io) {
    if (io != nullptr) driver_of(io)->inner->wake(driver_of(io)->inner_io);
}

int64_t now_ns(dlcp_io* io) {
    if (io == nullptr) return dlcp_udp_driver()->now_ns(nullptr);
    return driver_of(io)->inner->now_ns(driver_of(io)->inner_io);
}

void counters(dlcp_io* io, dlcp_io_counters* out) {
    if (out == nullptr) return;
    *out = {};
    if (io == nullptr) return;
    const Driver& driver = *driver_of(io);
    driver.inner->counters(driver.inner_io, out);
    const dlcp_io_counters& own = driver.counters;
    out->tx_packets += own.tx_packets;
    out->tx_bytes += own.tx_bytes;
    out->rx_packets += own.rx_packets;
    out->rx_bytes += own.rx_bytes;
    out->tx_dropped_packets += own.tx_dropped_packets;
    out->channel_tx_packets = own.tx_packets;
    out->channel_tx_bytes = own.tx_bytes;
    out->channel_rx_packets = own.rx_packets;
    out->channel_rx_bytes = own.rx_bytes;
    out->channels = own.channels;
}

const char* warnings(dlcp_io* io) { return io != nullptr ? driver_of(io)->warnings.c_str() : ""; }

void close(dlcp_io* io) { delete driver_of(io); }

int watch(dlcp_io* io, int descriptor, std::uint8_t* readable) {
    return io != nullptr ? driver_of(io)->inner->watch(driver_of(io)->inner_io, descriptor, readable) : -EBADF;
}

void unwatch(dlcp_io* io, int descriptor) {
    if (io != nullptr) driver_of(io)->inner->unwatch(driver_of(io)->inner_io, descriptor);
}

int events(dlcp_io* io, dlcp_io_event* out, int count) {
    if (io == nullptr || driver_of(io)->inner->events == nullptr) return 0;
    return driver_of(io)->inner->events(driver_of(io)->inner_io, out, count);
}

int statistics(dlcp_io* io, dlcp_io_statistic* out, int count) {
    if (io == nullptr || driver_of(io)->inner->statistics == nullptr) return 0;
    return driver_of(io)->inner->statistics(driver_of(io)->inner_io, out, count);
}

}  // namespace

}  // namespace dlcp::local

const dlcp_io_table* dlcp_local_driver() {
    using namespace dlcp::local;
    static const dlcp_io_table table = {
        .abi_version = DLCP_IO_ABI_VERSION,
        .name = "local",
        .open = open,
        .capabilities = capabilities,
        .resolve = resolve,
        .format = format,
        .local_address = local_address,
        .tx_get = tx_get,
        .tx_put = tx_put,
        .rx = rx,
        .rx_done = rx_done,
        .wait = wait,
        .wake = wake,
        .now_ns = now_ns,
        .counters = counters,
        .warnings = warnings,
        .close = close,
        .watch = watch,
        .unwatch = unwatch,
        .events = events,
        .statistics = statistics,
    };
    return &table;
}
