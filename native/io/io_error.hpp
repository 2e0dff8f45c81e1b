// How a runtime refuses a command: what kind of mistake it was, and a sentence for a person, which names the value,
// what is accepted and what to do.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/config.hpp"
#include "engine/event.hpp"

namespace dlcp {

enum class IoErrorKind {
    settings,  // a value outside its range, or values that contradict each other
    address,   // an address that cannot be resolved, bound or used
    port_in_use,
    interface,        // a network interface that is not there
    permission,       // the system does not let this user do it
    driver,           // a driver that is not there, or is of another version
    unauthenticated,  // no job key and an address that others can reach
    system,           // the system is out of something (memory, threads, descriptors)
    closed,           // the runtime is closed
    forked,           // the runtime belongs to the process that opened it, not to a child of it
    unknown_peer,
    not_established,  // the handshake is not over yet
    duplicate_rank,
    message_too_long,
    traffic_class,
    loss_ratio,
    deadline,
    importance,  // not one entry per block
    too_many,    // a bound on peers or messages
    no_key,
};
const char* name(IoErrorKind kind);

struct IoError : std::runtime_error {
    IoError(IoErrorKind what_kind, const std::string& sentence) : std::runtime_error(sentence), kind(what_kind) {}
    IoErrorKind kind;
};

// What a refused command was about; the sentences take their values from here.
struct RefusedCommand {
    std::uint32_t rank = UINT32_MAX;  // UINT32_MAX: any
    double loss_ratio = 0.0;
    Duration deadline{0};
    std::uint32_t traffic_class = 0;
    std::uint32_t message_bytes = 0;
    std::uint64_t importance_entries = 0;  // given
    std::uint32_t blocks = 0;              // of the message, which there should be entries for
};

// The engine refused a command with `error`.
IoError refusal(CommandError error, const RefusedCommand& command, const EndpointConfig& config);
// A driver's open() failed with the positive errno `error` and perhaps a sentence of its own.
IoError open_refusal(int error, const char* sentence, const std::string& driver, const std::string& bind_host,
                     std::uint16_t port);
IoError address_refusal(int error, const char* sentence, const std::string& address, std::uint32_t rank);
IoError unauthenticated_refusal(const std::string& bind_host);
// What the runtime itself refuses.
IoError unknown_peer_refusal(std::uint32_t rank, const std::vector<std::uint32_t>& known);
IoError not_established_refusal(std::uint32_t rank);
IoError too_long_refusal(const char* what, std::uint64_t bytes);
IoError closed_refusal(std::uint32_t own_rank);
IoError forked_refusal();

}  // namespace dlcp
