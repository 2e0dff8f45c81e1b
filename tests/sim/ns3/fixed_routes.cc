// The same work in ns-3: UDP at line rate over routes that are given, on any graph of point-to-point links.
//
// Read from standard input, so that nothing of our simulator's routing is told twice:
//
//   ports N                           then N lines: from to rate_bps delay_ps reverse
//   flows M                           then M lines: source destination packets payload last_payload start_ps L port1 … portL
//
// Answered: per port `port index packets bytes`, per packet that arrives `arrival flow time_ps` (left out with
// `--quiet`), and a last line of totals. A packet of `payload` bytes takes payload + 30 on a link: UDP 8, IPv4 20, PPP 2
// (RFC 768, RFC 791, RFC 1661). Queues have no bound and every output is one FIFO. A flow hands all its packets over at
// its start, so a host's card is never idle while there is something left. It is a program of its own and no part of
// what is installed: ns-3 is under the GPL.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <type_traits>
#include <vector>

#include "ns3/config.h"
#include "ns3/drop-tail-queue.h"
#include "ns3/inet-socket-address.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-route.h"
#include "ns3/ipv4-routing-helper.h"
#include "ns3/ipv4-routing-protocol.h"
#include "ns3/ipv4.h"
#include "ns3/mac48-address.h"
#include "ns3/node-container.h"
#include "ns3/node.h"
#include "ns3/packet.h"
#include "ns3/point-to-point-channel.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/simulator.h"
#include "ns3/socket.h"
#include "ns3/string.h"
#include "ns3/udp-header.h"
#include "ns3/udp-socket-factory.h"

namespace {

constexpr std::uint16_t first_udp_port = 1024;  // of flow 0; the port names the flow at every switch

struct Port {
    std::uint32_t from, to, reverse;
    std::uint64_t rate_bps;
    std::int64_t delay_ps;
    std::uint32_t interface = 0;  // at `from`
    std::uint64_t packets = 0, bytes = 0;
};
struct Flow {
    std::uint32_t source, destination, packets, payload, last_payload;
    std::int64_t start_ps;
    std::vector<std::uint32_t> path;
};

std::vector<Port> ports;
std::vector<Flow> flows;
std::uint64_t hops = 0, arrivals = 0;
bool quiet = false;

// How ns-3 hands callbacks to a routing protocol: by value in 3.37, by reference in 3.48.
using Protocol = ns3::Ipv4RoutingProtocol;
template <class Callback>
using Handed = std::conditional_t<
    std::is_same_v<decltype(&Protocol::RouteInput),
                   bool (Protocol::*)(ns3::Ptr<const ns3::Packet>, const ns3::Ipv4Header&,
                                      ns3::Ptr<const ns3::NetDevice>, Protocol::UnicastForwardCallback,
                                      Protocol::MulticastForwardCallback, Protocol::LocalDeliverCallback,
                                      Protocol::ErrorCallback)>,
    Callback, const Callback&>;

// Sends a flow's packets out of the interface that was given for this node, with one look at a table.
class FixedRoutes : public Protocol {
public:
    static ns3::TypeId GetTypeId() {
        static ns3::TypeId id = ns3::TypeId("dlcp::FixedRoutes").SetParent<Protocol>();
        return id;
    }

    std::vector<std::uint32_t> interface_of_flow;  // empty: a host, which has one
    ns3::Ptr<ns3::Ipv4> ipv4;

