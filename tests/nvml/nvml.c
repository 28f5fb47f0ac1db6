/* A libnvidia-ml.so.1 for tests: the functions that runtime.gpus calls, answered from a text file.
 *
 * GPUFLEET_TEST_NVML names the file (tests/nvml/scenario.py writes it). It is read again whenever it was replaced, so
 * that a test can lay a GPU out anew under a running reader. One line is one thing; fields are separated by tabs, and
 * each is key=value:
 *
 *   driver    version= [down=CODE]                  down: the code that every function answers
 *   gpu       uuid= name= bus= pci= memory= used= major= minor= cores= mig=0|1 pending= max= gpm= util= ...
 *   profile   of the last gpu: number= id= name= slices= count= sms= memory= starts=0,1,2 size= ce= dec= enc= jpeg= ofa=
 *   instance  of the last gpu: index= gi= ci= uuid= name= slices= ci_slices= sms= memory= used= gpm=ID:PERCENT,...
 *   process   of the last gpu: pid= used= gi= ci=
 *   error     function= code= [gpu=INDEX]           what a function answers instead
 *   events    path=                                 a file to which tests append lines "GPU TYPE DATA GI CI"
 *
 * Structures are those of nvml.h as pynvml declares them, and codes its nvmlReturn_t.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, MAX = 64, TEXT = 96, NONE = -1
};
typedef unsigned int u32;
typedef unsigned long long u64;

struct profile { int number, id, slices, count, sms, ce, dec, enc, jpeg, ofa, size, places, starts[16]; u64 memory; char name[TEXT]; };
struct instance { int index, gi, ci, slices, ci_slices, sms; u64 memory, used; char uuid[TEXT], name[TEXT], gpm[TEXT]; };
struct process { u32 pid; int gi, ci; u64 used; };
struct gpu {
    char uuid[TEXT], name[TEXT], bus[32], gpm[TEXT];
    u32 pci; u64 memory, used, reasons;
    int major, minor, cores, mig, pending, max_instances, util, celsius, milliwatts, lost;
    int correctable, uncorrectable, remap_pending, remap_failed, retired, recovery;
    int profiles, instances, processes;
    struct profile profile[MAX]; struct instance instance[MAX]; struct process process[MAX];
};
struct fault { char function[TEXT]; int code, gpu; };
static struct { int down, gpus, faults; char driver[TEXT], events[512]; struct gpu gpu[16]; struct fault fault[MAX]; } now;
static struct timespec changed; static ino_t inode;
static int opened;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A handle names a GPU or a MIG device by its UUID: it is valid for as long as that is there. Few are ever made. */
struct handle { char uuid[TEXT]; int is_instance; struct handle *next; };
static struct handle *handles;

static const char *field(char **fields, const char *key) {
    size_t length = strlen(key);
    for (; *fields; fields++)
        if (!strncmp(*fields, key, length) && (*fields)[length] == '=') return *fields + length + 1;
    return NULL;
}
static void text(char *to, size_t size, char **fields, const char *key) {
    const char *value = field(fields, key);
    snprintf(to, size, "%s", value ? value : "");
}
static long long number(char **fields, const char *key, long long otherwise) {
    const char *value = field(fields, key);
    return value && *value ? strtoll(value, NULL, 0) : otherwise;
}

