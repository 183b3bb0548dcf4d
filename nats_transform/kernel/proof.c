/* A second opinion on a whole column of outcomes, by another way than transform.c.

   The rules are a trie, as nats-server keeps its subscriptions, down which a subject goes token by
   token. A new subject isn't put together, but read beside the destination that should have made
   it. Only the columns and the hash (column.h) are those of transform.c. proof.py makes the tables
   and says more about each. */

#include "column.h"

/* ---- The tables. Keep in step with proof.py --------------------------------------------------- */

/* What tokens so far may be followed by: the edges for some texts, in ascending order, or any token,
   which lead to other nodes; and the rule that ends here, or takes any tail from here on. */
typedef struct { int32_t first_edge, end_edge, any, rule, open_rule; } node;
typedef struct { int32_t text, size, node; } edge;
enum { NO_NODE = -1 };
#define UNMATCHED INT32_MAX /* the number of no rule, above those of all rules */

/* The ends of a rule in a cluster, whether one is drawn, and whether chance has a part at all. An
   end is taken by draws below `below` that took no earlier one. Without parts it has no subject. */
typedef struct { int32_t first_end, is_drawn, has_chance; } scope;
typedef struct { int32_t below, first_part, end_part; } end;

/* A token of a destination. `number` is a count, offset or size; the tokens that are hashed are from
   `token` to `end` in `hashed`, and `slot` tells random numbers apart. */
typedef struct { int32_t kind, token, end, text, size, slot; uint32_t number; } part;
enum kind {
    LITERAL, TOKEN, TAIL, PARTITION, RANDOM, LEFT, RIGHT, SPLIT_FROM_LEFT, SPLIT_FROM_RIGHT,
    SLICE_FROM_LEFT, SLICE_FROM_RIGHT, SPLIT, CHARACTERS
};

typedef struct {
    const node *nodes;
    const edge *edges;
    const scope *scopes;       /* rule * (clusters + 1) + number of the cluster, 0 for all others */
    const int64_t *keys;       /* of each rule, for its draws */
    const end *ends;
    const part *parts;
    const int32_t *hashed;
    const int32_t *clusters;   /* pairs: where in `text` the name is, and its size */
    const uint8_t *text;
    int64_t cluster_count, node_count;
    int64_t kept;              /* how many tokens any part looks at */
    int64_t uncut, uncut_size; /* the text of rule 0 that is never cut into tokens; none below 0 */
} rules;

enum { SUBJECT, CLUSTER, STREAM, SEQ, MAPPED };
enum { NO_RULE_END, NO_SUBJECT_END, EMPTY_TOKEN_END, WILDCARD_END }; /* the first ends */
enum { IS_SAME = 1, IS_ILLEGAL = 2 };
typedef struct {
    int32_t *ends, *draws;     /* of the message: where in `ends`, and its draw, -1 without one */
    uint8_t *marks;            /* whether its new subject is the right one, and is not legal */
    uint32_t *hashes;          /* of the key of its first partition */
    uint32_t *starts;          /* scratch: kept + 1 */
    int32_t *active;           /* scratch: 2 * node_count */
} opinion;

typedef struct {
    text subject;
    const uint32_t *starts;
    int64_t rule;
    uint64_t entropy;
    bool is_cut;
} message;

/* A new subject that is read; it's the same as long as it is what a destination makes. */
typedef struct { const uint8_t *at, *stop; bool is_same, has_empty; } reader;

/* ---- Rules ------------------------------------------------------------------------------------ */

static int32_t follow(const rules *p, const node *from, text token)
{
    for (int32_t low = from->first_edge, high = from->end_edge; low < high;) {
        int32_t middle = low + (high - low) / 2;
        const edge *e = &p->edges[middle];
        int64_t shorter = token.size < e->size ? token.size : e->size;
        int order = memcmp(token.at, p->text + e->text, (size_t)shorter);
        if (order == 0 && token.size == e->size) return e->node;
        if (order < 0 || (order == 0 && token.size < e->size)) high = middle;
        else low = middle + 1;
    }
    return NO_NODE;
}

static int32_t lower(int32_t a, int32_t b) { return a < b ? a : b; }

/* Cuts a text at its dots and says what is wrong with it as a literal subject. The first rule that
   covers it is found on the way, unless `rule` is NULL. */
