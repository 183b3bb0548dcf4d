/* What nats-server does to a subject, for a whole column of them.

   As `selectMappedSubject` and `TransformTokenizedSubject` of nats-server: cut the subject into
   tokens, find the rule that covers it, let cluster and draw choose one of the rule's shares, and
   put the new subject together from the share's pieces. All of that is data, made by program.py,
   which says more about each table. */

#include "column.h"

/* ---- The tables. Keep in step with program.py, filters.py and pieces.py ----------------------- */

/* Tokens that stand side by side, from `first` to the one before `end`. */
typedef struct { int32_t first, end; } run;

/* Filters that have their literal tokens at the same places, these places being runs, in a hash
   table of mask + 1 slots; without a mask it is one filter, which needs no hash. `best` is the
   first of their rules. A slot has the literal tokens, joined with dots; NO_RULE: it is free. */
typedef struct { int32_t best, first_run, end_run, first_slot; uint32_t mask; } shape;
typedef struct { uint32_t hash; int32_t rule, text, size; } slot;
#define NO_RULE INT32_MAX

/* `order` has for each count of tokens the shapes that fit, best first; `starts` says where. The
   list of `longest` is for all higher counts, too. */
typedef struct {
    const shape *shapes;
    const run *runs;
    const slot *slots;
    const int32_t *order, *starts;
    int64_t longest;
} filters;

/* The shares of a rule in one cluster; whether one is drawn, and whether chance has a part at all.
   A share is taken by draws below `below` that no earlier one took. It tells a state. Its pieces
   make the new subject, of at most fixed + copies * (size of the subject) bytes; first_piece < 0:
   there is none. It tells another state if the new subject does not pass the check. */
typedef struct { int32_t first_share, is_drawn, has_chance; } scope;
typedef struct {
    int32_t below, state, first_piece, end_piece, fixed, copies, check, failed_state;
} share;
enum check { ANY_RESULT, NO_EMPTY_TOKEN, PUBLISHABLE };

/* Literal text, and what a function makes of a token, or of those before `end`, or of those that
   `hashed` has from `token` to `end`. `number` is a count, offset or size above 0. */
typedef struct {
    int32_t function, token, end, text, size, delimiter, delimiter_size, slot;
    uint32_t number;
} piece;
enum function {
    NOTHING, TOKENS, TAIL, PARTITION, PARTITION_OF_ALL, RANDOM, LEFT, RIGHT,
    SPLIT_FROM_LEFT, SPLIT_FROM_RIGHT, SLICE_FROM_LEFT, SLICE_FROM_RIGHT, SPLIT, SPLIT_CHARACTERS,
    HASH /* as PARTITION, but the number becomes the draw and no text */
};

typedef struct {
    filters rules, takers;     /* with takers, one of these must cover the subject, too */
    int64_t has_takers;
    int64_t otherwise;         /* the number of the rule for what no other covers */
    const int64_t *keys;       /* of each rule, for its draws */
    const int32_t *scopes;     /* rule * (clusters + 1) + number of the cluster, 0 for all others */
    const scope *scope_table;
    const share *shares;
    const piece *pieces;
    const int32_t *hashed;
    const int32_t *clusters;   /* pairs: where in `text` the name is, and its size */
    int64_t cluster_count;
    const uint8_t *text;       /* all literal text */
    int64_t kept;              /* how many tokens any rule or piece looks at */
} program;

/* States of subjects that are not legal; all others come from the tables. */
enum state { NO_SUBJECT, EMPTY_TOKEN, WILDCARD_TOKEN };

/* The columns that come in, and what goes out. A bitmap has one bit a row. */
enum { SUBJECT, CLUSTER, STREAM, SEQ };
typedef struct {
    uint8_t *bytes;            /* of the new subjects */
    int64_t capacity, used;
    int64_t wanted;            /* where there is no room: so many bytes are needed for the row */
    int32_t *offsets;          /* one more than rows; the first is there */
    uint8_t *has_subject;
    int32_t *states, *draws;
    uint8_t *has_draw;
    uint32_t *starts;          /* scratch: kept + 1 */
} output;

/* One message on its way. */
typedef struct {
    text subject;
    const uint32_t *starts;    /* where its tokens start: each ends before the dot ahead of the next */
    int64_t count;             /* of its tokens */
    uint64_t entropy;          /* what the draw and random() come from */
    int64_t draw;              /* -1: there is none */
    bool is_broken;            /* an array is */
} message;