static void read_gpu(struct gpu *gpu, char **f) {
    text(gpu->uuid, TEXT, f, "uuid"); text(gpu->name, TEXT, f, "name"); text(gpu->bus, 32, f, "bus");
    text(gpu->gpm, TEXT, f, "gpm");
    gpu->pci = number(f, "pci", 0); gpu->memory = number(f, "memory", 0); gpu->used = number(f, "used", 0);
    gpu->major = number(f, "major", 9); gpu->minor = number(f, "minor", 0); gpu->cores = number(f, "cores", NONE);
    gpu->mig = number(f, "mig", NONE); gpu->pending = number(f, "pending", gpu->mig);
    gpu->max_instances = number(f, "max", 7); gpu->util = number(f, "util", NONE);
    gpu->celsius = number(f, "celsius", 40); gpu->milliwatts = number(f, "milliwatts", NONE);
    gpu->reasons = number(f, "reasons", 0); gpu->lost = number(f, "lost", 0);
    gpu->correctable = number(f, "correctable", NONE); gpu->uncorrectable = number(f, "uncorrectable", 0);
    gpu->remap_pending = number(f, "remap_pending", 0); gpu->remap_failed = number(f, "remap_failed", 0);
    gpu->retired = number(f, "retired", NONE); gpu->recovery = number(f, "recovery", NONE);
}
static void read_profile(struct profile *to, char **f) {
    text(to->name, TEXT, f, "name");
    to->number = number(f, "number", 0); to->id = number(f, "id", 0); to->slices = number(f, "slices", 1);
    to->count = number(f, "count", 1); to->sms = number(f, "sms", 0); to->memory = number(f, "memory", 0);
    to->ce = number(f, "ce", 0); to->dec = number(f, "dec", 0); to->enc = number(f, "enc", 0);
    to->jpeg = number(f, "jpeg", 0); to->ofa = number(f, "ofa", 0); to->size = number(f, "size", 1);
    char starts[TEXT], *rest = starts, *start;
    text(starts, TEXT, f, "starts");
    while ((start = strsep(&rest, ",")) && *start && to->places < 16) to->starts[to->places++] = atoi(start);
}
static void read_instance(struct instance *to, char **f) {
    text(to->uuid, TEXT, f, "uuid"); text(to->name, TEXT, f, "name"); text(to->gpm, TEXT, f, "gpm");
    to->index = number(f, "index", 0); to->gi = number(f, "gi", 0); to->ci = number(f, "ci", 0);
    to->slices = number(f, "slices", 1); to->ci_slices = number(f, "ci_slices", to->slices);
    to->sms = number(f, "sms", 0); to->memory = number(f, "memory", 0); to->used = number(f, "used", 0);
}
static void read_line(char *line) {
    char *fields[64] = {0}, *rest = line, *part;
    int count = 0;
    while ((part = strsep(&rest, "\t")) && count < 63) fields[count++] = part;
    struct gpu *gpu = now.gpus ? &now.gpu[now.gpus - 1] : NULL;
    if (!strcmp(fields[0], "driver")) { text(now.driver, TEXT, fields, "version"); now.down = number(fields, "down", 0); }
    else if (!strcmp(fields[0], "events")) text(now.events, sizeof now.events, fields, "path");
    else if (!strcmp(fields[0], "gpu") && now.gpus < 16) read_gpu(&now.gpu[now.gpus++], fields);
    else if (!strcmp(fields[0], "error") && now.faults < MAX) {
        struct fault *fault = &now.fault[now.faults++];
        text(fault->function, TEXT, fields, "function");
        fault->code = number(fields, "code", 999); fault->gpu = number(fields, "gpu", NONE);
    }
    else if (gpu && !strcmp(fields[0], "profile") && gpu->profiles < MAX) read_profile(&gpu->profile[gpu->profiles++], fields);
    else if (gpu && !strcmp(fields[0], "instance") && gpu->instances < MAX) read_instance(&gpu->instance[gpu->instances++], fields);
    else if (gpu && !strcmp(fields[0], "process") && gpu->processes < MAX) {
        struct process *process = &gpu->process[gpu->processes++];
        process->pid = number(fields, "pid", 1); process->used = number(fields, "used", 0);
        process->gi = number(fields, "gi", NONE); process->ci = number(fields, "ci", NONE);
    }
}
static void read_scenario(void) {
    const char *path = getenv("GPUFLEET_TEST_NVML");
    struct stat found;
    if (!path || stat(path, &found)) { memset(&now, 0, sizeof now); now.down = DRIVER_NOT_LOADED; inode = 0; return; }
    if (inode == found.st_ino && changed.tv_sec == found.st_mtim.tv_sec && changed.tv_nsec == found.st_mtim.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    memset(&now, 0, sizeof now);
    inode = found.st_ino; changed = found.st_mtim;
    char line[4096];
    while (fgets(line, sizeof line, file)) { line[strcspn(line, "\n")] = 0; if (*line) read_line(line); }
    fclose(file);
}

static int index_of(struct gpu *gpu) { return gpu ? (int)(gpu - now.gpu) : NONE; }
static int fault_of(const char *function, struct gpu *gpu) {
    for (int i = 0; i < now.faults; i++)
        if (!strcmp(now.fault[i].function, function) && (now.fault[i].gpu == NONE || now.fault[i].gpu == index_of(gpu)))
            return now.fault[i].code;
    return gpu && gpu->lost ? GPU_IS_LOST : SUCCESS;
}
static struct handle *handle_of(const char *uuid, int is_instance) {
    for (struct handle *found = handles; found; found = found->next) if (!strcmp(found->uuid, uuid)) return found;
    struct handle *made = calloc(1, sizeof *made);
    snprintf(made->uuid, TEXT, "%s", uuid);
    made->is_instance = is_instance; made->next = handles; handles = made;
    return made;
}
static struct gpu *gpu_of(struct handle *handle, struct instance **instance) {
    *instance = NULL;
    for (int i = 0; handle && i < now.gpus; i++) {
        struct gpu *gpu = &now.gpu[i];
        if (!handle->is_instance && !strcmp(gpu->uuid, handle->uuid)) return gpu;
        for (int j = 0; handle->is_instance && gpu->mig == 1 && j < gpu->instances; j++)
            if (!strcmp(gpu->instance[j].uuid, handle->uuid)) { *instance = &gpu->instance[j]; return gpu; }
    }
    return NULL;
}

/* Every function reads the scenario anew where it changed, under one lock, and answers an injected fault first. */
#define ANSWER(value) do { int answer_ = (value); pthread_mutex_unlock(&lock); return answer_; } while (0)
#define BEGIN \
    pthread_mutex_lock(&lock); read_scenario(); \
    if (!opened) ANSWER(UNINITIALIZED); \
    if (now.down) ANSWER(now.down)
#define BEGIN_SYSTEM BEGIN; int fault_ = fault_of(__func__, NULL); if (fault_) ANSWER(fault_)
#define BEGIN_DEVICE(handle) \
    BEGIN; struct instance *instance; struct gpu *gpu = gpu_of(handle, &instance); \
    if (!gpu) ANSWER(INVALID_ARGUMENT);          /* a stale handle */ \
    int fault_ = fault_of(__func__, gpu); if (fault_) ANSWER(fault_)
#define BEGIN_GPU(handle) BEGIN_DEVICE(handle); if (instance) ANSWER(NOT_SUPPORTED)

int nvmlInitWithFlags(u32 flags) {
    (void)flags;
    pthread_mutex_lock(&lock); read_scenario();
    int fault = fault_of(__func__, NULL);
    if (fault || now.down) ANSWER(fault ? fault : now.down);
    opened++; ANSWER(SUCCESS);
}
int nvmlShutdown(void) { BEGIN; opened--; ANSWER(SUCCESS); }
const char *nvmlErrorString(int code) { static char said[32]; snprintf(said, sizeof said, "error %d", code); return said; }

int nvmlSystemGetDriverVersion(char *to, u32 size) { BEGIN_SYSTEM; snprintf(to, size, "%s", now.driver); ANSWER(SUCCESS); }
int nvmlDeviceGetCount_v2(u32 *count) { BEGIN_SYSTEM; *count = now.gpus; ANSWER(SUCCESS); }
int nvmlDeviceGetHandleByIndex_v2(u32 at, struct handle **to) {
    BEGIN; if (at >= (u32)now.gpus) ANSWER(INVALID_ARGUMENT);
    int fault = fault_of(__func__, &now.gpu[at]); if (fault) ANSWER(fault);
    *to = handle_of(now.gpu[at].uuid, 0); ANSWER(SUCCESS);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, struct handle **to) {
    BEGIN; struct instance *instance;
    struct handle *found = handle_of(uuid, !strncmp(uuid, "MIG-", 4));
    struct gpu *gpu = gpu_of(found, &instance);
    if (!gpu) ANSWER(NOT_FOUND);
    int fault = fault_of(__func__, gpu); if (fault) ANSWER(fault);
    *to = found; ANSWER(SUCCESS);
}
int nvmlDeviceGetName(struct handle *h, char *to, u32 size) {
    BEGIN_DEVICE(h);
    if (instance) snprintf(to, size, "%s MIG %s", gpu->name, instance->name); else snprintf(to, size, "%s", gpu->name);
    ANSWER(SUCCESS);
}
int nvmlDeviceGetUUID(struct handle *h, char *to, u32 size) {
    BEGIN_DEVICE(h); snprintf(to, size, "%s", instance ? instance->uuid : gpu->uuid); ANSWER(SUCCESS);
}
struct pci { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(struct handle *h, struct pci *to) {
    BEGIN_GPU(h); memset(to, 0, sizeof *to);
    snprintf(to->bus_id, sizeof to->bus_id, "%s", gpu->bus); to->id = gpu->pci; ANSWER(SUCCESS);
}
struct memory { u32 version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(struct handle *h, struct memory *to) {
    BEGIN_DEVICE(h);
    to->total = (instance ? instance->memory : gpu->memory) << 20; to->used = (instance ? instance->used : gpu->used) << 20;
    to->reserved = 0; to->free = to->total - to->used; ANSWER(SUCCESS);
}
int nvmlDeviceGetCudaComputeCapability(struct handle *h, int *major, int *minor) {
    BEGIN_GPU(h); *major = gpu->major; *minor = gpu->minor; ANSWER(SUCCESS);
}
int nvmlDeviceGetNumGpuCores(struct handle *h, u32 *to) {
    BEGIN_GPU(h); if (gpu->cores == NONE) ANSWER(NOT_SUPPORTED); *to = gpu->cores; ANSWER(SUCCESS);
}
int nvmlDeviceGetUtilizationRates(struct handle *h, u32 *to) {
    BEGIN_GPU(h); if (gpu->mig == 1 || gpu->util == NONE) ANSWER(NOT_SUPPORTED);
    to[0] = gpu->util; to[1] = 0; ANSWER(SUCCESS);
}
int nvmlDeviceGetTemperature(struct handle *h, int sensor, u32 *to) {
    BEGIN_GPU(h); (void)sensor; *to = gpu->celsius; ANSWER(SUCCESS);
}
int nvmlDeviceGetPowerUsage(struct handle *h, u32 *to) {
    BEGIN_GPU(h); if (gpu->milliwatts == NONE) ANSWER(NOT_SUPPORTED); *to = gpu->milliwatts; ANSWER(SUCCESS);
}
int nvmlDeviceGetCurrentClocksEventReasons(struct handle *h, u64 *to) { BEGIN_GPU(h); *to = gpu->reasons; ANSWER(SUCCESS); }
int nvmlDeviceGetRemappedRows(struct handle *h, u32 *correctable, u32 *uncorrectable, u32 *pending, u32 *failed) {
    BEGIN_GPU(h); if (gpu->correctable == NONE) ANSWER(NOT_SUPPORTED);
    *correctable = gpu->correctable; *uncorrectable = gpu->uncorrectable;
    *pending = gpu->remap_pending; *failed = gpu->remap_failed; ANSWER(SUCCESS);
}
int nvmlDeviceGetRetiredPagesPendingStatus(struct handle *h, u32 *to) {
    BEGIN_GPU(h); if (gpu->retired == NONE) ANSWER(NOT_SUPPORTED); *to = gpu->retired; ANSWER(SUCCESS);
}
struct value { u32 id, scope; long long at, latency; u32 type; int code; union { double d; u32 u; u64 l; } value; };
int nvmlDeviceGetFieldValues(struct handle *h, int count, struct value *to) {
    BEGIN_GPU(h);
    for (int i = 0; i < count; i++) {
        to[i].code = to[i].id == 230 && gpu->recovery != NONE ? SUCCESS : NOT_SUPPORTED;
        to[i].type = 1; to[i].value.u = gpu->recovery;
    }
    ANSWER(SUCCESS);
}
struct running { u32 pid; u64 used; u32 gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(struct handle *h, u32 *count, struct running *to) {
    BEGIN_DEVICE(h);
    u32 found = 0, room = *count;
    for (int i = 0; i < gpu->processes; i++) {
        struct process *process = &gpu->process[i];
        if (instance && (process->gi != instance->gi || process->ci != instance->ci)) continue;
        if (to && found < room) to[found] = (struct running){process->pid, process->used << 20, process->gi, process->ci};
        found++;
    }
    *count = found; ANSWER(found && (!to || found > room) ? INSUFFICIENT_SIZE : SUCCESS);
}

/* MIG */
int nvmlDeviceGetMigMode(struct handle *h, u32 *current, u32 *pending) {
    BEGIN_GPU(h); if (gpu->mig == NONE) ANSWER(NOT_SUPPORTED);
    *current = gpu->mig; *pending = gpu->pending; ANSWER(SUCCESS);
}
int nvmlDeviceGetMaxMigDeviceCount(struct handle *h, u32 *to) {
    BEGIN_GPU(h); *to = gpu->mig == NONE ? 0 : gpu->max_instances; ANSWER(SUCCESS);
}
int nvmlDeviceGetMigDeviceHandleByIndex(struct handle *h, u32 at, struct handle **to) {
    BEGIN_GPU(h);
    for (int i = 0; gpu->mig == 1 && i < gpu->instances; i++)
        if (gpu->instance[i].index == (int)at) { *to = handle_of(gpu->instance[i].uuid, 1); ANSWER(SUCCESS); }
    ANSWER(gpu->mig == NONE ? NOT_SUPPORTED : NOT_FOUND);
}
int nvmlDeviceIsMigDeviceHandle(struct handle *h, u32 *to) { BEGIN_DEVICE(h); *to = instance != NULL; ANSWER(SUCCESS); }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct handle *h, struct handle **to) {
    BEGIN_DEVICE(h); if (!instance) ANSWER(INVALID_ARGUMENT); *to = handle_of(gpu->uuid, 0); ANSWER(SUCCESS);
}
int nvmlDeviceGetGpuInstanceId(struct handle *h, u32 *to) {
    BEGIN_DEVICE(h); if (!instance) ANSWER(INVALID_ARGUMENT); *to = instance->gi; ANSWER(SUCCESS);
}
int nvmlDeviceGetComputeInstanceId(struct handle *h, u32 *to) {
    BEGIN_DEVICE(h); if (!instance) ANSWER(INVALID_ARGUMENT); *to = instance->ci; ANSWER(SUCCESS);
}
struct attributes { u32 sms, ce, dec, enc, jpeg, ofa, gi_slices, ci_slices; u64 memory; };
int nvmlDeviceGetAttributes_v2(struct handle *h, struct attributes *to) {
    BEGIN_DEVICE(h); if (!instance) ANSWER(NOT_SUPPORTED);   /* "only supports MIG device handles" */
    memset(to, 0, sizeof *to);
    to->sms = instance->sms; to->memory = instance->memory;
    to->gi_slices = instance->slices; to->ci_slices = instance->ci_slices; ANSWER(SUCCESS);
}
/* Takes the number of a profile (0 ...), and gives its id (19 ...), which is what asks for placements. */
struct profile_info { u32 version, id, p2p, slices, count, sms, ce, dec, enc, jpeg, ofa; u64 memory; char name[96]; };
int nvmlDeviceGetGpuInstanceProfileInfoV(struct handle *h, u32 at, struct profile_info *to) {
    BEGIN_GPU(h);
    if (to->version != 0x02000098) ANSWER(25);   /* argument version mismatch */
    for (int i = 0; i < gpu->profiles; i++) {
        struct profile *p = &gpu->profile[i];
        if (p->number != (int)at) continue;
        to->id = p->id; to->p2p = 0; to->slices = p->slices; to->count = p->count; to->sms = p->sms; to->ce = p->ce;
        to->dec = p->dec; to->enc = p->enc; to->jpeg = p->jpeg; to->ofa = p->ofa; to->memory = p->memory;
        snprintf(to->name, sizeof to->name, "MIG %s", p->name); ANSWER(SUCCESS);
    }
    ANSWER(NOT_SUPPORTED);
}
struct profile_info_v1 { u32 id, p2p, slices, count, sms, ce, dec, enc, jpeg, ofa; u64 memory; };
int nvmlDeviceGetGpuInstanceProfileInfo(struct handle *h, u32 at, struct profile_info_v1 *to) {
    BEGIN_GPU(h);
    for (int i = 0; i < gpu->profiles; i++) {
        struct profile *p = &gpu->profile[i];
        if (p->number != (int)at) continue;
        *to = (struct profile_info_v1){p->id, 0, p->slices, p->count, p->sms, p->ce, p->dec, p->enc, p->jpeg, p->ofa, p->memory};
        ANSWER(SUCCESS);
    }
    ANSWER(NOT_SUPPORTED);
}
struct placement { u32 start, size; };
int nvmlDeviceGetGpuInstancePossiblePlacements_v2(struct handle *h, u32 id, struct placement *to, u32 *count) {
    BEGIN_GPU(h);
    for (int i = 0; i < gpu->profiles; i++) {
        struct profile *p = &gpu->profile[i];
        if (p->id != (int)id) continue;
        for (int j = 0; to && j < p->places && j < (int)*count; j++) to[j] = (struct placement){p->starts[j], p->size};
        *count = p->places; ANSWER(SUCCESS);
    }
    ANSWER(INVALID_ARGUMENT);
}

/* GPM: a sample remembers what was asked about; two of them give what the scenario says now. */
struct sample { char gpm[TEXT]; };
struct support { u32 version, supported; };
int nvmlGpmQueryDeviceSupport(struct handle *h, struct support *to) {
    BEGIN_GPU(h); to->supported = gpu->major >= 9; ANSWER(SUCCESS);
}
static long samples;
long nvml_test_samples(void) { return samples; }
int nvmlGpmSampleAlloc(struct sample **to) { BEGIN_SYSTEM; *to = calloc(1, sizeof **to); samples++; ANSWER(SUCCESS); }
int nvmlGpmSampleFree(struct sample *sample) { BEGIN_SYSTEM; free(sample); samples--; ANSWER(SUCCESS); }
int nvmlGpmSampleGet(struct handle *h, struct sample *to) {
    BEGIN_GPU(h); if (gpu->major < 9) ANSWER(NOT_SUPPORTED);
    memcpy(to->gpm, gpu->gpm, TEXT); ANSWER(SUCCESS);
}
int nvmlGpmMigSampleGet(struct handle *h, u32 gi, struct sample *to) {
    BEGIN_GPU(h); if (gpu->major < 9) ANSWER(NOT_SUPPORTED);
    for (int i = 0; gpu->mig == 1 && i < gpu->instances; i++)
        if (gpu->instance[i].gi == (int)gi) { memcpy(to->gpm, gpu->instance[i].gpm, TEXT); ANSWER(SUCCESS); }
    ANSWER(INVALID_ARGUMENT);
}
struct metric { u32 id; int code; double value; const char *names[3]; };
struct metrics { u32 version, count; struct sample *first, *second; struct metric metric[477]; };
int nvmlGpmMetricsGet(struct metrics *request) {
    BEGIN_SYSTEM; if (request->version != 1) ANSWER(25);
    for (u32 i = 0; i < request->count; i++) {
        struct metric *metric = &request->metric[i];
        metric->code = NOT_SUPPORTED;
        char known[TEXT], *rest = known, *part;
        snprintf(known, TEXT, "%s", request->second->gpm);
        while ((part = strsep(&rest, ","))) {
            char *colon = strchr(part, ':');
            if (colon && (u32)atoi(part) == metric->id) { metric->code = SUCCESS; metric->value = strtod(colon + 1, NULL); }
        }
    }
    ANSWER(SUCCESS);
}

/* Events: an event set reads lines from the end of the file at its making on. */
struct set { long at; u64 wanted[16]; };
struct event { struct handle *device; u64 type, data; u32 gi, ci; };
int nvmlEventSetCreate(struct set **to) {
    BEGIN_SYSTEM; struct stat found;
    *to = calloc(1, sizeof **to); (*to)->at = stat(now.events, &found) ? 0 : found.st_size; ANSWER(SUCCESS);
}
int nvmlEventSetFree(struct set *set) { BEGIN_SYSTEM; free(set); ANSWER(SUCCESS); }
int nvmlDeviceGetSupportedEventTypes(struct handle *h, u64 *to) { BEGIN_GPU(h); *to = 0xDF9F; ANSWER(SUCCESS); }
int nvmlDeviceRegisterEvents(struct handle *h, u64 types, struct set *set) {
    BEGIN_GPU(h); set->wanted[index_of(gpu)] |= types; ANSWER(SUCCESS);
}
static int next_event(struct set *set, struct event *to) {
    FILE *file = fopen(now.events, "r");
    char line[256]; int found = 0, at; u64 type, data; long gi, ci;
    if (!file) return 0;
    fseek(file, set->at, SEEK_SET);
    while (!found && fgets(line, sizeof line, file) && strchr(line, '\n')) {
        set->at = ftell(file);
        if (sscanf(line, "%d %lli %lli %ld %ld", &at, (long long *)&type, (long long *)&data, &gi, &ci) != 5) continue;
        if (at < 0 || at >= now.gpus || !(set->wanted[at] & type)) continue;
        *to = (struct event){handle_of(now.gpu[at].uuid, 0), type, data, (u32)gi, (u32)ci}; found = 1;
    }
    fclose(file);
    return found;
}
int nvmlEventSetWait_v2(struct set *set, struct event *to, u32 milliseconds) {
    struct timespec began, at;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (;;) {
        pthread_mutex_lock(&lock); read_scenario();
        int code = !opened ? UNINITIALIZED : now.down ? now.down : fault_of(__func__, NULL);
        if (code || next_event(set, to)) ANSWER(code);
        pthread_mutex_unlock(&lock);
        clock_gettime(CLOCK_MONOTONIC, &at);
        if ((at.tv_sec - began.tv_sec) * 1000 + (at.tv_nsec - began.tv_nsec) / 1000000 >= milliseconds) return TIMEOUT;
        usleep(2000);
    }
}
