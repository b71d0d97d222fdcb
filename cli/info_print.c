#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format.h"
#include "info.h"
#include "text.h"

struct info_rates info_rates(uint64_t nweights, uint64_t stored_nbits, double entropy_nbits) {
    struct info_rates r;

    r.stored = (double)stored_nbits / (double)nweights;
    r.entropy = entropy_nbits / (double)nweights;
    r.limit = 8 + r.entropy;
    r.above = r.stored - r.limit;
    return r;
}

static void print_shape(const binade_tensor *t) {
    putchar('[');
    for (size_t d = 0; d < t->ndim; d++)
        printf("%s%" PRIu64, d ? ", " : "", t->shape[d]);
    putchar(']');
}

static void print_tensors(const struct info *info) {
    binade_tensor t;

    printf("%-6s %-6s %-8s %8s %8s %8s  %s\n", "class", "packed", "dtype", "stored", "bits/w",
           "entropy", "name and shape");
    for (size_t i = 0; i < info->count; i++) {
        const struct info_tensor *m = &info->tensors[i];
        binade_get(info->checkpoint, i, &t);
        printf("%-6s %-6s ", binade_class_name(t.cls), t.packed ? "yes" : "no");
        text_print(stdout, t.dtype, strlen(t.dtype));
        printf("%*s %8s ", (int)(strlen(t.dtype) < 8 ? 8 - strlen(t.dtype) : 0), "",
               format_nbytes(t.stored_nbytes).text);
        if (m->nweights)
            printf("%8.3f %8.3f  ", (double)m->stored_nbits / (double)m->nweights, m->entropy);
        else
            printf("%8s %8s  ", "-", "-");
        text_print(stdout, t.name, t.name_nbytes);
        putchar(' ');
        print_shape(&t);
        putchar('\n');
    }
    putchar('\n');
}

static void print_class(const char *name, const struct info_class *c) {
    printf("%-6s %8s %17s %8s ", name, format_count(c->ntensors).text,
           format_count(c->nweights).text, format_nbytes(c->stored_nbytes).text);
    if (c->nweights) {
        struct info_rates r = info_rates(c->nweights, c->stored_nbits, c->entropy_nbits);
        printf("%8.3f %8.3f %8.3f %8.3f\n", r.stored, r.entropy, r.limit, r.above);
    } else {
        printf("%8s %8s %8s %8s\n", "-", "-", "-", "-");
    }
}

void info_print(const struct info *info, bool verbose) {
    const binade_checkpoint *c = info->checkpoint;
    const struct info_class *total = &info->total;
    int format = binade_format(c);

    fputs("path    ", stdout);
    text_print(stdout, binade_path(c), strlen(binade_path(c)));
    if (format)
        printf("\nholds   a pack of format %d, %s\n", format,
               binade_has_records(c) ? "with records of the original files"
                                     : "without records: tensors can be restored, not files");
    else
        printf("\nholds   a checkpoint that is not packed\n");
    printf("tensors %s, %s of them packed\n", format_count(total->ntensors).text,
           format_count(total->npacked).text);
    printf("bytes   of tensors: %s stored, %s originally (%.1f %%)\n\n",
           format_nbytes(total->stored_nbytes).text, format_nbytes(total->nbytes).text,
           100 * ratio((double)total->stored_nbytes, (double)total->nbytes));
    if (verbose) print_tensors(info);

    printf("%-6s %8s %17s %8s %8s %8s %8s %8s\n", "class", "tensors", "BF16 weights", "stored",
           "bits/w", "entropy", "limit", "above");
    for (int k = 0; k < BINADE_NCLASSES; k++)
        if (info->classes[k].ntensors)
            print_class(binade_class_name((binade_class)k), &info->classes[k]);
    print_class("total", total);
    printf("\nbits/w  stored bits of a BF16 weight\n"
           "entropy of the exponents of a tensor, bits; over tensors: the mean by weights\n"
           "limit   8 + entropy: sign, mantissa and an ideal code for the exponent\n");
    printf("\nmemory at run time (R4): %s%s\n", format_nbytes(total->runtime_nbytes).text,
           format ? "" : ", if linear and embed weights are packed");
}

/* The members that tensors and classes share; null where there are no BF16 weights. */
static void put_rates(struct json_out *j, uint64_t nweights, uint64_t stored_nbits,
                      double entropy_nbits) {
    if (nweights) {
        struct info_rates r = info_rates(nweights, stored_nbits, entropy_nbits);
        json_double(j, "bits_per_weight", r.stored);
        json_double(j, "entropy", r.entropy);
        json_double(j, "limit", r.limit);
        json_double(j, "above_limit", r.above);
    } else {
        json_null(j, "bits_per_weight");
        json_null(j, "entropy");
        json_null(j, "limit");
        json_null(j, "above_limit");
    }
}

static void put_class(struct json_out *j, const struct info_class *c) {
    json_u64(j, "tensors", c->ntensors);
    json_u64(j, "tensors_packed", c->npacked);
    json_u64(j, "original_bytes", c->nbytes);
    json_u64(j, "stored_bytes", c->stored_nbytes);
    json_u64(j, "runtime_bytes", c->runtime_nbytes);
    json_u64(j, "weights", c->nweights);
    put_rates(j, c->nweights, c->stored_nbits, c->entropy_nbits);
}

static void put_tensor(struct json_out *j, const binade_tensor *t, const struct info_tensor *m) {
    json_begin_object(j, NULL);
    json_text(j, "name", t->name, t->name_nbytes);
    json_string(j, "class", binade_class_name(t->cls));
    json_string(j, "dtype", t->dtype);
    json_begin_array(j, "shape");
    for (size_t d = 0; d < t->ndim; d++)
        json_u64(j, NULL, t->shape[d]);
    json_end_array(j);
    json_string(j, "file", t->file);
    json_bool(j, "packed", t->packed != 0);
    json_u64(j, "original_bytes", t->nbytes);
    json_u64(j, "stored_bytes", t->stored_nbytes);
    json_u64(j, "runtime_bytes", m->runtime_nbytes);
    json_u64(j, "weights", m->nweights);
    put_rates(j, m->nweights, m->stored_nbits, m->entropy * (double)m->nweights);
    json_end_object(j);
}

void info_print_json(const struct info *info, const struct console *console) {
    const binade_checkpoint *c = info->checkpoint;
    struct json_out j;
    binade_tensor t;

    console_begin_json(&j, console->options, binade_path(c));
    json_u64(&j, "format", (uint64_t)binade_format(c));
    json_bool(&j, "records", binade_has_records(c) != 0);
    json_begin_object(&j, "total");
    put_class(&j, &info->total);
    json_end_object(&j);
    json_begin_object(&j, "classes");
    for (int k = 0; k < BINADE_NCLASSES; k++) {
        json_begin_object(&j, binade_class_name((binade_class)k));
        put_class(&j, &info->classes[k]);
        json_end_object(&j);
    }
    json_end_object(&j);
    json_begin_array(&j, "tensors");
    for (size_t i = 0; i < info->count; i++) {
        binade_get(c, i, &t);
        put_tensor(&j, &t, &info->tensors[i]);
    }
    json_end_array(&j);
    console_end_json(&j, console);
}
