// Packet protection by Intel's libipsec-mb. Not there yet: `fastest` means OpenSSL.
#include "engine/protection_library.hpp"

namespace dlcp {

std::unique_ptr<PacketKey> make_ipsec_mb_packet_key(const PacketKeyBytes&) { return nullptr; }

}  // namespace dlcp
