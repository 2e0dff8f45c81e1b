// What v1model programs can say, far more than dlcp's do: the interpreter in tests/support/bmv2 is held to BMv2 by it.
//
// A frame names an operation and its operands; the result is written back into it and leaves by port 1. Compiled by
// tests/p4/test_bmv2_semantics.py where p4c-bm2-ss is at hand; nothing ships of it.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header operation_t {
    bit<8> code;
    bit<32> a;
    bit<32> b;
    int<16> s;
    int<16> t;
    bit<16> checksum;
    bit<64> result;
}

header label_t {
    bit<7> value;
    bit<1> last;
}

struct headers_t {
    ethernet_t ethernet;
    operation_t operation;
    label_t[4] labels;
    operation_t copy;
}

struct metadata_t {
    bit<24> ahead;
    @field_list(1)
    bit<8> rounds;
    bit<32> picked;
}

parser FrameParser(packet_in packet, out headers_t headers, inout metadata_t meta,
                   inout standard_metadata_t standard) {
    state start {
        packet.extract(headers.ethernet);
        packet.extract(headers.operation);
        transition select(headers.operation.code, headers.operation.a[7:0]) {
            (0x40 &&& 0xf0, _): labels;
            (0x50, 0x80 &&& 0x80): look_ahead;
            (0x51, 0x00 .. 0x3f): look_ahead;
            default: accept;
        }
    }
    state labels {
        packet.extract(headers.labels.next);
        transition select(headers.labels.last.last) {
            1: accept;
            default: labels;
        }
    }
    state look_ahead {
        meta.ahead = packet.lookahead<bit<24>>();
        verify(meta.ahead[23:20] != 0xf, error.ParserInvalidArgument);
        packet.advance((bit<32>)headers.operation.b[1:0] << 3);
        transition accept;
    }
}

control Verify(inout headers_t headers, inout metadata_t meta) {
    apply {
        verify_checksum_with_payload(headers.operation.isValid() && headers.operation.code == 0x30,
            { headers.operation.a, headers.operation.b }, headers.operation.checksum, HashAlgorithm.csum16);
    }
}

