// libnccl-net-dlcp.so: NCCL's table of a network, filled with dlcp's connections (connections.hpp).
#include <memory>
#include <stdexcept>
#include <string>

#include "nccl/connections.hpp"
#include "nccl/net_v8.hpp"

namespace dlcp::nccl {
namespace {

Logger logger = nullptr;
// Never deleted: the end of a process may find connections that NCCL has not closed.
Network* network = nullptr;

void log(int level, unsigned long subsystems, const std::string& text) {
    if (logger != nullptr) logger(level, subsystems, "libnccl-net-dlcp", 0, "NET/dlcp: %s", text.c_str());
}

// No exception leaves for NCCL, which is another C++ program's: it becomes a warning and a result.
template <class Call>
Result guarded(Call&& call) noexcept try {
    call();
    return Result::success;
} catch (const Failure& failure) {
    log(log_warning, log_all, failure.what());
    return failure.result;
} catch (const std::invalid_argument& error) {
    log(log_warning, log_all, error.what());
    return Result::invalid_usage;
} catch (const std::exception& error) {
    log(log_warning, log_all, error.what());
    return Result::system_error;
}

Result init(Logger given) {
    logger = given;
    return guarded([] {
        if (network == nullptr) network = new Network();
        for (const Device& device : network->devices())
            log(log_info, log_network,
                device.name + " " + device.host + ", " + std::to_string(device.speed_mbps) + " Mbit/s");
    });
}

Result devices(int* count) {
    *count = static_cast<int>(network->devices().size());
    return Result::success;
}

Result get_properties(int index, Properties* properties) {
    return guarded([&] {
        const Device& device = network->device(index);
        *properties = {.name = const_cast<char*>(device.name.c_str()),
                       .pci_path = device.pci_path.empty() ? nullptr : const_cast<char*>(device.pci_path.c_str()),
                       .guid = static_cast<std::uint64_t>(index),
                       .pointers = pointers_host,
                       .speed_mbps = device.speed_mbps,
                       .max_connections = 65'536,
                       .max_grouped_receives = 1};
    });
}

Result listen(int device, void* handle, void** listener) {
    return guarded([&] { *listener = network->listen(device, *static_cast<Handle*>(handle)).release(); });
}

Result connect(int device, void* handle, void** sender, void**) {
    *sender = nullptr;
    return guarded([&] { *sender = network->connect(device, *static_cast<Handle*>(handle)).release(); });
}

Result accept(void* listener, void** receiver, void**) {
    *receiver = nullptr;
    return guarded([&] { *receiver = static_cast<Listener*>(listener)->accept().release(); });
}

// Packets are copied by the kernel: memory needs no registration.
Result register_memory(void*, void*, std::size_t, int type, void** registration) {
    *registration = nullptr;
    return type == pointers_host ? Result::success : Result::internal_error;
}

Result deregister_memory(void*, void*) { return Result::success; }

Result send(void* sender, void* data, int bytes, int, void*, void** request) {
    *request = nullptr;
    return guarded([&] { *request = static_cast<Sender*>(sender)->send(data, bytes).release(); });
}

Result receive(void* receiver, int count, void** data, int* bytes, int*, void**, void** request) {
    *request = nullptr;
    if (count != 1) return Result::internal_error;
    return guarded([&] { *request = static_cast<Receiver*>(receiver)->receive(data[0], bytes[0]).release(); });
}

Result flush(void*, int, void**, int*, void**, void** request) {
    *request = nullptr;
    return Result::success;
}

Result test(void* request, int* done, int* bytes) {
    *done = 0;
    auto* asked = static_cast<Request*>(request);
    const Result result = guarded([&] { *done = asked->test(bytes) ? 1 : 0; });
    if (*done != 0 || result != Result::success) delete asked;
    return result;
}

template <class Closed>
Result close(void* connection) {
    return guarded([&] { delete static_cast<Closed*>(connection); });
}

}  // namespace
}  // namespace dlcp::nccl

extern "C" __attribute__((visibility("default"))) const dlcp::nccl::Table ncclNetPlugin_v8;
const dlcp::nccl::Table ncclNetPlugin_v8 = {
    .name = "dlcp",
    .init = dlcp::nccl::init,
    .devices = dlcp::nccl::devices,
    .get_properties = dlcp::nccl::get_properties,
    .listen = dlcp::nccl::listen,
    .connect = dlcp::nccl::connect,
    .accept = dlcp::nccl::accept,
    .register_memory = dlcp::nccl::register_memory,
    .register_dma_buffer = nullptr,
    .deregister_memory = dlcp::nccl::deregister_memory,
    .send = dlcp::nccl::send,
    .receive = dlcp::nccl::receive,
    .flush = dlcp::nccl::flush,
    .test = dlcp::nccl::test,
    .close_sender = dlcp::nccl::close<dlcp::nccl::Sender>,
    .close_receiver = dlcp::nccl::close<dlcp::nccl::Receiver>,
    .close_listener = dlcp::nccl::close<dlcp::nccl::Listener>,
    .get_device_registration = nullptr,
    .receive_consumed = nullptr,
};
