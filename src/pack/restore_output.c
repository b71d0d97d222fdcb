/* restore_output.c - see restore_output.h. */
#include "pack/restore_output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

binade_status output_deliver(struct restore_output *o, size_t entry, uint64_t offset,
                             const uint8_t *data, size_t nbytes, uint8_t *other,
                             binade_error *err) {
    const struct file *against = o->target->against;
    binade_status status = BINADE_OK;
    if (o->target->out) status = file_write(o->target->out, offset, data, nbytes, err);
    if (status || !against) return status;
    if ((status = file_read(against, offset, other, nbytes, err))) return status;
    if (!memcmp(data, other, nbytes)) return BINADE_OK;
    size_t i = 0;
    while (data[i] == other[i])
        i++;
    while (offset + i >= o->plan->offsets[entry] + entry_nbytes(&o->entries[entry]))
        entry++;
    const struct entry *e = &o->entries[entry];
    return fail(err, BINADE_E_DATA,
                "%s: tensor %s: byte %" PRIu64 " of the file is 0x%02x, the original has 0x%02x",
                quote_path(against->path).text, quote(e->name, e->name_nbytes).text, offset + i,
                other[i], data[i]);
}

/* A record may tell of any number of zeros, so hashing them can take long and be cancelled. */
static binade_status hash_zeros(struct restore_output *o, uint64_t nbytes, binade_error *err) {
    static const uint8_t zeros[1 << 16];
    binade_status status = BINADE_OK;
    while (nbytes > 0 && !status) {
        size_t n = nbytes < sizeof zeros ? (size_t)nbytes : sizeof zeros;
        sha256_update(o->target->sha, zeros, n);
        status = progress_add(o->progress, n, err);
        nbytes -= n;
    }
    return status;
}

/* Hashes the recorded gaps up to `offset` of the original file. */
static binade_status hash_gaps(struct restore_output *o, uint64_t offset, binade_error *err) {
    const struct record *rec = o->plan->record;
    while (o->sha_pos < offset && rec && o->next_gap < rec->ngaps) {
        const struct gap *gap = &rec->gaps[o->next_gap++];
        uint8_t *data;
        binade_status status = gap_expand(gap, o->plan->path, &data, err);
        if (status) return status;
        if (data) {
            sha256_update(o->target->sha, data, (size_t)gap->nbytes);
            status = progress_add(o->progress, gap->nbytes, err);
        } else {
            status = hash_zeros(o, gap->nbytes, err);
        }
        free(data);
        if (status) return status;
        o->sha_pos += gap->nbytes;
    }
    return BINADE_OK;
}

binade_status output_hash(struct restore_output *o, uint64_t offset, const uint8_t *data,
                          size_t nbytes, binade_error *err) {
    if (!o->target->sha) return BINADE_OK;
    binade_status status = hash_gaps(o, offset, err);
    if (status) return status;
    if (o->sha_pos != offset)
        return fail(err, BINADE_E_DATA, "%s: its tensors are not in the recorded original's order",
                    quote_path(o->plan->shard->file.path).text);
    sha256_update(o->target->sha, data, nbytes);
    o->sha_pos += nbytes;
    return BINADE_OK;
}

binade_status output_end(struct restore_output *o, binade_error *err) {
    return o->target->sha ? hash_gaps(o, o->plan->nbytes, err) : BINADE_OK;
}

static binade_status compare_bytes(const struct restore_output *o, uint64_t offset,
                                   const void *data, size_t nbytes, binade_error *err) {
    const struct file *against = o->target->against;
    uint8_t *other = malloc(nbytes + 1);
    binade_status status =
        other ? file_read(against, offset, other, nbytes, err) : fail_memory(err);
    if (!status && memcmp(data, other, nbytes))
        status = fail(err, BINADE_E_DATA,
                      "%s: differs from the original within bytes %" PRIu64 " to %" PRIu64
                      ", outside of its tensors",
                      quote_path(against->path).text, offset, offset + nbytes);
    free(other);
    return status;
}

static binade_status compare_zeros(const struct restore_output *o, uint64_t offset, uint64_t nbytes,
                                   binade_error *err) {
    static const uint8_t zeros[4096];
    binade_status status = BINADE_OK;
    for (uint64_t done = 0; done < nbytes && !status; done += sizeof zeros) {
        uint64_t left = nbytes - done;
        status = compare_bytes(o, offset + done, zeros,
                               left < sizeof zeros ? (size_t)left : sizeof zeros, err);
    }
    return status;
}

binade_status output_header(struct restore_output *o, binade_error *err) {
    const struct restore_plan *plan = o->plan;
    uint8_t length[8];
    st_put_length(plan->header_nbytes, length);
    const struct {
        uint64_t offset;
        const void *data;
        size_t nbytes;
    } pieces[] = {{0, length, 8}, {8, plan->header, (size_t)plan->header_nbytes}};
    for (int i = 0; i < 2; i++) {
        binade_status status = BINADE_OK;
        if (o->target->out)
            status =
                file_write(o->target->out, pieces[i].offset, pieces[i].data, pieces[i].nbytes, err);
        if (!status && o->target->against)
            status = compare_bytes(o, pieces[i].offset, pieces[i].data, pieces[i].nbytes, err);
        if (!status)
            status = output_hash(o, pieces[i].offset, pieces[i].data, pieces[i].nbytes, err);
        if (!status) status = progress_add(o->progress, pieces[i].nbytes, err);
        if (status) return status;
    }
    return BINADE_OK;
}

/* Gaps of zeros need no writing: the file is given its length and holds zeros where nothing is. */
binade_status output_gaps(struct restore_output *o, binade_error *err) {
    const struct record *rec = o->plan->record;
    for (size_t g = 0; rec && g < rec->ngaps; g++) {
        const struct gap *gap = &rec->gaps[g];
        uint8_t *data;
        binade_status status = gap_expand(gap, o->plan->path, &data, err);
        if (!status && data && o->target->out)
            status = file_write(o->target->out, gap->offset, data, (size_t)gap->nbytes, err);
        if (!status && data && o->target->against)
            status = compare_bytes(o, gap->offset, data, (size_t)gap->nbytes, err);
        if (!status && !data && o->target->against)
            status = compare_zeros(o, gap->offset, gap->nbytes, err);
        /* Otherwise they count when they are hashed. */
        if (!status && !o->target->sha) status = progress_add(o->progress, gap->nbytes, err);
        free(data);
        if (status) return status;
    }
    if (o->target->out && ftruncate(o->target->out->fd, (off_t)o->plan->nbytes))
        return fail_errno(err, errno, "%s: cannot be given its length",
                          quote_path(o->target->out->path).text);
    return BINADE_OK;
}
