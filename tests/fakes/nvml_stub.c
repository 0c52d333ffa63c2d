/* A libnvidia-ml.so.1 without a card: it answers the symbols that pynvml calls, from the text file in NVML_STUB.
 *
 * Lines of the file, each a word and what belongs to it; a line without a known word is an error of the test:
 *
 *   driver 550.54.15              version of the driver
 *   cuda 12040                    newest CUDA version
 *   fail nvmlInitWithFlags 9      this function answers this error (before any card: for every card)
 *   card                          what follows belongs to a new card
 *   slice                         what follows belongs to a new MIG slice of that card; the card is in MIG mode
 *   name uuid bus pci memory capability cores ecc power sms instance
 *
 * Without the file the driver is not loaded. What a card has no line for is "not supported".
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NOT_LOADED = 9, UNKNOWN = 999 };
enum { MOST_CARDS = 8, MOST_SLICES = 7, MOST_FAILS = 32 };

typedef struct {
    char function[80];
    int code;
} Fail;

typedef struct Part {
    char name[96], uuid[96], bus[32];
    uint32_t pci, cores, power, sms, gi, ci;
    int major, minor, ecc, has_capability, has_ecc, is_slice;
    uint64_t memory;
    int fail_count;
    Fail fails[MOST_FAILS];
    int slice_count;
    struct Part *slices[MOST_SLICES];
} Part;

static char driver_version[81];
static int cuda_version, card_count, fail_count;
static Part *cards[MOST_CARDS];
static Fail fails[MOST_FAILS];

static int failing(const Fail *table, int count, const char *function) {
    for (int i = 0; i < count; i++)
        if (strcmp(table[i].function, function) == 0) return table[i].code;
    return OK;
}

#define ASK_GLOBAL                                                  \
    do {                                                            \
        int code_ = failing(fails, fail_count, __func__);           \
        if (code_) return code_;                                    \
    } while (0)
#define ASK(part)                                                   \
    do {                                                            \
        ASK_GLOBAL;                                                 \
        if ((part) == NULL) return INVALID;                         \
        int own_ = failing((part)->fails, (part)->fail_count, __func__); \
        if (own_) return own_;                                      \
    } while (0)

static void broken(const char *line) {
    fprintf(stderr, "nvml_stub: cannot read the line `%s`\n", line);
    abort();
}

static Part *new_part(int is_slice) {
    Part *part = calloc(1, sizeof *part);
    if (part == NULL) abort();
    part->is_slice = is_slice;
    return part;
}

static void read_line(char *line, Part **now) {
    char word[40] = "";
    int used = 0;
    if (sscanf(line, "%39s %n", word, &used) < 1 || word[0] == '#') return;
    char *rest = line + used;
    Part *part = *now;
    if (strcmp(word, "fail") == 0) {
        Fail *table = part ? part->fails : fails;
        int *count = part ? &part->fail_count : &fail_count;
        if (*count == MOST_FAILS || sscanf(rest, "%79s %d", table[*count].function, &table[*count].code) != 2)
            broken(line);
        ++*count;
    } else if (strcmp(word, "driver") == 0) {
        snprintf(driver_version, sizeof driver_version, "%s", rest);
    } else if (strcmp(word, "cuda") == 0) {
        cuda_version = atoi(rest);
    } else if (strcmp(word, "card") == 0) {
        if (card_count == MOST_CARDS) broken(line);
        *now = cards[card_count++] = new_part(0);
    } else if (strcmp(word, "slice") == 0) {
        Part *card = card_count ? cards[card_count - 1] : NULL;
        if (card == NULL || card->slice_count == MOST_SLICES) broken(line);
        *now = card->slices[card->slice_count++] = new_part(1);
    } else if (part == NULL) {
        broken(line);
    } else if (strcmp(word, "name") == 0) {
        snprintf(part->name, sizeof part->name, "%s", rest);
    } else if (strcmp(word, "uuid") == 0) {
        snprintf(part->uuid, sizeof part->uuid, "%s", rest);
    } else if (strcmp(word, "bus") == 0) {
        snprintf(part->bus, sizeof part->bus, "%s", rest);
    } else if (strcmp(word, "pci") == 0) {
        part->pci = strtoul(rest, NULL, 0);
    } else if (strcmp(word, "memory") == 0) {
        part->memory = strtoull(rest, NULL, 0);
    } else if (strcmp(word, "capability") == 0) {
        part->has_capability = sscanf(rest, "%d %d", &part->major, &part->minor) == 2;
    } else if (strcmp(word, "cores") == 0) {
        part->cores = strtoul(rest, NULL, 0);
    } else if (strcmp(word, "ecc") == 0) {
        part->has_ecc = 1;
        part->ecc = atoi(rest);
    } else if (strcmp(word, "power") == 0) {
        part->power = strtoul(rest, NULL, 0);
    } else if (strcmp(word, "sms") == 0) {
        part->sms = strtoul(rest, NULL, 0);
    } else if (strcmp(word, "instance") == 0) {
        if (sscanf(rest, "%u %u", &part->gi, &part->ci) != 2) broken(line);
    } else {
        broken(line);
    }
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file == NULL) return NOT_LOADED;
    if (card_count == 0) {
        char line[256];
        Part *now = NULL;
        while (fgets(line, sizeof line, file)) {
            line[strcspn(line, "\n")] = '\0';
            read_line(line, &now);
        }
    }
    fclose(file);
    ASK_GLOBAL;
    return OK;
}

int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code) {
    return code == UNKNOWN ? "Unknown Error" : "an error of the stub";
}

static int put(char *out, unsigned int length, const char *text) {
    if (strlen(text) + 1 > length) return TOO_SMALL;
    strcpy(out, text);
    return OK;
}

int nvmlSystemGetDriverVersion(char *out, unsigned int length) {
    ASK_GLOBAL;
    return put(out, length, driver_version);
}

int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    ASK_GLOBAL;
    *out = cuda_version;
    return cuda_version ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetCount_v2(unsigned int *out) {
    ASK_GLOBAL;
    *out = card_count;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Part **out) {
    if (index >= (unsigned int)card_count) return INVALID;
    ASK(cards[index]);
    *out = cards[index];
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Part **out) {
    ASK_GLOBAL;
    for (int i = 0; i < card_count; i++) {
        if (strcmp(cards[i]->uuid, uuid) == 0) return *out = cards[i], OK;
        for (int j = 0; j < cards[i]->slice_count; j++)
            if (strcmp(cards[i]->slices[j]->uuid, uuid) == 0) return *out = cards[i]->slices[j], OK;
    }
    return NOT_FOUND;
}

typedef struct {
    char bus_legacy[16];
    unsigned int domain, bus, device, pci, subsystem;
    char bus_id[32];
} Pci;

int nvmlDeviceGetPciInfo_v3(Part *part, Pci *out) {
    ASK(part);
    memset(out, 0, sizeof *out);
    out->pci = part->pci;
    return put(out->bus_id, sizeof out->bus_id, part->bus);
}

typedef struct {
    unsigned long long total, available, used;
} Memory;

int nvmlDeviceGetMemoryInfo(Part *part, Memory *out) {
    ASK(part);
    memset(out, 0, sizeof *out);
    out->total = out->available = part->memory;
    return part->memory ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMigMode(Part *part, unsigned int *now, unsigned int *after_reset) {
    ASK(part);
    *now = *after_reset = part->slice_count > 0;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(Part *part, unsigned int *out) {
    ASK(part);
    *out = MOST_SLICES;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Part *part, unsigned int index, Part **out) {
    ASK(part);
    if (index >= (unsigned int)part->slice_count) return NOT_FOUND;
    *out = part->slices[index];
    return OK;
}

int nvmlDeviceGetName(Part *part, char *out, unsigned int length) {
    ASK(part);
    return put(out, length, part->name);
}

int nvmlDeviceGetUUID(Part *part, char *out, unsigned int length) {
    ASK(part);
    return put(out, length, part->uuid);
}

int nvmlDeviceGetCudaComputeCapability(Part *part, int *major, int *minor) {
    ASK(part);
    *major = part->major;
    *minor = part->minor;
    return part->has_capability ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetNumGpuCores(Part *part, unsigned int *out) {
    ASK(part);
    *out = part->cores;
    return part->cores ? OK : NOT_SUPPORTED;
}

typedef struct {
    unsigned int multiprocessors, rest[7];
    unsigned long long memory_mb;
} Attributes;

int nvmlDeviceGetAttributes_v2(Part *part, Attributes *out) {
    ASK(part);
    memset(out, 0, sizeof *out);
    out->multiprocessors = part->sms;
    return part->is_slice && part->sms ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetEccMode(Part *part, unsigned int *now, unsigned int *after_reset) {
    ASK(part);
    *now = *after_reset = part->ecc;
    return part->has_ecc ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetEnforcedPowerLimit(Part *part, unsigned int *out) {
    ASK(part);
    *out = part->power;
    return part->power ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetGpuInstanceId(Part *part, unsigned int *out) {
    ASK(part);
    *out = part->gi;
    return part->is_slice ? OK : NOT_FOUND;
}

int nvmlDeviceGetComputeInstanceId(Part *part, unsigned int *out) {
    ASK(part);
    *out = part->ci;
    return part->is_slice ? OK : NOT_FOUND;
}