control SwitchIngress(inout headers_t headers, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<40>>(8) cells;
    counter(16, CounterType.packets_and_bytes) codes;
    direct_counter(CounterType.packets_and_bytes) picks;

    action result(bit<64> value) { headers.operation.result = value; }

    action add() { result((bit<64>)(headers.operation.a + headers.operation.b)); }
    action subtract() { result((bit<64>)(headers.operation.a - headers.operation.b)); }
    action multiply() { result((bit<64>)headers.operation.a * (bit<64>)headers.operation.b); }
    action saturate() {
        result((headers.operation.a |+| headers.operation.b) ++ (headers.operation.a |-| headers.operation.b));
    }
    action saturate_signed() {
        int<16> sum = headers.operation.s |+| headers.operation.t;
        int<16> difference = headers.operation.s |-| headers.operation.t;
        result(32w0 ++ (bit<16>)sum ++ (bit<16>)difference);
    }
    action add_signed() {
        int<32> wide = (int<32>)headers.operation.s - (int<32>)headers.operation.t;
        result((bit<32>)wide ++ (bit<32>)((int<32>)headers.operation.s * (int<32>)headers.operation.t));
    }
    action shift() {
        bit<8> by = headers.operation.b[7:0] & 0x3f;
        result((headers.operation.a << by) ++ (headers.operation.a >> by));
    }
    action shift_signed() {
        bit<8> by = headers.operation.b[7:0] & 0x1f;
        result(32w0 ++ (bit<16>)(headers.operation.s >> by) ++ (bit<16>)(headers.operation.s << by));
    }
    action logic() {
        result((headers.operation.a & headers.operation.b) ++ (~headers.operation.a ^ headers.operation.b));
    }
    action slices() {
        headers.operation.result = 0;
        headers.operation.result[47:40] = headers.operation.a[15:8];
        headers.operation.result[7:3] = headers.operation.b[30:26];
    }
    action compare() {
        bit<1> below = headers.operation.s < headers.operation.t ? 1w1 : 0;
        bit<1> at_least = (headers.operation.a >= headers.operation.b) ? 1w1 : 0;
        bit<1> both = (headers.operation.a > 100 && headers.operation.s <= -5) || headers.operation.b == 7 ? 1w1 : 0;
        result(61w0 ++ below ++ at_least ++ both);
    }
    action casts() {
        result((bit<64>)(bit<32>)(int<32>)headers.operation.s ^ (bit<64>)(bit<20>)headers.operation.a);
    }
    action branches() {
        if (headers.operation.a > headers.operation.b) {
            result(1);
            if (headers.operation.s == 0) {
                result(2);
            }
        } else {
            headers.operation.a = headers.operation.b;
            result(3);
        }
    }

    action hashes() {
        bit<32> crc;
        bit<16> sixteen;
        bit<16> fold;
        hash(crc, HashAlgorithm.crc32, 32w5, { headers.operation.a, headers.operation.code, headers.operation.b[3:0], 4w9 }, 32w1000003);
        hash(sixteen, HashAlgorithm.crc16, 16w0, { headers.operation.a, headers.operation.code }, 32w65536);
        hash(fold, HashAlgorithm.xor16, 16w0, { headers.operation.b, headers.operation.code }, 32w65536);
        result(crc ++ sixteen ++ fold);
    }
    action sums() {
        bit<16> sum;
        bit<48> same;
        hash(sum, HashAlgorithm.csum16, 16w0, { headers.operation.a, headers.operation.code }, 32w65536);
        hash(same, HashAlgorithm.identity, 48w0, { headers.operation.a, headers.operation.b }, 64w0xffffffffffff);
        result(same ++ sum);
    }
    action registers() {
        bit<40> before;
        bit<32> cell = (bit<32>)headers.operation.a[2:0];
        cells.read(before, cell);
        cells.write(cell, before + (bit<40>)headers.operation.b * 257);
        result((bit<64>)before);
    }
    action errors() {
        result((bit<64>)standard.packet_length << 32 | (bit<64>)(bit<16>)meta.ahead << 8 |
               (bit<64>)standard.checksum_error);
    }

    action copy_header() { headers.copy = headers.operation; }
    action drop_header() { headers.operation.setInvalid(); }
    action fresh_header() {
        headers.copy.setValid();
        headers.copy.code = headers.operation.code;
        headers.operation.setInvalid();
        headers.operation.setValid();
    }
    action push() { headers.labels.push_front(1); }
    action pop() { headers.labels.pop_front(1); }
    action rewrite_label() {
        headers.labels[1].value = headers.labels[0].value + 1;
        headers.labels[0] = headers.labels[1];
    }

    action cut() { truncate((bit<32>)headers.operation.b[5:0]); }
    action copies() { standard.mcast_grp = 5; }
    action cut_copies() {
        truncate((bit<32>)headers.operation.b[5:0]);
        standard.mcast_grp = 5;
    }
    action mirror() {
        meta.rounds = 9;
        meta.picked = 77;
        headers.operation.a = 0;
        clone_preserving_field_list(CloneType.I2E, 3, 1);
    }
    action again() {
        meta.rounds = meta.rounds + 1;
        headers.operation.a = headers.operation.a + 1;
        headers.operation.result = (bit<64>)meta.rounds;
        resubmit_preserving_field_list(1);
    }
    action no_more() { headers.operation.result = 0x100 + (bit<64>)meta.rounds; }
    action drop() { mark_to_drop(standard); }
    action drop_copies() {
        standard.mcast_grp = 5;
        mark_to_drop(standard);
    }
    action stop() { exit; }

    table run {
        key = { headers.operation.code : exact @name("code"); }
        actions = {
            add; subtract; multiply; saturate; saturate_signed; add_signed; shift; shift_signed; logic; slices;
            compare; casts; branches; hashes; sums; registers; errors; copy_header; drop_header; fresh_header;
            push; pop; rewrite_label; cut; copies; cut_copies; mirror; drop; drop_copies; stop; NoAction;
        }
        const default_action = NoAction();
        const entries = {
            0x01 : add(); 0x02 : subtract(); 0x03 : multiply(); 0x04 : saturate(); 0x05 : saturate_signed();
            0x06 : add_signed(); 0x07 : shift(); 0x08 : shift_signed(); 0x09 : logic(); 0x0a : slices();
            0x0b : compare(); 0x0c : casts(); 0x0d : branches();
            0x20 : hashes(); 0x21 : sums(); 0x22 : registers();
            0x30 : errors(); 0x50 : errors(); 0x51 : errors();
            0x40 : push(); 0x41 : pop(); 0x42 : rewrite_label(); 0x43 : copy_header();
            0x60 : copy_header(); 0x61 : drop_header(); 0x62 : fresh_header();
            0x70 : cut(); 0x71 : copies(); 0x72 : cut_copies(); 0x73 : mirror(); 0x74 : drop();
            0x75 : drop_copies(); 0x76 : stop();
        }
    }

    action pick(bit<32> value) {
        meta.picked = value;
        picks.count();
    }
    table choose {
        key = {
            headers.operation.a : ternary @name("a");
            headers.operation.s : range @name("s");
            headers.operation.code : optional @name("code");
        }
        actions = { pick; NoAction; }
        default_action = NoAction();
        counters = picks;
    }
    table prefix {
        key = { headers.operation.b : lpm @name("b"); }
        actions = { pick; NoAction; }
        default_action = pick(1);
    }

    apply {
        standard.egress_spec = 1;
        standard.priority = headers.operation.b[2:0];
        if (!headers.operation.isValid()) {
            standard.egress_spec = 2;
            return;
        }
        if (headers.operation.code == 0x77) {
            if (meta.rounds < 3) {
                again();
            } else {
                no_more();
            }
        } else if (headers.operation.code == 0x10) {
            if (!choose.apply().hit) {
                prefix.apply();
            }
            headers.operation.result = (bit<64>)meta.picked;
        } else {
            switch (run.apply().action_run) {
                add: { codes.count(1); }
                subtract: { codes.count(2); }
                default: { codes.count(15); }
            }
        }
    }
}

