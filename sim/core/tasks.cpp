// A task waits for its edges, then, if it has a channel, for its turn there; then it runs until it is finished.
//
// After prepare() nothing is allocated: edges are rows of one array, a channel's heap is a slice of another, and lists of
// tasks to look at are chained through the tasks themselves. What is touched belongs to a task, a channel or a host, and
// each of these to one domain. A call that arrives while another is at work on the same host (a transport that finishes
// a flow as it starts it) only leaves its tasks on the host's list, so that no chain of instant tasks recurses.
#include "sim/core/tasks.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "sim/core/domain.hpp"
#include "sim/core/simulation.hpp"

namespace dlcp::sim {

namespace {

struct Edge {
    std::uint32_t before;
    std::uint32_t after;
    After when;
};

struct Channel {
    std::uint64_t credit_bytes = 0;
    std::uint64_t under_way_bytes = 0;
    std::uint32_t under_way = 0;  // tasks
    std::uint32_t heap = 0;       // where its slice of `heaps` starts; room for all its tasks
    std::uint32_t waiting = 0;    // tasks in it
    std::uint32_t first = 0;      // `together`: members before this one are over; an index into `members`
    std::uint32_t last = 0;       // where its slice of `members` ends
    std::uint32_t beyond = none;  // the task that started beyond the credit and is not over
    std::uint32_t next = none;    // chain: the host's channels to look at
    std::uint32_t host = none;    // of its tasks
    bool together = false;
    bool listed = false;  // in that chain
};

struct Host {
    std::uint32_t ready_head = none;  // tasks whose edges are all satisfied, not looked at yet
    std::uint32_t ready_tail = none;
    std::uint32_t channels = none;  // that may start something
    bool at_work = false;           // a call further down the stack empties these lists
};

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("task graph: " + what); }

std::string named(const char* what, std::uint64_t index) {
    return std::string(what) + " " + std::to_string(index);
}

}  // namespace

struct TaskGraph::State {
    std::vector<Task> tasks;
    std::vector<TaskTimes> times;
    std::vector<Edge> edges;  // as added; emptied by prepare()
    std::vector<Channel> channels;
    bool prepared = false;

    // From prepare() on. A task's edges: [first_edge[t], first_acknowledged[t]) when it is finished (a flow: delivered),
    // [first_acknowledged[t], first_edge[t + 1]) when it is acknowledged.
    std::vector<std::uint32_t> first_edge;
    std::vector<std::uint32_t> first_acknowledged;
    std::vector<std::uint32_t> edge_to;
    std::vector<std::uint32_t> missing;  // per task: edges into it that are not satisfied
    std::vector<std::uint32_t> next;     // per task: chain of the list that it is in
    std::vector<std::uint32_t> heaps;
    std::vector<std::uint32_t> members;       // of channels that are `together`, in the order of adding
    std::vector<std::uint8_t> returned;       // per task: its bytes are back; sized if there are members
    std::vector<std::uint32_t> first_return;  // as edges: whose channel bytes this task returns; empty: nobody's
    std::vector<std::uint32_t> return_of;
    std::vector<std::uint32_t> first_root;  // per host: its tasks that wait for nothing
    std::vector<std::uint32_t> roots;
    std::vector<Host> hosts;

    void check(Simulation& simulation) const;
    void index(std::uint32_t host_count);
    void check_cycles() const;

    // True: `a` starts before `b`.
    bool sooner(std::uint32_t a, std::uint32_t b) const {
        if (tasks[a].priority != tasks[b].priority) return tasks[a].priority < tasks[b].priority;
        if (times[a].ready_ps != times[b].ready_ps) return times[a].ready_ps < times[b].ready_ps;
        return a < b;
    }
    void push(Channel& channel, std::uint32_t task);
    std::uint32_t pop(Channel& channel);

    std::uint32_t choose(Channel& channel, bool& beyond);

    void list_task(std::uint32_t task);
    void list_channel(std::uint32_t channel);
    void satisfy(std::uint32_t first, std::uint32_t last);
    void give_back(std::uint32_t task);
    void over(Domain& domain, std::uint32_t task);
    void begin(Domain& domain, std::uint32_t task);
    void serve(Domain& domain, std::uint32_t channel);
    void work(Domain& domain, std::uint32_t host);
};

