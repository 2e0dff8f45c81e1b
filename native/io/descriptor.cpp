#include "io/descriptor.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace dlcp {

namespace {

// All that a child is to close. Never destroyed: a fork may come while the process ends.
struct OpenDescriptors {
    std::mutex mutex;
    std::vector<int> numbers;
};

OpenDescriptors& open_descriptors() {
    static OpenDescriptors& instance = *new OpenDescriptors;
    // The mutex is held over the fork, so that the child finds the list whole.
    static const int registered =
        pthread_atfork([] { open_descriptors().mutex.lock(); }, [] { open_descriptors().mutex.unlock(); },
                       [] {
                           for (const int number : open_descriptors().numbers) close(number);
                           open_descriptors().numbers.clear();
                           open_descriptors().mutex.unlock();
                       });
    static_cast<void>(registered);
    return instance;
}

}  // namespace

void close_in_children(int number) {
    const std::lock_guard lock(open_descriptors().mutex);
    open_descriptors().numbers.push_back(number);
}

void forget(int number) {
    const std::lock_guard lock(open_descriptors().mutex);
    auto& numbers = open_descriptors().numbers;
    if (const auto found = std::find(numbers.begin(), numbers.end(), number); found != numbers.end()) {
        *found = numbers.back();
        numbers.pop_back();
    }
}

Descriptor::Descriptor(int number) : number_(number) {
    if (number_ >= 0) close_in_children(number_);
}

Descriptor::~Descriptor() {
    if (number_ < 0 || fork_guard_.forked()) return;
    forget(number_);
    close(number_);
}

}  // namespace dlcp