/* ---- Tokens ----------------------------------------------------------------------------------- */

enum { HAS_EMPTY = 1, HAS_WILDCARD = 2 };

static int fault_of(const uint8_t *token, int64_t size)
{
    if (size == 0) return HAS_EMPTY;
    return size == 1 && (*token == '*' || *token == '>') ? HAS_WILDCARD : 0;
}

/* Cuts a subject at its dots, up to `kept` tokens, counts all, and says what is wrong with them. */
static int cut(text subject, int64_t kept, uint32_t *starts, int64_t *count)
{
    int faults = 0;
    int64_t start = starts[0] = 0;
    for (*count = 1;; ++*count) {
        const uint8_t *from = subject.at + start;
        const uint8_t *dot = memchr(from, '.', (size_t)(subject.size - start));
        int64_t size = dot ? dot - from : subject.size - start;
        faults |= fault_of(from, size);
        start += size + 1;
        if (*count <= kept) starts[*count] = (uint32_t)start;
        if (!dot) return faults;
    }
}

static text part(text whole, int64_t start, int64_t end)
{
    return (text){whole.at + start, end - start};
}

/* The tokens from `first` to the one before `end`, with the dots between them. */
static text tokens_of(const message *m, int32_t first, int32_t end)
{
    return part(m->subject, m->starts[first], m->starts[end] - 1);
}

/* ---- Rules ------------------------------------------------------------------------------------ */

/* Whether the literal tokens of a slot stand in the message. */
static bool fits(const slot *s, const run *runs, int32_t count, const message *m, const uint8_t *at)
{
    int64_t left = s->size;
    for (int32_t i = 0; i < count; i++) {
        text tokens = tokens_of(m, runs[i].first, runs[i].end);
        if (i > 0) at++, left--; /* the dot between two runs */
        if (tokens.size > left || memcmp(tokens.at, at, (size_t)tokens.size) != 0) return false;
        at += tokens.size, left -= tokens.size;
        if (left > 0 && *at != '.') return false;
    }
    return left == 0;
}

static int32_t rule_in_shape(const filters *f, const shape *s, const message *m, const uint8_t *all)
{
    const run *runs = f->runs + s->first_run;
    int32_t count = s->end_run - s->first_run;
    uint64_t hash = 0;
    for (int32_t i = 0; s->mask && i < count; i++)
        hash = hash_text(tokens_of(m, runs[i].first, runs[i].end), hash);
    for (uint32_t place = (uint32_t)hash & s->mask;; place = (place + 1) & s->mask) {
        const slot *found = &f->slots[s->first_slot + (int64_t)place];
        if (found->rule == NO_RULE) return NO_RULE;
        if (!s->mask || found->hash == (uint32_t)(hash >> 32))
            if (fits(found, runs, count, m, all + found->text)) return found->rule;
        if (!s->mask) return NO_RULE;
    }
}

/* The first rule that covers the message, or NO_RULE. */
static int32_t first_rule(const filters *f, const message *m, const uint8_t *all)
{
    int64_t tokens = m->count < f->longest ? m->count : f->longest;
    int32_t first = NO_RULE;
    for (int32_t i = f->starts[tokens]; i < f->starts[tokens + 1]; i++) {
        const shape *s = &f->shapes[f->order[i]];
        if (s->best >= first) break;
        int32_t rule = rule_in_shape(f, s, m, all);
        if (rule < first) first = rule;
    }
    return first;
}

static int64_t rule_of(const program *p, const message *m)
{
    int32_t rule = p->has_takers ? first_rule(&p->takers, m, p->text) : NO_RULE;
    if (p->has_takers && rule == NO_RULE) return p->otherwise;
    int32_t renamer = first_rule(&p->rules, m, p->text);
    if (renamer != NO_RULE) rule = renamer;
    return rule == NO_RULE ? p->otherwise : rule;
}

/* As Python's %: never below 0. */
static int64_t modulo(uint64_t hash, int64_t count)
{
    int64_t rest = (int64_t)hash % count;
    return rest < 0 ? rest + count : rest;
}

