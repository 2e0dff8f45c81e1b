// Where the source tree is that the tests were built from. In a file of its own, so that no other object depends on the
// path: checkouts share compiled objects through ccache.
#pragma once

#include <string>

namespace dlcp::test {

std::string source_folder();

}  // namespace dlcp::test
