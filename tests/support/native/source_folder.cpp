#include "support/native/source_folder.hpp"

namespace dlcp::test {

std::string source_folder() { return DLCP_SOURCE_DIR; }

}  // namespace dlcp::test
