/* Hands over to the Python package, which checks every kernel on this machine's devices. What can
 * go wrong before that, a Python without it, is said here. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
extern char **environ; /* which its headers do not declare */
#endif

#include "commands.h"
#include "console.h"
#include "signals.h"

const char *const doctor_help[] = {
    "Usage: binade doctor [options]",
    "",
    "Tells which devices and versions there are, which way each product of a packed model",
    "goes, and how fast; and checks every kernel on this machine, bit for bit, against MLX's",
    "own operations. One that fails is not used again until a check succeeds. Takes about",
    "half a minute. The report is meant to be pasted where a problem is told.",
    "",
    "Runs the package binade.mlx with the python3 beside this command, else that in PATH.",
    "",
    "  --threads N      for products on the CPU (default: one for each CPU)",
    "  --json           print the report as one JSON object",
    "  -q, --quiet      print what failed only: the exit status tells",
    "  -v, --verbose    accepted; makes no difference",
    "",
    "Exit status: 0 all bits are equal, 1 a check failed, 2 it could not be checked.",
    "",
    "Examples:",
    "  binade doctor",
    "  binade doctor --json > report.json",
    NULL,
};

/* Prints nothing if the package can be imported, else one line that says why not. */
static const char probe[] = "try:\n"
                            "    import binade.mlx.doctor\n"
                            "except ImportError as error:\n"
                            "    print(error)\n";

/* The Python in the folder of this program; false if there is none. A link to the program, as pipx
 * makes them, is followed, but not one to Python, which knows its environment by its own name. */
static bool find_python_beside(char path[PATH_MAX]) {
    char program[PATH_MAX];
#ifdef __APPLE__
    char name[PATH_MAX];
    uint32_t size = sizeof(name);
    if (_NSGetExecutablePath(name, &size) || !realpath(name, program)) return false;
#else
    if (!realpath("/proc/self/exe", program)) return false;
#endif
    const char *slash = strrchr(program, '/');
    if (!slash) return false;
    int n = snprintf(path, PATH_MAX, "%.*s/python3", (int)(slash - program), program);
    return n > 0 && n < PATH_MAX && access(path, X_OK) == 0;
}

/* Starts Python on the probe with its output in *out; an errno, or 0. */
static int start_probe(const char *python, pid_t *pid, int *out) {
    const char *args[] = {python, "-c", probe, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2], failed;

    if (pipe(ends)) return errno;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    failed = posix_spawn_file_actions_init(&actions);
    if (failed) goto close_ends;
    if (!(failed = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO)) &&
        !(failed = posix_spawn_file_actions_addclose(&actions, ends[1])) &&
        !(failed =
              posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0)))
        failed = posix_spawnp(pid, python, &actions, NULL, (char *const *)args, environ);
    posix_spawn_file_actions_destroy(&actions);
close_ends:
    close(ends[1]);
    if (failed)
        close(ends[0]);
    else
        *out = ends[0];
    return failed;
}

/* The first line of what the stream says, cut to the room there is. */
static void read_line(int fd, char *line, size_t room) {
    char rest[256];
    size_t length = 0;
    ssize_t n;

    while ((n = read(fd, line + length, room - 1 - length)) > 0)
        length += (size_t)n;
    line[length] = 0;
    line[strcspn(line, "\n")] = 0;
    while (read(fd, rest, sizeof(rest)) > 0) {
    }
}

/* Whether this Python has the package; if not, why. */
static bool has_package(const char *python, char *reason, size_t room) {
    int out = -1, status = 0, failed;
    pid_t pid;

    failed = start_probe(python, &pid, &out);
    if (failed) {
        snprintf(reason, room, "%s", strerror(failed));
        return false;
    }
    read_line(out, reason, room);
    close(out);
    while (waitpid(pid, &status, 0) == -1 && errno == EINTR) {
    }
    if (status && !*reason) snprintf(reason, room, "it ends when binade.mlx is imported");
    return !*reason;
}

/* Becomes Python; returns only if that fails, with errno set. */
static void run_python(const struct options *o, const char *python) {
    char command[128], nthreads[16];
    const char *args[8] = {python, "-m", "binade.mlx.doctor", "--command", command};
    size_t n = 5;

    snprintf(command, sizeof(command), "%s (%s kernels)", binade_version(), binade_cpu());
    if (o->json) args[n++] = "--json";
    if (o->quiet) args[n++] = "--quiet";
    if (o->nthreads) {
        enum { NTHREADS_MAX = 256 }; /* of products */
        snprintf(nthreads, sizeof(nthreads), "%u",
                 o->nthreads < NTHREADS_MAX ? o->nthreads : NTHREADS_MAX);
        if (setenv("BINADE_NUM_THREADS", nthreads, 1)) return;
    }
    execvp(python, (char *const *)args);
}

/* No Python has the package: prints what this command knows by itself, and what to do. */
static int fail_without_package(const struct options *o, const char *python, const char *reason) {
    char message[PATH_MAX + BINADE_MESSAGE_MAX];

    if (!o->json && !o->quiet) printf("binade %s (%s kernels)\n", binade_version(), binade_cpu());
    snprintf(message, sizeof(message),
             "%s cannot import binade.mlx, which checks products: %s (to install it: pip install "
             "'binade[cpu]', on NVIDIA GPUs 'binade[cuda]' or 'binade[cuda13]')",
             python, reason);
    return console_failure(o, BINADE_E_USAGE, message);
}

int cmd_doctor(const struct options *o) {
    char beside[PATH_MAX], reasons[2][512] = {"", ""};
    const char *pythons[2] = {"python3", "python3"};
    size_t n = 1, i = 0;

    if (find_python_beside(beside)) {
        pythons[0] = beside;
        n = 2;
    }
    /* Not from the current folder, which may be a checkpoint with files of any name. */
    if (setenv("PYTHONSAFEPATH", "1", 1)) goto fail;
    while (i < n && !has_package(pythons[i], reasons[i], sizeof(reasons[i])))
        i++;
    if (signals_caught()) return console_failure(o, BINADE_E_CANCELLED, "");
    if (i == n) return fail_without_package(o, pythons[0], reasons[0]);
    run_python(o, pythons[i]);
fail:
    return console_failure(o, BINADE_E_IO, strerror(errno));
}