// --- before the run ---

TaskGraph::TaskGraph() : state_(std::make_unique<State>()) {}
TaskGraph::~TaskGraph() = default;

std::uint32_t TaskGraph::add_task(const Task& task) {
    if (state_->prepared) refuse("tasks are added before the run");
    if (state_->tasks.size() >= none) refuse("more than 2^32 - 1 tasks");
    if (task.value < 0) refuse("value is " + std::to_string(task.value) + ", must not be negative");
    if (task.channel == none && task.returned_by != none) {
        refuse(named("returned_by is task", task.returned_by) + ", but the task has no channel");
    }
    state_->tasks.push_back(task);
    return static_cast<std::uint32_t>(state_->tasks.size() - 1);
}

void TaskGraph::add_edge(std::uint32_t before, std::uint32_t after, After when) {
    if (state_->prepared) refuse("edges are added before the run");
    if (state_->edges.size() >= none) refuse("more than 2^32 - 1 edges");
    state_->edges.push_back({before, after, when});
}

std::uint32_t TaskGraph::add_channel(std::uint64_t credit_bytes, bool together) {
    if (state_->prepared) refuse("channels are added before the run");
    state_->channels.push_back({.credit_bytes = credit_bytes, .together = together});
    return static_cast<std::uint32_t>(state_->channels.size() - 1);
}

void TaskGraph::prepare(Simulation& simulation) {
    State& state = *state_;
    if (state.prepared) refuse("is prepared once");
    state.check(simulation);
    for (std::uint32_t task = 0; task < state.tasks.size(); ++task) {
        if (state.tasks[task].kind != TaskKind::flow) continue;
        Flow& flow = simulation.flows()[static_cast<std::size_t>(state.tasks[task].value)];
        if (flow.task != none) {
            refuse(named("flow", static_cast<std::uint64_t>(state.tasks[task].value)) + " belongs to " +
                   named("task", flow.task) + " and to " + named("task", task));
        }
        flow.task = task;
    }
    for (std::size_t flow = 0; flow < simulation.flows().size(); ++flow) {
        if (simulation.flows()[flow].start_ps < 0 && simulation.flows()[flow].task == none) {
            refuse(named("flow", flow) + " has no start and no task");
        }
    }
    state.times.assign(state.tasks.size(), {});
    state.index(simulation.fabric().hosts());
    state.check_cycles();
    state.prepared = true;
}

void TaskGraph::State::check(Simulation& simulation) const {
    const std::uint32_t host_count = simulation.fabric().hosts();
    const std::vector<Flow>& flows = simulation.flows();
    std::vector<std::uint32_t> host_of_channel(channels.size(), none);
    for (std::uint32_t i = 0; i < tasks.size(); ++i) {
        const Task& task = tasks[i];
        if (task.host >= host_count) {
            refuse(named("task", i) + named(" is on host", task.host) + ", the fabric has 0.." +
                   std::to_string(host_count - 1));
        }
        if (task.kind == TaskKind::flow) {
            const auto flow = static_cast<std::uint64_t>(task.value);
            if (flow >= flows.size())
                refuse(named("task", i) + named(" is flow", flow) + ", which does not exist");
            if (flows[flow].source != task.host) {
                refuse(named("task", i) + named(" is on host", task.host) + ", its flow leaves " +
                       named("host", flows[flow].source));
            }
            if (flows[flow].start_ps >= 0) refuse(named("flow", flow) + " has both a task and a start");
        }
        if (task.channel != none) {
            if (task.channel >= channels.size()) {
                refuse(named("task", i) + named(" uses channel", task.channel) + ", there are " +
                       std::to_string(channels.size()));
            }
            std::uint32_t& host = host_of_channel[task.channel];
            if (host == none) host = task.host;
            if (host != task.host) {
                refuse(named("channel", task.channel) + named(" has tasks of host", host) +
                       named(" and of host", task.host));
            }
        }
        if (task.returned_by != none) {
            if (task.returned_by >= tasks.size()) refuse(named("returned_by is task", task.returned_by));
            if (tasks[task.returned_by].host != task.host) {
                refuse(named("task", i) + named(" is returned by task", task.returned_by) + " of another host");
            }
        }
    }
    for (const Edge& edge : edges) {
        if (edge.before >= tasks.size() || edge.after >= tasks.size()) {
            refuse(named("edge from task", edge.before) + named(" to task", edge.after) + ", there are " +
                   std::to_string(tasks.size()));
        }
        const Task& before = tasks[edge.before];
        const bool is_flow = before.kind == TaskKind::flow;
        if (edge.when == After::acknowledged && !is_flow) {
            refuse(named("edge waits for task", edge.before) + " to be acknowledged, which is no flow");
        }
        const std::uint32_t where = is_flow && edge.when == After::finished
                                        ? flows[static_cast<std::size_t>(before.value)].destination
                                        : before.host;
        if (tasks[edge.after].host != where) {
            refuse(named("edge from task", edge.before) + named(" becomes true on host", where) + ", but " +
                   named("task", edge.after) + named(" is on host", tasks[edge.after].host));
        }
    }
}

