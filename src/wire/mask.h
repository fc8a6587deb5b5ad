/*
 * Masking of payloads (RFC 6455 section 5.3). Masking and unmasking are the same operation.
 *
 * Any length, any alignment of either pointer, any offset. The best code for the running CPU is
 * chosen at each call by a test that costs about a nanosecond.
 */
#ifndef WIRE_MASK_H
#define WIRE_MASK_H

#include <stddef.h>
#include <stdint.h>

/* Masks buf in place. offset is the position of buf[0] in the payload of its frame. */
void wire_mask(uint8_t *buf, size_t len, const uint8_t key[4], uint64_t offset);

/* Masks src into dst. The two areas are the same or do not overlap. */
void wire_mask_copy(uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[4],
                    uint64_t offset);

/* The single implementations, for tests and measurements. All compute the same bytes. */
void wire_mask_copy_portable(uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[4],
                             uint64_t offset);
#if defined(__x86_64__)
#define WIRE_MASK_X86 1
void wire_mask_copy_sse2(uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[4],
                         uint64_t offset);
/* Only where wire_cpu_has_avx2() says so. */
void wire_mask_copy_avx2(uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[4],
                         uint64_t offset);
#endif

#endif
