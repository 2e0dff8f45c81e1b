// The channels of one endpoint to other processes of its host: who is there, which channel packets leave by, and what
// comes out of all of them. It keeps their order: where both sides have opened a channel, both send through the same.
//
// Descriptors are watched by the driver below, whose functions these calls may call; one thread at a time, as io_table.h
// says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/driver_handle.hpp"
#include "io/shm_channel.hpp"
#include "io/shm_rendezvous.hpp"

namespace dlcp::shm {

// What rx() filled from a channel; others' cookies have neither bit.
inline constexpr std::uint64_t ring_cookie = std::uint64_t{1} << 63;
inline constexpr std::uint64_t word_cookie = std::uint64_t{1} << 62;  // not a packet: nothing to give back

class Channels {
public:
    // Of the endpoint that has `inner` open, which outlives this.
    Channels(const DriverHandle& inner, std::uint32_t ring_bytes);
    ~Channels();
    Channels(const Channels&) = delete;
    Channels& operator=(const Channels&) = delete;

    // Begins to listen. `address`: the endpoint's, to which the way through shared memory is added. "", or why there is
    // none. Nothing else may be called then.
    std::string open(std::string address);
    const std::string& address() const { return address_; }

    // If `address_text` names an endpoint of this host, opens a channel to it. 0, also if it is of another host or does
    // not answer, `out` being as it was then; negative errno: what is said of this host is no name.
    int connect(std::string_view address_text, dlcp_address& out);
    // The text of an address that connect() or receive() gave; nullptr: of no neighbour.
    const std::string* text_of(const dlcp_address& address) const;

    // Copies one packet into its ring, to be shown with others by show_written(). False: no room, or nobody is there; it
    // counts as dropped.
    bool put(const dlcp_packet& packet);
    void show_written();

    // Packets, and a word for each neighbour that has gone; lent until give_back().
    int receive(dlcp_packet* packets, int count);
    void give_back(std::uint64_t cookie, std::uint32_t count);
    // After a burst was given back.
    void free_retired();

    // Whether wait() should return at once. If not, whoever writes from now on rings a bell; false: somebody has just
    // written.
    bool anything_to_read() const;
    bool arm();
    // A connection is there whose greeting is not: to be looked for within greeting_wait_ns.
    bool expecting() const { return rendezvous_.expecting(); }
    static constexpr std::int64_t greeting_wait_ns = 1'000'000;

    const dlcp_io_counters& counters() const { return counters_; }

private:
    // A process reached, or that was reached, through shared memory.
    struct Neighbour {
        Name name{};
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

    bool copy(const dlcp_packet& packet);
    void forget(const Channel& channel) const;
    Neighbour& neighbour_named(const Name& name);
    const Neighbour* neighbour_at(const dlcp_address& address) const;
    bool add(std::unique_ptr<Channel> channel, std::uint32_t neighbour, std::uint32_t& place);
    void retire(std::uint32_t slot);
    void choose_sending(Neighbour& neighbour) const;
    void accept_all();
    void look_for_ends();
    void hear_of_others_first();
    bool comes_later(std::uint32_t slot) const;
    int read_rings(dlcp_packet* packets, int count);

    const DriverHandle& inner_;
    const std::uint32_t ring_bytes_;
    std::string identity_;  // of this host
    std::string address_;   // the endpoint's, in full
    Rendezvous rendezvous_;
    bool listening_ = false;
    std::uint8_t listener_readable_ = 0;

    std::vector<std::unique_ptr<Neighbour>> neighbours_;  // addresses are lent out: they stay where they are
    std::map<Name, std::uint32_t> by_name_;
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> open_slots_;  // of channels, in the order they are read
    std::size_t first_read_ = 0;             // rotates, so that all are read alike
    std::uint32_t unheard_ = 0;              // slots with that mark
    std::vector<std::uint32_t> gone_;        // neighbours to be told of as gone
    std::vector<std::uint32_t> written_;     // slots with packets not yet shown
    std::uint32_t rx_calls_to_accept_ = 0;
    dlcp_io_counters counters_{};
};

}  // namespace dlcp::shm
