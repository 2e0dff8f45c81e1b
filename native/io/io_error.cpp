#include "io/io_error.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace dlcp {
namespace {

IoErrorKind kind_of_open_error(int error) {
    switch (error) {
        case EADDRINUSE: return IoErrorKind::port_in_use;
        case EBUSY:  // a device that another endpoint has
        case ENODEV:
        case ENXIO: return IoErrorKind::interface;
        case EACCES:
        case EPERM: return IoErrorKind::permission;
        case EINVAL:
        case EADDRNOTAVAIL:
        case EAFNOSUPPORT:
        case EHOSTUNREACH:
        case ENETUNREACH:
        case ENOENT: return IoErrorKind::address;
        case EDOM: return IoErrorKind::settings;  // an option of the driver, or its value
        case EALREADY:                            // a library below it that runs already, in another way
        case ENOSYS:
        case EOPNOTSUPP: return IoErrorKind::driver;
        default: return IoErrorKind::system;
    }
}

std::string short_text(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

}  // namespace

const char* name(IoErrorKind kind) {
    switch (kind) {
        case IoErrorKind::settings: return "settings";
        case IoErrorKind::address: return "address";
        case IoErrorKind::port_in_use: return "port_in_use";
        case IoErrorKind::interface: return "interface";
        case IoErrorKind::permission: return "permission";
        case IoErrorKind::driver: return "driver";
        case IoErrorKind::unauthenticated: return "unauthenticated";
        case IoErrorKind::system: return "system";
        case IoErrorKind::closed: return "closed";
        case IoErrorKind::forked: return "forked";
        case IoErrorKind::unknown_peer: return "unknown_peer";
        case IoErrorKind::not_established: return "not_established";
        case IoErrorKind::duplicate_rank: return "duplicate_rank";
        case IoErrorKind::message_too_long: return "message_too_long";
        case IoErrorKind::traffic_class: return "traffic_class";
        case IoErrorKind::loss_ratio: return "loss_ratio";
        case IoErrorKind::deadline: return "deadline";
        case IoErrorKind::importance: return "importance";
        case IoErrorKind::too_many: return "too_many";
        case IoErrorKind::no_key: return "no_key";
    }
    return "?";
}

IoError refusal(CommandError error, const RefusedCommand& command, const EndpointConfig& config) {
    const std::string peer = command.rank == UINT32_MAX ? "any rank" : "rank " + std::to_string(command.rank);
    switch (error) {
        case CommandError::unknown_peer:
            return {IoErrorKind::unknown_peer, peer + " is not a peer; call connect(rank, address) first"};
        case CommandError::bad_class:
            return {IoErrorKind::traffic_class, "traffic class is " + std::to_string(command.traffic_class) +
                                                    "; accepted: 0 to 6, 6 leaves first"};
        case CommandError::bad_importance_count:
            return {IoErrorKind::importance,
                    "importance has " + std::to_string(command.importance_entries) + " entries; a message of " +
                        std::to_string(command.message_bytes) + " bytes to " + peer + " has " +
                        std::to_string(command.blocks) + " blocks: give one entry per block"};
        case CommandError::bad_loss_ratio:
            return {IoErrorKind::loss_ratio, "loss ratio is " + short_text(command.loss_ratio) +
                                                 "; accepted: 0 to less than 1, the fraction of a message's bytes "
                                                 "that may be abandoned"};
        case CommandError::bad_deadline:
            return {IoErrorKind::deadline, "deadline is " +
                                               short_text(static_cast<double>(command.deadline.value) * 1e-9) +
                                               " s; accepted: more than 0, and only with delivery 'deadline'"};
        case CommandError::duplicate_rank:
            return {IoErrorKind::duplicate_rank,
                    peer +
                        " is a peer already, at another address; disconnect it first, or give each peer a rank of "
                        "its own"};
        case CommandError::own_rank:
            return {IoErrorKind::duplicate_rank,
                    peer + " is this endpoint's own rank; give each endpoint a rank of its own"};
        case CommandError::too_many_peers:
            return {IoErrorKind::too_many,
                    "there are " + std::to_string(config.max_peers) + " peers already; raise max_peers"};
        case CommandError::too_many_messages:
            return {IoErrorKind::too_many, std::to_string(config.max_messages_per_peer) + " messages with " +
                                               peer +
                                               " are under way already; wait for some, or raise "
                                               "max_messages_per_peer"};
        case CommandError::no_key:
            return {IoErrorKind::no_key,
                    "there is no job key whose epoch could be advanced; open the endpoint with a key"};
        case CommandError::closed: return closed_refusal(config.rank);
        default: return {IoErrorKind::system, "the engine refused the command: " + std::string(name(error))};
    }
}

IoError open_refusal(int error, const char* sentence, const std::string& driver, const std::string& bind_host,
                     std::uint16_t port) {
    // Only the drivers over sockets bind to loopback when no address is given.
    const bool binds_loopback = bind_host.empty() && (driver == "udp" || driver == "local");
    const std::string where = binds_loopback ? "loopback" : bind_host;
    return {kind_of_open_error(error), "driver '" + driver + "' cannot open" +
                                           (where.empty() ? "" : " " + where + " port " + std::to_string(port)) +
                                           ": " + (sentence[0] != '\0' ? sentence : std::strerror(error))};
}

IoError address_refusal(int error, const char* sentence, const std::string& address, std::uint32_t rank) {
    return {IoErrorKind::address, "address '" + address + "' of rank " + std::to_string(rank) + ": " +
                                      (sentence[0] != '\0' ? sentence : std::strerror(error))};
}

IoError unauthenticated_refusal(const std::string& bind_host) {
    return {IoErrorKind::unauthenticated,
            "no job key, and other hosts can reach " + (bind_host.empty() ? "this address" : bind_host) +
                ": whoever can send there could forge gradients; give a key file (DLCP_KEY_FILE), bind to "
                "loopback, or allow unauthenticated peers explicitly (DLCP_ALLOW_UNAUTHENTICATED=1)"};
}

IoError unknown_peer_refusal(std::uint32_t rank, const std::vector<std::uint32_t>& known) {
    constexpr std::size_t named_at_most = 16;
    std::string peers;
    for (std::size_t i = 0; i < known.size() && i < named_at_most; ++i)
        peers += (i == 0 ? "" : ", ") + std::to_string(known[i]);
    if (known.size() > named_at_most) peers += ", …";
    return {IoErrorKind::unknown_peer, "rank " + std::to_string(rank) +
                                           " is not a peer; peers are: " + (peers.empty() ? "none" : peers) +
                                           "; call connect(rank, address) first"};
}

IoError not_established_refusal(std::uint32_t rank) {
    return {IoErrorKind::not_established,
            "rank " + std::to_string(rank) +
                " has not answered yet, so the block size is not known; wait for the "
                "handshake before sending what may be lost"};
}

IoError too_long_refusal(const char* what, std::uint64_t bytes) {
    return {IoErrorKind::message_too_long, std::string(what) + " has " + std::to_string(bytes) +
                                               " bytes; at most " + std::to_string(UINT32_MAX) +
                                               " (4 GiB - 1): split it into several messages"};
}

IoError closed_refusal(std::uint32_t own_rank) {
    return {IoErrorKind::closed, "this endpoint (rank " + std::to_string(own_rank) + ") is closed; open another"};
}

IoError forked_refusal() {
    return {IoErrorKind::forked,
            "this endpoint was opened before a fork and belongs to the parent process; open another here"};
}

}  // namespace dlcp
