// Finds a driver by name: "udp" and "local" (shared memory inside a host, UDP between hosts) are built in, any other name
// is a plugin.
//
// A plugin is a shared library that exports `dlcp_io_driver` (io_table.h). It is loaded only when asked for and
// never unloaded, since its threads and exit handlers may outlive a runtime.
#pragma once

#include <string>

#include "io/io_table.h"

namespace dlcp {

// The table of driver `name`. "local+NAME" is shared memory inside a host and driver NAME between hosts: the table of
// "local", which needs driver_options_of() too. A name with a slash is the path of a plugin; any other that is not built in
// stands for libdlcp_io_<name>.so, looked for beside this library and then where the dynamic linker looks. Throws
// IoError (driver): not found, not a plugin, or of another ABI version.
const dlcp_io_table& find_driver(const std::string& name);

// What a driver of this name is to be given as dlcp_io_config::extra where its user gave `extra`.
std::string driver_options_of(const std::string& name, const std::string& extra);

}  // namespace dlcp
