/* The command `binade`: finds the command, runs it, ends with its exit status. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "commands.h"
#include "console.h"
#include "signals.h"

static const struct command commands[] = {
    {"pack", "MODEL",
     1u << OPTION_OUT | 1u << OPTION_FORMAT | 1u << OPTION_CLASSES | 1u << OPTION_REVISION |
         1u << OPTION_EXCLUDE | 1u << OPTION_NO_HASH | 1u << OPTION_FORCE,
     1u << OPTION_OUT, pack_help, cmd_pack},
    {"unpack", "PACKED", 1u << OPTION_OUT | 1u << OPTION_REVISION, 1u << OPTION_OUT, unpack_help,
     cmd_unpack},
    {"verify", "PACKED", 1u << OPTION_AGAINST | 1u << OPTION_REVISION, 0, verify_help, cmd_verify},
    {"info", "PATH", 1u << OPTION_REVISION, 0, info_help, cmd_info},
    {"doctor", NULL, 0, 0, doctor_help, cmd_doctor},
};

static const char *const main_help[] = {
    "Usage: binade COMMAND ARGUMENT [options]",
    "",
    "Stores BF16 language models in about two thirds of their bytes, without losing a bit.",
    "",
    "  binade pack MODEL --out DIR            pack a checkpoint",
    "  binade unpack PACKED --out DIR         restore the original, byte for byte",
    "  binade verify PACKED [--against MODEL] prove that the original can be restored",
    "  binade info PATH                       tell what a checkpoint holds",
    "  binade doctor                          check every kernel on this machine",
    "",
    "  binade COMMAND --help                  all options, with examples",
    "  binade --version",
    "",
    "A checkpoint is a directory, or a hub id (org/name) in the local Hugging Face cache.",
    "",
    "Exit status: 0 good; 1 data is wrong (corrupt, or differs); 2 usage or environment.",
    "",
    "Examples:",
    "  binade pack SmolLM2-135M-Instruct --out SmolLM2-135M-binade",
    "  binade verify SmolLM2-135M-binade",
    NULL,
};

/* A file opened later must not get the number of a closed standard stream, or messages would be
 * written into it. The wrong direction makes use of the stream fail, as if it were closed. */
static void hold_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF &&
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) == -1)
            _exit(EXIT_OTHER);
}

/* A checkpoint has one file open per shard, of which there may be more than the usual limit. */
static void allow_many_files(void) {
    enum { ENOUGH = 10240 }; /* the most that macOS takes where it says that there is no limit */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == limit.rlim_max) return;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0 || before >= ENOUGH) return;
    limit.rlim_cur = ENOUGH;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void print_lines(const char *const *lines) {
    for (; *lines; lines++)
        puts(*lines);
}

static void print_version(const struct options *o) {
    struct json_out j = {.out = stdout};

    if (!o->json) {
        printf("binade %s (%s kernels)\n", binade_version(), binade_cpu());
        return;
    }
    json_begin_object(&j, NULL);
    json_string(&j, "version", binade_version());
    json_string(&j, "cpu", binade_cpu());
    json_end_object(&j);
    json_finish(&j);
}

/* A result that did not reach its reader makes the run fail, whatever it was. */
static int finish_output(int code) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fprintf(stderr, "binade: cannot write to standard output%s%s\n", errno ? ": " : "",
            errno ? strerror(errno) : "");
    return EXIT_OTHER;
}

int main(int argc, char **argv) {
    struct options o;
    binade_error err = {""};
    int code = EXIT_GOOD;

    hold_standard_streams();
    allow_many_files();
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
    signals_watch();
    binade_status status =
        options_parse(&o, argc, argv, commands, sizeof(commands) / sizeof(*commands), &err);
    if (status)
        code = console_failure(&o, status, err.message);
    else if (o.help)
        print_lines(o.command ? o.command->help : main_help);
    else if (o.version)
        print_version(&o);
    else
        code = o.command->run(&o);
    code = finish_output(code);
    options_free(&o);
    signals_die();
    return code;
}