    ns3::Ptr<ns3::Ipv4Route> route(std::uint32_t interface, const ns3::Ipv4Header& header) const {
        auto route = ns3::Create<ns3::Ipv4Route>();
        route->SetDestination(header.GetDestination());
        if (ipv4->GetNAddresses(interface) > 0) route->SetSource(ipv4->GetAddress(interface, 0).GetLocal());
        route->SetGateway(ns3::Ipv4Address::GetZero());
        route->SetOutputDevice(ipv4->GetNetDevice(interface));
        return route;
    }
    ns3::Ptr<ns3::Ipv4Route> RouteOutput(ns3::Ptr<ns3::Packet>, const ns3::Ipv4Header& header,
                                         ns3::Ptr<ns3::NetDevice>, ns3::Socket::SocketErrno& error) override {
        error = ns3::Socket::ERROR_NOTERROR;
        return route(1, header);
    }
    bool RouteInput(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header,
                    ns3::Ptr<const ns3::NetDevice>, Handed<UnicastForwardCallback> forward,
                    Handed<MulticastForwardCallback>, Handed<LocalDeliverCallback> deliver,
                    Handed<ErrorCallback>) override {
        if (interface_of_flow.empty()) {
            deliver(packet, header, 1);
            return true;
        }
        ns3::UdpHeader udp;
        packet->PeekHeader(udp);
        forward(route(interface_of_flow[udp.GetDestinationPort() - first_udp_port], header), packet, header);
        return true;
    }
    void NotifyInterfaceUp(std::uint32_t) override {}
    void NotifyInterfaceDown(std::uint32_t) override {}
    void NotifyAddAddress(std::uint32_t, ns3::Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(std::uint32_t, ns3::Ipv4InterfaceAddress) override {}
    void SetIpv4(ns3::Ptr<ns3::Ipv4> of) override { ipv4 = of; }
    void PrintRoutingTable(ns3::Ptr<ns3::OutputStreamWrapper>, ns3::Time::Unit) const override {}
};

class FixedRoutesHelper : public ns3::Ipv4RoutingHelper {
public:
    FixedRoutesHelper* Copy() const override { return new FixedRoutesHelper(*this); }
    ns3::Ptr<ns3::Ipv4RoutingProtocol> Create(ns3::Ptr<ns3::Node>) const override {
        return ns3::CreateObject<FixedRoutes>();
    }
};

[[noreturn]] void die(const char* why) {
    std::fprintf(stderr, "fixed_routes: %s\n", why);
    std::exit(2);
}

void read_work() {
    std::uint32_t count = 0;
    if (std::scanf(" ports %u", &count) != 1) die("expected: ports N");
    ports.resize(count);
    for (Port& port : ports)
        if (std::scanf("%u %u %lu %ld %u", &port.from, &port.to, &port.rate_bps, &port.delay_ps, &port.reverse) !=
            5)
            die("expected: from to rate_bps delay_ps reverse");
    if (std::scanf(" flows %u", &count) != 1 || count > 60000) die("expected: flows M, at most 60000");
    flows.resize(count);
    for (Flow& flow : flows) {
        std::uint32_t length = 0;
        if (std::scanf("%u %u %u %u %u %ld %u", &flow.source, &flow.destination, &flow.packets, &flow.payload,
                       &flow.last_payload, &flow.start_ps, &length) != 7)
            die("expected: source destination packets payload last_payload start_ps L ports");
        flow.path.resize(length);
        for (std::uint32_t& port : flow.path)
            if (std::scanf("%u", &port) != 1 || port >= ports.size()) die("a path names a port that is not there");
    }
}

void sent(std::uint32_t port, ns3::Ptr<const ns3::Packet> packet) {
    ++ports[port].packets;
    ports[port].bytes += packet->GetSize();
    ++hops;
}

void received(std::uint32_t flow, ns3::Ptr<ns3::Socket> socket) {
    while (socket->Recv()) {
        ++arrivals;
        if (!quiet) std::printf("arrival %u %ld\n", flow, ns3::Simulator::Now().GetTimeStep());
    }
}

void start(ns3::Ptr<ns3::Socket> socket, std::uint32_t index) {
    const Flow& flow = flows[index];
    for (std::uint32_t i = 1; i <= flow.packets; ++i)
        socket->Send(ns3::Create<ns3::Packet>(i < flow.packets ? flow.payload : flow.last_payload));
}

ns3::Ptr<ns3::PointToPointNetDevice> make_device(ns3::Ptr<ns3::Node> node, Port& port) {
    auto device = ns3::CreateObject<ns3::PointToPointNetDevice>();
    device->SetAddress(ns3::Mac48Address::Allocate());
    device->SetDataRate(ns3::DataRate(port.rate_bps));
    device->SetMtu(65000);
    auto queue = ns3::CreateObject<ns3::DropTailQueue<ns3::Packet>>();
    queue->SetMaxSize(ns3::QueueSize("1000000000p"));
    device->SetQueue(queue);
    node->AddDevice(device);
    auto ipv4 = node->GetObject<ns3::Ipv4>();
    port.interface = ipv4->AddInterface(device);
    return device;
}

ns3::Ipv4Address address_of(std::uint32_t host) { return ns3::Ipv4Address((10U << 24) + 1 + host); }

double cpu_s() {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Peak memory; getrusage() would count what the process was a copy of before it became this program.
long peak_kb() {
    long found = 0;
    std::FILE* file = std::fopen("/proc/self/status", "r");
    for (char line[256]; file && std::fgets(line, sizeof line, file);) std::sscanf(line, "VmHWM: %ld", &found);
    if (file) std::fclose(file);
    return found;
}

}  // namespace

int main(int argc, char** argv) {
    quiet = argc > 1 && std::strcmp(argv[1], "--quiet") == 0;
    read_work();
    const double before_s = cpu_s();
    ns3::Time::SetResolution(ns3::Time::PS);

    std::uint32_t count = 0;
    for (const Port& port : ports) count = std::max(count, port.from + 1);
    ns3::NodeContainer nodes;
    nodes.Create(count);
    ns3::InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.SetRoutingHelper(FixedRoutesHelper());
    stack.Install(nodes);

    for (std::uint32_t i = 0; i < ports.size(); ++i) {
        Port& one = ports[i];
        if (one.reverse < i) continue;
        Port& other = ports[one.reverse];
        if (one.delay_ps != other.delay_ps) die("a channel of ns-3 has one delay for both directions");
        auto channel = ns3::CreateObject<ns3::PointToPointChannel>();
        channel->SetAttribute("Delay", ns3::TimeValue(ns3::PicoSeconds(one.delay_ps)));
        for (std::uint32_t index : {i, one.reverse}) {
            auto device = make_device(nodes.Get(ports[index].from), ports[index]);
            device->Attach(channel);
            device->TraceConnectWithoutContext("PhyTxEnd", ns3::MakeBoundCallback(&sent, index));
        }
    }
    for (std::uint32_t n = 0; n < count; ++n) {
        auto ipv4 = nodes.Get(n)->GetObject<ns3::Ipv4>();
        for (std::uint32_t i = 1; i < ipv4->GetNInterfaces(); ++i) {
            // Only a host's matters; a switch's are there because ns-3 wants one.
            ipv4->AddAddress(i, ns3::Ipv4InterfaceAddress(address_of(n), ns3::Ipv4Mask::GetOnes()));
            ipv4->SetUp(i);
        }
    }
    std::vector<ns3::Ptr<ns3::Socket>> sockets;
    for (std::uint32_t f = 0; f < flows.size(); ++f) {
        const Flow& flow = flows[f];
        for (std::size_t hop = 1; hop < flow.path.size(); ++hop) {
            const Port& port = ports[flow.path[hop]];
            auto routes =
                ns3::DynamicCast<FixedRoutes>(nodes.Get(port.from)->GetObject<ns3::Ipv4>()->GetRoutingProtocol());
            routes->interface_of_flow.resize(flows.size());
            routes->interface_of_flow[f] = port.interface;
        }
        const auto udp_port = static_cast<std::uint16_t>(first_udp_port + f);
        auto sink = ns3::Socket::CreateSocket(nodes.Get(flow.destination), ns3::UdpSocketFactory::GetTypeId());
        sink->Bind(ns3::InetSocketAddress(ns3::Ipv4Address::GetAny(), udp_port));
        sink->SetRecvCallback(ns3::MakeBoundCallback(&received, f));
        auto source = ns3::Socket::CreateSocket(nodes.Get(flow.source), ns3::UdpSocketFactory::GetTypeId());
        source->Connect(ns3::InetSocketAddress(address_of(flow.destination), udp_port));
        sockets.insert(sockets.end(), {sink, source});
        ns3::Simulator::ScheduleWithContext(flow.source, ns3::PicoSeconds(flow.start_ps), &start, source, f);
    }

    const double ready_s = cpu_s();
    ns3::Simulator::Run();
    const double over_s = cpu_s();
    for (std::size_t i = 0; i < ports.size(); ++i)
        if (!quiet) std::printf("port %zu %lu %lu\n", i, ports[i].packets, ports[i].bytes);
    std::printf("total arrivals %lu hops %lu events %lu setup_s %.3f cpu_s %.4f last_ps %ld rss_kb %ld\n",
                arrivals, hops, ns3::Simulator::GetEventCount(), ready_s - before_s, over_s - ready_s,
                ns3::Simulator::Now().GetTimeStep(), peak_kb());
    ns3::Simulator::Destroy();
}