void TaskGraph::State::index(std::uint32_t host_count) {
    const std::size_t count = tasks.size();
    missing.assign(count, 0);
    next.assign(count, none);
    hosts.assign(host_count, {});

    // Counting sorts: how many per row, where each row starts, then each to its place.
    first_edge.assign(count + 1, 0);
    first_acknowledged.assign(count, 0);
    for (const Edge& edge : edges) {
        ++first_edge[edge.before + 1];
        ++missing[edge.after];
        if (edge.when == After::finished) ++first_acknowledged[edge.before];
    }
    for (std::size_t task = 0; task < count; ++task) {
        first_edge[task + 1] += first_edge[task];
        first_acknowledged[task] += first_edge[task];
    }
    edge_to.resize(edges.size());
    {
        std::vector<std::uint32_t> place(first_edge.begin(), first_edge.end() - 1);
        std::vector<std::uint32_t> place_acknowledged = first_acknowledged;
        for (const Edge& edge : edges) {
            auto& places = edge.when == After::finished ? place : place_acknowledged;
            edge_to[places[edge.before]++] = edge.after;
        }
    }
    std::vector<Edge>().swap(edges);

    bool any_return = false;
    std::vector<std::uint32_t> sizes(channels.size(), 0);
    for (const Task& task : tasks) {
        if (task.channel == none) continue;
        ++sizes[task.channel];
        channels[task.channel].host = task.host;
        any_return = any_return || task.returned_by != none;
    }
    std::uint32_t heap = 0;
    std::uint32_t member = 0;
    for (std::size_t i = 0; i < channels.size(); ++i) {
        channels[i].heap = heap;
        heap += sizes[i];
        channels[i].first = channels[i].last = member;
        if (channels[i].together) member += sizes[i];
    }
    heaps.assign(heap, none);
    members.assign(member, none);
    returned.assign(member > 0 ? count : 0, 0);
    for (std::uint32_t task = 0; member > 0 && task < count; ++task) {
        if (tasks[task].channel == none) continue;
        Channel& channel = channels[tasks[task].channel];
        if (channel.together) members[channel.last++] = task;
    }

    if (any_return) {
        first_return.assign(count + 1, 0);
        for (const Task& task : tasks) {
            if (task.returned_by != none) ++first_return[task.returned_by + 1];
        }
        for (std::size_t task = 0; task < count; ++task) first_return[task + 1] += first_return[task];
        return_of.resize(first_return[count]);
        std::vector<std::uint32_t> place(first_return.begin(), first_return.end() - 1);
        for (std::uint32_t task = 0; task < count; ++task) {
            if (tasks[task].returned_by != none) return_of[place[tasks[task].returned_by]++] = task;
        }
    }

    first_root.assign(host_count + 1, 0);
    for (std::size_t task = 0; task < count; ++task) {
        if (missing[task] == 0) ++first_root[tasks[task].host + 1];
    }
    for (std::uint32_t host = 0; host < host_count; ++host) first_root[host + 1] += first_root[host];
    roots.resize(first_root[host_count]);
    std::vector<std::uint32_t> place(first_root.begin(), first_root.end() - 1);
    for (std::uint32_t task = 0; task < count; ++task) {
        if (missing[task] == 0) roots[place[tasks[task].host]++] = task;
    }
}

