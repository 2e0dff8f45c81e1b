#include "io/xdp/filter.hpp"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "io/xdp/retry.hpp"

namespace dlcp::xdp {

namespace {

using std::int16_t;
using std::int32_t;
using std::uint16_t;
using std::uint32_t;
using std::uint8_t;

// Places in the program; a jump is written before it is known where its goal lies.
enum Label { pass, redirect, arp, icmp6, discovery, target, label_count };

// Registers by what they hold.
enum Register : uint8_t {
    context = BPF_REG_1,   // struct xdp_md, when the program begins
    data = BPF_REG_2,      // the frame's first byte
    data_end = BPF_REG_3,  // behind its last
    value = BPF_REG_4,     // what is being compared
    queue = BPF_REG_5,     // that the frame came by
};

class Assembler {
public:
    void load(int size, Register to, Register base, std::size_t offset) {
        add({.code = static_cast<uint8_t>(BPF_LDX | BPF_MEM | size),
             .dst_reg = to,
             .src_reg = base,
             .off = static_cast<int16_t>(offset)});
    }
    void move(uint8_t to, uint8_t from) {
        add({.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = to, .src_reg = from});
    }
    void set(uint8_t to, int32_t constant) {
        add({.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = to, .imm = constant});
    }
    void mask(int32_t constant) { add({.code = BPF_ALU64 | BPF_AND | BPF_K, .dst_reg = value, .imm = constant}); }
    // `value` is compared as 32 bits, so that an address is not sign-extended.
    void if_equal(uint32_t constant, Label to) { jump(BPF_JMP32 | BPF_JEQ | BPF_K, constant, to); }
    void if_not_equal(uint32_t constant, Label to) { jump(BPF_JMP32 | BPF_JNE | BPF_K, constant, to); }
    void go(Label to) { jump(BPF_JMP | BPF_JA, 0, to); }
    // Passes frames that are shorter than this; from then on the verifier lets us read so far.
    void need(int bytes) {
        move(value, data);
        add({.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = value, .imm = bytes});
        jumps_.push_back({code_.size(), pass});
        add({.code = BPF_JMP | BPF_JGT | BPF_X, .dst_reg = value, .src_reg = data_end});
    }
    void load_map(uint8_t to, int descriptor) {
        add({.code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = to, .src_reg = BPF_PSEUDO_MAP_FD, .imm = descriptor});
        add({});  // the upper half of the constant
    }
    void call(int32_t helper) { add({.code = BPF_JMP | BPF_CALL, .imm = helper}); }
    void leave() { add({.code = BPF_JMP | BPF_EXIT}); }
    void place(Label label) { places_[label] = code_.size(); }

    std::vector<bpf_insn> finish() {
        for (const auto& [at, label] : jumps_) code_[at].off = static_cast<int16_t>(places_[label] - at - 1);
        return std::move(code_);
    }

private:
    void add(const bpf_insn& instruction) { code_.push_back(instruction); }
    void jump(int code, uint32_t constant, Label to) {
        jumps_.push_back({code_.size(), to});
        const bool always = code == (BPF_JMP | BPF_JA);
        add({.code = static_cast<uint8_t>(code),
             .dst_reg = static_cast<uint8_t>(always ? 0 : value),
             .imm = static_cast<int32_t>(constant)});
    }

