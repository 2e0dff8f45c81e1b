// A cut where a long dlcp header ends: what is left tells the receiver which block is missing, in the queue of trimmed
// packets.
//
// Flag, DSCP, lengths and checksums become those of the packet that is left, so that the next hop and the receiving
// host take it for a whole one. trim() of native/switch/frame.hpp; tests/vectors/switch_frames.txt holds the two
// together.
#ifndef DLCP_TRIM_P4
#define DLCP_TRIM_P4

#include "metadata.p4"

const bit<16> TRIMMED_UDP_BYTES = 72;  // UDP's header and dlcp's
const bit<16> TRIMMED_IPV4_BYTES = 92;

control Trim(inout headers_t headers, inout metadata_t meta) {
    @hidden
    action to_dlcp() {
        headers.dlcp.flags = headers.dlcp.flags | DLCP_TRIMMED;
        headers.udp.udp_bytes = TRIMMED_UDP_BYTES;
        truncate(meta.frame_bytes);
    }

    // UDP over IPv4 may go without a checksum: RFC 768.
    @hidden
    action ipv4() {
        headers.ipv4.total_bytes = TRIMMED_IPV4_BYTES;
        headers.udp.checksum = 0;
        meta.ipv4_changed = 1;
    }

    // Over IPv6 it may not, and a sum of 0 is sent as 0xffff: RFC 8200, 8.1.
    @hidden
    action ipv6() {
        headers.ipv6.payload_bytes = TRIMMED_UDP_BYTES;
        hash(headers.udp.checksum, HashAlgorithm.csum16, 16w0,
             { headers.ipv6.source, headers.ipv6.destination, 16w0, TRIMMED_UDP_BYTES, 24w0, PROTOCOL_UDP,
               headers.udp.source_port, headers.udp.destination_port, TRIMMED_UDP_BYTES,
               headers.dlcp.version, headers.dlcp.type, headers.dlcp.flags, headers.dlcp.traffic_class,
               headers.dlcp.importance, headers.dlcp.key_epoch, headers.dlcp.path, headers.dlcp.job,
               headers.dlcp.source_rank, headers.dlcp.session, headers.dlcp.timestamp_ns,
               headers.dlcp.packet_number, headers.dlcp.tag, headers.dlcp.message_id,
               headers.dlcp.message_bytes, headers.dlcp.block_index, headers.dlcp.critical_blocks,
               headers.dlcp.block_bytes, headers.dlcp.payload_bytes, headers.dlcp.budget,
               headers.dlcp.deadline },
             32w0x1_0000);
    }

    apply {
        to_dlcp();
        if (meta.kind == FrameKind.ipv4) {
            ipv4();
            if (meta.trimmed_dscp != NO_DSCP) {
                headers.ipv4.dscp = (bit<6>)meta.trimmed_dscp;
            }
        } else {
            ipv6();
            if (headers.udp.checksum == 0) {
                headers.udp.checksum = 0xffff;
            }
            if (meta.trimmed_dscp != NO_DSCP) {
                headers.ipv6.dscp = (bit<6>)meta.trimmed_dscp;
            }
        }
    }
}

#endif
