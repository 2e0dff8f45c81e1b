#include "engine/congestion/controllers.hpp"

namespace dlcp {

std::string congestion_choices() {
    std::string choices;
    for (std::size_t i = 0; i < std::size(congestion_controllers); ++i)
        choices.append(i == 0 ? "" : ", ").append(std::to_string(i) + " ").append(congestion_controllers[i].name);
    return choices;
}

}  // namespace dlcp