control SwitchEgress(inout headers_t headers, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (!headers.operation.isValid()) {
            // What an invalid header holds is anything.
        } else if (standard.instance_type == 1) {
            headers.operation.result = (bit<64>)meta.rounds << 32 | (bit<64>)meta.picked;
        } else if (standard.instance_type == 5) {
            headers.operation.result = (bit<64>)standard.egress_rid << 16 | (bit<64>)standard.egress_port;
        } else if (headers.operation.code == 0x78) {
            headers.operation.result = headers.operation.result + 1;
            headers.operation.code = headers.operation.a[0:0] == 1 ? 8w0x78 : 0x79;
            headers.operation.a = headers.operation.a >> 1;
            meta.rounds = 5;
            recirculate_preserving_field_list(1);
        } else if (headers.operation.code == 0x7a) {
            headers.operation.code = 0x7b;
            clone_preserving_field_list(CloneType.E2E, 3, 1);
        } else if (headers.operation.code == 0x7c) {
            mark_to_drop(standard);
        } else if (headers.operation.code == 0x7d) {
            headers.operation.result = (bit<64>)standard.packet_length;
            truncate(20);
        }
    }
}

control Update(inout headers_t headers, inout metadata_t meta) {
    apply {
        update_checksum(headers.operation.isValid() && headers.operation.code[7:4] == 0,
            { headers.operation.a, headers.operation.b, headers.operation.result }, headers.operation.checksum,
            HashAlgorithm.csum16);
    }
}

control FrameDeparser(packet_out packet, in headers_t headers) {
    apply {
        packet.emit(headers.ethernet);
        packet.emit(headers.operation);
        packet.emit(headers.labels);
        packet.emit(headers.copy);
    }
}

V1Switch(FrameParser(), Verify(), SwitchIngress(), SwitchEgress(), Update(), FrameDeparser()) main;
