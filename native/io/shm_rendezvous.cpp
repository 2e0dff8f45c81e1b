#include "io/shm_rendezvous.hpp"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace dlcp::shm {

namespace {

constexpr std::size_t address_bytes = 160;
constexpr int backlog = 4096;
// Connections that have not greeted: a process can be stopped between the two calls. Beyond this the oldest is dropped.
constexpr std::size_t silent_max = 64;

struct Message {
    std::array<char, 8> magic;
    std::uint32_t ring_bytes;
    std::uint32_t reserved;
    Name from;
    Name to;
    std::array<char, address_bytes> address;  // ends with NUL
};
constexpr std::array<char, 8> magic = {'d', 'l', 'c', 'p', 's', 'h', 'm', '1'};
constexpr int descriptors = 3;  // memory, the opener's bell, the taker's

constexpr const char* parent_folder = "/tmp";
constexpr std::string_view folder_prefix = "dlcp-shm-";
// A folder younger than this may belong to an endpoint that does not listen yet.
constexpr time_t stale_s = 60;

std::string socket_in(const std::string& folder) { return folder + "/socket"; }

sockaddr_un socket_address(const std::string& folder) {
    sockaddr_un out = {};
    out.sun_family = AF_UNIX;
    const std::string path = socket_in(folder);
    memcpy(out.sun_path, path.data(), std::min(path.size(), sizeof out.sun_path - 1));
    return out;
}

void remove_folder(const std::string& folder) {
    unlink(socket_in(folder).c_str());
    rmdir(folder.c_str());
}

// Whether somebody listens there. Asked with the wrong type of socket, so that the listener does not notice.
bool is_listening(const std::string& folder) {
    const Descriptor probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = socket_address(folder);
    return !probe || ::connect(probe.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
           (errno != ECONNREFUSED && errno != ENOENT);
}

// Removes what killed processes of this user have left.
void remove_stale_folders() {
    DIR* const parent = opendir(parent_folder);
    if (parent == nullptr) return;
    while (const dirent* const entry = readdir(parent)) {
        if (!std::string_view(entry->d_name).starts_with(folder_prefix)) continue;
        const std::string folder = std::string(parent_folder) + "/" + entry->d_name;
        struct stat status = {};
        if (lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid())
            continue;
        if (status.st_mtime + stale_s < time(nullptr) && !is_listening(folder)) remove_folder(folder);
    }
    closedir(parent);
}

bool same_user(int socket) {
    ucred other = {};
    socklen_t length = sizeof other;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == geteuid();
}

// FNV-1a: it tells hosts apart, it hides nothing.
std::uint64_t hash(std::uint64_t seed, const void* data, std::size_t bytes) {
    const auto* at = static_cast<const std::uint8_t*>(data);
    for (std::size_t i = 0; i < bytes; ++i) seed = (seed ^ at[i]) * 0x100000001b3;
    return seed;
}

int send_parts(int socket, const Message& message, const ChannelParts& parts) {
    iovec part = {const_cast<Message*>(&message), sizeof message};
    alignas(cmsghdr) std::array<std::uint8_t, CMSG_SPACE(descriptors * sizeof(int))> control = {};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    const int numbers[descriptors] = {parts.memory.number(), parts.opener_bell.number(),
                                      parts.taker_bell.number()};
    memcpy(CMSG_DATA(rights), numbers, sizeof numbers);
    return sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof message ? 0 : -errno;
}

// 0, or a negative errno: -EAGAIN if nothing has come yet.
int receive_parts(int socket, Message& message, ChannelParts& parts) {
    iovec part = {&message, sizeof message};
    alignas(cmsghdr) std::array<std::uint8_t, CMSG_SPACE(descriptors * sizeof(int))> control = {};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t received_bytes = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received_bytes < 0) return -errno;
    Descriptor got[descriptors];
    int count = 0;
    for (cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr; rights = CMSG_NXTHDR(&header, rights)) {
        if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t bytes = rights->cmsg_len - CMSG_LEN(0);
        for (std::size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
            int number;
            memcpy(&number, CMSG_DATA(rights) + at, sizeof number);
            Descriptor descriptor(number);  // closed if there are too many
            if (count < descriptors) got[count++] = std::move(descriptor);
        }
    }
    if (received_bytes != sizeof message || count != descriptors ||
        (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || message.magic != magic ||
        message.address.back() != '\0') {
        return -EPROTO;
    }
    parts = {std::move(got[0]), std::move(got[1]), std::move(got[2])};
    return 0;
}

}  // namespace

std::string host_identity() {
    char boot[64] = "";
    FILE* file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == nullptr) return {};
    const std::size_t boot_bytes = fread(boot, 1, sizeof boot, file);
    fclose(file);
    struct stat network = {};
    if (boot_bytes == 0 || stat("/proc/self/ns/net", &network) != 0) return {};
    std::uint64_t value = hash(0xcbf29ce484222325, boot, boot_bytes);
    value = hash(value, &network.st_dev, sizeof network.st_dev);
    value = hash(value, &network.st_ino, sizeof network.st_ino);
    char text[17];
    snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
    return text;
}

