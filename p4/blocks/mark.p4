// A mark: Congestion Experienced in the IP header (RFC 3168, 5), and nothing else.
#ifndef DLCP_MARK_P4
#define DLCP_MARK_P4

#include "metadata.p4"

control Mark(inout headers_t headers, inout metadata_t meta) {
    apply {
        if (meta.kind == FrameKind.ipv4) {
            headers.ipv4.ecn = ECN_CE;
            meta.ipv4_changed = 1;
        } else {
            headers.ipv6.ecn = ECN_CE;
        }
    }
}

#endif
