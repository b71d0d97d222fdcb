/* stored.c - the parts of a packed tensor as they are, for devices that decode them themselves. */
#include <inttypes.h>

#include "binade_r4.h"
#include "pack/checkpoint.h"

_Static_assert((int)BINADE_NPARTS == (int)NPARTS && (int)BINADE_PART_TAIL == (int)PART_TAIL,
               "the parts are numbered alike");

static binade_status locate(const binade_checkpoint *c, size_t i, struct packed_tensor *t,
                            binade_error *err) {
    if (i >= c->nentries)
        return fail(err, BINADE_E_USAGE, "%s: no tensor %zu, there are %zu",
                    quote_path(c->dir.path).text, i, c->nentries);
    const struct entry *e = &c->entries[i];
    if (!e->parts)
        return fail(err, BINADE_E_USAGE, "%s: tensor %s is not packed",
                    quote_path(c->dir.path).text, quote(e->name, e->name_nbytes).text);
    return checkpoint_locate(c, i, t, err);
}

binade_status binade_describe_stored(const binade_checkpoint *c, size_t i, binade_stored *out,
                                     binade_error *err) {
    struct packed_tensor t;
    binade_status status = locate(c, i, &t, err);
    if (status) return status;
    *out = (binade_stored){.format = t.format, .rows = t.rows, .cols = t.cols};
    for (int p = 0; p < NPARTS; p++)
        out->part_nbytes[p] = t.parts[p].nbytes;
    return BINADE_OK;
}

binade_status binade_read_stored(const binade_checkpoint *c, size_t i, unsigned part, void *out,
                                 size_t out_nbytes, binade_error *err) {
    struct packed_tensor t;
    binade_status status = locate(c, i, &t, err);
    if (status) return status;
    if (part >= NPARTS || out_nbytes < t.parts[part].nbytes)
        return fail(err, BINADE_E_USAGE, "tensor %s: part %u does not fit %zu bytes",
                    quote(t.name, t.name_nbytes).text, part, out_nbytes);
    return bytes_read(&t.parts[part].source, t.parts[part].offset, (size_t)t.parts[part].nbytes,
                      out, err);
}
