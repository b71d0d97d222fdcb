/* signals.h - SIGINT, SIGTERM and SIGHUP as a flag, so that a command can clean up and then die of
 * the signal as its caller expects. */
#ifndef BINADE_CLI_SIGNALS_H
#define BINADE_CLI_SIGNALS_H

/* Starts watching. A signal that was ignored stays ignored: nohup and background jobs rely on it.
 * SIGPIPE and SIGXFSZ are ignored, so that writing to a closed pipe, or past the limit on the size
 * of files, is an error that can be reported. */
void signals_watch(void);
/* The signal that arrived, or 0. */
int signals_caught(void);
/* Its name, static storage. */
const char *signals_name(int signal_number);
/* Ends the process by the signal that arrived; returns if none did. */
void signals_die(void);

#endif
