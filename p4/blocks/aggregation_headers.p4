// What the aggregation program reads of a packet: Ethernet, IPv4, UDP and the aggregation header with its values.
//
// Every aggregation packet has the same size, so that one parser state and one comparison of the UDP length tell it
// from everything else. All other traffic is forwarded as bytes. p4/aggregation.md draws the header and says who writes
// what; native/aggregation/packet.hpp is its other reader.
#ifndef AGGREGATION_HEADERS_P4
#define AGGREGATION_HEADERS_P4

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_UDP = 17;

const bit<32> AGGREGATION_MAGIC = 0x444c4341;  // "DLCA"
const bit<8> AGGREGATION_VERSION = 1;
const bit<16> AGGREGATION_UDP_BYTES = 8 + 36 + 4 * 32;

// Kinds that a switch looks at. The others are between hosts, and forwarded like any packet.
const bit<8> KIND_CONTRIBUTION = 1;
const bit<8> KIND_RESULT = 2;
const bit<8> KIND_FLUSH = 3;
const bit<8> KIND_RELEASE = 4;

// Flags. To the hub: not for the switch, whoever set it.
const bit<8> FLAG_TO_HUB = 0x01;

const bit<8> OPERATION_SUM = 0;
const bit<8> OPERATION_MAX = 1;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> total_bytes;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> bytes;
    bit<16> checksum;
}

header aggregation_t {
    bit<32> magic;
    bit<8> version;
    bit<8> kind;
    bit<8> flags;
    bit<8> operation;
    bit<32> job;
    bit<32> message;
    bit<32> block;
    bit<16> slot;
    bit<16> generation;
    bit<32> bitmap;
    bit<8> worker;
    bit<8> count;
    bit<8> exponent;
    bit<8> quorum;
    bit<32> saturated;
}

// The values: two's complement, one field per lane, since P4 has no loops.
header values_t {
#define LANE(i) bit<32> v##i;
#include "aggregation_lanes.p4"
#undef LANE
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    aggregation_t aggregation;
    values_t values;
}

// What an admitted packet may do, from table `participant`.
struct participant_t {
    bit<32> bit_of_worker;  // one bit; 0: the hub, who contributes nothing
    bit<32> everyone;       // bits of all workers
    bit<32> base;           // first slot of the job's range
    bit<16> slots;          // how many slots the job has
    bit<16> group;          // multicast group of its workers
    bit<16> instance;       // which of the job's participants at its port, from 1
    bit<16> index;          // of the job, for counters; 0: no job
}

// A slot as it was when the packet came, and as it is written back.
struct slot_t {
    bit<32> index;  // of the whole switch
    bit<48> tenant;  // job, generation
    bit<64> key;     // message, block: the newest that the slot has held or let go
    bit<8> state;
    bit<32> bitmap;  // whose contributions are in the sums
    bit<8> count;    // how many they are
    bit<16> shape;   // operation, exponent
    bit<32> saturated;  // lanes that left the 32 bits
}

// What a slot is doing. A free slot keeps its key: nothing up to it is taken again.
const bit<8> STATE_FREE = 0;
const bit<8> STATE_COLLECTING = 1;
const bit<8> STATE_DONE = 2;

// What is done to the sums of the slot.
const bit<2> SUMS_NOTHING = 0;
const bit<2> SUMS_PUT = 1;
const bit<2> SUMS_ADD = 2;
const bit<2> SUMS_GET = 3;

// What became of a packet: the second index of counter `outcomes`, in this order in
// dlcp/switch/aggregation/entries.py.
const bit<4> OUTCOME_ADDED = 0;
const bit<4> OUTCOME_COMPLETED = 1;     // added, and it was the last
const bit<4> OUTCOME_FLUSHED = 2;       // a result without everyone
const bit<4> OUTCOME_DUPLICATE = 3;     // is in the sums already
const bit<4> OUTCOME_REPEATED = 4;      // the result was there already: sent again
const bit<4> OUTCOME_RELEASED = 5;
const bit<4> OUTCOME_COLLISION = 6;     // from here on forwarded to the hub, flagged: another block collects
const bit<4> OUTCOME_STALE = 7;         // the slot has held a newer block, or let this one go
const bit<4> OUTCOME_MISMATCH = 8;      // another operation or exponent than the first contribution's
const bit<4> OUTCOME_BELOW_QUORUM = 9;  // a flush that wants more contributors
const bit<4> OUTCOME_ABSENT = 10;       // a flush of what is not there
const bit<4> OUTCOME_REFUSED = 11;      // outside the job's slots, or not this participant's to send
const bit<4> OUTCOME_TO_HUB = 12;       // from here on forwarded as it came: its sender wants it so
const bit<4> OUTCOME_DAMAGED = 13;      // checksum
const bit<4> OUTCOME_FOREIGN = 14;      // of no job, generation or worker admitted at this port

// Whom a result goes to. Nobody: the packet is not a result, or none yet.
const bit<2> ANSWER_NOBODY = 0;
const bit<2> ANSWER_SENDER = 1;
const bit<2> ANSWER_EVERYONE = 2;

struct metadata_t {
    participant_t participant;
    slot_t slot;
    bit<64> key;     // of the packet
    bit<16> shape;   // of the packet
    bit<2> sums;
    bit<2> answer;
    bit<4> outcome;
    bit<1> aggregated;  // the packet was taken in: it goes nowhere, unless as an answer
    bit<1> changed;  // the switch wrote into the packet, so its checksums are computed anew
}

#endif
