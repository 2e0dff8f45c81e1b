// How connections are made and what moves through them; connections.hpp says which runtimes there are.
#include "nccl/connections.hpp"

#include <sys/random.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/wire.hpp"
#include "nccl/environment.hpp"

namespace dlcp::nccl {
namespace {

constexpr char magic[8] = {'d', 'l', 'c', 'p', 'n', 'e', 't', '8'};
constexpr std::uint32_t receiving_rank = 0;
constexpr Duration connect_timeout = seconds(30);

JobKeyBytes drawn_key() {
    JobKeyBytes key{};
    if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size()))
        throw Failure(Result::system_error, "getrandom gives no job key");
    return key;
}

RuntimeOptions with_key(RuntimeOptions options, std::uint32_t rank, const JobKeyBytes& key) {
    options.engine.rank = rank;
    options.engine.job_key = key;
    return options;
}

SendCommand message(std::uint64_t tag, const void* data, int bytes) {
    SendCommand command;
    command.tag = tag;
    command.payload = static_cast<const std::uint8_t*>(data);
    command.message_bytes = static_cast<std::uint32_t>(bytes);
    return command;
}

}  // namespace

// The handshake of a sender that NCCL asks for again and again.
struct Connecting {
    std::shared_ptr<Runtime> runtime;
    RealTime until;
};

ReceivingRuntime::ReceivingRuntime(RuntimeOptions options)
    : key(drawn_key()), runtime(new Runtime(with_key(std::move(options), receiving_rank, key))) {}

// ---- requests ----

bool Request::test(int* bytes) const {
    // NCCL asks in a loop: its thread may as well move the packets, so that no other one need wake.
    if (!operation->over.load(std::memory_order_acquire)) runtime->progress(Duration{0});
    if (!operation->over.load(std::memory_order_acquire)) return false;
    if (operation->error != CommandError::none) {
        const bool too_small =
            operation->error == CommandError::receive_too_small || operation->error == CommandError::refused;
        throw Failure(
            too_small ? Result::invalid_usage : Result::remote_error,
            std::string(operation->sending ? "a send" : "a receive") + " ended with " + name(operation->error));
    }
    if (bytes != nullptr) *bytes = static_cast<int>(operation->outcome.message_bytes);
    return true;
}

Sender::Sender(std::shared_ptr<Runtime> runtime, std::uint32_t connection)
    : runtime_(std::move(runtime)), next_tag_(std::uint64_t{connection} << 32) {
    runtime_->send(receiving_rank, message(next_tag_++, nullptr, 0));
}

std::unique_ptr<Request> Sender::send(const void* data, int bytes) {
    auto operation = runtime_->send(receiving_rank, message(next_tag_, data, bytes));
    ++next_tag_;
    return std::make_unique<Request>(runtime_, std::move(operation));
}

std::unique_ptr<Request> Receiver::receive(void* data, int bytes) {
    ReceiveCommand command;
    command.tag = next_tag_;
    command.buffer = static_cast<std::uint8_t*>(data);
    command.capacity_bytes = static_cast<std::uint32_t>(bytes);
    auto operation = runtime_->receive(rank_, command);
    ++next_tag_;
    return std::make_unique<Request>(runtime_, std::move(operation));
}

// ---- the receiver's side ----

Listener::Listener(std::shared_ptr<ReceivingRuntime> receiving, Handle& handle)
    : runtime_(receiving, receiving->runtime.get()), connection_(++receiving->connections) {
    handle = {};
    std::memcpy(handle.magic, magic, sizeof magic);
    handle.wire_version = wire::version;
    handle.connection = connection_;
    handle.key = receiving->key;
    const std::string& address = runtime_->local_address();
    if (address.size() >= sizeof handle.address)
        throw Failure(Result::system_error, "the address " + address + " is too long for NCCL's handle");
    address.copy(handle.address, address.size());
    ReceiveCommand command;
    command.tag = std::uint64_t{connection_} << 32;
    hello_ = runtime_->receive(std::nullopt, command);
}

Listener::~Listener() {
    if (!hello_->over.load()) runtime_->cancel(hello_);
}

std::unique_ptr<Receiver> Listener::accept() {
    const Request request{runtime_, hello_};
    if (!request.test(nullptr)) return nullptr;
    return std::make_unique<Receiver>(runtime_, connection_, hello_->rank);
}

// ---- the network ----

Network::Network() : options_(options_from_environment()) {
    const std::string pattern = std::exchange(options_.interface_name, {});
    const char* nccl_pattern = std::getenv("NCCL_SOCKET_IFNAME");
    const auto interfaces = udp::list_interfaces();
    devices_ = find_devices(!pattern.empty() ? pattern : nccl_pattern != nullptr ? nccl_pattern : "", interfaces);
    if (devices_.empty())
        throw Failure(Result::invalid_usage,
                      "no interface that DLCP_INTERFACE or NCCL_SOCKET_IFNAME names can be used; here are " +
                          udp::describe(interfaces));
    receiving_.resize(devices_.size());
}

const Device& Network::device(int index) const {
    if (index < 0 || static_cast<std::size_t>(index) >= devices_.size())
        throw Failure(Result::internal_error, "there is no device " + std::to_string(index));
    return devices_[static_cast<std::size_t>(index)];
}

RuntimeOptions Network::options_of(int index) const {
    RuntimeOptions options = options_;
    options.bind_host = device(index).host;
    return options;
}

std::unique_ptr<Listener> Network::listen(int index, Handle& handle) {
    const std::lock_guard lock(mutex_);
    const RuntimeOptions options = options_of(index);
    auto& place = receiving_[static_cast<std::size_t>(index)];
    auto receiving = place.lock();
    if (receiving == nullptr) place = receiving = std::make_shared<ReceivingRuntime>(options);
    return std::make_unique<Listener>(std::move(receiving), handle);
}

std::shared_ptr<Runtime> Network::runtime_toward(int index, const Handle& handle) {
    const std::string address(handle.address, strnlen(handle.address, sizeof handle.address));
    const std::lock_guard lock(mutex_);
    auto& place = sending_[address + std::string(handle.key.begin(), handle.key.end())];
    auto runtime = place.lock();
    if (runtime == nullptr) {
        RuntimeOptions options = with_key(options_of(index), handle.connection, handle.key);
        options.port = 0;
        place = runtime = RuntimePtr(new Runtime(options));
        runtime->connect(receiving_rank, address);
    }
    return runtime;
}

std::unique_ptr<Sender> Network::connect(int index, Handle& handle) {
    if (std::memcmp(handle.magic, magic, sizeof magic) != 0 || handle.wire_version != wire::version)
        throw Failure(Result::invalid_usage, "the peer's network is not dlcp of this version; all ranks need one");
    if (handle.connecting == nullptr)
        handle.connecting = new Connecting{runtime_toward(index, handle), real_deadline(connect_timeout)};
    Connecting& connecting = *handle.connecting;
    if (connecting.runtime->established(receiving_rank)) {
        auto sender = std::make_unique<Sender>(connecting.runtime, handle.connection);
        delete std::exchange(handle.connecting, nullptr);
        return sender;
    }
    if (!has_passed(connecting.until)) return nullptr;
    delete std::exchange(handle.connecting, nullptr);
    throw Failure(Result::remote_error,
                  std::string("no answer from ") + handle.address + " in 30 s; can UDP packets reach it?");
}

}  // namespace dlcp::nccl
