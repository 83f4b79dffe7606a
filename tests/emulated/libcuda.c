/* The checkpoint calls of a driver (libcuda) for processes on emulated GPUs, whose pages are in $EMULATED_CUDA.

   What a process holds leaves the pages of its GPUs, and comes back where there is room; a call in a wrong state is
   refused. How a process stands is in the file checkpoint.PID beside the pages, also after it has died. */

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, ILLEGAL_STATE = 401 };
enum { SLOTS_OFFSET = 64, SLOTS = 128, TOTAL_OFFSET = 24 };

struct slot { uint64_t pid, ticks, context, blocks; };
struct record { int32_t state; int32_t was_restored; uint64_t context, blocks; char gpu[256]; };

static void place(char *path, const char *name) { snprintf(path, 512, "%s/%s", getenv("EMULATED_CUDA"), name); }

static void record_path(char *path, int pid) {
    char name[64];
    snprintf(name, sizeof name, "checkpoint.%d", pid);
    place(path, name);
}

static struct record read_record(int pid) {
    struct record found = {0};
    char path[512];
    record_path(path, pid);
    FILE *file = fopen(path, "rb");
    if (file) {
        if (fread(&found, sizeof found, 1, file) != 1) memset(&found, 0, sizeof found);
        fclose(file);
    }
    return found;
}

static void write_record(int pid, const struct record *record) {
    char path[512];
    record_path(path, pid);
    FILE *file = fopen(path, "wb");
    fwrite(record, sizeof *record, 1, file);
    fclose(file);
}

/* Opens and locks the page of a GPU; the slot of a process there, or -1 where it has none. */
static int open_page(const char *gpu, int pid, struct slot *slots, int *file) {
    char path[512];
    place(path, gpu);
    *file = open(path, O_RDWR | O_CLOEXEC);
    flock(*file, LOCK_EX);
    if (pread(*file, slots, SLOTS * sizeof *slots, SLOTS_OFFSET) < 0) return -1;
    for (int i = 0; i < SLOTS; i++) if (slots[i].pid == (uint64_t)pid) return i;
    return -1;
}

static void close_page(int file, int number, const struct slot *slot) {
    if (number >= 0) (void)!pwrite(file, slot, sizeof *slot, SLOTS_OFFSET + number * sizeof *slot);
    close(file);
}

static int find(int pid, char *gpu) {
    DIR *home = opendir(getenv("EMULATED_CUDA"));
    int found = 0;
    for (struct dirent *entry; home && !found && (entry = readdir(home));) {
        if (strncmp(entry->d_name, "GPU-", 4)) continue;
        struct slot slots[SLOTS];
        int file, number = open_page(entry->d_name, pid, slots, &file);
        found = number >= 0;
        if (found) snprintf(gpu, 256, "%s", entry->d_name);
        close(file);
    }
    if (home) closedir(home);
    return found;
}

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }

int cuGetErrorName(int code, const char **text) {
    static const char *names[] = {"CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_OUT_OF_MEMORY"};
    if (code == ILLEGAL_STATE) *text = "CUDA_ERROR_ILLEGAL_STATE";
    else if (code >= 0 && code <= OUT_OF_MEMORY) *text = names[code];
    else return INVALID_VALUE;
    return SUCCESS;
}

int cuCheckpointProcessGetState(int pid, int *state) {
    char gpu[256];
    if (kill(pid, 0) || !find(pid, gpu)) return INVALID_VALUE;
    *state = read_record(pid).state;
    return SUCCESS;
}

static int move(int pid, int before, int after) {
    struct record record = read_record(pid);
    if (record.state != before) return ILLEGAL_STATE;
    record.state = after;
    write_record(pid, &record);
    return SUCCESS;
}

int cuCheckpointProcessLock(int pid, void *args) { return args ? move(pid, RUNNING, LOCKED) : INVALID_VALUE; }
int cuCheckpointProcessUnlock(int pid, void *args) { return args ? INVALID_VALUE : move(pid, LOCKED, RUNNING); }

int cuCheckpointProcessCheckpoint(int pid, void *args) {
    struct record record = read_record(pid);
    struct slot slots[SLOTS];
    int file, number;
    if (args || record.state != LOCKED || !find(pid, record.gpu)) return ILLEGAL_STATE;
    number = open_page(record.gpu, pid, slots, &file);
    record.context = slots[number].context;
    record.blocks = slots[number].blocks;
    slots[number].context = slots[number].blocks = 0;
    record.state = CHECKPOINTED;
    write_record(pid, &record);
    close_page(file, number, &slots[number]);
    return SUCCESS;
}

/* Without room the process is lost, as with the real one. */
int cuCheckpointProcessRestore(int pid, void *args) {
    struct record record = read_record(pid);
    struct slot slots[SLOTS];
    uint64_t held = 0, total = 0;
    int file, number;
    if (args || record.state != CHECKPOINTED) return ILLEGAL_STATE;
    number = open_page(record.gpu, pid, slots, &file);
    (void)!pread(file, &total, sizeof total, TOTAL_OFFSET);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].pid && !kill((int)slots[i].pid, 0)) held += slots[i].context + slots[i].blocks;
    int has_room = held + record.context + record.blocks <= total;
    if (has_room) {
        slots[number].context = record.context;
        slots[number].blocks = record.blocks;
    }
    record.state = has_room ? LOCKED : FAILED;
    record.was_restored = 1;
    write_record(pid, &record);
    close_page(file, has_room ? number : -1, &slots[number]);
    return has_room ? SUCCESS : OUT_OF_MEMORY;
}