void TaskGraph::State::check_cycles() const {
    std::vector<std::uint32_t> left = missing;
    std::vector<std::uint32_t> free = roots;
    for (std::size_t i = 0; i < free.size(); ++i) {  // grows as it goes
        for (std::uint32_t edge = first_edge[free[i]]; edge < first_edge[free[i] + 1]; ++edge) {
            if (--left[edge_to[edge]] == 0) free.push_back(edge_to[edge]);
        }
    }
    if (free.size() == tasks.size()) return;
    const auto stuck = std::find_if(left.begin(), left.end(), [](std::uint32_t n) { return n > 0; });
    refuse(named("task", static_cast<std::uint64_t>(stuck - left.begin())) +
           " is in a cycle of edges, or behind one");
}

bool TaskGraph::empty() const { return state_->tasks.empty(); }
std::uint32_t TaskGraph::tasks() const { return static_cast<std::uint32_t>(state_->tasks.size()); }
const std::vector<TaskTimes>& TaskGraph::times() const { return state_->times; }

// --- a channel's heap: the task that starts next on top ---

void TaskGraph::State::push(Channel& channel, std::uint32_t task) {
    std::uint32_t* heap = heaps.data() + channel.heap;
    heap[channel.waiting++] = task;
    std::push_heap(heap, heap + channel.waiting,
                   [this](std::uint32_t a, std::uint32_t b) { return sooner(b, a); });
}

std::uint32_t TaskGraph::State::pop(Channel& channel) {
    std::uint32_t* heap = heaps.data() + channel.heap;
    std::pop_heap(heap, heap + channel.waiting, [this](std::uint32_t a, std::uint32_t b) { return sooner(b, a); });
    return heap[--channel.waiting];
}

// --- the run ---

void TaskGraph::State::list_task(std::uint32_t task) {
    Host& host = hosts[tasks[task].host];
    next[task] = none;
    (host.ready_tail == none ? host.ready_head : next[host.ready_tail]) = task;
    host.ready_tail = task;
}

void TaskGraph::State::list_channel(std::uint32_t index) {
    Channel& channel = channels[index];
    if (channel.listed) return;
    channel.listed = true;
    channel.next = hosts[channel.host].channels;
    hosts[channel.host].channels = index;
}

void TaskGraph::State::satisfy(std::uint32_t first, std::uint32_t last) {
    for (std::uint32_t edge = first; edge < last; ++edge) {
        if (--missing[edge_to[edge]] == 0) list_task(edge_to[edge]);
    }
}

void TaskGraph::State::give_back(std::uint32_t task) {
    Channel& channel = channels[tasks[task].channel];
    if (channel.beyond == task) {
        channel.beyond = none;
    } else {
        channel.under_way_bytes -= tasks[task].channel_bytes;
        --channel.under_way;
    }
    if (channel.together) returned[task] = 1;
    list_channel(tasks[task].channel);
}

// What starts next in a channel; `none`: nothing for now. `beyond`: beyond the credit.
std::uint32_t TaskGraph::State::choose(Channel& channel, bool& beyond) {
    beyond = false;
    // What started beyond the credit was left in the heap.
    while (channel.waiting > 0 && times[heaps[channel.heap]].started_ps >= 0) pop(channel);
    if (channel.waiting == 0) return none;
    const std::uint32_t top = heaps[channel.heap];
    if (channel.under_way == 0 || channel.under_way_bytes + tasks[top].channel_bytes <= channel.credit_bytes) {
        return pop(channel);
    }
    if (!channel.together || channel.beyond != none) return none;
    while (returned[members[channel.first]] != 0) ++channel.first;  // one at least is left: the top
    const std::uint32_t first = members[channel.first];
    if (times[first].ready_ps < 0 || times[first].started_ps >= 0) return none;
    beyond = true;
    return first;
}

