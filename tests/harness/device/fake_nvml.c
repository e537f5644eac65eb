/* A libnvidia-ml.so.1 that answers from a text file, for machines without a driver: `key.gpu value...` a line, the file
 * named by FAKE_NVML. Structures as of the NVML API reference; what it does not define, pynvml finds missing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned gpu; } *Device;
static struct { unsigned gpu; } devices[8];

static int line(const char *key, Device device, char *found, size_t size) {
    char wanted[64], text[512];
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    if (!file) return 0;
    snprintf(wanted, sizeof wanted, device ? "%s.%u " : "%s ", key, device ? device->gpu : 0);
    while (fgets(text, sizeof text, file))
        if (!strncmp(text, wanted, strlen(wanted))) {
            text[strcspn(text, "\n")] = 0;
            snprintf(found, size, "%s", text + strlen(wanted));
            fclose(file);
            return 1;
        }
    fclose(file);
    return 0;
}

static int number(const char *key, Device device, unsigned *value) {
    char text[512];
    if (!line(key, device, text, sizeof text)) return 3; /* NVML_ERROR_NOT_SUPPORTED */
    *value = strtoul(text, 0, 0);
    return 0;
}

static int words(const char *key, Device device, char *value, unsigned size) {
    char text[512];
    if (!line(key, device, text, sizeof text)) return 3;
    snprintf(value, size, "%s", text);
    return 0;
}

int nvmlInitWithFlags(unsigned flags) { unsigned status; return number("init", 0, &status) ? 0 : (int)status; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : "failed"; }
int nvmlSystemGetDriverVersion(char *value, unsigned size) { return words("driver", 0, value, size); }
int nvmlDeviceGetCount_v2(unsigned *count) { return number("count", 0, count); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    devices[index].gpu = index;
    *device = (Device)&devices[index];
    return 0;
}
int nvmlDeviceGetUUID(Device d, char *value, unsigned size) { return words("uuid", d, value, size); }
int nvmlDeviceGetName(Device d, char *value, unsigned size) { return words("name", d, value, size); }
int nvmlDeviceGetMinorNumber(Device d, unsigned *value) { return number("minor", d, value); }
int nvmlDeviceGetComputeMode(Device d, unsigned *value) { return number("mode", d, value); }
int nvmlDeviceGetMigMode(Device d, unsigned *now, unsigned *pending) { *pending = 0; return number("mig", d, now); }
int nvmlDeviceGetUtilizationRates(Device d, unsigned *rates) { rates[1] = 0; return number("utilization", d, rates); }
int nvmlDeviceGetPowerUsage(Device d, unsigned *value) { return number("milliwatts", d, value); }
int nvmlDeviceGetTemperature(Device d, unsigned sensor, unsigned *value) { return number("celsius", d, value); }
int nvmlDeviceGetMemoryBusWidth(Device d, unsigned *value) { return number("bits", d, value); }
int nvmlDeviceGetClockInfo(Device d, unsigned type, unsigned *value) { return number(type == 1 ? "sm" : "memory", d, value); }
int nvmlDeviceGetMaxClockInfo(Device d, unsigned type, unsigned *value) { return number(type == 1 ? "most_sm" : "most_memory", d, value); }
int nvmlDeviceGetCurrentClocksEventReasons(Device d, unsigned long long *mask) {
    unsigned value;
    int status = number("reasons", d, &value);
    *mask = value;
    return status;
}
struct memory { unsigned version; unsigned long long total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(Device d, struct memory *memory) {
    unsigned mib;
    int status = number("used_mib", d, &mib);
    memory->used = (unsigned long long)mib << 20;
    return status;
}

struct process { unsigned pid; unsigned long long bytes; unsigned instance, compute; };

static int processes(const char *key, Device d, unsigned *count, struct process *found) {
    char text[512] = "";
    unsigned held = 0, space = *count;
    if (!line(key, d, text, sizeof text)) return 3;
    for (char *word = strtok(text, " "); word; word = strtok(0, " "), held++)
        if (found && held < space) {
            found[held].pid = strtoul(word, &word, 10);
            found[held].bytes = *word == ':' ? strtoull(word + 1, 0, 10) << 20 : ~0ull;
        }
    *count = held;
    return held > space ? 7 : 0; /* NVML_ERROR_INSUFFICIENT_SIZE */
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device d, unsigned *count, struct process *found) { return processes("compute", d, count, found); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device d, unsigned *count, struct process *found) { return processes("graphics", d, count, found); }
