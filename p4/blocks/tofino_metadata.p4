// What the blocks of the Tofino program tell each other, ingress and egress apart: nothing is carried between them,
// since egress reads the headers anew.
#ifndef TOFINO_METADATA_P4
#define TOFINO_METADATA_P4

#include "headers.p4"

typedef bit<3> class_t;
typedef bit<8> group_t;  // of equal ways; 0: none

const bit<4> CRITICAL_LEVEL = 8;       // ECN-capable
const bit<8> UNKNOWN_IMPORTANCE = 254;  // Not-ECT, and silent about its importance: native/switch/frame.hpp

struct ingress_t {
    bit<6> dscp;
    bit<1> is_ip;
    bit<2> ecn;
    bit<8> importance;
    bit<16> path;
    bit<16> excess_bytes;  // of UDP's length over the payload that dlcp tells
    class_t traffic_class;
    bit<1> foreign;
    bit<4> level;
    group_t group;
    bit<32> flow;
    bit<32> word;  // what a path is chosen by
}

struct egress_t {
    bit<16> mark_ratio;  // of 65536
    bit<16> above;       // by how much it exceeds the random number
    bit<1> changed;
}

#endif