static int look(const rules *p, text subject, const opinion *out, int64_t *rule)
{
    bool has_empty = false, has_wildcard = false;
    int32_t first = UNMATCHED, *now = out->active, *then = now + p->node_count;
    int64_t count = rule ? 1 : 0, number = 0;
    if (rule) now[0] = 0;
    for (int64_t start = 0, stop;; start = stop + 1) {
        const uint8_t *dot = memchr(subject.at + start, '.', (size_t)(subject.size - start));
        stop = dot ? dot - subject.at : subject.size;
        text token = {subject.at + start, stop - start};
        has_empty |= token.size == 0;
        has_wildcard |= token.size == 1 && (*token.at == '*' || *token.at == '>');
        if (rule && number < p->kept) out->starts[++number] = (uint32_t)(stop + 1);
        int64_t next = 0;
        for (int64_t i = 0; i < count; i++) {
            const node *n = &p->nodes[now[i]];
            int32_t found = follow(p, n, token);
            first = lower(first, n->open_rule);
            if (found != NO_NODE) then[next++] = found;
            if (n->any != NO_NODE) then[next++] = n->any;
        }
        int32_t *free = now;
        now = then, then = free, count = next;
        if (!dot) break;
    }
    for (int64_t i = 0; i < count; i++) first = lower(first, p->nodes[now[i]].rule);
    if (rule) *rule = first;
    return has_empty ? EMPTY_TOKEN_END : has_wildcard ? WILDCARD_END : NO_RULE_END;
}

/* The number of the cluster, from 1 on; 0 if no rule names it. */
static int64_t cluster_at(const rules *p, const column *clusters, int64_t row, bool *is_broken)
{
    text name;
    if (!p->cluster_count || !text_at(clusters, row, &name, is_broken)) return 0;
    for (int64_t i = p->cluster_count; i > 0; i--)
        if (p->clusters[2 * i - 1] == name.size
            && !memcmp(p->text + p->clusters[2 * i - 2], name.at, (size_t)name.size)) return i;
    return 0;
}

/* As Python's %: never below 0. */
static int64_t rest_of(uint64_t hash, uint32_t count)
{
    int64_t rest = count ? (int64_t)hash % (int64_t)count : 0;
    return rest < 0 ? rest + count : rest;
}

/* ---- Destinations ----------------------------------------------------------------------------- */

static void expect(reader *r, text wanted)
{
    r->is_same = r->is_same && r->stop - r->at >= wanted.size
        && memcmp(r->at, wanted.at, (size_t)wanted.size) == 0;
    if (r->is_same) r->at += wanted.size;
}

static void expect_dot(reader *r) { expect(r, (text){(const uint8_t *)".", 1}); }

static void expect_number(reader *r, uint32_t number)
{
    uint8_t digits[10];
    int64_t at = 10;
    do digits[--at] = (uint8_t)('0' + number % 10); while (number /= 10);
    expect(r, (text){digits + at, 10 - at});
}

static text between(text whole, int64_t start, int64_t stop)
{
    return (text){whole.at + start, (stop < whole.size ? stop : whole.size) - start};
}

static text token_at(const message *m, int32_t place)
{
    return between(m->subject, m->starts[place], (int64_t)m->starts[place + 1] - 1);
}

/* The size of the first character in UTF-8; 1 of a byte that begins none. */
static int64_t character_size(text t)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t lead = t.at[0];
    int64_t size = lead < 0xC0 || lead >= 0xF8 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t point = lead & (0x7Fu >> size);
    if (size == 1 || size > t.size) return 1;
    for (int64_t i = 1; i < size; i++) {
        if ((t.at[i] & 0xC0) != 0x80) return 1;
        point = point << 6 | (t.at[i] & 0x3F);
    }
    return point < lowest[size] || point > 0x10FFFF || point >> 11 == 0x1B ? 1 : size;
}

/* Parts of a token between delimiters; those that are empty make nothing, or an empty token. */
static void expect_split(reader *r, text token, text delimiter)
{
    bool is_first = true;
    int64_t number = 0, start = 0;
    for (bool is_last = false; !is_last; number++) {
        int64_t stop = start;
        while (stop + delimiter.size <= token.size
               && memcmp(token.at + stop, delimiter.at, (size_t)delimiter.size) != 0) stop++;
        is_last = stop + delimiter.size > token.size;
        if (is_last) stop = token.size;
        if (stop > start) {
            if (is_first && number >= 2) r->has_empty = true;
            if (!is_first || number >= 2) expect_dot(r);
            expect(r, between(token, start, stop));
            is_first = false;
        }
        start = stop + delimiter.size;
    }
    if (is_first) r->has_empty = true;
}

static uint32_t fnv1a(uint32_t hash, text key)
{
    for (int64_t i = 0; i < key.size; i++) hash = (hash ^ key.at[i]) * 16777619u;
    return hash;
}

/* Without tokens the key is the whole subject, of which nothing is left if it isn't cut. */
static uint32_t hash_key(const rules *p, const part *d, const message *m)
{
    uint32_t hash = 2166136261u;
    if (d->token == d->end && m->is_cut) return fnv1a(hash, m->subject);
    for (int32_t i = d->token; i < d->end; i++) hash = fnv1a(hash, token_at(m, p->hashed[i]));
    return hash;
}

