/*
 * What nodes of a cluster send each other, and the subjects of rooms. A message that is taken is
 * written back to the same bytes; two rooms never share a subject.
 *
 * Input: a byte; if it is odd, a message; else lines: a prefix, two names of rooms.
 */
#include "cluster/message.h"
#include "fuzz.h"

static void check_message(const uint8_t *data, size_t len)
{
    uint8_t *copy = fuzz_copy(data, len), *back;
    struct cluster_message m;

    if (cluster_message_read(&m, copy, len)) {
        FUZZ_CHECK(m.kind == CLUSTER_DATA || m.kind == CLUSTER_BEAT);
        FUZZ_CHECK(m.name_len <= CLUSTER_NAME_MAX && CLUSTER_HEAD + m.name_len + m.len == len);
        FUZZ_CHECK(memchr(m.name, 0, m.name_len) == NULL && m.stream > 0);
        back = malloc(len);
        FUZZ_CHECK(back != NULL);
        cluster_message_write(back, &m);
        FUZZ_CHECK(memcmp(back, copy, len) == 0);
        free(back);
    }
    free(copy);
}

static bool subject_valid(const char *subject)
{
    return subject[0] != 0 && subject[0] != '.' && strstr(subject, "..") == NULL &&
           strpbrk(subject, " *>\r\n\t") == NULL && subject[strlen(subject) - 1] != '.';
}

static void check_subjects(struct fuzz_input *in)
{
    char a[CLUSTER_SUBJECT_MAX], b[CLUSTER_SUBJECT_MAX], all[CLUSTER_SUBJECT_MAX];
    size_t len, first_len, second_len;
    char *prefix = fuzz_line(in, &len), *first = fuzz_line(in, &first_len);
    char *second = fuzz_line(in, &second_len);

    if (strlen(prefix) == len && cluster_prefix_valid(prefix)) {
        FUZZ_CHECK(len <= CLUSTER_PREFIX_MAX);
        len = cluster_subject(a, prefix, first, first_len, CLUSTER_HASH_DIGITS);
        FUZZ_CHECK(strlen(a) == len && subject_valid(a) && strncmp(a, prefix, strlen(prefix)) == 0);
        cluster_subject(b, prefix, second, second_len, CLUSTER_HASH_DIGITS);
        cluster_subject(all, prefix, NULL, 0, CLUSTER_HASH_DIGITS);
        FUZZ_CHECK(subject_valid(b) && subject_valid(all));
        FUZZ_CHECK(strcmp(all, a) != 0 && strcmp(all, b) != 0);
        FUZZ_CHECK((strcmp(a, b) == 0) ==
                   (first_len == second_len && memcmp(first, second, first_len) == 0));
    }
    free(second);
    free(first);
    free(prefix);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};

    if (fuzz_byte(&in) & 1)
        check_message(in.at, in.left);
    else
        check_subjects(&in);
    return 0;
}
