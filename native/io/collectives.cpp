// What the executor has ended, handed to the callers that hold it.
#include "io/collectives.hpp"

#include <utility>

namespace dlcp {

std::vector<CollectivePtr> Collectives::take_over() {
    std::vector<CollectivePtr> out;
    CollectiveId id;
    CollectiveResult result;
    while (executor_.poll_over(id, result)) {
        const auto found = under_way_.find(key_of(id));
        if (found == under_way_.end()) continue;
        found->second->result = std::move(result);
        out.push_back(std::move(found->second));
        under_way_.erase(found);
    }
    return out;
}

std::vector<CollectivePtr> Collectives::give_up() {
    std::vector<CollectivePtr> out;
    for (auto& [key, operation] : under_way_) {
        operation->result.error = CollectiveError::aborted;
        out.push_back(std::move(operation));
    }
    under_way_.clear();
    return out;
}

}  // namespace dlcp
