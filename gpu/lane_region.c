// One region of GPU memory for the ephemeral memory of all jobs of a lane (an experiment, see gpu/lane_region.py).
//
// Hands out segments of one virtual range backed by physical chunks which other processes may have mapped as well
// (POSIX file descriptors). lane_malloc and lane_free have the signatures of PyTorch's CUDAPluggableAllocator. When the
// region is full they fall back to private memory: a NULL would end the user's script. libcuda is opened at run time,
// so that this builds and loads without a driver or its headers; LANE_REGION_LIBCUDA names another library.
//
// Build: gcc -O2 -shared -fPIC -o lane_region.so gpu/lane_region.c -ldl -lpthread

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

// cuda.h, CUDA 12 and 13
typedef unsigned long long Pointer, Handle;
typedef struct { int type, id; } Location;
typedef struct {
    int type, handle_types;
    Location location;
    void *win32;
    struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
} Properties;
typedef struct { Location location; int flags; } Access;
enum { PINNED = 1, ON_DEVICE = 1, BY_DESCRIPTOR = 1, READ_WRITE = 3 };

enum { GRAIN = 2 << 20, CHUNKS_MAX = 1024, BLOCKS_MAX = 65536 };
enum { NO_LIBRARY = -1, NO_SYMBOL = -2, TOO_MANY = -3 };

static struct {
    int (*init)(unsigned), (*device)(int *, int), (*retain)(void **, int), (*current)(void *), (*wait)(void);
    int (*create)(Handle *, size_t, const Properties *, unsigned long long), (*release)(Handle);
    int (*export_)(void *, Handle, int, unsigned long long), (*import_)(Handle *, void *, int);
    int (*reserve)(Pointer *, size_t, size_t, Pointer, unsigned long long);
    int (*map)(Pointer, size_t, size_t, Handle, unsigned long long), (*unmap)(Pointer, size_t);
    int (*access)(Pointer, size_t, const Access *, size_t);
    int (*alloc)(Pointer *, size_t), (*free)(Pointer);
    int (*set)(Pointer, unsigned char, size_t), (*read)(void *, Pointer, size_t);
} cu;

static const struct { void *place; const char *name; } SYMBOLS[] = {
    {&cu.init, "cuInit"}, {&cu.device, "cuDeviceGet"}, {&cu.retain, "cuDevicePrimaryCtxRetain"},
    {&cu.current, "cuCtxSetCurrent"}, {&cu.wait, "cuCtxSynchronize"}, {&cu.create, "cuMemCreate"},
    {&cu.release, "cuMemRelease"}, {&cu.export_, "cuMemExportToShareableHandle"},
    {&cu.import_, "cuMemImportFromShareableHandle"}, {&cu.reserve, "cuMemAddressReserve"}, {&cu.map, "cuMemMap"},
    {&cu.unmap, "cuMemUnmap"}, {&cu.access, "cuMemSetAccess"}, {&cu.alloc, "cuMemAlloc_v2"},
    {&cu.free, "cuMemFree_v2"}, {&cu.set, "cuMemsetD8_v2"}, {&cu.read, "cuMemcpyDtoH_v2"},
};

typedef struct { size_t offset, bytes; int used; } Block;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Handle handles[CHUNKS_MAX];
static int descriptors[CHUNKS_MAX], chunks, device, mapped, blocks;
static size_t chunk_bytes, total, used, high;
static long fallbacks;
static Pointer base;
static Block block[BLOCKS_MAX];

static int open_library(void)
{
    const char *name = getenv("LANE_REGION_LIBCUDA");
    void *library = dlopen(name ? name : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) return NO_LIBRARY;
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++)
        if (!(*(void **)SYMBOLS[i].place = dlsym(library, SYMBOLS[i].name))) return NO_SYMBOL;
    return 0;
}

int lane_map(void)
{
    Access access = {{ON_DEVICE, device}, READ_WRITE};
    int code = 0;
    for (int i = 0; i < chunks && !mapped && !code; i++) code = cu.map(base + i * chunk_bytes, chunk_bytes, 0, handles[i], 0);
    if (!code && !mapped) code = cu.access(base, total, &access, 1);
    mapped = mapped || !code;
    return code;
}

int lane_unmap(void)
{
    int code = 0;
    for (int i = 0; i < chunks && mapped && !code; i++) code = cu.unmap(base + i * chunk_bytes, chunk_bytes);
    mapped = mapped && code;
    return code;
}