    std::vector<bpf_insn> code_;
    std::vector<std::pair<std::size_t, Label>> jumps_;
    std::array<std::size_t, label_count> places_{};
};

constexpr uint32_t protocol_icmp = 1, protocol_udp = 17, protocol_icmp6 = 58;
constexpr uint32_t neighbour_solicitation = 135, neighbour_advertisement = 136;  // RFC 4861, 4.3 and 4.4

// As it lies in a frame.
uint32_t word_of(const ipstack::IpAddress& address, std::size_t index) {
    uint32_t word;
    memcpy(&word, address.bytes.data() + index * sizeof word, sizeof word);
    return word;
}

void check_vlan(Assembler& code, uint16_t vlan) {
    code.load(BPF_H, value, data, 12);
    code.if_not_equal(htons(0x8100), pass);
    code.load(BPF_H, value, data, 14);
    code.mask(htons(0x0fff));
    code.if_not_equal(htons(vlan), pass);
}

// At most 64 ports, and a packet to the first one, as nearly all are, is found at once.
void check_ports(Assembler& code, const FilterRule& rule, std::size_t at) {
    code.load(BPF_H, value, data, at);
    for (uint16_t path = 0; path < rule.ports; ++path)
        code.if_equal(htons(ipstack::path_port(rule.port, path)), redirect);
    code.go(pass);
}

// `ip`: where the packet begins in the frame; the EtherType is right before it.
void check_ipv4(Assembler& code, const FilterRule& rule, std::size_t ip) {
    const uint32_t ours = word_of(rule.address, 0);
    code.load(BPF_H, value, data, ip - 2);
    code.if_equal(htons(0x0806), arp);
    code.if_not_equal(htons(0x0800), pass);
    code.load(BPF_B, value, data, ip);
    code.if_not_equal(0x45, pass);  // version 4 and no options: our peers send none
    code.load(BPF_W, value, data, ip + 16);
    code.if_not_equal(ours, pass);
    code.load(BPF_B, value, data, ip + 9);
    code.if_equal(protocol_icmp, redirect);
    code.if_not_equal(protocol_udp, pass);
    code.load(BPF_H, value, data, ip + 6);
    code.mask(htons(0x1fff));
    code.if_not_equal(0, pass);  // a later fragment, which has no ports
    check_ports(code, rule, ip + 22);
    code.place(arp);
    code.load(BPF_W, value, data, ip + 24);  // the target's: somebody asks for us, or answers us
    code.if_equal(ours, redirect);
    code.load(BPF_W, value, data, ip + 14);  // the sender's: somebody says that our address is his
    code.if_equal(ours, redirect);
    code.go(pass);
}

void check_ipv6(Assembler& code, const FilterRule& rule, std::size_t ip) {
    const auto unless_ours = [&](std::size_t at, Label otherwise) {
        for (std::size_t i = 0; i < 4; ++i) {
            code.load(BPF_W, value, data, at + i * 4);
            code.if_not_equal(word_of(rule.address, i), otherwise);
        }
    };
    code.load(BPF_H, value, data, ip - 2);
    code.if_not_equal(htons(0x86dd), pass);
    code.need(static_cast<int>(ip) + 48);
    code.load(BPF_B, value, data, ip + 6);
    code.if_equal(protocol_icmp6, icmp6);
    code.if_not_equal(protocol_udp, pass);
    unless_ours(ip + 24, pass);
    check_ports(code, rule, ip + 42);
    code.place(icmp6);
    unless_ours(ip + 24, discovery);
    code.go(redirect);
    // To a group: all nodes, or those whose addresses end as ours, of which the kernel's may be one.
    code.place(discovery);
    code.need(static_cast<int>(ip) + 64);
    code.load(BPF_B, value, data, ip + 40);
    code.if_equal(neighbour_solicitation, target);
    code.if_not_equal(neighbour_advertisement, pass);
    code.place(target);
    unless_ours(ip + 48, pass);
    code.go(redirect);
}

int bpf(int command, bpf_attr& attributes) {
    const long descriptor = syscall(SYS_bpf, command, &attributes, sizeof attributes);
    return descriptor < 0 ? -errno : static_cast<int>(descriptor);
}

int refuse(int number, const char* what, ErrorText error) {
    if (number == EPERM) {
        return error.fail(EPERM,
                          "not allowed to %s: a process that uses AF_XDP needs CAP_BPF, CAP_NET_ADMIN and "
                          "CAP_NET_RAW (Linux before 5.8: CAP_SYS_ADMIN), and before 5.11 an unlimited locked "
                          "memory (ulimit -l)",
                          what);
    }
    if (number == ENOSYS) return error.fail(ENOSYS, "this kernel has no BPF: use the udp driver");
    return error.fail(number, "the kernel refuses to %s: %s", what, strerror(number));
}

int create_map(std::size_t entries, ErrorText error) {
    bpf_attr attributes = {};
    attributes.map_type = BPF_MAP_TYPE_XSKMAP;
    attributes.key_size = sizeof(uint32_t);
    attributes.value_size = sizeof(uint32_t);
    attributes.max_entries = static_cast<uint32_t>(entries);
    strncpy(attributes.map_name, "dlcp_sockets", sizeof attributes.map_name - 1);
    const int map = bpf(BPF_MAP_CREATE, attributes);
    return map < 0 ? refuse(-map, "make a map of AF_XDP sockets", error) : map;
}

int put_socket(int map, uint32_t queue_index, uint32_t socket, ErrorText error) {
    bpf_attr attributes = {};
    attributes.map_fd = static_cast<uint32_t>(map);
    attributes.key = reinterpret_cast<std::uintptr_t>(&queue_index);
    attributes.value = reinterpret_cast<std::uintptr_t>(&socket);
    const int put = bpf(BPF_MAP_UPDATE_ELEM, attributes);
    return put < 0 ? refuse(-put, "put a socket into the map of AF_XDP sockets", error) : 0;
}

int load_program(std::span<const bpf_insn> code, ErrorText error) {
    bpf_attr attributes = {};
    attributes.prog_type = BPF_PROG_TYPE_XDP;
    attributes.expected_attach_type = BPF_XDP;
    attributes.insns = reinterpret_cast<std::uintptr_t>(code.data());
    attributes.insn_cnt = static_cast<uint32_t>(code.size());
    attributes.license = reinterpret_cast<std::uintptr_t>("Dual BSD/GPL");
    strncpy(attributes.prog_name, "dlcp_xdp", sizeof attributes.prog_name - 1);
    const int program = bpf(BPF_PROG_LOAD, attributes);
    return program < 0 ? refuse(-program, "load the program that picks our frames", error) : program;
}

int create_link(int program, unsigned interface_index, uint32_t mode_flag) {
    bpf_attr attributes = {};
    attributes.link_create.prog_fd = static_cast<uint32_t>(program);
    attributes.link_create.target_ifindex = interface_index;
    attributes.link_create.attach_type = BPF_XDP;
    attributes.link_create.flags = mode_flag;
    return retry_while_busy([&] { return bpf(BPF_LINK_CREATE, attributes); });
}

int fail_to_attach(int number, const std::string& interface, AttachMode mode, ErrorText error) {
    if (number == EBUSY || number == EEXIST) {
        return error.fail(
            EBUSY,
            "interface %s has another XDP program: end who uses it (`ip link show dev %s` names it), "
            "or take it off: ip link set dev %s xdp off (or xdpgeneric off)",
            interface.c_str(), interface.c_str(), interface.c_str());
    }
    if (number == EPERM) return refuse(EPERM, "attach an XDP program", error);
    if (mode == AttachMode::native) {
        return error.fail(
            number,
            "the driver of interface %s does not run our program (%s): its MTU may be too large or its "
            "queues too few for that; use mode=auto or mode=generic",
            interface.c_str(), strerror(number));
    }
    return error.fail(number, "cannot attach an XDP program to interface %s (%s): Linux 5.9 or newer is needed",
                      interface.c_str(), strerror(number));
}

}  // namespace

std::vector<bpf_insn> filter_program(const FilterRule& rule, int map_descriptor) {
    Assembler code;
    const std::size_t ip = rule.vlan != 0 ? 18 : 14;
    code.load(BPF_W, queue, context, offsetof(xdp_md, rx_queue_index));
    code.load(BPF_W, data, context, offsetof(xdp_md, data));
    code.load(BPF_W, data_end, context, offsetof(xdp_md, data_end));
    code.need(static_cast<int>(ip) + 28);  // ARP, or IPv4 and UDP without payload
    if (rule.vlan != 0) check_vlan(code, rule.vlan);
    if (rule.address.is_v6())
        check_ipv6(code, rule, ip);
    else
        check_ipv4(code, rule, ip);
    code.place(redirect);
    code.load_map(BPF_REG_1, map_descriptor);
    code.move(BPF_REG_2, queue);
    code.set(BPF_REG_3, XDP_PASS);  // if no socket of ours has that queue
    code.call(BPF_FUNC_redirect_map);
    code.leave();
    code.place(pass);
    code.set(BPF_REG_0, XDP_PASS);
    code.leave();
    return code.finish();
}

int Filter::attach(const FilterRule& rule, std::span<const int> sockets, unsigned interface_index,
                   const std::string& interface_name, AttachMode mode, ErrorText error) {
    const int map = create_map(sockets.size(), error);
    if (map < 0) return map;
    map_ = Descriptor(map);
    for (std::size_t i = 0; i < sockets.size(); ++i) {
        const int put = put_socket(map, static_cast<uint32_t>(i), static_cast<uint32_t>(sockets[i]), error);
        if (put < 0) return put;
    }
    const int program = load_program(filter_program(rule, map), error);
    if (program < 0) return program;
    program_ = Descriptor(program);
    int link = -EOPNOTSUPP;
    if (mode != AttachMode::generic) {
        link = create_link(program, interface_index, XDP_FLAGS_DRV_MODE);
        native_ = link >= 0;
    }
    const bool taken = link == -EBUSY || link == -EEXIST || link == -EPERM;
    if (mode == AttachMode::generic || (mode == AttachMode::automatic && link < 0 && !taken))
        link = create_link(program, interface_index, XDP_FLAGS_SKB_MODE);
    if (link < 0) return fail_to_attach(-link, interface_name, mode, error);
    link_ = Descriptor(link);
    return 0;
}

}  // namespace dlcp::xdp
