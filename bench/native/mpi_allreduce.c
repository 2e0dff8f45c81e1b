// All-reduces of float32 over MPI, timed as bench/collectives/timing.py times them: mpi_allreduce SECONDS MOST BYTES...
//
// Rank 0 prints a line of JSON: per size a list of ranks. bench/collectives/mpi.py compiles it with mpicc and starts it.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { warmup = 3, iterations_min = 5 };

static int rank, world;

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
    double warm_s = 0;
    for (int i = 0; i < warmup; ++i) warm_s = once(buffer, count);
    MPI_Allreduce(MPI_IN_PLACE, &warm_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    const double wanted = seconds / (warm_s + 1e-6);
    const int n = wanted < iterations_min ? iterations_min : wanted > iterations_max ? iterations_max : (int)wanted;

    // Times, then wall time, processor time and elements that are not the sum.
    double* own = calloc((size_t)(n + 3), sizeof(double));
    double* all = calloc((size_t)((n + 3) * world), sizeof(double));
    MPI_Barrier(MPI_COMM_WORLD);
    const double start_s = MPI_Wtime();
    const clock_t start = clock();  // processor time of all threads
    for (int i = 0; i < n; ++i) own[i] = once(buffer, count);
    own[n] = MPI_Wtime() - start_s;
    own[n + 1] = (double)(clock() - start) / CLOCKS_PER_SEC;
    for (int i = 0; i < count; ++i) own[n + 2] += buffer[i] != (float)(i % 97 * world + world * (world - 1) / 2);
    MPI_Gather(own, n + 3, MPI_DOUBLE, all, n + 3, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (const double* of = all; rank == 0 && of < all + (n + 3) * world; of += n + 3) {
        printf("%s{\"nbytes\":%d,\"times_s\":[", of == all ? "[" : ",", nbytes);
        for (int i = 0; i < n; ++i) printf("%s%.9f", i ? "," : "", of[i]);
        printf("],\"wall_s\":%f,\"cpu_s\":%f,\"wrong\":%.0f}", of[n], of[n + 1], of[n + 2]);
    }
    free(buffer), free(own), free(all);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    for (int i = 3; i < argc; ++i) {
        if (rank == 0) printf(i == 3 ? "[" : "],");
        measure(atoi(argv[i]), atof(argv[1]), atoi(argv[2]));
    }
    if (rank == 0) printf("]]\n");
    MPI_Finalize();
    return 0;
}