// At the task's own host, which then has something to work on.
void TaskGraph::State::over(Domain& domain, std::uint32_t task) {
    times[task].finished_ps = domain.now_ps();
    domain.task_over();
    if (tasks[task].channel != none && tasks[task].returned_by == none) give_back(task);
    if (!first_return.empty()) {
        for (std::uint32_t i = first_return[task]; i < first_return[task + 1]; ++i) {
            if (times[return_of[i]].started_ps >= 0) give_back(return_of[i]);
        }
    }
    if (tasks[task].kind == TaskKind::flow) {
        satisfy(first_acknowledged[task], first_edge[task + 1]);
    } else {
        satisfy(first_edge[task], first_acknowledged[task]);
    }
}

void TaskGraph::State::begin(Domain& domain, std::uint32_t index) {
    const Task& task = tasks[index];
    times[index].started_ps = domain.now_ps();
    switch (task.kind) {
        case TaskKind::compute:
            if (task.value > 0) {
                domain.set_task_timer(domain.now_ps() + task.value, index);
            } else {
                over(domain, index);
            }
            break;
        case TaskKind::flow: domain.start_flow(static_cast<std::uint32_t>(task.value)); break;
        case TaskKind::collective:
            domain.simulation().transport().start_collective(domain, static_cast<std::uint32_t>(task.value >> 32),
                                                             static_cast<std::uint32_t>(task.value & 0xffffffff),
                                                             index);
            break;
    }
}

void TaskGraph::State::serve(Domain& domain, std::uint32_t index) {
    Channel& channel = channels[index];
    channel.listed = false;
    bool beyond = false;
    for (std::uint32_t task; (task = choose(channel, beyond)) != none;) {
        const std::uint32_t returner = tasks[task].returned_by;
        if (returner != none && times[returner].finished_ps >= 0) {  // is back before it has left
            if (channel.together) returned[task] = 1;
        } else if (beyond) {
            channel.beyond = task;
        } else {
            channel.under_way_bytes += tasks[task].channel_bytes;
            ++channel.under_way;
        }
        begin(domain, task);
        // What this set free is looked at first: it may go ahead of what waits here.
        if (hosts[channel.host].ready_head != none) {
            list_channel(index);
            return;
        }
    }
}

// Until nothing of this host can start at this moment. Ready tasks first, so that a channel chooses among all of them.
void TaskGraph::State::work(Domain& domain, std::uint32_t index) {
    Host& host = hosts[index];
    if (host.at_work) return;
    host.at_work = true;
    for (;;) {
        if (host.ready_head != none) {
            const std::uint32_t task = host.ready_head;
            host.ready_head = next[task];
            if (host.ready_head == none) host.ready_tail = none;
            times[task].ready_ps = domain.now_ps();
            if (tasks[task].channel == none) {
                begin(domain, task);
            } else {
                push(channels[tasks[task].channel], task);
                list_channel(tasks[task].channel);
            }
        } else if (host.channels != none) {
            const std::uint32_t channel = host.channels;
            host.channels = channels[channel].next;
            serve(domain, channel);
        } else {
            break;
        }
    }
    host.at_work = false;
}

void TaskGraph::start(Domain& domain) {
    State& state = *state_;
    for (std::uint32_t host = 0; host < state.hosts.size(); ++host) {
        if (state.first_root[host] == state.first_root[host + 1] || !domain.owns(host)) continue;
        for (std::uint32_t i = state.first_root[host]; i < state.first_root[host + 1]; ++i) {
            state.list_task(state.roots[i]);
        }
        state.work(domain, host);
    }
}

void TaskGraph::flow_delivered(Domain& domain, std::uint32_t task) {
    State& state = *state_;
    const std::uint32_t first = state.first_edge[task];
    const std::uint32_t last = state.first_acknowledged[task];
    if (first == last) return;
    state.satisfy(first, last);
    state.work(domain, state.tasks[state.edge_to[first]].host);  // all are of the destination
}

void TaskGraph::flow_acknowledged(Domain& domain, std::uint32_t task) { task_finished(domain, task); }

void TaskGraph::task_finished(Domain& domain, std::uint32_t task) {
    state_->over(domain, task);
    state_->work(domain, state_->tasks[task].host);
}

void TaskGraph::handle_timer(Domain& domain, std::uint32_t task) { task_finished(domain, task); }

}  // namespace dlcp::sim
