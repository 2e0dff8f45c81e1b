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

enum class RuntimeErrorKind {
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
const char* name(RuntimeErrorKind kind);

struct RuntimeError : std::runtime_error {
    RuntimeError(RuntimeErrorKind what_kind, const std::string& sentence)
        : std::runtime_error(sentence), kind(what_kind) {}
    RuntimeErrorKind kind;
};

// What a refused command was about; the sentences take their values from here.
struct RefusedCommand {
    std::uint32_t rank = UINT32_MAX;  // UINT32_MAX: any
    double loss_ratio = 0.0;
    Duration deadline{0};
};

// The engine refused a command with `error`.
RuntimeError refusal(CommandError error, const RefusedCommand& command, const EndpointConfig& config);
// A driver's open() failed with the positive errno `error` and perhaps a sentence of its own.
RuntimeError open_refusal(int error, const char* sentence, const std::string& driver, const std::string& bind_host,
                          std::uint16_t port);
RuntimeError address_refusal(int error, const char* sentence, const std::string& address, std::uint32_t rank);
RuntimeError unauthenticated_refusal(const std::string& bind_host);
// What the runtime itself refuses.
RuntimeError unknown_peer_refusal(std::uint32_t rank, const std::vector<std::uint32_t>& known);
RuntimeError not_established_refusal(std::uint32_t rank);
RuntimeError too_long_refusal(const char* what, std::uint64_t bytes);
RuntimeError class_refusal(std::uint32_t traffic_class);
RuntimeError importance_refusal(std::uint64_t entries, std::uint32_t blocks, std::uint32_t rank,
                                std::uint64_t message_bytes);
RuntimeError closed_refusal(std::uint32_t own_rank);
RuntimeError forked_refusal();

}  // namespace dlcp
