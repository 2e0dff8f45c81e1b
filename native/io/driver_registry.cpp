#include "io/driver_registry.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <string_view>

#include "io/io_error.hpp"
#include "io/local_driver.hpp"
#include "io/udp_driver.hpp"

namespace dlcp {
namespace {

constexpr const char* driver_symbol = "dlcp_io_driver";
constexpr std::string_view local_prefix = "local+";

// The folder of the shared library that this code is in; empty if unknown. A wheel puts plugins beside it.
std::string own_folder() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(&find_driver), &info) == 0 || info.dli_fname == nullptr) return {};
    const std::string file = info.dli_fname;
    const auto slash = file.rfind('/');
    return slash == std::string::npos ? std::string{} : file.substr(0, slash);
}

bool is_plain_name(const std::string& name) {
    return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

void* open_library(const std::string& name) {
    if (name.find('/') != std::string::npos) return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    const std::string file = "libdlcp_io_" + name + ".so";
    if (const std::string folder = own_folder(); !folder.empty()) {
        const std::string beside = folder + "/" + file;
        // A file that is there but does not load is reported, not passed over for another one.
        if (access(beside.c_str(), F_OK) == 0) return dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    return dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
}

// What brings the library that a driver of ours needs to be built; nullptr: it is somebody else's.
const char* packages_of(const std::string& name) {
    if (name == "dpdk") return "libdpdk-dev dpdk pkgconf";
    if (name == "xdp") return "libxdp-dev pkgconf";
    return nullptr;
}

}  // namespace

const dlcp_io_table& find_driver(const std::string& name) {
    const auto fail = [&](const std::string& what) -> IoError {
        return IoError(IoErrorKind::driver, "driver '" + name + "': " + what);
    };
    if (name == "udp") return *dlcp_udp_driver();
    if (name == "local") return *dlcp_local_driver();
    if (name.starts_with(local_prefix)) {
        find_driver(name.substr(local_prefix.size()));  // refused here rather than when it is opened
        return *dlcp_local_driver();
    }
    if (name.find('/') == std::string::npos && !is_plain_name(name))
        throw fail(
            "a driver is 'udp', 'local', 'dpdk', 'xdp', the name of a plugin (lower-case letters, digits, _) "
            "or the path of one");
    void* handle = open_library(name);
    if (handle == nullptr) {
        const char* reason = dlerror();
        const char* packages = packages_of(name);
        throw fail(
            "cannot load the plugin (" + std::string(reason != nullptr ? reason : "no reason given") +
            (packages != nullptr
                 ? "); it is built where its library is found: apt-get install " + std::string(packages) +
                       ", then in a checkout of dlcp, pip install --no-deps --force-reinstall --no-cache-dir .; "
                       "or "
                       "use 'udp'"
                 : "); the drivers of dlcp are 'udp', 'local', 'dpdk' and 'xdp'; of any other one name the path"));
    }
    using DriverFunction = const dlcp_io_table* (*)();
    const auto function = reinterpret_cast<DriverFunction>(dlsym(handle, driver_symbol));
    if (function == nullptr)
        throw fail("the library loads but has no symbol dlcp_io_driver: it is not a dlcp driver");
    const dlcp_io_table* table = function();
    if (table == nullptr) throw fail("dlcp_io_driver() returned nothing");
    if (table->abi_version != DLCP_IO_ABI_VERSION)
        throw fail("built for driver ABI " + std::to_string(table->abi_version) + ", this library has " +
                   std::to_string(DLCP_IO_ABI_VERSION) + "; rebuild the plugin against this version");
    return *table;
}

std::string driver_options_of(const std::string& name, const std::string& extra) {
    if (!name.starts_with(local_prefix)) return extra;
    return "inner=" + name.substr(local_prefix.size()) + (extra.empty() ? "" : " ") + extra;
}

}  // namespace dlcp
