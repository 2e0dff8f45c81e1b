// What lies in a frame: Ethernet, IPv4, IPv6, UDP, the ports of TCP, and the dlcp header.
//
// Every header is written out in full, so that what is parsed and left alone is sent on as it came.
#ifndef DLCP_HEADERS_P4
#define DLCP_HEADERS_P4

typedef bit<48> mac_t;

const bit<16> ETHER_TYPE_IPV4 = 0x0800;
const bit<16> ETHER_TYPE_IPV6 = 0x86dd;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

const bit<2> ECN_NOT_ECT = 0;  // RFC 3168, 5
const bit<2> ECN_CE = 3;

const bit<32> ETHERNET_BYTES = 14;
const bit<32> IPV4_BYTES = 20;
const bit<32> IPV6_BYTES = 40;
const bit<32> UDP_BYTES = 8;
const bit<32> DLCP_BYTES = 64;
const bit<32> DLCP_TAG_BYTES = 16;  // behind the payload of an authenticated packet

header ethernet_t {
    mac_t destination;
    mac_t source;
    bit<16> ether_type;
}

// RFC 791, 3.1, with DSCP and ECN for the type of service: RFC 2474, 3 and RFC 3168, 5.
header ipv4_t {
    bit<4> version;
    bit<4> header_words;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> total_bytes;
    bit<16> identification;
    bit<1> reserved;
    bit<1> dont_fragment;
    bit<1> more_fragments;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

// RFC 8200, 3.
header ipv6_t {
    bit<4> version;
    bit<6> dscp;
    bit<2> ecn;
    bit<20> flow_label;
    bit<16> payload_bytes;
    bit<8> next_header;
    bit<8> hop_limit;
    bit<128> source;
    bit<128> destination;
}

header udp_t {
    bit<16> source_port;
    bit<16> destination_port;
    bit<16> udp_bytes;
    bit<16> checksum;
}

// The first four bytes of TCP's header; the rest is not looked at.
header tcp_ports_t {
    bit<16> source_port;
    bit<16> destination_port;
}

const bit<8> DLCP_VERSION = 2;
const bit<8> DLCP_DATA = 1;
const bit<8> DLCP_HELLO = 3;
const bit<8> DLCP_SHORT_DATA = 4;
const bit<8> DLCP_AUTHENTICATED = 0x02;
const bit<8> DLCP_TRIMMED = 0x80;

// native/engine/wire.hpp draws it; a switch reads version to importance, path and payload_bytes, and sets DLCP_TRIMMED.
// Of DLCP_SHORT_DATA the last 32 bytes are the first of the payload, and job's successors mean something else.
header dlcp_t {
    bit<8> version;
    bit<8> type;
    bit<8> flags;
    bit<8> traffic_class;
    bit<8> importance;
    bit<8> key_epoch;
    bit<16> path;
    bit<32> job;
    bit<32> source_rank;
    bit<32> session;
    bit<32> timestamp_ns;
    bit<64> packet_number;
    bit<64> tag;
    bit<32> message_id;
    bit<32> message_bytes;
    bit<32> block_index;
    bit<32> critical_blocks;
    bit<16> block_bytes;
    bit<16> payload_bytes;
    bit<16> budget;
    bit<16> deadline;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    ipv6_t ipv6;
    udp_t udp;
    tcp_ports_t tcp;
    dlcp_t dlcp;
}

#endif