static int make_chunk(int i, const int *given)
{
    Properties properties;
    memset(&properties, 0, sizeof properties);
    properties.type = PINNED;
    properties.handle_types = BY_DESCRIPTOR;
    properties.location = (Location){ON_DEVICE, device};
    if (given) {
        descriptors[i] = given[i];
        return cu.import_(&handles[i], (void *)(intptr_t)given[i], BY_DESCRIPTOR);
    }
    int code = cu.create(&handles[i], chunk_bytes, &properties, 0);
    return code ? code : cu.export_(&descriptors[i], handles[i], BY_DESCRIPTOR, 0);
}

// Makes the region: of `count` chunks whose descriptors are given, else of new ones. 0, the driver's code, or below 0.
int lane_open(int ordinal, size_t bytes, size_t bytes_of_chunk, int count, const int *given)
{
    void *context = NULL;
    int code = chunks ? 0 : open_library();
    if (chunks || code) return code;
    device = ordinal;
    chunk_bytes = bytes_of_chunk;
    int wanted = given ? count : (int)((bytes + chunk_bytes - 1) / chunk_bytes);
    if (wanted > CHUNKS_MAX) return TOO_MANY;
    int handle = 0;
    if ((code = cu.init(0)) || (code = cu.device(&handle, ordinal)) || (code = cu.retain(&context, handle))) return code;
    if ((code = cu.current(context))) return code;
    for (int i = 0; i < wanted; i++)
        if ((code = make_chunk(i, given))) return code;
    chunks = wanted;
    total = chunk_bytes * chunks;
    if ((code = cu.reserve(&base, total, GRAIN, 0, 0)) || (code = lane_map())) return code;
    block[0] = (Block){0, total, 0};
    blocks = 1;
    return 0;
}

static void *private_memory(size_t bytes)
{
    Pointer found = 0;
    fallbacks++;
    return cu.alloc && !cu.alloc(&found, bytes) ? (void *)(uintptr_t)found : NULL;
}

// The smallest free block that is large enough; the lowest of equal ones.
static void *from_region(size_t bytes)
{
    int best = -1;
    for (int i = 0; i < blocks; i++)
        if (!block[i].used && block[i].bytes >= bytes && (best < 0 || block[i].bytes < block[best].bytes)) best = i;
    if (best < 0 || blocks >= BLOCKS_MAX - 1) return NULL;
    if (block[best].bytes > bytes) {
        memmove(&block[best + 2], &block[best + 1], (blocks - best - 1) * sizeof *block);
        block[best + 1] = (Block){block[best].offset + bytes, block[best].bytes - bytes, 0};
        block[best].bytes = bytes;
        blocks++;
    }
    block[best].used = 1;
    used += bytes;
    high = used > high ? used : high;
    return (void *)(uintptr_t)(base + block[best].offset);
}

void *lane_malloc(ssize_t size, int ordinal, void *stream)
{
    (void)stream;
    size_t bytes = ((size_t)size + GRAIN - 1) / GRAIN * GRAIN;
    pthread_mutex_lock(&mutex);
    void *found = ordinal == device && chunks ? from_region(bytes) : NULL;
    if (!found) found = private_memory((size_t)size);
    pthread_mutex_unlock(&mutex);
    return found;
}

static void drop(int i)
{
    memmove(&block[i], &block[i + 1], (blocks - i - 1) * sizeof *block);
    blocks--;
}

static void give_back(size_t offset)
{
    for (int i = 0; i < blocks; i++) {
        if (!block[i].used || block[i].offset != offset) continue;
        used -= block[i].bytes;
        block[i].used = 0;
        if (i + 1 < blocks && !block[i + 1].used) { block[i].bytes += block[i + 1].bytes; drop(i + 1); }
        if (i > 0 && !block[i - 1].used) { block[i - 1].bytes += block[i].bytes; drop(i); }
        return;
    }
}

void lane_free(void *pointer, ssize_t size, int ordinal, void *stream)
{
    (void)size; (void)ordinal; (void)stream;
    Pointer place = (Pointer)(uintptr_t)pointer;
    pthread_mutex_lock(&mutex);
    if (chunks && place >= base && place < base + total) give_back((size_t)(place - base));
    else if (cu.free && pointer) cu.free(place);
    pthread_mutex_unlock(&mutex);
}

int lane_fill(size_t offset, int value, size_t bytes)
{
    int code = cu.set(base + offset, (unsigned char)value, bytes);
    return code ? code : cu.wait();
}

int lane_read(void *to, size_t offset, size_t bytes) { return cu.read(to, base + offset, bytes); }
int lane_fd(int i) { return i < chunks ? descriptors[i] : -1; }
int lane_chunks(void) { return chunks; }
size_t lane_base(void) { return (size_t)base; }
size_t lane_total(void) { return total; }
size_t lane_used(void) { return used; }
size_t lane_high(void) { return high; }
long lane_fallbacks(void) { return fallbacks; }