/* As nats_transform.mappings.draw.message_entropy. */
static uint64_t entropy_of(const column *in, int64_t row, int64_t key, bool *is_broken)
{
    text stream;
    uint64_t hash = 42;
    if (text_at(&in[STREAM], row, &stream, is_broken))
        hash = hash_text(stream, hash);
    if (is_valid(&in[SEQ], row)) hash = hash_number(number_at(&in[SEQ], row), 8, hash);
    return hash_number(key, 8, hash);
}

/* ---- Functions -------------------------------------------------------------------------------- */

static uint8_t *put(uint8_t *to, text from)
{
    memcpy(to, from.at, (size_t)from.size);
    return to + from.size;
}

static uint8_t *put_number(uint8_t *to, uint64_t number)
{
    uint8_t digits[20];
    int size = 0;
    do digits[size++] = (uint8_t)('0' + number % 10); while (number /= 10);
    while (size) *to++ = digits[--size];
    return to;
}

static uint32_t fnv1a(uint32_t hash, text key)
{
    for (int64_t i = 0; i < key.size; i++) hash = (hash ^ key.at[i]) * 16777619u;
    return hash;
}

/* The first `first` bytes, and then every `step` bytes, each after a dot. */
static uint8_t *put_cut(uint8_t *to, text token, int64_t first, int64_t step)
{
    to = put(to, part(token, 0, first));
    for (int64_t start = first; start < token.size; start += step) {
        *to++ = '.';
        to = put(to, part(token, start, token.size - start < step ? token.size : start + step));
    }
    return to;
}

/* As the server does: empty parts are dropped, but two leading delimiters leave an empty token. */
static uint8_t *put_split(uint8_t *to, text token, const uint8_t *delimiter, int64_t size)
{
    uint8_t *first = to;
    for (int64_t start = 0, end; start < token.size; start = end + size) {
        for (end = start; end + size <= token.size; end++)
            if (memcmp(token.at + end, delimiter, (size_t)size) == 0) break;
        if (end + size > token.size) end = token.size;
        if (end == start) continue;
        if (to > first || start >= 2 * size) *to++ = '.';
        to = put(to, part(token, start, end));
    }
    return to;
}

/* The size of the character at the start of some bytes, in UTF-8; 1 of a byte that is in none. */
static int64_t character(const uint8_t *at, int64_t size)
{
    uint8_t lead = at[0];
    uint8_t lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80; /* of the second byte */
    uint8_t highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    int64_t length = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 1;
    if (length > size || (length > 1 && (at[1] < lowest || at[1] > highest))) return 1;
    for (int64_t i = 2; i < length; i++)
        if ((at[i] & 0xC0) != 0x80) return 1;
    return length;
}

static uint8_t *put_characters(uint8_t *to, text token)
{
    for (int64_t i = 0, end; i < token.size; i = end) {
        end = i + character(token.at + i, token.size - i);
        if (i > 0) *to++ = '.';
        to = put(to, part(token, i, end));
    }
    return to;
}

static uint8_t *put_piece(uint8_t *to, const program *p, const piece *piece, message *m)
{
    to = put(to, (text){p->text + piece->text, piece->size});
    uint32_t hash = 2166136261u;
    switch (piece->function) {
    case NOTHING: return to;
    case TOKENS: return put(to, tokens_of(m, piece->token, piece->end));
    case TAIL: return put(to, part(m->subject, m->starts[piece->token], m->subject.size));
    case PARTITION:
    case HASH:
        for (int32_t i = piece->token; i < piece->end; i++)
            hash = fnv1a(hash, tokens_of(m, p->hashed[i], p->hashed[i] + 1));
        if (piece->function == PARTITION) return put_number(to, hash % piece->number);
        m->draw = hash % piece->number;
        return to;
    case PARTITION_OF_ALL:
        return put_number(to, fnv1a(hash, m->subject) % piece->number);
    case RANDOM:
        return put_number(to, (uint64_t)modulo(hash_number(piece->slot, 8, m->entropy), piece->number));
    }
    text token = tokens_of(m, piece->token, piece->token + 1);
    int64_t size = piece->number;
    if (piece->function == SPLIT)
        return put_split(to, token, p->text + piece->delimiter, piece->delimiter_size);
    if (piece->function == SPLIT_CHARACTERS) return put_characters(to, token);
    if (size >= token.size) return put(to, token);
    switch (piece->function) {
    case LEFT: return put(to, part(token, 0, size));
    case RIGHT: return put(to, part(token, token.size - size, token.size));
    case SPLIT_FROM_LEFT: return put_cut(to, token, size, token.size);
    case SPLIT_FROM_RIGHT: return put_cut(to, token, token.size - size, token.size);
    case SLICE_FROM_LEFT: return put_cut(to, token, size, size);
    default: return put_cut(to, token, (token.size - 1) % size + 1, size); /* SLICE_FROM_RIGHT */
    }
}

