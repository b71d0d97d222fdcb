/* classes.c - see classes.h. */
#include "pack/classes.h"

#include <string.h>

/* Smaller matrices are not worth a table of their own. */
enum { LINEAR_MIN_DIM = 256 };

static const char *const class_names[BINADE_NCLASSES] = {"linear", "embed", "ple", "mm", "other"};

const char *binade_class_name(binade_class c) {
    return (unsigned)c < BINADE_NCLASSES ? class_names[c] : "";
}

/* Texts within ".NAME." of encoders for other modes than text. */
static const char *const mm_marks[] = {
    "vision_tower", "audio_tower",           "vision_embedder", "embed_vision", "embed_audio",
    "vision_model", "multi_modal_projector", "mm_projector",    ".visual.",
};

/* Dotted parts of names whose matrices enter a product. */
static const char *const linear_parts[] = {
    "experts",
    "linear_attn",
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "qkv_proj",
    "out_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "gate_up_proj",
    "w1",
    "w2",
    "w3",
    "per_layer_input_gate",
    "per_layer_projection",
    "per_layer_model_projection",
};

struct text {
    const char *at;
    size_t nbytes;
};

static bool contains(struct text text, const char *mark) {
    size_t n = strlen(mark);
    for (size_t i = 0; i + n <= text.nbytes; i++) {
        if (!memcmp(text.at + i, mark, n)) return true;
    }
    return false;
}

/* `mark` within ".NAME.": its leading and trailing dot may be the ones around the name. */
static bool has_mm_mark(struct text name, const char *mark) {
    if (contains(name, mark)) return true;
    size_t n = strlen(mark);
    if (mark[0] != '.' || mark[n - 1] != '.') return false;
    bool starts = name.nbytes >= n - 1 && !memcmp(name.at, mark + 1, n - 1);
    bool ends = name.nbytes >= n - 1 && !memcmp(name.at + name.nbytes - (n - 1), mark, n - 1);
    bool whole = name.nbytes == n - 2 && !memcmp(name.at, mark + 1, n - 2);
    return starts || ends || whole;
}

static bool ends_with(struct text text, const char *end) {
    size_t n = strlen(end);
    return text.nbytes >= n && !memcmp(text.at + text.nbytes - n, end, n);
}

static bool has_part(struct text name, const char *part) {
    size_t n = strlen(part);
    const char *end = name.at + name.nbytes;
    for (const char *p = name.at;;) {
        const char *dot = memchr(p, '.', (size_t)(end - p));
        const char *stop = dot ? dot : end;
        if ((size_t)(stop - p) == n && !memcmp(p, part, n)) return true;
        if (!dot) return false;
        p = dot + 1;
    }
}

static bool is_linear(struct text name, const struct st_tensor *t) {
    if (strcmp(t->dtype, "BF16") || (t->ndim != 2 && t->ndim != 3)) return false;
    if (t->shape[t->ndim - 1] < LINEAR_MIN_DIM || t->shape[t->ndim - 2] < LINEAR_MIN_DIM)
        return false;
    bool is_weight = ends_with(name, ".weight") || (name.nbytes == 6 && ends_with(name, "weight"));
    if (!is_weight && !(t->ndim == 3 && has_part(name, "experts"))) return false;
    for (size_t i = 0; i < sizeof linear_parts / sizeof *linear_parts; i++) {
        if (has_part(name, linear_parts[i])) return true;
    }
    return false;
}

binade_class classify(const struct st_tensor *t) {
    struct text name = {t->name, t->name_nbytes};
    for (size_t i = 0; i < sizeof mm_marks / sizeof *mm_marks; i++) {
        if (has_mm_mark(name, mm_marks[i])) return BINADE_MM;
    }
    if (has_part(name, "embed_tokens_per_layer")) return BINADE_PLE;
    if (ends_with(name, "embed_tokens.weight") || ends_with(name, "lm_head.weight"))
        return BINADE_EMBED;
    return is_linear(name, t) ? BINADE_LINEAR : BINADE_OTHER;
}

binade_status classes_parse(const char *list, unsigned *classes, binade_error *err) {
    *classes = list ? 0 : DEFAULT_CLASSES;
    while (list) {
        size_t nbytes = strcspn(list, ",");
        unsigned c = 0;
        while (c < BINADE_NCLASSES &&
               (strlen(class_names[c]) != nbytes || strncmp(class_names[c], list, nbytes)))
            c++;
        if (c == BINADE_NCLASSES || (*classes & 1u << c))
            return fail(err, BINADE_E_USAGE,
                        "class \"%s\": %s, the classes are linear, embed, ple, mm and other",
                        quote(list, nbytes).text, c == BINADE_NCLASSES ? "unknown" : "named twice");
        *classes |= 1u << c;
        list = list[nbytes] ? list + nbytes + 1 : NULL;
    }
    return BINADE_OK;
}

bool is_packable(const struct st_tensor *t, unsigned classes) {
    return !strcmp(t->dtype, "BF16") && (t->ndim == 2 || t->ndim == 3) && t->end > t->begin &&
           (classes & 1u << classify(t));
}
