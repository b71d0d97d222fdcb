/* commands.h - one command each: runs, prints its result, returns the exit status. */
#ifndef BINADE_CLI_COMMANDS_H
#define BINADE_CLI_COMMANDS_H

#include "options.h"

extern const char *const pack_help[],
    *const unpack_help[], *const verify_help[], *const info_help[], *const doctor_help[];

int cmd_pack(const struct options *o);
int cmd_unpack(const struct options *o);
int cmd_verify(const struct options *o);
int cmd_info(const struct options *o);
int cmd_doctor(const struct options *o);

#endif