static bool passes(int32_t check, const uint8_t *at, int64_t size)
{
    if (check == ANY_RESULT) return true;
    uint32_t start;
    int64_t count;
    int faults = cut((text){at, size}, 0, &start, &count);
    if (check == NO_EMPTY_TOKEN) return !(faults & HAS_EMPTY);
    for (int64_t i = 0; i < size; i++)
        if (at[i] == ' ' || (at[i] >= '\t' && at[i] <= '\r' && at[i] != '\v')) return false;
    return !faults;
}

/* ---- A batch ---------------------------------------------------------------------------------- */

/* The number of the cluster, from 1 on; 0 if the rules do not know it. */
static int64_t cluster_of(const program *p, const column *clusters, int64_t row, bool *is_broken)
{
    text name;
    if (!p->cluster_count || !text_at(clusters, row, &name, is_broken)) return 0;
    for (int64_t i = 0; i < p->cluster_count; i++)
        if (p->clusters[2 * i + 1] == name.size
            && memcmp(p->text + p->clusters[2 * i], name.at, (size_t)name.size) == 0) return i + 1;
    return 0;
}

static void set_bit(uint8_t *bits, int64_t row, bool value)
{
    if ((row & 7) == 0) bits[row >> 3] = 0;
    bits[row >> 3] |= (uint8_t)(value << (row & 7));
}

EXPORTED const char *nats_source(void) { return SOURCE_DIGEST; }

/* Maps the rows from `row` to the one before `rows`. Returns the row it stopped at, `rows` or the
   first whose result may have more bytes than are left in the output, or what is wrong. */
EXPORTED int64_t nats_map(
    const program *p, const column *in, output *out, int64_t row, int64_t rows)
{
    for (; row < rows; row++) {
        message m = {.starts = out->starts, .draw = -1};
        int32_t state = NO_SUBJECT;
        uint8_t *start = out->bytes + out->used, *end = start;
        bool has_subject = false;
        if (text_at(&in[SUBJECT], row, &m.subject, &m.is_broken)) {
            if (m.subject.size >= INT32_MAX) return SUBJECT_TOO_LONG;
            int faults = cut(m.subject, p->kept, out->starts, &m.count);
            state = faults & HAS_EMPTY ? EMPTY_TOKEN : WILDCARD_TOKEN;
            if (!faults) {
                int64_t rule = rule_of(p, &m);
                int64_t place = rule * (p->cluster_count + 1)
                    + cluster_of(p, &in[CLUSTER], row, &m.is_broken);
                const scope *scope = &p->scope_table[p->scopes[place]];
                const share *share = &p->shares[scope->first_share];
                if (scope->has_chance)
                    m.entropy = entropy_of(in, row, p->keys[rule], &m.is_broken);
                if (scope->is_drawn)
                    for (m.draw = modulo(m.entropy, 100); m.draw >= share->below;) share++;
                state = share->state;
                if (share->first_piece >= 0) {
                    out->wanted = share->fixed + (int64_t)share->copies * m.subject.size;
                    if (out->wanted > out->capacity - out->used) return row;
                    for (int32_t i = share->first_piece; i < share->end_piece; i++)
                        end = put_piece(end, p, &p->pieces[i], &m);
                    has_subject = passes(share->check, start, end - start);
                    if (!has_subject) end = start, state = share->failed_state;
                }
            }
        }
        if (m.is_broken) return BROKEN_ARRAY;
        out->used += end - start;
        if (out->used > INT32_MAX) return RESULT_TOO_LARGE;
        out->offsets[row + 1] = (int32_t)out->used;
        out->states[row] = state;
        out->draws[row] = (int32_t)m.draw;
        set_bit(out->has_subject, row, has_subject);
        set_bit(out->has_draw, row, m.draw >= 0);
    }
    return rows;
}
