// What the headers mean: the kind of frame, its DSCP and ECN field, whether dlcp sent it, its importance and its flow.
//
// The same as read_frame() of native/switch/frame.hpp, whose comments are the rules; tests/vectors/switch_frames.txt
// holds the two together. Nothing is changed here.
#ifndef DLCP_READ_P4
#define DLCP_READ_P4

#include "metadata.p4"

control Read(in headers_t headers, inout metadata_t meta, in standard_metadata_t standard) {
    bit<32> ip_payload_bytes = 0;

    @hidden
    action nothing_yet() {
        meta.kind = FrameKind.other;
        meta.dscp = NO_DSCP;
        meta.ecn = ECN_NOT_ECT;
        meta.source_port = 0;
        meta.destination_port = 0;
        meta.path = 0;
        meta.importance = UNKNOWN_IMPORTANCE;
        meta.trimmable = 0;
        meta.frame_bytes = standard.packet_length;
    }

    @hidden
    action malformed() {
        meta.kind = FrameKind.malformed;
    }

    @hidden
    action ipv4() {
        meta.kind = FrameKind.ipv4;
        meta.dscp = (bit<8>)headers.ipv4.dscp;
        meta.ecn = headers.ipv4.ecn;
        ip_payload_bytes = (bit<32>)headers.ipv4.total_bytes - IPV4_BYTES;
    }

    @hidden
    action ipv6() {
        meta.kind = FrameKind.ipv6;
        meta.dscp = (bit<8>)headers.ipv6.dscp;
        meta.ecn = headers.ipv6.ecn;
        ip_payload_bytes = (bit<32>)headers.ipv6.payload_bytes;
    }

    apply {
        nothing_yet();
        if (standard.parser_error != error.NoError) {
            malformed();
        } else if (headers.ipv4.isValid() && headers.ipv4.version == 4 && headers.ipv4.header_words == 5) {
            bit<32> total_bytes = (bit<32>)headers.ipv4.total_bytes;
            if (total_bytes < IPV4_BYTES || total_bytes + ETHERNET_BYTES > meta.frame_bytes ||
                standard.checksum_error == 1) {
                malformed();
            } else {
                ipv4();
            }
        } else if (headers.ipv6.isValid() && headers.ipv6.version == 6) {
            if ((bit<32>)headers.ipv6.payload_bytes + IPV6_BYTES + ETHERNET_BYTES > meta.frame_bytes) {
                malformed();
            } else {
                ipv6();
            }
        }

        bit<32> udp_bytes = (bit<32>)headers.udp.udp_bytes;
        if (meta.kind != FrameKind.malformed && headers.udp.isValid()) {
            // Of IP too short for a UDP header the rest was padding: no length fits.
            if (udp_bytes < UDP_BYTES || udp_bytes > ip_payload_bytes) {
                malformed();
            }
        }

        if (meta.kind != FrameKind.malformed) {
            if (headers.udp.isValid()) {
                meta.source_port = headers.udp.source_port;
                meta.destination_port = headers.udp.destination_port;
            } else if (headers.tcp.isValid()) {
                meta.source_port = headers.tcp.source_port;
                meta.destination_port = headers.tcp.destination_port;
            }

            // dlcp, with a long header by its own account of its length.
            if (headers.dlcp.isValid() && headers.dlcp.version == DLCP_VERSION &&
                headers.dlcp.type == DLCP_SHORT_DATA) {
                meta.path = headers.dlcp.path;
                meta.importance = headers.dlcp.importance;
                if (headers.dlcp.flags & DLCP_TRIMMED == 0 && udp_bytes > UDP_BYTES + DLCP_BYTES) {
                    meta.trimmable = 1;
                }
            } else if (headers.dlcp.isValid() && headers.dlcp.version == DLCP_VERSION &&
                       headers.dlcp.type >= DLCP_DATA && headers.dlcp.type <= DLCP_HELLO) {
                bit<32> whole_bytes = UDP_BYTES + DLCP_BYTES + (bit<32>)headers.dlcp.payload_bytes;
                if (headers.dlcp.flags & DLCP_AUTHENTICATED != 0) {
                    whole_bytes = whole_bytes + DLCP_TAG_BYTES;
                }
                bool trimmed = headers.dlcp.flags & DLCP_TRIMMED != 0;
                if (udp_bytes == whole_bytes || (trimmed && udp_bytes < whole_bytes)) {
                    meta.path = headers.dlcp.path;
                    if (headers.dlcp.type == DLCP_DATA) {
                        meta.importance = headers.dlcp.importance;
                        if (!trimmed && headers.dlcp.payload_bytes != 0) {
                            meta.trimmable = 1;
                        }
                    }
                }
            }

            if (meta.kind == FrameKind.ipv4) {
                hash(meta.flow, HashAlgorithm.crc32, 32w0,
                     { headers.ipv4.source, headers.ipv4.destination, headers.ipv4.protocol, meta.source_port,
                       meta.destination_port },
                     64w0x1_0000_0000);
            } else if (meta.kind == FrameKind.ipv6) {
                hash(meta.flow, HashAlgorithm.crc32, 32w0,
                     { headers.ipv6.source, headers.ipv6.destination, headers.ipv6.next_header, meta.source_port,
                       meta.destination_port },
                     64w0x1_0000_0000);
            } else {
                hash(meta.flow, HashAlgorithm.crc32, 32w0,
                     { headers.ethernet.destination, headers.ethernet.source, headers.ethernet.ether_type },
                     64w0x1_0000_0000);
            }
        }
        meta.level = meta.ecn == ECN_NOT_ECT ? (level_t)meta.importance[7:5] : CRITICAL_LEVEL;
    }
}

#endif