std::string to_text(const Name& name) {
    constexpr char digits[] = "0123456789abcdef";
    std::string out;
    for (const std::uint8_t byte : name) {
        out += digits[byte >> 4];
        out += digits[byte & 15];
    }
    return out;
}

bool from_text(std::string_view text, Name& out) {
    if (text.size() != 2 * out.size()) return false;
    const auto digit = [](char c) {
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    for (std::size_t i = 0; i < out.size(); ++i) {
        const int high = digit(text[2 * i]);
        const int low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = static_cast<std::uint8_t>(high << 4 | low);
    }
    return true;
}

std::string folder_of(const Name& name) {
    return std::string(parent_folder) + "/" + std::string(folder_prefix) + to_text(name);
}

Rendezvous::~Rendezvous() {
    if (!folder_.empty() && !fork_guard_.forked()) remove_folder(folder_);
}

int Rendezvous::open() {
    remove_stale_folders();
    if (getrandom(name_.data(), name_.size(), 0) != static_cast<ssize_t>(name_.size())) return -errno;
    listener_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!listener_) return -errno;
    const std::string folder = folder_of(name_);
    if (mkdir(folder.c_str(), S_IRWXU) != 0) return -errno;
    folder_ = folder;
    const sockaddr_un address = socket_address(folder);
    if (bind(listener_.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_.number(), backlog) != 0) {
        return -errno;
    }
    return 0;
}

std::unique_ptr<Channel> Rendezvous::connect(const Name& name, const std::string& own_address, int& error) {
    error = 0;
    Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const sockaddr_un address = socket_address(folder_of(name));
    // Non-blocking: a listener with a full backlog answers EAGAIN.
    if (!socket || ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        error = -errno;
        return nullptr;
    }
    if (!same_user(socket.number())) {
        error = -EPERM;
        return nullptr;
    }
    auto channel = std::make_unique<Channel>();
    ChannelParts parts;
    error = channel->make(ring_bytes_, packet_bytes_max_, parts);
    if (error < 0) return nullptr;
    Message message = {
        .magic = magic, .ring_bytes = ring_bytes_, .reserved = 0, .from = name_, .to = name, .address = {}};
    memcpy(message.address.data(), own_address.data(), std::min(own_address.size(), address_bytes - 1));
    error = send_parts(socket.number(), message, parts);
    if (error < 0) return nullptr;
    channel->socket = std::move(socket);
    return channel;
}

std::unique_ptr<Channel> Rendezvous::accept(Greeting& greeting) {
    more_waiting_ = true;
    for (int accepted = 0; accepted < accepts_per_call; ++accepted) {
        Descriptor socket(accept4(listener_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket && errno == ECONNABORTED) continue;
        if (!socket) {
            more_waiting_ = false;
            break;
        }
        if (!same_user(socket.number())) continue;
        if (silent_.size() == silent_max) silent_.erase(silent_.begin());
        silent_.push_back(std::move(socket));
    }
    for (std::size_t i = 0; i < silent_.size();) {
        Message message;
        ChannelParts parts;
        int result = receive_parts(silent_[i].number(), message, parts);
        if (result == -EAGAIN || result == -EWOULDBLOCK) {
            ++i;
            continue;
        }
        Descriptor socket = std::move(silent_[i]);
        silent_.erase(silent_.begin() + static_cast<std::ptrdiff_t>(i));
        if (result < 0 || message.to != name_) continue;
        auto channel = std::make_unique<Channel>();
        result = channel->take(std::move(parts), message.ring_bytes, packet_bytes_max_);
        if (result < 0) continue;
        channel->socket = std::move(socket);
        greeting = {message.from, message.address.data()};
        return channel;
    }
    return nullptr;
}

}  // namespace dlcp::shm
