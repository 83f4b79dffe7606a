// A double of the driver's virtual memory management: chunks are anonymous files, the range is mapped memory.
// Build: gcc -shared -fPIC -o fake_cuda.so tests/gpu/fake_cuda.c

#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FAILED = 1, OUT_OF_MEMORY = 2 };

int cuInit(unsigned flags) { return flags ? FAILED : 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = context; return 0; }
int cuCtxSetCurrent(void *context) { return context ? 0 : FAILED; }
int cuCtxSynchronize(void) { return 0; }

int cuMemCreate(unsigned long long *handle, size_t size, const void *properties, unsigned long long flags)
{
    int fd = memfd_create("chunk", MFD_CLOEXEC);
    (void)properties;
    if (flags || fd < 0 || ftruncate(fd, (off_t)size)) return FAILED;
    *handle = (unsigned long long)fd;
    return 0;
}

int cuMemRelease(unsigned long long handle) { return close((int)handle) ? FAILED : 0; }

int cuMemExportToShareableHandle(int *to, unsigned long long handle, int type, unsigned long long flags)
{
    *to = dup((int)handle);
    return type != 1 || flags || *to < 0 ? FAILED : 0;
}

int cuMemImportFromShareableHandle(unsigned long long *handle, void *from, int type)
{
    int fd = dup((int)(intptr_t)from);
    *handle = (unsigned long long)fd;
    return type != 1 || fd < 0 ? FAILED : 0;
}

int cuMemAddressReserve(unsigned long long *base, size_t size, size_t align, unsigned long long at, unsigned long long flags)
{
    void *found = mmap(NULL, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED || at || flags) return OUT_OF_MEMORY;
    *base = ((unsigned long long)(uintptr_t)found + align - 1) / align * align;
    return 0;
}

int cuMemMap(unsigned long long at, size_t size, size_t offset, unsigned long long handle, unsigned long long flags)
{
    void *place = (void *)(uintptr_t)at;
    return flags || mmap(place, size, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset) != place ? FAILED : 0;
}

int cuMemUnmap(unsigned long long at, size_t size)
{
    void *place = (void *)(uintptr_t)at;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    return mmap(place, size, PROT_NONE, flags, -1, 0) != place ? FAILED : 0;
}

int cuMemSetAccess(unsigned long long at, size_t size, const void *access, size_t count)
{
    return !access || count != 1 || mprotect((void *)(uintptr_t)at, size, PROT_READ | PROT_WRITE) ? FAILED : 0;
}

int cuMemAlloc_v2(unsigned long long *at, size_t size)
{
    *at = (unsigned long long)(uintptr_t)malloc(size);
    return *at ? 0 : OUT_OF_MEMORY;
}

int cuMemFree_v2(unsigned long long at) { free((void *)(uintptr_t)at); return 0; }
int cuMemsetD8_v2(unsigned long long at, unsigned char value, size_t size) { memset((void *)(uintptr_t)at, value, size); return 0; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) { memcpy(to, (void *)(uintptr_t)from, size); return 0; }
