// All-reduces of float32 over MPI, timed as bench/collectives/timing.py does it on ranks of torch.distributed.
//
//   mpi_allreduce SECONDS ITERATIONS_MAX BYTES...
//
// Rank 0 prints a line of JSON: per size a list of ranks. bench/collectives/mpi.py compiles it with mpicc and starts it.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { warmup = 3, iterations_min = 5 };

static int rank, world;

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// Fills the buffer anew and says how long the all-reduce took; the one before is the barrier.
static double once(float* buffer, int count) {
    for (int i = 0; i < count; ++i) buffer[i] = (float)(i % 97 + rank);
    const double start_s = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return MPI_Wtime() - start_s;
}

static void measure(int nbytes, double seconds, int iterations_max) {
    const int count = nbytes / 4;
    float* buffer = malloc((size_t)nbytes);
    double least_s = 1e9, slowest_s = 0;
    for (int i = 0; i < warmup; ++i) {
        const double time_s = once(buffer, count);
        if (time_s < least_s) least_s = time_s;
    }
    MPI_Allreduce(&least_s, &slowest_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    int iterations = slowest_s > 1e-6 ? (int)(seconds / slowest_s) : iterations_max;
    if (iterations > iterations_max) iterations = iterations_max;
    if (iterations < iterations_min) iterations = iterations_min;

    // Times, then processor time, wall time and elements that are not the sum.
    const int fields = iterations + 3;
    double* own = malloc(sizeof(double) * (size_t)fields);
    double* all = malloc(sizeof(double) * (size_t)fields * (size_t)world);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start_cpu_s = cpu_s(), start_s = MPI_Wtime();
    for (int i = 0; i < iterations; ++i) own[i] = once(buffer, count);
    own[iterations] = cpu_s() - start_cpu_s;
    own[iterations + 1] = MPI_Wtime() - start_s;
    own[iterations + 2] = 0;
    for (int i = 0; i < count; ++i)
        own[iterations + 2] += buffer[i] != (float)(i % 97 * world + world * (world - 1) / 2);
    MPI_Gather(own, fields, MPI_DOUBLE, all, fields, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < world; ++r) {
        const double* of = all + (size_t)r * (size_t)fields;
        printf("%s{\"nbytes\":%d,\"times_s\":[", r ? "," : "[", nbytes);
        for (int i = 0; i < iterations; ++i) printf("%s%.9f", i ? "," : "", of[i]);
        printf("],\"cpu_s\":%.6f,\"wall_s\":%.6f,\"wrong\":%.0f}%s", of[iterations], of[iterations + 1],
               of[iterations + 2], r == world - 1 ? "]" : "");
    }
    free(buffer), free(own), free(all);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    for (int i = 3; i < argc; ++i) {
        if (rank == 0) printf(i > 3 ? "," : "[");
        measure(atoi(argv[i]), atof(argv[1]), atoi(argv[2]));
    }
    if (rank == 0) printf("]\n");
    MPI_Finalize();
    return 0;
}
