# shellcheck shell=bash
# common.sh - messages, logs and the count of tests. Sourced by run.

LOGS=$ROOT/build/logs
NPASSED=0
NFAILED=0
FAILED_NAMES=()

say() { printf '%s\n' "$*"; }

# Ends the run for a reason that is not a test: usage or the environment.
die() {
    printf 'run: %s\n' "$*" >&2
    exit 2
}

has() { command -v "$1" >/dev/null 2>&1; }

is_macos() { [ "$(uname -s)" = Darwin ]; }

ncpus() { getconf _NPROCESSORS_ONLN; }

# log_path NAME: where the output of the step NAME goes.
log_path() {
    mkdir -p "$LOGS"
    printf '%s/%s.log' "$LOGS" "$(printf '%s' "$1" | tr -c 'A-Za-z0-9_.-' '_')"
}

show_log() { # NLINES LOG
    printf -- '---- the last lines of %s\n' "${2#"$ROOT"/}"
    tail -n "$1" "$2"
    printf -- '----\n'
}

# step NAME COMMAND...: runs quietly; its failure ends the run.
step() {
    local name=$1 log started=$SECONDS
    shift
    log=$(log_path "$name")
    if ! "$@" >"$log" 2>&1 </dev/null; then
        say "FAILED $name"
        show_log 60 "$log"
        die "cannot go on without: $name"
    fi
    [ $((SECONDS - started)) -lt 2 ] || say "done   $name ($((SECONDS - started)) s)"
}

count_pass() { NPASSED=$((NPASSED + $1)); }

count_fail() { # N NAME
    NFAILED=$((NFAILED + $1))
    FAILED_NAMES+=("$2")
}

# check NAME COMMAND...: one test, which passes if the command does.
check() {
    local name=$1 log started=$SECONDS
    shift
    log=$(log_path "$name")
    if "$@" >"$log" 2>&1 </dev/null; then
        count_pass 1
        say "passed $name ($((SECONDS - started)) s)"
    else
        count_fail 1 "$name"
        say "FAILED $name"
        show_log 60 "$log"
    fi
}

# suite NAME COUNTER COMMAND...: many tests. COUNTER LOG sets `passed` and `failed` from the output;
# a command that fails without a failed test, or runs no test, counts as one failure.
suite() {
    local name=$1 counter=$2 log status=0 started=$SECONDS passed=0 failed=0
    shift 2
    log=$(log_path "$name")
    "$@" >"$log" 2>&1 </dev/null || status=$?
    "$counter" "$log"
    if [ "$failed" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$passed" -eq 0 ]; }; then
        failed=1
    fi
    count_pass "$passed"
    if [ "$failed" -eq 0 ]; then
        say "passed $name: $passed tests ($((SECONDS - started)) s)"
    else
        count_fail "$failed" "$name"
        say "FAILED $name: $passed passed, $failed failed"
        show_log 100 "$log"
    fi
}

# shellcheck disable=SC2034  # passed and failed are the caller's
count_ctest() {
    local line total
    line=$(grep -E '[0-9]+ tests failed out of [0-9]+' "$1" | tail -1) || true
    failed=$(printf '%s' "$line" | sed -E 's/.* ([0-9]+) tests? failed out of.*/\1/')
    total=$(printf '%s' "$line" | sed -E 's/.*failed out of ([0-9]+).*/\1/')
    failed=${failed:-0}
    passed=$((${total:-0} - failed))
}

# A skipped test counts as failed: whatever it lacked should have been installed.
# shellcheck disable=SC2034
count_pytest() {
    local line word n
    line=$(grep -E '(passed|failed|error|skipped)' "$1" | grep -E ' in [0-9.]+s' | tail -1) || true
    passed=0 failed=0
    for word in passed failed error errors skipped; do
        n=$(printf '%s' "$line" | sed -nE "s/(^|.*[^0-9])([0-9]+) $word\\b.*/\\2/p")
        if [ "$word" = passed ]; then
            passed=${n:-0}
        else
            failed=$((failed + ${n:-0}))
        fi
    done
}

# For the EXIT trap: a run that ends before finish() says so, whatever the cause.
FINISHED=no
say_if_unfinished() {
    [ "$FINISHED" = yes ] || say "run: ended before all tests ran" >&2
}

# Prints the sum of all tests and returns non-zero if any failed.
finish() {
    local name
    for name in "${FAILED_NAMES[@]+"${FAILED_NAMES[@]}"}"; do
        say "failed: $name"
    done
    say "took $((SECONDS / 60)) min $((SECONDS % 60)) s"
    FINISHED=yes
    say "$NPASSED passed, $NFAILED failed"
    [ "$NFAILED" -eq 0 ] && [ "$NPASSED" -gt 0 ]
}
