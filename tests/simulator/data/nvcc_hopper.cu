#include <cuda.h>
#include <cuda_fp16.h>
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <cuda/atomic>
namespace cg = cooperative_groups;
using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;

// Bins of a histogram, spread over the shared memory of the blocks of a cluster.
extern "C" __global__ void cluster_histogram(int n, const int* x, int* bins, int bins_per_block) {
    extern __shared__ int smem[];
    cg::cluster_group cluster = cg::this_cluster();
    for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x) smem[i] = 0;
    cluster.sync();
    for (int i = cg::this_grid().thread_rank(); i < n; i += gridDim.x * blockDim.x) {
        int b = x[i];
        int* dst = cluster.map_shared_rank(smem, b / bins_per_block);
        atomicAdd(dst + b % bins_per_block, 1);
    }
    cluster.sync();
    for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x)
        atomicAdd(bins + cluster.block_rank() * bins_per_block + i, smem[i]);
}

// Reverses each tile of blockDim.x ints: bulk copy in, bulk copy out.
extern "C" __global__ void bulk_reverse(const int* x, int* y) {
    extern __shared__ __align__(128) int tile[];
    int n = blockDim.x;
    #pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier bar;
    if (threadIdx.x == 0) { init(&bar, blockDim.x); cde::fence_proxy_async_shared_cta(); }
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_global_to_shared(tile, x + blockIdx.x * n, n * 4, bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, n * 4);
    } else token = bar.arrive();
    bar.wait(std::move(token));
    int v = tile[n - 1 - threadIdx.x];
    __syncthreads();
    tile[threadIdx.x] = v;
    cde::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_shared_to_global(y + blockIdx.x * n, tile, n * 4);
        cde::cp_async_bulk_commit_group();
        cde::cp_async_bulk_wait_group_read<0>();
    }
}

// out = in + 1 over 32 x 64 tiles by tensor maps.
extern "C" __global__ void tma_add_one(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[32][64];
    __shared__ barrier bar;
    if (threadIdx.x == 0) { init(&bar, blockDim.x); cde::fence_proxy_async_shared_cta(); }
    __syncthreads();
    int x = blockIdx.x * 64, y = blockIdx.y * 32;
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_global_to_shared(&tile, &in, x, y, bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(tile));
    } else token = bar.arrive();
    bar.wait(std::move(token));
    for (int i = threadIdx.x; i < 32 * 64; i += blockDim.x) tile[i / 64][i % 64] += 1.0f;
    cde::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_shared_to_global(&out, x, y, &tile);
        cde::cp_async_bulk_commit_group();
        cde::cp_async_bulk_wait_group_read<0>();
    }
}

// Block-wide running sums of tiles, loads pipelined two deep with cuda::pipeline (mbarriers).
extern "C" __global__ void pipelined_sum(int tiles, const float* x, float* y) {
    constexpr int stages = 2;
    extern __shared__ float buf[];
    auto block = cg::this_thread_block();
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    auto pipe = cuda::make_pipeline(block, &state);
    int n = blockDim.x;
    float acc = 0;
    int fetch = 0;
    for (int t = 0; t < tiles; ++t) {
        for (; fetch < tiles && fetch < t + stages; ++fetch) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, buf + (fetch % stages) * n, x + (size_t)(blockIdx.x * tiles + fetch) * n, sizeof(float) * n, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        acc += buf[(t % stages) * n + (threadIdx.x + 1) % n];
        block.sync();
        pipe.consumer_release();
    }
    y[blockIdx.x * n + threadIdx.x] = acc;
}

// Producer warp and consumers with full and empty barriers.
extern "C" __global__ void producer_consumer(int steps, const int* x, int* y) {
    __shared__ barrier full[2], empty[2];
    __shared__ int buf[2][32];
    if (threadIdx.x == 0) for (int i = 0; i < 2; ++i) { init(&full[i], blockDim.x); init(&empty[i], blockDim.x); }
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int s = 0; s < steps; ++s) {
            int b = s & 1;
            empty[b].arrive_and_wait();
            buf[b][threadIdx.x] = x[(blockIdx.x * steps + s) * 32 + threadIdx.x];
            barrier::arrival_token t = full[b].arrive();
        }
    } else {
        barrier::arrival_token t0 = empty[0].arrive(), t1 = empty[1].arrive();
        int acc = 0;
        for (int s = 0; s < steps; ++s) {
            int b = s & 1;
            full[b].arrive_and_wait();
            acc = acc * 3 + buf[b][threadIdx.x & 31];
            barrier::arrival_token t = empty[b].arrive();
        }
        y[blockIdx.x * (blockDim.x - 32) + threadIdx.x - 32] = acc;
    }
}

// Each block adds what its right neighbour in the cluster stored, through remote mbarrier arrives and st.async.
extern "C" __global__ void ring(int* y) {
    __shared__ uint64_t bar;
    __shared__ alignas(16) int inbox[4];
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) {
        cuda::ptx::mbarrier_init(&bar, 1);
        cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta, cuda::ptx::space_shared, &bar, 16);
    }
    cluster.sync();
    unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
    if (threadIdx.x == 0) {
        int v = blockIdx.x * 10;
        cuda::ptx::st_async(cluster.map_shared_rank(inbox, next), (int32_t const(&)[4])*(const int32_t(*)[4])(const int[4]){v, v + 1, v + 2, v + 3}, cluster.map_shared_rank(&bar, next));
    }
    while (!cuda::ptx::mbarrier_try_wait_parity(&bar, 0)) {}
    if (threadIdx.x < 4) y[blockIdx.x * 4 + threadIdx.x] = inbox[threadIdx.x];
    cluster.sync();
}