static void expect_part(reader *r, const rules *p, const part *d, const message *m, uint32_t hash)
{
    int64_t size = d->number;
    switch (d->kind) {
    case LITERAL: expect(r, (text){p->text + d->text, d->size}); return;
    case TAIL: expect(r, between(m->subject, m->starts[d->token], m->subject.size)); return;
    case PARTITION: expect_number(r, d->number ? hash % d->number : 0); return;
    case RANDOM:
        expect_number(r, (uint32_t)rest_of(hash_number(d->slot, 8, m->entropy), d->number));
        return;
    }
    text token = token_at(m, d->token);
    int64_t first = size, step = token.size; /* where the token is cut first, and how often then */
    switch (d->kind) {
    case SPLIT: expect_split(r, token, (text){p->text + d->text, d->size}); return;
    case CHARACTERS:
        for (int64_t at = 0, next; at < token.size; at = next) {
            next = at + character_size(between(token, at, token.size));
            if (at) expect_dot(r);
            expect(r, between(token, at, next));
        }
        return;
    case LEFT: expect(r, between(token, 0, size)); return;
    case RIGHT: expect(r, between(token, size < token.size ? token.size - size : 0, token.size)); return;
    case TOKEN: expect(r, token); return;
    case SPLIT_FROM_RIGHT: first = token.size - size; break;
    case SLICE_FROM_LEFT: step = size; break;
    case SLICE_FROM_RIGHT: first = token.size % size ? token.size % size : size, step = size; break;
    }
    if (size >= token.size) first = token.size;
    for (int64_t at = 0, next = first; at < token.size; at = next, next += step) {
        if (at) expect_dot(r);
        expect(r, between(token, at, next));
    }
}

/* ---- A batch ---------------------------------------------------------------------------------- */

EXPORTED int64_t nats_prove(const rules *p, const column *in, opinion *out, int64_t rows)
{
    out->starts[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        message m = {.starts = out->starts, .is_cut = true};
        text mapped;
        bool is_broken = false;
        bool has_subject = text_at(&in[SUBJECT], row, &m.subject, &is_broken);
        bool has_mapped = text_at(&in[MAPPED], row, &mapped, &is_broken);
        int32_t found = NO_SUBJECT_END, draw = -1;
        reader r = {.is_same = !has_mapped};
        uint32_t hash = 0;
        if (is_broken) return BROKEN_ARRAY;
        if (has_mapped) r.at = mapped.at, r.stop = mapped.at + mapped.size;
        if (has_subject && m.subject.size >= INT32_MAX) return SUBJECT_TOO_LONG;
        if (has_subject) found = look(p, m.subject, out, &m.rule);
        if (found == NO_RULE_END && m.rule == UNMATCHED) {
            r.is_same = has_mapped;
            expect(&r, m.subject);
        } else if (found == NO_RULE_END) {
            int64_t cluster = cluster_at(p, &in[CLUSTER], row, &is_broken);
            const scope *s = &p->scopes[m.rule * (p->cluster_count + 1) + cluster];
            if (s->has_chance) {
                text stream;
                m.entropy = 42;
                if (text_at(&in[STREAM], row, &stream, &is_broken))
                    m.entropy = hash_text(stream, m.entropy);
                if (is_valid(&in[SEQ], row))
                    m.entropy = hash_number(number_at(&in[SEQ], row), 8, m.entropy);
                m.entropy = hash_number(p->keys[m.rule], 8, m.entropy);
            }
            if (is_broken) return BROKEN_ARRAY;
            found = s->first_end;
            if (s->is_drawn)
                for (draw = (int32_t)rest_of(m.entropy, 100); draw >= p->ends[found].below;) found++;
            m.is_cut = m.rule > 0 || m.subject.size != p->uncut_size
                || memcmp(m.subject.at, p->text + p->uncut, (size_t)m.subject.size) != 0;
            const end *e = &p->ends[found];
            bool has_hash = false;
            if (e->first_part < e->end_part) r.is_same = has_mapped;
            for (int32_t i = e->first_part; i < e->end_part; i++) {
                const part *d = &p->parts[i];
                uint32_t key = d->kind == PARTITION ? hash_key(p, d, &m) : 0;
                if (d->kind == PARTITION && !has_hash) hash = key, has_hash = true;
                if (i > e->first_part) expect_dot(&r);
                expect_part(&r, p, d, &m, key);
            }
            if (r.has_empty) r = (reader){.is_same = !has_mapped}, found++;
        }
        bool is_same = r.is_same && r.at == r.stop;
        out->ends[row] = found;
        out->draws[row] = draw;
        out->hashes[row] = hash;
        out->marks[row] = (uint8_t)(is_same ? IS_SAME : 0);
        bool is_known = is_same && found == NO_RULE_END; /* it's the subject, which is legal */
        if (has_mapped && !is_known && look(p, mapped, out, NULL) != NO_RULE_END)
            out->marks[row] |= IS_ILLEGAL;
    }
    return 0;
}
