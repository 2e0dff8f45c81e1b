#include "io/runtime_error.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace dlcp {
namespace {

RuntimeErrorKind kind_of_open_error(int error) {
    switch (error) {
        case EADDRINUSE: return RuntimeErrorKind::port_in_use;
        case EBUSY:  // a device that another endpoint has
        case ENODEV:
        case ENXIO: return RuntimeErrorKind::interface;
        case EACCES:
        case EPERM: return RuntimeErrorKind::permission;
        case EINVAL:
        case EADDRNOTAVAIL:
        case EAFNOSUPPORT:
        case EHOSTUNREACH:
        case ENETUNREACH:
        case ENOENT: return RuntimeErrorKind::address;
        case EDOM: return RuntimeErrorKind::settings;  // a word for the driver, or its value
        case EALREADY:                                 // a library below it that runs already, in another way
        case ENOSYS:
        case EOPNOTSUPP: return RuntimeErrorKind::driver;
        default: return RuntimeErrorKind::system;
    }
}

std::string short_text(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

}  // namespace

const char* name(RuntimeErrorKind kind) {
    switch (kind) {
        case RuntimeErrorKind::settings: return "settings";
        case RuntimeErrorKind::address: return "address";
        case RuntimeErrorKind::port_in_use: return "port_in_use";
        case RuntimeErrorKind::interface: return "interface";
        case RuntimeErrorKind::permission: return "permission";
        case RuntimeErrorKind::driver: return "driver";
        case RuntimeErrorKind::unauthenticated: return "unauthenticated";
        case RuntimeErrorKind::system: return "system";
        case RuntimeErrorKind::closed: return "closed";
        case RuntimeErrorKind::forked: return "forked";
        case RuntimeErrorKind::unknown_peer: return "unknown_peer";
        case RuntimeErrorKind::not_established: return "not_established";
        case RuntimeErrorKind::duplicate_rank: return "duplicate_rank";
        case RuntimeErrorKind::message_too_long: return "message_too_long";
        case RuntimeErrorKind::traffic_class: return "traffic_class";
        case RuntimeErrorKind::loss_ratio: return "loss_ratio";
        case RuntimeErrorKind::deadline: return "deadline";
        case RuntimeErrorKind::importance: return "importance";
        case RuntimeErrorKind::too_many: return "too_many";
        case RuntimeErrorKind::no_key: return "no_key";
    }
    return "?";
}

RuntimeError refusal(CommandError error, const RefusedCommand& command, const EndpointConfig& config) {
    const std::string peer = command.rank == UINT32_MAX ? "any rank" : "rank " + std::to_string(command.rank);
    switch (error) {
        case CommandError::unknown_peer:
            return {RuntimeErrorKind::unknown_peer, peer + " is not a peer; call connect(rank, address) first"};
        case CommandError::bad_class:
            return {RuntimeErrorKind::traffic_class, "the traffic class is outside 0 to 6"};
        case CommandError::bad_loss_ratio:
            return {RuntimeErrorKind::loss_ratio,
                    "loss ratio is " + short_text(command.loss_ratio) +
                        "; accepted: 0 to less than 1, the fraction of a message's bytes "
                        "that may be abandoned"};
        case CommandError::bad_deadline:
            return {RuntimeErrorKind::deadline,
                    "deadline is " + short_text(static_cast<double>(command.deadline.value) * 1e-9) +
                        " s; accepted: more than 0, and only with delivery 'deadline'"};
        case CommandError::duplicate_rank:
            return {RuntimeErrorKind::duplicate_rank,
                    peer +
                        " is a peer already, at another address; disconnect it first, or give each peer a rank of "
                        "its own"};
        case CommandError::own_rank:
            return {RuntimeErrorKind::duplicate_rank,
                    peer + " is this endpoint's own rank; give each endpoint a rank of its own"};
        case CommandError::too_many_peers:
            return {RuntimeErrorKind::too_many,
                    "there are " + std::to_string(config.max_peers) + " peers already; raise max_peers"};
        case CommandError::too_many_messages:
            return {RuntimeErrorKind::too_many, std::to_string(config.max_messages_per_peer) + " messages with " +
                                                    peer +
                                                    " are under way already; wait for some, or raise "
                                                    "max_messages_per_peer"};
        case CommandError::no_key:
            return {RuntimeErrorKind::no_key,
                    "there is no job key whose epoch could be advanced; open the endpoint with a key"};
        case CommandError::closed: return closed_refusal(config.rank);
        default: return {RuntimeErrorKind::system, "the engine refused the command: " + std::string(name(error))};
    }
}

RuntimeError open_refusal(int error, const char* sentence, const std::string& driver, const std::string& bind_host,
                          std::uint16_t port) {
    // Only the drivers over sockets bind to loopback when no address is given.
    const bool binds_loopback = bind_host.empty() && (driver == "udp" || driver == "local");
    const std::string where = binds_loopback ? "loopback" : bind_host;
    return {kind_of_open_error(error), "driver '" + driver + "' cannot open" +
                                           (where.empty() ? "" : " " + where + " port " + std::to_string(port)) +
                                           ": " + (sentence[0] != '\0' ? sentence : std::strerror(error))};
}

RuntimeError address_refusal(int error, const char* sentence, const std::string& address, std::uint32_t rank) {
    return {RuntimeErrorKind::address, "address '" + address + "' of rank " + std::to_string(rank) + ": " +
                                           (sentence[0] != '\0' ? sentence : std::strerror(error))};
}

RuntimeError unauthenticated_refusal(const std::string& bind_host) {
    return {RuntimeErrorKind::unauthenticated,
            "no job key, and other hosts can reach " + (bind_host.empty() ? "this address" : bind_host) +
                ": whoever can send there could forge gradients; give a key file (DLCP_KEY_FILE), bind to "
                "loopback, or allow unauthenticated peers explicitly (DLCP_ALLOW_UNAUTHENTICATED=1)"};
}

RuntimeError unknown_peer_refusal(std::uint32_t rank, const std::vector<std::uint32_t>& known) {
    constexpr std::size_t named_at_most = 16;
    std::string peers;
    for (std::size_t i = 0; i < known.size() && i < named_at_most; ++i)
        peers += (i == 0 ? "" : ", ") + std::to_string(known[i]);
    if (known.size() > named_at_most) peers += ", …";
    return {RuntimeErrorKind::unknown_peer, "rank " + std::to_string(rank) +
                                                " is not a peer; peers are: " + (peers.empty() ? "none" : peers) +
                                                "; call connect(rank, address) first"};
}

RuntimeError not_established_refusal(std::uint32_t rank) {
    return {RuntimeErrorKind::not_established,
            "rank " + std::to_string(rank) +
                " has not answered yet, so the block size is not known; wait for the "
                "handshake before sending what may be lost"};
}

RuntimeError too_long_refusal(const char* what, std::uint64_t bytes) {
    return {RuntimeErrorKind::message_too_long, std::string(what) + " has " + std::to_string(bytes) +
                                                    " bytes; at most " + std::to_string(UINT32_MAX) +
                                                    " (4 GiB - 1): split it into several messages"};
}

RuntimeError class_refusal(std::uint32_t traffic_class) {
    return {RuntimeErrorKind::traffic_class,
            "traffic class is " + std::to_string(traffic_class) + "; accepted: 0 to 6, 6 leaves first"};
}

RuntimeError importance_refusal(std::uint64_t entries, std::uint32_t blocks, std::uint32_t rank,
                                std::uint64_t message_bytes) {
    return {RuntimeErrorKind::importance, "importance has " + std::to_string(entries) + " entries; a message of " +
                                              std::to_string(message_bytes) + " bytes to rank " +
                                              std::to_string(rank) + " has " + std::to_string(blocks) +
                                              " blocks: give one entry per block"};
}

RuntimeError closed_refusal(std::uint32_t own_rank) {
    return {RuntimeErrorKind::closed,
            "this endpoint (rank " + std::to_string(own_rank) + ") is closed; open another"};
}

RuntimeError forked_refusal() {
    return {RuntimeErrorKind::forked,
            "this endpoint was opened before a fork and belongs to the parent process; open another here"};
}

}  // namespace dlcp
